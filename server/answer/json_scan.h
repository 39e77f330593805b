/* An incremental JSON check: says at each byte whether the text so far can still become one value.
 *
 * More lenient than RFC 8259 in one point: a control character in a string, which models write for
 * a line break, is accepted; sl_json_scan_put writes it as an escape. One thread at a time; no
 * memory of its own. */
#ifndef SL_SERVER_JSON_SCAN_H
#define SL_SERVER_JSON_SCAN_H

#include "common/buf.h"

#include <stdint.h>

#define SL_JSON_SCAN_DEPTH 128u

/* Zero-initialise. */
struct sl_json_scan {
    uint8_t state;
    uint8_t word, at; /* within true, false, null, or a \u escape */
    bool in_key;
    uint32_t depth;
    uint64_t is_object[SL_JSON_SCAN_DEPTH / 64];
};

enum sl_json_scan_result {
    SL_JSON_SCAN_MORE, /* all bytes taken, the value goes on */
    SL_JSON_SCAN_DONE, /* the value is complete with the bytes taken */
    SL_JSON_SCAN_BAD,  /* the byte after those taken is not valid there */
};

/* Takes bytes up to the value's end. White space before the value is taken too. */
enum sl_json_scan_result sl_json_scan(struct sl_json_scan *s, const char *text, size_t len,
                                      size_t *out_taken);
/* May the value end where the text ends? (Only the next byte shows the end of a number.) */
bool sl_json_scan_may_end(const struct sl_json_scan *s);

/* Scans, and appends what was taken to out as JSON that any parser accepts. */
enum sl_json_scan_result sl_json_scan_put(struct sl_json_scan *s, const char *text, size_t len,
                                          size_t *out_taken, struct sl_buf *out);

#endif
