/* Tokens and syntax tree of a chat template. Everything lives in the template's arena and does not
 * change once compiled, so any number of threads may evaluate it. */
#ifndef SL_MODEL_JINJA_AST_H
#define SL_MODEL_JINJA_AST_H

#include "common/status.h"
#include "model/jinja/jinja_arena.h"
#include "model/jinja/jinja_value.h"

#include <setjmp.h>

enum sl_j_tok {
    SL_T_EOF,
    SL_T_DATA,
    SL_T_VAR_BEGIN,
    SL_T_VAR_END,
    SL_T_BLOCK_BEGIN,
    SL_T_BLOCK_END,
    SL_T_NAME,
    SL_T_STRING,
    SL_T_INT,
    SL_T_FLOAT,
    SL_T_OP, /* op: the character, or SL_OP_* */
};
/* Operators of two characters; those of one stand for themselves. */
enum {
    SL_OP_FLOORDIV = 128,
    SL_OP_POW,
    SL_OP_EQ,
    SL_OP_NE,
    SL_OP_GE,
    SL_OP_LE,
    SL_OP_IN,
    SL_OP_NOTIN
};

struct sl_j_token {
    uint8_t type, op;
    uint32_t off; /* into the source */
    union {
        const struct sl_jstr *s; /* data, name, string */
        int64_t i;
        double f;
    } u;
};

/* What a node's fields mean. Lists are `list`, n long. */
enum sl_j_kind {
    SL_N_CONST,   /* value */
    SL_N_NAME,    /* name; slot, hops after resolving */
    SL_N_TUPLE,   /* list */
    SL_N_LIST,    /* list */
    SL_N_DICT,    /* list: key, value, key, value */
    SL_N_MATH,    /* list of operands, ops[i] between i and i + 1, from left to right */
    SL_N_COMPARE, /* the same, as a chain of comparisons */
    SL_N_AND,     /* list */
    SL_N_OR,      /* list */
    SL_N_CONCAT,  /* list */
    SL_N_NOT,     /* a */
    SL_N_NEG,     /* a */
    SL_N_POS,     /* a */
    SL_N_COND,    /* b if a else c (c may be NULL) */
    SL_N_GETATTR, /* a.name */
    SL_N_GETITEM, /* a[b] */
    SL_N_SLICE,   /* a[b:c:d], each of b, c, d may be NULL */
    SL_N_CALL,    /* a(args) */
    SL_N_FILTER,  /* a|name(args); a NULL: the text of the enclosing block */
    SL_N_TEST,    /* a is name(args) */
    SL_N_DATA,    /* value: literal text */
    SL_N_OUTPUT,  /* list of expressions and data */
    SL_N_IF,      /* list: test, body, test, body ...; else body c or NULL */
    SL_N_BODY,    /* list of statements */
    SL_N_FOR,     /* target a, iterable b, condition d or NULL; body, else_body; flag: recursive */
    SL_N_MACRO,   /* name, params, body */
    SL_N_CALLBLOCK,   /* a: the call, or NULL for {% generation %}; params, body */
    SL_N_FILTERBLOCK, /* a: the filter; body */
    SL_N_SET,         /* target a = b */
    SL_N_SETBLOCK,    /* target a, filter b or NULL, body */
    SL_N_WITH,        /* list: target, value, ...; body */
    SL_N_BLOCK,       /* name, body; flag: required */
    SL_N_SCOPE,       /* body (autoescape false) */
    SL_N_NSREF,       /* assignment target name.attr: a is the name */
    SL_N_BREAK,
    SL_N_CONTINUE,
    SL_N_REFUSE, /* include, import, from, extends: an error when reached */
};

struct sl_jargs {
    struct sl_jnode **pos, **kw;
    const struct sl_jstr **kw_name;
    uint32_t n_pos, n_kw;
    struct sl_jnode *star, *star2; /* *args, **kwargs, or NULL */
};

/* A function of the generated program: its variables live in one activation. */
struct sl_junit {
    struct sl_junit *parent;
    uint32_t n_slots;
};

/* What entering a scope does to one of its variables (jinja_scope.h). */
enum sl_j_load { SL_L_PARAM, SL_L_RESOLVE, SL_L_ALIAS, SL_L_UNDEFINED };
struct sl_j_enter {
    enum sl_j_load load;
    uint32_t slot;
    const struct sl_jstr *name;    /* RESOLVE */
    uint32_t from_hops, from_slot; /* ALIAS */
};
struct sl_jscope {
    struct sl_junit *unit; /* own unit, or the one it is part of */
    struct sl_j_enter *enter;
    uint32_t n_enter;
};

