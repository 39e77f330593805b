/* An answer in parts: the splitter makes them of a model's text, and every API's answers are
 * written from them.
 *
 * A part is a fragment, given out as it arrives. Segments are joined fragments, in the order in
 * which the model made them; whole answers, and streams that repeat their text at the end, keep
 * them. */
#ifndef SL_SERVER_ANSWER_PARTS_H
#define SL_SERVER_ANSWER_PARTS_H

#include "common/buf.h"
#include "model/gguf/gguf.h"

#include <stdint.h>

enum sl_part_kind {
    SL_PART_CONTENT,   /* a fragment of the answer's text; may be empty */
    SL_PART_REASONING, /* a fragment of the reasoning before it */
    SL_PART_CALL,      /* tool call number `call` begins; text is the function's whole name */
    SL_PART_ARGUMENTS, /* a fragment of the JSON text of that call's arguments; no other part comes
                          in between */
};

struct sl_part {
    enum sl_part_kind kind;
    uint32_t call;      /* of CALL and ARGUMENTS, from 0 in steps of one */
    struct sl_str text; /* borrowed for the call that it is passed to */
};

struct sl_segment {
    enum sl_part_kind kind; /* CONTENT, REASONING or CALL */
    uint32_t call;
    struct sl_buf name;                  /* CALL */
    struct sl_buf text;                  /* CALL: the arguments */
    uint32_t first_logprob, end_logprob; /* CONTENT: which of its choice's, where there are any */
};

/* One thread at a time. Zero-initialise. */
struct sl_segments {
    struct sl_segment *list;
    uint32_t n, cap;
    bool failed; /* out of memory; sticky */
};

/* Empty text adds nothing, except for a call's name. */
void sl_segments_add(struct sl_segments *s, const struct sl_part *part);
void sl_segments_release(struct sl_segments *s);
/* Appends all text of a kind (CONTENT or REASONING) to out. False: there is none. */
bool sl_segments_join(const struct sl_segments *s, enum sl_part_kind kind, struct sl_buf *out);

#endif
