/* Inside of grammars: shared by model/grammar*.c and model/automaton*.c alone.
 *
 * A rule is a graph of nodes, Thompson's construction with calls. A character class is not spread
 * out over byte nodes: it is one node, and its bytes are followed in a small automaton of its own,
 * the class's `lead` table and the `sub` tables. So a counted class costs two nodes a repetition.
 * Source: Thompson 1968; UTF-8 as in Unicode, table 3-7. */
#ifndef SL_MODEL_GRAMMAR_INTERNAL_H
#define SL_MODEL_GRAMMAR_INTERNAL_H

#include "model/grammar/grammar.h"

#include <stdbool.h>

enum sl_gkind {
    SL_G_JUMP,  /* to next; none is left on a path once the grammar is finished */
    SL_G_SPLIT, /* to next and to alt */
    SL_G_BYTE,  /* takes byte, to next */
    SL_G_CLASS, /* takes a character of class cls, to next */
    SL_G_OTHER, /* takes a token other than alt, to next */
    SL_G_CALL,  /* rule alt, then to next */
    SL_G_END,   /* of the rule */
};

#define SL_G_NONE UINT32_MAX

struct sl_gnode {
    uint8_t kind;
    uint8_t byte;
    bool plain_exact; /* CLASS: alt is all that can follow with a plain character */
    bool tail_call;   /* CALL: nothing follows in this rule */
    uint16_t cls;
    uint32_t next;
    uint32_t
        alt; /* SPLIT: the other way; CALL: the rule; OTHER: a token; CLASS: see grammar_plain.c */
};

/* Steps within a character. */
#define SL_G_DEAD        0xffffu
#define SL_G_DONE        0xfffeu /* the character is complete */
#define SL_G_MAX_SUBS    (1u << 14)
#define SL_G_MAX_CLS     4096u
#define SL_G_CLASS_SLOTS 8192u

struct sl_gclass {
    uint16_t lead[256]; /* by first byte: SL_G_DEAD, SL_G_DONE or a sub */
    bool covers_plain;  /* every plain character */
};

struct sl_gsub {
    uint16_t next[64]; /* by continuation byte less 0x80 */
};

struct sl_grammar {
    struct sl_gnode *nodes;
    uint32_t n_nodes, cap_nodes;
    uint32_t *rule_start; /* [n_rules] */
    uint32_t n_rules;
    uint32_t root; /* a rule */
    struct sl_gclass *classes;
    uint32_t n_classes, cap_classes;
    uint16_t *class_slots; /* [SL_G_CLASS_SLOTS] class + 1 by its table's hash, 0 = free; while it
                              is built */
    struct sl_gsub *subs;
    uint32_t n_subs, cap_subs;
    uint32_t whole_sub[4]; /* by bytes to come: 1 + the sub that takes any; 0 = not built */
    /* Bytes that no table or node tells apart share a byte class. */
    uint8_t byte_class[256];
    uint8_t class_byte[256]; /* one byte of each */
    uint32_t n_byte_classes;
};

/* A range of code points. */
struct sl_crange {
    uint32_t lo, hi;
};

/* A plain character may stand in a JSON string as it is: U+0020 and up, without the quotation mark
 * and the backslash. Most of a vocabulary is made of them, see model/grammar/automaton.h. */
static inline bool sl_g_plain_lead(uint32_t byte) {
    return (byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\') ||
           (byte >= 0xc2 && byte <= 0xf4);
}
#define SL_G_PLAIN_RUN 32u /* plain characters that are looked ahead for */

/* ---- grammar_build.c ---- */

/* Part of a rule: nodes [first, n_nodes at its completion), entered at start, left through exit, a
 * JUMP to nowhere yet. */
struct sl_gfrag {
    uint32_t first, end, start, exit;
};

/* All fail with SL_ERR_INVALID (a limit, named) or SL_ERR_NOMEM. */
enum sl_status sl_g_node(struct sl_grammar *g, uint8_t kind, uint32_t next, uint32_t alt,
                         uint32_t *out_node, struct sl_err *err) SL_MUST_CHECK;
enum sl_status sl_g_rule(struct sl_grammar *g, uint32_t start, uint32_t *out_rule,
                         struct sl_err *err) SL_MUST_CHECK;
enum sl_status sl_g_empty(struct sl_grammar *g, struct sl_gfrag *out_frag,
                          struct sl_err *err) SL_MUST_CHECK;
enum sl_status sl_g_literal(struct sl_grammar *g, const char *bytes, size_t len,
                            struct sl_gfrag *out_frag, struct sl_err *err) SL_MUST_CHECK;
/* Any token but id. */
enum sl_status sl_g_other(struct sl_grammar *g, uint32_t id, struct sl_gfrag *out_frag,
                          struct sl_err *err) SL_MUST_CHECK;
/* ranges [n] are sorted and joined in place; negate: every other character. */
enum sl_status sl_g_class(struct sl_grammar *g, struct sl_crange *ranges, uint32_t n, bool negate,
                          struct sl_gfrag *out_frag, struct sl_err *err) SL_MUST_CHECK;
enum sl_status sl_g_call(struct sl_grammar *g, uint32_t rule, struct sl_gfrag *out_frag,
                         struct sl_err *err) SL_MUST_CHECK;
/* f followed by more, which was built directly after f. */
void sl_g_append(struct sl_grammar *g, struct sl_gfrag *f, const struct sl_gfrag *more);
/* f or more, which was built directly after f. */
enum sl_status sl_g_either(struct sl_grammar *g, struct sl_gfrag *f, const struct sl_gfrag *more,
                           struct sl_err *err) SL_MUST_CHECK;
/* f, the last that was built, least to most times; most SL_G_NONE: without bound. */
enum sl_status sl_g_repeat(struct sl_grammar *g, struct sl_gfrag *f, uint32_t least, uint32_t most,
                           struct sl_err *err) SL_MUST_CHECK;

/* ---- grammar_check.c ---- */

/* Every rule has its start. Shortens, drops what cannot end, refuses left recursion, fills byte
 * classes and what is known of plain characters. */
enum sl_status sl_g_finish(struct sl_grammar *g, struct sl_err *err) SL_MUST_CHECK;
/* grammar_plain.c: part of it */
void sl_g_find_plain_runs(struct sl_grammar *g, const bool *nullable);

#endif
