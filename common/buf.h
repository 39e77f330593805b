/* A growing byte buffer with JSON writing, for bodies and events.
 *
 * Allocation failure is sticky: later writes do nothing and `failed` stays set, so a writer checks
 * once, at the end. One thread at a time. */
#ifndef SL_COMMON_BUF_H
#define SL_COMMON_BUF_H

#include "common/status.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

/* Zero-initialise. */
struct sl_buf {
    char *ptr;
    size_t len, cap;
    bool failed;
};

void sl_buf_release(struct sl_buf *b);
/* Empties the buffer and keeps its memory. */
void sl_buf_clear(struct sl_buf *b);
/* Makes room for extra more bytes. False, with failed set, if there is no memory. */
bool sl_buf_reserve(struct sl_buf *b, size_t extra);

void sl_buf_put(struct sl_buf *b, const char *ptr, size_t len);
void sl_buf_puts(struct sl_buf *b, const char *text);
void sl_buf_printf(struct sl_buf *b, const char *fmt, ...) SL_PRINTF(2, 3);

/* A JSON string with its quotes. Any bytes: each invalid UTF-8 sequence becomes U+FFFD.
 * Source: RFC 8259 section 7; Unicode 15 section 3.9, maximal subparts. */
void sl_buf_json(struct sl_buf *b, const char *ptr, size_t len);
void sl_buf_json_text(struct sl_buf *b, const char *text);
/* A JSON number with nine significant digits, enough to read a float back exactly; null for NaN and
 * infinities, which JSON does not have. */
void sl_buf_json_number(struct sl_buf *b, double v);

#endif
