/* A call's arguments as Python writes them, name(key='text', n=1, l=[True, None]), and the like,
 * made into JSON as they arrive.
 *
 * Dialects differ in the byte between key and value, the closing byte, and the quotes around
 * strings. JSON is read in all of them. One thread at a time; no memory of its own. */
#ifndef SL_SERVER_LITERAL_SCAN_H
#define SL_SERVER_LITERAL_SCAN_H

#include "common/buf.h"
#include "server/answer/json_scan.h"

#define SL_LITERAL_DEPTH 64u
#define SL_LITERAL_WORD_BYTES                                                                      \
    256u /* a number, a word, a key without quotes; more is no literal                             \
          */

struct sl_literal_dialect {
    char pair, close;  /* of the call's own keys and at its end */
    const char *quote; /* around strings, which then have no escapes; NULL: ' and " as in Python */
};

/* Zero-initialise. Begins behind the opening byte of the arguments. */
struct sl_literal_scan {
    uint8_t state;
    char quote; /* within a string: its quotation mark, or a dialect's quote as '<' */
    bool in_key, begun, any;
    uint32_t depth;
    char open[SL_LITERAL_DEPTH]; /* what closes each: '}' or ']' or ')' */
};

/* Appends to out the JSON object of what it takes, up to the closing byte. Text that may go on as
 * something else is left: MORE with bytes untaken asks for more, at the end (ended) it does not
 * come to that. */
enum sl_json_scan_result sl_literal_scan_put(struct sl_literal_scan *s,
                                             const struct sl_literal_dialect *d, const char *text,
                                             size_t len, bool ended, size_t *out_taken,
                                             struct sl_buf *out);

#endif
