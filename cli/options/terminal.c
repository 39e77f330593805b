#include "cli/options/terminal.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool sl_parse_bytes(const char *text, uint64_t *out_bytes) {
    char *end;
    errno = 0;
    double v = strtod(text, &end);
    if (end == text || errno || !(v >= 0) || !isfinite(v))
        return false;
    static const char units[] = "KMGT";
    if (*end) {
        const char *u = strchr(units, toupper((unsigned char)*end));
        if (u && *u) {
            v = ldexp(v, 10 * (int)(u - units + 1));
            end++;
            if (*end == 'i')
                end++;
        }
        if (*end == 'B')
            end++;
        if (*end)
            return false;
    }
    if (v >= 0x1p63)
        return false;
    *out_bytes = (uint64_t)v;
    return true;
}

const char *sl_format_bytes(uint64_t bytes, char *buf) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double v = (double)bytes;
    uint32_t u = 0;
    while (v >= 1024 && u < 4) {
        v /= 1024;
        u++;
    }
    snprintf(buf, 16, u ? "%.2f %s" : "%.0f %s", v, units[u]);
    return buf;
}

int sl_usage_error(const char *command, const char *fmt, ...) {
    const char *space = command ? " " : "", *name = command ? command : "";
    fprintf(stderr, "sluice%s%s: ", space, name);
    va_list ap;
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fprintf(stderr, "\nTry 'sluice%s%s --help'.\n", space, name);
    return 2;
}

void sl_show_progress(const char *fmt, ...) {
    if (!isatty(STDERR_FILENO))
        return;
    fputs("\r\033[K", stderr);
    va_list ap;
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fflush(stderr);
}
