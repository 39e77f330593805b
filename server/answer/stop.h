/* Stop strings across token boundaries: text goes in as the model makes it, and text that cannot
 * begin a stop string comes out. No part of a stop string is ever shown, and the answer ends at the
 * same byte however the text was cut into tokens: at the first byte that completes a stop string
 * (if several end there, the longest counts). */
#ifndef SL_SERVER_STOP_H
#define SL_SERVER_STOP_H

#include "common/buf.h"
#include "model/gguf/gguf.h"

#include <stdint.h>

#define SL_STOP_MAX       16u  /* strings */
#define SL_STOP_MAX_BYTES 512u /* of one string */

/* Immutable once made: shared by all choices of a request. Zero-initialise. */
struct sl_stop_set {
    uint32_t n;
    struct sl_stop_string {
        char *text;     /* owned */
        uint16_t *fail; /* owned; length of the longest proper border of each prefix */
        uint32_t len;
    } strings[SL_STOP_MAX];
};

/* Copies text. Errors: SL_ERR_INVALID if it is empty, too long, or one too many; SL_ERR_NOMEM. */
enum sl_status sl_stop_add(struct sl_stop_set *set, const char *text, size_t len,
                           struct sl_err *err) SL_MUST_CHECK;
void sl_stop_set_release(struct sl_stop_set *set);

/* The matching state of one choice. Zero-initialise. */
struct sl_stop_state {
    uint16_t matched[SL_STOP_MAX]; /* bytes of each string that the text's end matches */
    bool stopped;
    uint32_t which;     /* of the set, when stopped */
    struct sl_buf held; /* text given out last, then text held back */
    size_t n_given;
};

/* Takes text and gives out what can be shown now; out_text is valid until the next call.
 * Returns true when a stop string was completed: out_text is then the end of the answer, and later
 * calls give nothing. If out of memory, held.failed is set. */
bool sl_stop_push(struct sl_stop_state *status, const struct sl_stop_set *set, const char *text,
                  size_t len, struct sl_str *out_text);
/* The same for the last text of an answer (may be empty): holds nothing back any more. */
bool sl_stop_finish(struct sl_stop_state *status, const struct sl_stop_set *set, const char *text,
                    size_t len, struct sl_str *out_text);
void sl_stop_state_release(struct sl_stop_state *status);

#endif
