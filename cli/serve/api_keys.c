#include "cli/serve/api_keys.h"

#include "cli/options/args.h"
#include "common/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_KEY_BYTES 510u

static bool is_white(char c) {
    return c && strchr(" \t\r\n\v\f", c);
}

/* White space around a key: clients' headers cannot carry it. *out_len = 0: there is nothing else.
 */
static const char *trim(const char *s, size_t n, size_t *out_len) {
    while (n && is_white(*s))
        s++, n--;
    while (n && is_white(s[n - 1]))
        n--;
    *out_len = n;
    return s;
}

/* What is wrong with a key, NULL = nothing. Never shows any of it. */
static const char *fault(const char *key, size_t n) {
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)key[i];
        if (is_white((char)c))
            return "has white space in the middle, which no client can send";
        if (c < ' ' || c == 0x7f)
            return "holds a control character, which no client can send";
        if (c >= 0x80)
            return "holds a character that is not ASCII, which clients send in different ways";
    }
    return n ? NULL : "is empty";
}

int sl_api_keys_take(struct sl_api_keys *k, const char *word) {
    size_t given = strlen(word), n;
    const char *key = trim(word, given, &n), *why = fault(key, n);
    if (!why && n > MAX_KEY_BYTES)
        why = "is too long";
    if (why)
        return sl_usage_error("serve", "--api-key %s", why);
    if (n < given)
        sl_warn("--api-key: the white space around the key is not part of it");
    if (!(k->key[k->n] = strndup(key, n))) {
        fprintf(stderr, "sluice serve: --api-key: %s\n", strerror(ENOMEM));
        return 1;
    }
    k->n++;
    memset((char *)(uintptr_t)word, '*', given);
    return 0;
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

static bool take_line(struct sl_api_keys *k, const char *path, unsigned number, const char *line,
                      size_t len) {
    size_t n;
    /* The end of the line, in DOS' form too, is none of what a warning is about. */
    len -= len && line[len - 1] == '\n';
    len -= len && line[len - 1] == '\r';
    const char *key = trim(line, len, &n), *why = fault(key, n);
    if (!n || key[0] == '#')
        return true;
    if (why)
        return wrong(path, "the key in line %u %s", number, why);
    if (n < len)
        sl_warn("--api-key-file %s: the white space around the key in line %u is not part of it",
                path, number);
    if (k->n == SL_MAX_API_KEYS)
        return wrong(path, "holds more keys than can be kept: at most %u", SL_MAX_API_KEYS);
    if (!(k->key[k->n] = strndup(key, n)))
        return wrong(path, "%s", strerror(ENOMEM));
    k->n++;
    return true;
}

static bool read_lines(struct sl_api_keys *k, FILE *f, const char *path) {
    char line[MAX_KEY_BYTES + 2];
    size_t n = 0;
    unsigned number = 1;
    bool ok = true;
    for (int c = 0; ok && c != EOF;) {
        c = getc(f); /* by the byte: a NUL must not end a line */
        if (c != EOF && n == sizeof line)
            return wrong(path, "holds a line of more than %u bytes", MAX_KEY_BYTES);
        if (c != EOF)
            line[n++] = (char)c;
        if (number == 1 && n == 3 && memcmp(line, "\xef\xbb\xbf", 3) == 0)
            n = 0; /* the mark that some editors put in front of UTF-8 */
        if (c == '\n' || c == EOF) {
            ok = take_line(k, path, number++, line, n);
            n = 0;
        }
    }
    memset(line, 0, sizeof line);
    return ok && (!ferror(f) || wrong(path, "cannot be read: %s", strerror(errno)));
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