struct sl_jparams {
    struct sl_jnode **name, **fallback; /* fallback[i] may be NULL */
    uint32_t n;
    /* Slots of the special variables, or -1 when the body does not use them. */
    int32_t caller_slot, kwargs_slot, varargs_slot;
    bool explicit_caller;
};

struct sl_jnode {
    uint8_t kind;
    bool flag;
    uint16_t depth; /* of the tree below, bounded by the parser */
    uint32_t off;   /* into the source, for messages */
    struct sl_jnode *a, *b, *c, *d, *body, *else_body;
    struct sl_jnode **list;
    uint32_t n;
    uint8_t *ops;
    const struct sl_jstr *name;
    struct sl_jv value;
    uint32_t slot, hops;
    const void *impl; /* FILTER, TEST: the implementation, NULL when there is none of this name */
    struct sl_jargs *args;
    struct sl_jparams *params;
    struct sl_jscope *scope, *else_scope, *test_scope;
    struct sl_jnode *test_target; /* FOR with a condition: the target once more, in test_scope */
    int32_t loop_slot;            /* FOR: of `loop`, or -1 */
    bool export_;                 /* MACRO, SET: at top level, where {% block %} looks names up */
};

/* State of one compilation. Failures jump to `jump` with the text in err. */
struct sl_jc {
    struct sl_j_arena arena;
    jmp_buf jump;
    enum sl_status status;
    struct sl_err *err;
    const char *source; /* newlines normalised */
    size_t len;
    struct sl_j_token *tok;
    size_t n_tok, pos;
    uint32_t depth;
    uint64_t work; /* looks at names and nodes beyond one each */
    bool has_blocks;
};

_Noreturn void sl_jc_fail(struct sl_jc *c, uint32_t off, const char *fmt, ...) SL_PRINTF(3, 4);
void *sl_jc_alloc(struct sl_jc *c, size_t size_bytes); /* cleared */
/* Counts what is gone through more than once: names one by one, bodies once for each statement
 * around them. Fails past a limit of a second or so. */
void sl_jc_charge(struct sl_jc *c, uint64_t n);
const struct sl_jstr *sl_jc_str(struct sl_jc *c, const char *p, size_t len);

void sl_jc_lex(struct sl_jc *c);               /* fills tok */
struct sl_jnode *sl_jc_parse(struct sl_jc *c); /* a BODY */
/* Gives each name its slot; returns the scope of the whole template. */
struct sl_jscope *sl_jc_resolve(struct sl_jc *c, struct sl_jnode *body);

/* Of jinja_compile.c, for jinja_parse.c (statements) and jinja_parse_expr.c, and between these. */
struct sl_jnode *sl_jc_node(struct sl_jc *c, enum sl_j_kind kind, uint32_t off);
/* Sets depth from a child; fails when the tree gets too deep. */
void sl_jc_child(struct sl_jc *c, struct sl_jnode *n, const struct sl_jnode *child);
struct sl_jnode *sl_jc_expression(struct sl_jc *c, bool with_cond);
enum { SL_TUPLE_SIMPLE = 1, SL_TUPLE_NO_COND = 2, SL_TUPLE_PARENS = 4 };
/* An expression, or several with commas between. `end`: a name that also ends it, or NULL. */
struct sl_jnode *sl_jc_tuple(struct sl_jc *c, unsigned flags, const char *end);
struct sl_jnode *sl_jc_primary(struct sl_jc *c);
/* {| name(args)}; with `inline_first` the first bar is left out. */
struct sl_jnode *sl_jc_filters(struct sl_jc *c, struct sl_jnode *n, bool inline_first);
void sl_jc_enter(struct sl_jc *c);
void sl_jc_leave(struct sl_jc *c);

struct sl_j_token *sl_jc_tok(struct sl_jc *c);
struct sl_j_token *sl_jc_look(struct sl_jc *c);
struct sl_j_token *sl_jc_next(struct sl_jc *c); /* returns the one passed */
bool sl_jc_is_op(struct sl_jc *c, int op);
bool sl_jc_is_name(struct sl_jc *c, const char *name); /* NULL: any */
bool sl_jc_skip_op(struct sl_jc *c, int op);
bool sl_jc_skip_name(struct sl_jc *c, const char *name);
void sl_jc_expect_op(struct sl_jc *c, int op);
const struct sl_jstr *sl_jc_expect_name(struct sl_jc *c);
const char *sl_jc_describe(struct sl_jc *c, const struct sl_j_token *t);
_Noreturn void sl_jc_unexpected(struct sl_jc *c, const char *wanted);

/* A growing list of nodes. */
struct sl_jlist_of {
    struct sl_jnode **v;
    uint32_t n, cap;
};
void sl_jc_push(struct sl_jc *c, struct sl_jlist_of *l, struct sl_jnode *n);

#endif
