#include "common/buf.h"

#include "common/utf8.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void sl_buf_release(struct sl_buf *b) {
    free(b->ptr);
    *b = (struct sl_buf){0};
}

void sl_buf_clear(struct sl_buf *b) {
    b->len = 0;
    b->failed = false;
}

bool sl_buf_reserve(struct sl_buf *b, size_t extra) {
    if (b->failed)
        return false;
    if (b->cap - b->len >= extra)
        return true;
    size_t cap = b->cap ? b->cap : 256;
    while (cap - b->len < extra) {
        if (cap > SIZE_MAX / 2) {
            b->failed = true;
            return false;
        }
        cap *= 2;
    }
    char *p = realloc(b->ptr, cap);
    if (!p) {
        b->failed = true;
        return false;
    }
    b->ptr = p;
    b->cap = cap;
    return true;
}

void sl_buf_put(struct sl_buf *b, const char *ptr, size_t len) {
    if (len == 0 || !sl_buf_reserve(b, len))
        return;
    memcpy(b->ptr + b->len, ptr, len);
    b->len += len;
}

void sl_buf_puts(struct sl_buf *b, const char *text) {
    sl_buf_put(b, text, strlen(text));
}

void sl_buf_printf(struct sl_buf *b, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    va_list again;
    va_copy(again, ap);
    if (sl_buf_reserve(b, 128)) {
        int n = vsnprintf(b->ptr + b->len, b->cap - b->len, fmt, ap);
        if (n < 0) {
            b->failed = true;
        } else if ((size_t)n < b->cap - b->len) {
            b->len += (size_t)n;
        } else if (sl_buf_reserve(b, (size_t)n + 1)) {
            vsnprintf(b->ptr + b->len, b->cap - b->len, fmt, again);
            b->len += (size_t)n;
        }
    }
    va_end(again);
    va_end(ap);
}

/* Bytes to skip at an invalid position: the longest start of a valid character, at least one. */
static size_t bad_length(const char *ptr, size_t len) {
    for (size_t n = len < 3 ? len : 3; n > 1; n--) {
        /* ptr[0..n) starts a character if some number of continuation bytes completes it. */
        char probe[4] = {(char)0x80, (char)0x80, (char)0x80, (char)0x80};
        memcpy(probe, ptr, n);
        for (size_t total = n + 1; total <= 4; total++)
            if (sl_utf8_len((const unsigned char *)probe, total) == total)
                return n;
    }
    return 1;
}

void sl_buf_json(struct sl_buf *b, const char *ptr, size_t len) {
    static const char hex[] = "0123456789abcdef";
    if (!sl_buf_reserve(b, len + 2))
        return;
    sl_buf_put(b, "\"", 1);
    size_t start = 0, i = 0;
    while (i < len) {
        unsigned char c = (unsigned char)ptr[i];
        if (c >= 0x20 && c < 0x80 && c != '"' && c != '\\') {
            i++;
            continue;
        }
        if (c >= 0x80) {
            uint32_t n = sl_utf8_len((const unsigned char *)ptr + i, len - i);
            if (n) {
                i += n;
                continue;
            }
            sl_buf_put(b, ptr + start, i - start);
            sl_buf_puts(b, "\xef\xbf\xbd");
            i += bad_length(ptr + i, len - i);
            start = i;
            continue;
        }
        sl_buf_put(b, ptr + start, i - start);
        switch (c) {
        case '"':
            sl_buf_puts(b, "\\\"");
            break;
        case '\\':
            sl_buf_puts(b, "\\\\");
            break;
        case '\n':
            sl_buf_puts(b, "\\n");
            break;
        case '\r':
            sl_buf_puts(b, "\\r");
            break;
        case '\t':
            sl_buf_puts(b, "\\t");
            break;
        case '\b':
            sl_buf_puts(b, "\\b");
            break;
        case '\f':
            sl_buf_puts(b, "\\f");
            break;
        default: {
            char esc[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
            sl_buf_put(b, esc, sizeof esc);
        }
        }
        start = ++i;
    }
    sl_buf_put(b, ptr + start, len - start);
    sl_buf_put(b, "\"", 1);
}

void sl_buf_json_text(struct sl_buf *b, const char *text) {
    sl_buf_json(b, text, strlen(text));
}

void sl_buf_json_number(struct sl_buf *b, double v) {
    if (!isfinite(v))
        sl_buf_puts(b, "null");
    else
        sl_buf_printf(b, "%.9g", v);
}
