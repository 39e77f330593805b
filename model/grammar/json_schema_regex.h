/* Sets of strings as regular expressions that can be intersected and negated: what pattern, format,
 * minLength, maxLength and propertyNames say together. Inside of the schema compiler.
 *
 * Nodes are shared: equal expressions have one number. A set is written into a grammar as it is
 * where neither intersection nor negation is in it, and as a deterministic automaton otherwise.
 * Nodes, states and steps are bounded; what exceeds a bound is refused with SL_ERR_INVALID.
 * Source: Brzozowski 1964, derivatives of regular expressions. */
#ifndef SL_MODEL_JSON_SCHEMA_REGEX_H
#define SL_MODEL_JSON_SCHEMA_REGEX_H

#include "model/grammar/json_schema_internal.h"

/* Nodes that always exist. */
#define SL_RX_NONE  0u /* no string */
#define SL_RX_EMPTY 1u /* the empty string */
#define SL_RX_ANY   2u /* every string */

enum sl_rx_kind {
    SL_RX_K_NONE,
    SL_RX_K_EMPTY,
    SL_RX_K_SET,    /* a character of set a */
    SL_RX_K_CAT,    /* a, then b */
    SL_RX_K_ALT,    /* a or b */
    SL_RX_K_AND,    /* a and b */
    SL_RX_K_NOT,    /* not a */
    SL_RX_K_REPEAT, /* least to most times a */
};

struct sl_rx_node {
    uint8_t kind;
    bool nullable; /* has the empty string */
    bool direct;   /* neither AND nor NOT in it */
    uint32_t a, b; /* REPEAT: b is most, SL_SCHEMA_NO_MAX without bound */
    uint32_t least;
    uint32_t min_len, max_len; /* in characters, of a direct one */
};

struct sl_rx_range {
    uint32_t lo, hi;
};

struct sl_rx_set {
    uint32_t first, n; /* of ranges, ascending, apart */
};

struct sl_rx {
    struct sl_rx_node *nodes;
    struct sl_rx_range *ranges;
    struct sl_rx_set *sets;
    uint32_t n_nodes, cap_nodes, n_ranges, cap_ranges, n_sets, cap_sets;
    uint32_t *slots; /* of nodes by content; 0 = free, else node + 1 */
    uint64_t *memo;  /* derivatives: key and node, two words each; 0 = free */
    uint32_t n_slots, n_memo, cap_memo;
    uint32_t depth, steps;
    enum sl_status status; /* once it is not SL_OK, every node is SL_RX_NONE */
    struct sl_err *err;
};

/* Errors are kept in x->status, with the text in err (borrowed). Release in any case. */
void sl_rx_init(struct sl_rx *x, struct sl_err *err);
void sl_rx_release(struct sl_rx *x);
/* The first error decides. */
void sl_rx_fail(struct sl_rx *x, enum sl_status status, const char *what);

/* r [n] is sorted and joined in place. */
uint32_t sl_rx_set(struct sl_rx *x, struct sl_rx_range *r, uint32_t n);
uint32_t sl_rx_cat(struct sl_rx *x, uint32_t a, uint32_t b);
uint32_t sl_rx_alt(struct sl_rx *x, uint32_t a, uint32_t b);
uint32_t sl_rx_and(struct sl_rx *x, uint32_t a, uint32_t b);
uint32_t sl_rx_not(struct sl_rx *x, uint32_t a);
uint32_t sl_rx_repeat(struct sl_rx *x, uint32_t a, uint32_t least, uint32_t most);
/* UTF-8 */
uint32_t sl_rx_text(struct sl_rx *x, const char *text);
/* Strings of least to most characters. */
uint32_t sl_rx_lengths(struct sl_rx *x, uint32_t least, uint32_t most);
/* What remains of a's strings behind the character cp. */
uint32_t sl_rx_derive(struct sl_rx *x, uint32_t a, uint32_t cp);
bool sl_rx_has(struct sl_rx *x, uint32_t a, const char *text);

/* json_schema_pattern.c: the strings in which a regular expression (ECMA-262, with the u flag) is
 * found. */
uint32_t sl_rx_pattern(struct sl_rx *x, const char *pattern, size_t len);

/* json_schema_automaton.c: appends a grammar's text for the JSON form of a's strings and the
 * quotation mark behind them; rules that it needs go to c->out. */
enum sl_status sl_rx_put(struct sl_schema *c, struct sl_rx *x, uint32_t a,
                         struct sl_buf *b) SL_MUST_CHECK;
/* Has a no string at all? False as well when that cannot be found out within the bounds. */
bool sl_rx_is_empty(struct sl_rx *x, uint32_t a);

/* json_schema_string.c: the strings that pattern, format, minLength and maxLength of s allow. */
enum sl_status sl_schema_strings(struct sl_schema *c, const json_t *s, struct sl_rx *x,
                                 uint32_t *out_set) SL_MUST_CHECK;

#endif
