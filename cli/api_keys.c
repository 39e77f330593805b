#include "cli/api_keys.h"

#include "common/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool sl_api_keys_take(struct sl_api_keys *k, const char *key) {
    if (!(k->key[k->n] = strdup(key))) {
        fprintf(stderr, "sluice serve: --api-key: %s\n", strerror(ENOMEM));
        return false;
    }
    k->n++;
    memset((char *)(uintptr_t)key, '*', strlen(key));
    return true;
}

static SL_PRINTF(2, 3) bool wrong(const char *path, const char *fmt, ...) {
    fprintf(stderr, "sluice serve: --api-key-file %s: ", path);
    va_list ap;
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    return false;
}

static bool read_lines(struct sl_api_keys *k, FILE *f, const char *path) {
    char line[512];
    while (fgets(line, sizeof line, f)) {
        if (strlen(line) == sizeof line - 1 && line[sizeof line - 2] != '\n')
            return wrong(path, "holds a line of more than %zu bytes",
                         sizeof line - 2); /* its halves would be two keys */
        line[strcspn(line, "\r\n")] = '\0';
        if (!line[0] || line[0] == '#')
            continue;
        if (k->n == SL_MAX_API_KEYS)
            return wrong(path, "holds more keys than can be kept: at most %u", SL_MAX_API_KEYS);
        if (!(k->key[k->n] = strdup(line)))
            return wrong(path, "%s", strerror(ENOMEM));
        k->n++;
    }
    return !ferror(f) || wrong(path, "cannot be read: %s", strerror(errno));
}

bool sl_api_keys_read(struct sl_api_keys *k, const char *path) {
    uint32_t before = k->n;
    FILE *f = fopen(path, "r");
    if (!f)
        return wrong(path, "cannot be read: %s", strerror(errno));
    bool ok = read_lines(k, f, path);
    fclose(f);
    return ok && (k->n > before || wrong(path, "holds no key"));
}

void sl_api_keys_release(struct sl_api_keys *k) {
    while (k->n)
        free(k->key[--k->n]);
}
