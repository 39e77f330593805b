#include "common/log.h"

#include "common/terminal.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>

static enum sl_log_level max_level = SL_LOG_INFO;

void sl_log_set_level(enum sl_log_level level) {
    max_level = level;
}

bool sl_log_enabled(enum sl_log_level level) {
    return level <= max_level;
}

void sl_log(enum sl_log_level level, const char *fmt, ...) {
    static const char *const names[] = {"error", "warn ", "info ", "debug"};
    if (!sl_log_enabled(level))
        return;
    struct timespec ts;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &ts);
    localtime_r(&ts.tv_sec, &tm);

    /* One buffer and one write, so that lines of different threads do not mix. */
    char line[1024];
    const char *begin = "", *end = "";
    if (level <= SL_LOG_WARN) {
        begin = sl_style_begin(stderr, level == SL_LOG_ERROR ? SL_STYLE_RED : SL_STYLE_YELLOW);
        end = sl_style_end(stderr);
    }
    int n = snprintf(line, sizeof line, "%02d:%02d:%02d.%03d %s%s%s ", tm.tm_hour, tm.tm_min,
                     tm.tm_sec, (int)(ts.tv_nsec / 1000000), begin, names[level], end);
    va_list ap;
    va_start(ap, fmt);
    int m = vsnprintf(line + n, sizeof line - (size_t)n - 1, fmt, ap);
    va_end(ap);
    if (m < 0)
        return;
    size_t len = (size_t)n + (size_t)m;
    if (len > sizeof line - 2)
        len = sizeof line - 2;
    line[len++] = '\n';
    fwrite(line, 1, len, stderr);
}
