/* Values of the template interpreter and the state of one rendering.
 *
 * Values are small and passed by copy; what they point to lives in the rendering's arena, in the
 * template, or in the caller's JSON. All of it is immutable but namespaces, and the lists and
 * dictionaries that the template itself made: two names of one of those see each other's changes,
 * as in Python. A literal is a new list each time it is evaluated. Functions that can fail
 * take the rendering and leave through sl_j_fail, which jumps to sl_template_render: nothing on the
 * way owns anything but arena memory.
 * Source: the Python data model, as far as Jinja templates can see it. */
#ifndef SL_MODEL_JINJA_VALUE_H
#define SL_MODEL_JINJA_VALUE_H

#include "common/range.h"
#include "common/status.h"
#include "model/jinja/chat_template.h"
#include "model/jinja/jinja_arena.h"

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sl_jnode;
struct sl_jscope;
struct sl_junit;
struct sl_jrt;

enum sl_j_type {
    SL_J_MISSING, /* an unset variable or argument; never seen by a template */
    SL_J_UNDEF,
    SL_J_NONE,
    SL_J_BOOL,
    SL_J_INT,
    SL_J_FLOAT,
    SL_J_STR,
    SL_J_LIST,
    SL_J_TUPLE,
    SL_J_DICT,
    SL_J_RANGE,
    SL_J_VIEW, /* dict.keys(), .values(), .items() */
    SL_J_ITER, /* a generator: can be gone through once */
    SL_J_NS,
    SL_J_LOOP,
    SL_J_MACRO,
    SL_J_METHOD, /* bound */
    SL_J_FUNC,   /* global function */
};

struct sl_jv {
    enum sl_j_type type;
    union {
        bool b;
        int64_t i;
        double f;
        const struct sl_jstr *s;
        struct sl_jlist *l; /* list, tuple */
        struct sl_jdict *d; /* dict, namespace */
        const struct sl_jrange *r;
        const struct sl_jview *view;
        struct sl_jiter *it;
        struct sl_jloop *loop;
        const struct sl_jmacro *m;
        const struct sl_jmethod *meth;
        const struct sl_jfunc *fn;
        const struct sl_jundef *u;
    };
};

/* Which bytes of a text are the template's own: runs that ascend and do not touch, counted from
 * `base`. A part of a text shares them, for it lies at the same addresses. */
struct sl_jown {
    const char *base;
    struct sl_range *run;
    size_t n, cap;
    bool all; /* every byte, wherever it lies */
};
struct sl_jbuf { /* where concatenations grow; strings in it share their beginning */
    char *p;
    size_t used, cap;
    struct sl_jown own;
};
struct sl_jstr {
    const char *p; /* not NUL-terminated */
    size_t len;
    int64_t chars;             /* code points, -1 when not yet counted */
    struct sl_jbuf *buf;       /* the buffer it lies in, or NULL */
    const struct sl_jown *own; /* NULL: no byte of it is the template's */
    bool markup;               /* from |safe or |escape: other text added to it is escaped */
};
struct sl_jlist {
    struct sl_jv *v;
    size_t n, cap;
    bool group;  /* of |groupby: its two items have the names grouper and list */
    bool frozen; /* the caller's: a template may not change it */
};
struct sl_jentry {
    struct sl_jv key, val;
    uint64_t hash;
};
struct sl_jdict {
    struct sl_jentry *e; /* in order of insertion */
    size_t n, cap;
    uint32_t *index;    /* open addressing, entry + 1; NULL while small */
    size_t n_index;     /* a power of two */
    uint64_t n_changes; /* keys that came or went, so that iterators notice */
    bool frozen;        /* the caller's: a template may not change it */
};
struct sl_jrange {
    int64_t start, stop, step, n;
};
struct sl_jview {
    const struct sl_jdict *d;
    char what; /* 'k', 'v', 'i' */
};
struct sl_jundef {
    const char *hint;         /* the whole message, or NULL: made of the two below */
    struct sl_jv owner, name; /* owner MISSING: a variable */
};
struct sl_jframe { /* activation of a unit */
    struct sl_jframe *up;
    struct sl_jv slot[];
};
struct sl_jmacro {
    const struct sl_jnode *node; /* MACRO or CALLBLOCK */
    struct sl_jframe *frame;     /* where it was defined */
};
struct sl_jargv { /* arguments of a call */
    struct sl_jv *pos, *kw;
    const struct sl_jstr **kw_name;
    uint32_t n_pos, n_kw;
};
typedef struct sl_jv sl_j_method_fn(struct sl_jrt *rt, struct sl_jv self, struct sl_jv *arg,
                                    const struct sl_jargv *all);
/* Begins the definition of one, which need not use all that it is given. */
#define SL_J_FUNC(name, self)                                                                      \
    static struct sl_jv name(__attribute__((unused)) struct sl_jrt *rt,                            \
                             __attribute__((unused)) struct sl_jv self,                            \
                             __attribute__((unused)) struct sl_jv *arg,                            \
                             __attribute__((unused)) const struct sl_jargv *all)
/* A filter, test, method or global function. With params NULL, `arg` is NULL and the function
 * reads `all`; otherwise arg has one value per parameter, MISSING where none was given. */
struct sl_jfunc {
    const char *name;
    sl_j_method_fn *fn;
    const char *params; /* "old,new,count" */
    uint8_t n_required;
    bool changes; /* methods: the object, which must be the template's own */
};
struct sl_jmethod {
    struct sl_jv self;
    const struct sl_jfunc *fn;
};

struct sl_jout { /* text being written */
    char *p;
    size_t len, cap;
    struct sl_jown own; /* its base is not set */
    bool final;         /* the rendering's own output: malloc'd, has its own limit */
};

/* A container that is being written out, so that one which contains itself is noticed. */
struct sl_jopen {
    const void *p;
    const struct sl_jopen *up;
};

/* One rendering. */
struct sl_jrt {
    struct sl_j_arena arena;
    jmp_buf jump;
    enum sl_status status;
    struct sl_err *err;
    const struct sl_template *t;
    struct sl_template_limits limits;
    uint64_t work;     /* charged so far */
    uint64_t check_at; /* never below work: what reaches it is looked at by sl_j_check */
    uint64_t start_ns, hash_seed;
    uint32_t depth;
    const struct sl_jnode *at; /* what is being evaluated, for messages */
    struct sl_jout *out;
    struct sl_jdict *vars;     /* the caller's variables over the global functions */
    struct sl_jdict *exported; /* set at top level; only kept for templates with blocks */
    struct sl_jframe *root;
    const struct sl_jopen *open;
    const json_t *own; /* strings among the variables that count as the template's, or NULL */
};

/* What was given cannot be rendered; a limit was passed. */
_Noreturn void sl_j_fail(struct sl_jrt *rt, const char *fmt, ...) SL_PRINTF(2, 3);
_Noreturn void sl_j_limit(struct sl_jrt *rt, const char *fmt, ...) SL_PRINTF(2, 3);
_Noreturn void sl_j_no_memory(struct sl_jrt *rt); /* of the machine's */
void *sl_j_alloc(struct sl_jrt *rt, size_t size_bytes);
void *sl_j_alloc_n(struct sl_jrt *rt, size_t n, size_t size_bytes);
void sl_j_deeper(struct sl_jrt *rt); /* depth + 1; fails past the limit */

/* ---- work ----
 * Everything that a template can make happen is charged for, before it is done or piece by piece
 * while it is: what is walked, searched, compared, copied or written, by its length. Nothing whose
 * length a template chooses is free. The unit is a 256th of a step, so that small pieces count.
 * Each charge is also where a rendering can end: past its limit of steps or time, or because the
 * caller's watch says so. So no function works long between two charges. */
enum {
    SL_J_BYTE = 1,   /* a byte copied or compared in bulk */
    SL_J_FRESH = 4,  /* a byte of memory that was not used before */
    SL_J_SCAN = 8,   /* a byte searched or counted */
    SL_J_ITEM = 32,  /* an entry of a container looked at, moved or added; a piece of text */
    SL_J_CHAR = 64,  /* a character decoded and looked up */
    SL_J_STEP = 256, /* a node evaluated, a function called */
    SL_J_DIGITS = 16 * SL_J_STEP, /* a number converted from or to text by the C library */
};
/* The slow part of sl_j_charge: fails past a limit or as the watch says, or counts. */
void sl_j_check(struct sl_jrt *rt, uint64_t work);
static inline void sl_j_charge(struct sl_jrt *rt, uint64_t work) {
    if (work < rt->check_at - rt->work)
        rt->work += work;
    else
        sl_j_check(rt, work);
}
/* For n pieces, without overflow. */
static inline void sl_j_charge_n(struct sl_jrt *rt, uint64_t n, uint64_t each) {
    sl_j_charge(rt, n <= (UINT64_MAX >> 16) ? n * each : UINT64_MAX);
}

/* ---- construction (jinja_value.c) ---- */
static inline struct sl_jv sl_j_none(void) {
    return (struct sl_jv){.type = SL_J_NONE};
}
static inline struct sl_jv sl_j_missing(void) {
    return (struct sl_jv){.type = SL_J_MISSING};
}
static inline bool sl_j_given(struct sl_jv v) {
    return v.type != SL_J_MISSING;
}
static inline struct sl_jv sl_j_bool(bool b) {
    return (struct sl_jv){.type = SL_J_BOOL, .b = b};
}
static inline struct sl_jv sl_j_int(int64_t i) {
    return (struct sl_jv){.type = SL_J_INT, .i = i};
}
static inline struct sl_jv sl_j_float(double f) {
    return (struct sl_jv){.type = SL_J_FLOAT, .f = f};
}
static inline struct sl_jv sl_j_of_str(const struct sl_jstr *s) {
    return (struct sl_jv){.type = SL_J_STR, .s = s};
}
/* Borrows p for as long as the rendering lasts. */
struct sl_jv sl_j_str(struct sl_jrt *rt, const char *p, size_t len);
struct sl_jv sl_j_cstr(struct sl_jrt *rt, const char *p);
struct sl_jv sl_j_markup(struct sl_jrt *rt, struct sl_jv s);
struct sl_jv sl_j_undef_hint(struct sl_jrt *rt, const char *hint);
struct sl_jv sl_j_undef_name(struct sl_jrt *rt, const struct sl_jstr *name);
struct sl_jv sl_j_undef_member(struct sl_jrt *rt, struct sl_jv owner, struct sl_jv name);
_Noreturn void sl_j_undef_fail(struct sl_jrt *rt, struct sl_jv v);
struct sl_jv sl_j_list_new(struct sl_jrt *rt, enum sl_j_type type, size_t cap);
void sl_j_list_push(struct sl_jrt *rt, struct sl_jlist *l, struct sl_jv v);
struct sl_jv sl_j_pair(struct sl_jrt *rt, struct sl_jv a, struct sl_jv b);
/* Copies the JSON value, for reading only; strings are borrowed, and none is the template's own but
 * those in rt->own. */
struct sl_jv sl_j_from_json(struct sl_jrt *rt, const json_t *j);

/* ---- dictionaries (jinja_dict.c) ---- */
struct sl_jv sl_j_dict_new(struct sl_jrt *rt);
void sl_j_dict_set(struct sl_jrt *rt, struct sl_jdict *d, struct sl_jv key, struct sl_jv val);
/* NULL when absent. Fails for a key that cannot be hashed; sl_j_dict_find does not find it. */
struct sl_jv *sl_j_dict_get(struct sl_jrt *rt, const struct sl_jdict *d, struct sl_jv key);
struct sl_jv *sl_j_dict_find(struct sl_jrt *rt, const struct sl_jdict *d, struct sl_jv key);
/* Takes out the entry of a value that sl_j_dict_get found; those behind it move up. */
void sl_j_dict_remove(struct sl_jrt *rt, struct sl_jdict *d, const struct sl_jv *val);
bool sl_j_dict_equal(struct sl_jrt *rt, const struct sl_jdict *a, const struct sl_jdict *b);

/* ---- what Python says of values (jinja_value.c) ---- */
const char *sl_j_type_name(struct sl_jv v);         /* "str", "NoneType" ... */
bool sl_j_truth(struct sl_jrt *rt, struct sl_jv v); /* of an argument that is not given: false */
bool sl_j_equal(struct sl_jrt *rt, struct sl_jv a, struct sl_jv b);
/* op: '<', '>', SL_OP_LE, SL_OP_GE */
bool sl_j_order(struct sl_jrt *rt, int op, struct sl_jv a, struct sl_jv b);
bool sl_j_is_number(struct sl_jv v);            /* int, bool or float */
bool sl_j_as_int(struct sl_jv v, int64_t *out); /* int or bool */
double sl_j_as_double(struct sl_jv v);          /* of a number */
/* An argument that must be an integer (or bool); `what` names it. */
int64_t sl_j_need_int(struct sl_jrt *rt, struct sl_jv v, const char *what);
/* One that must be a string. */
const struct sl_jstr *sl_j_need_str(struct sl_jrt *rt, struct sl_jv v);
int64_t sl_j_length(struct sl_jrt *rt, struct sl_jv v); /* fails like len() */
bool sl_j_has_length(struct sl_jv v);

/* ---- text (jinja_text.c) ---- */
/* Opens a container that is written out, or says that it is open already. `o` is the caller's and
 * lives until sl_j_close. */
bool sl_j_open(struct sl_jrt *rt, struct sl_jopen *o, const void *p);
void sl_j_close(struct sl_jrt *rt);
/* Room for so many bytes more. */
void sl_j_reserve(struct sl_jrt *rt, struct sl_jout *o, size_t more);
/* What these four write is not the template's own (jinja_own.c has those that keep track). */
void sl_j_put(struct sl_jrt *rt, struct sl_jout *o, const char *p, size_t len);
void sl_j_put_char(struct sl_jrt *rt, struct sl_jout *o, char c);
void sl_j_put_cp(struct sl_jrt *rt, struct sl_jout *o, uint32_t cp);
void sl_j_puts(struct sl_jrt *rt, struct sl_jout *o, const char *s);
void sl_j_put_str(struct sl_jrt *rt, struct sl_jout *o, struct sl_jv v);  /* str(v) */
void sl_j_put_repr(struct sl_jrt *rt, struct sl_jout *o, struct sl_jv v); /* repr(v) */
void sl_j_put_str_repr(struct sl_jrt *rt, struct sl_jout *o, const struct sl_jstr *s, bool ascii);
/* The written text as a string; the builder must not be used afterwards. */
struct sl_jv sl_j_out_str(struct sl_jrt *rt, struct sl_jout *o);
const struct sl_jstr *sl_j_to_str(struct sl_jrt *rt, struct sl_jv v); /* str(v), strings as is */

/* ---- whose text it is (jinja_own.c) ----
 * A function that makes a text of others hands on which bytes are the template's with these. One
 * that does not makes text that can hold no control token, which is safe for any text. */
extern const struct sl_jown sl_j_own_all;
/* Bytes [from, to) are the template's; `from` is not below what was added before. */
void sl_j_own_add(struct sl_jrt *rt, struct sl_jown *own, size_t from, size_t to);
/* What is the template's among the bytes [p, p + len) of s is so in a copy of them at `at`. */
void sl_j_own_copy(struct sl_jrt *rt, struct sl_jown *to, size_t at, const struct sl_jstr *s,
                   const char *p, size_t len);
/* Whether all of the bytes [p, p + len) of s are the template's. */
bool sl_j_is_own(const struct sl_jstr *s, const char *p, size_t len);
/* The bytes [p, p + len) of s: as a string that borrows them, or written. */
struct sl_jv sl_j_part(struct sl_jrt *rt, const struct sl_jstr *s, const char *p, size_t len);
void sl_j_put_part(struct sl_jrt *rt, struct sl_jout *o, const struct sl_jstr *s, const char *p,
                   size_t len);
void sl_j_put_all(struct sl_jrt *rt, struct sl_jout *o, const struct sl_jstr *s);

/* ---- numbers as text (jinja_number.c) ---- */
void sl_j_put_float(struct sl_jrt *rt, struct sl_jout *o, double f);
bool sl_j_parse_int(struct sl_jrt *rt, const struct sl_jstr *s, int base, int64_t *out,
                    bool *out_overflow);
bool sl_j_parse_float(struct sl_jrt *rt, const struct sl_jstr *s, double *out);

/* ---- strings (jinja_str.c) ---- */
struct sl_jv sl_j_concat(struct sl_jrt *rt, struct sl_jv a,
                         struct sl_jv b);                    /* two strings, a + b */
struct sl_jv sl_j_escape(struct sl_jrt *rt, struct sl_jv v); /* HTML; markup stays as it is */
size_t sl_j_chars(struct sl_jrt *rt, const struct sl_jstr *s);
/* Characters in so many bytes. */
size_t sl_j_count(struct sl_jrt *rt, const char *p, size_t len);
/* Characters [from, to) of s; the caller has clamped them. */
struct sl_jv sl_j_substr(struct sl_jrt *rt, const struct sl_jstr *s, size_t from, size_t to);
bool sl_j_str_eq(const struct sl_jstr *a, const struct sl_jstr *b);
bool sl_j_str_is(const struct sl_jstr *a, const char *b);
/* First occurrence of needle at or after `from` (bytes), or NULL. Charges for what was searched. */
const char *sl_j_find(struct sl_jrt *rt, const struct sl_jstr *s, const char *from,
                      const struct sl_jstr *needle);
/* The last occurrence that ends at or before `end`, or NULL. */
const char *sl_j_find_last(struct sl_jrt *rt, const char *begin, const char *end,
                           const struct sl_jstr *needle);
/* Maps to 'u', 'l' or 't' case throughout; 'c': first character title, others lower. */
struct sl_jv sl_j_str_case(struct sl_jrt *rt, const struct sl_jstr *s, char kind);
/* side: 'l', 'r', 'b'oth; chars NULL: whitespace. */
struct sl_jv sl_j_strip(struct sl_jrt *rt, const struct sl_jstr *s, char side,
                        const struct sl_jstr *chars);
struct sl_jv sl_j_replace(struct sl_jrt *rt, const struct sl_jstr *s, const struct sl_jstr *old,
                          const struct sl_jstr *new_, int64_t count);
struct sl_jv sl_j_pad(struct sl_jrt *rt, const struct sl_jstr *s, int64_t width, char side,
                      const struct sl_jstr *fill);
/* Cutting (jinja_split.c): lists of at most max + 1 pieces; sep NULL: at runs of white space.
 * `right` counts from the end. */
struct sl_jv sl_j_split(struct sl_jrt *rt, const struct sl_jstr *s, const struct sl_jstr *sep,
                        int64_t max, bool right);
struct sl_jv sl_j_splitlines(struct sl_jrt *rt, const struct sl_jstr *s, bool keep);
/* A tuple: what is before the first (or last) sep, sep, what is behind it. */
struct sl_jv sl_j_partition(struct sl_jrt *rt, const struct sl_jstr *s, const struct sl_jstr *sep,
                            bool right);
/* printf-style % and str.format (jinja_format.c). */
struct sl_jv sl_j_percent(struct sl_jrt *rt, const struct sl_jstr *fmt, struct sl_jv args);
struct sl_jv sl_j_format(struct sl_jrt *rt, const struct sl_jstr *fmt, const struct sl_jargv *args);

/* ---- operators (jinja_ops.c) ---- */
struct sl_jv sl_j_binary(struct sl_jrt *rt, int op, struct sl_jv a, struct sl_jv b);
bool sl_j_contains(struct sl_jrt *rt, struct sl_jv seq, struct sl_jv item);
struct sl_jv sl_j_getattr(struct sl_jrt *rt, struct sl_jv v, const struct sl_jstr *name);
struct sl_jv sl_j_getitem(struct sl_jrt *rt, struct sl_jv v, struct sl_jv key);
/* Bounds are ints or none. */
struct sl_jv sl_j_slice(struct sl_jrt *rt, struct sl_jv v, struct sl_jv start, struct sl_jv stop,
                        struct sl_jv step);
int64_t sl_j_int_pow(struct sl_jrt *rt, int64_t base, int64_t exp);
int64_t sl_j_int_mul(struct sl_jrt *rt, int64_t a, int64_t b);

/* Item i of a range, which has it. */
static inline struct sl_jv sl_j_range_at(const struct sl_jrange *r, int64_t i) {
    return sl_j_int((int64_t)((uint64_t)r->start + (uint64_t)r->step * (uint64_t)i));
}

/* ---- iteration (jinja_iter.c) ---- */
struct sl_jiter;
bool sl_j_iterable(struct sl_jv v);
struct sl_jiter *sl_j_iter(struct sl_jrt *rt, struct sl_jv v); /* fails like iter() */
bool sl_j_next(struct sl_jrt *rt, struct sl_jiter *it, struct sl_jv *out);
struct sl_jv sl_j_to_list(struct sl_jrt *rt, struct sl_jv v); /* always a new list */
/* A one-pass value over the list. */
struct sl_jv sl_j_iter_over(struct sl_jrt *rt, struct sl_jv list);
/* The same from a list's end to its start. */
struct sl_jv sl_j_iter_back(struct sl_jrt *rt, struct sl_jv list);
/* Lazy: each item is passed through fn, which says whether to keep it and may replace it. */
typedef bool sl_j_step_fn(struct sl_jrt *rt, void *state, struct sl_jv *item);
struct sl_jv sl_j_iter_map(struct sl_jrt *rt, struct sl_jv src, sl_j_step_fn *fn, void *state);

/* The loop variable. */
struct sl_jloop {
    struct sl_jiter *it;
    struct sl_jv iterable; /* MISSING when a condition filters it */
    const struct sl_jnode *node;
    struct sl_jframe *frame;        /* of the statement's surroundings, for recursion */
    int64_t index0, depth0, length; /* length -1: not yet known */
    struct sl_jv before, current, after, changed;
};
bool sl_j_loop_next(struct sl_jrt *rt, struct sl_jloop *l, struct sl_jv *out);
int64_t sl_j_loop_length(struct sl_jrt *rt, struct sl_jloop *l);
struct sl_jv sl_j_loop_attr(struct sl_jrt *rt, struct sl_jloop *l, const struct sl_jstr *name);

/* ---- calls (jinja_call.c) ---- */
struct sl_jv sl_j_call(struct sl_jrt *rt, struct sl_jv f, struct sl_jargv *args);
/* Calls a filter, test, method or function; `what` is its kind, for messages. */
struct sl_jv sl_j_call_func(struct sl_jrt *rt, const char *what, const struct sl_jfunc *f,
                            struct sl_jv self, const struct sl_jargv *args);
const struct sl_jfunc *sl_j_find_func(const struct sl_jfunc *table, const char *p, size_t len);
const struct sl_jfunc *sl_j_find_filter(const char *p, size_t len);
const struct sl_jfunc *sl_j_find_test(const char *p, size_t len);
/* The method of this name that a value of this type has, or NULL. */
const struct sl_jfunc *sl_j_find_method(enum sl_j_type type, const struct sl_jstr *name);
/* dict(mapping or pairs, key=value ...) into d; `what` is the function that was called so. */
void sl_j_dict_fill(struct sl_jrt *rt, struct sl_jdict *d, const struct sl_jargv *all,
                    const char *what);
/* Sorts by the keys, stably, comparing only with <, as Python does (jinja_filters_seq.c). */
struct sl_jsort_item {
    struct sl_jv key, val;
};
void sl_j_sort(struct sl_jrt *rt, struct sl_jsort_item *v, size_t n, bool reverse);
/* Tables end in a NULL name. */
extern const struct sl_jfunc sl_j_globals[];
extern const struct sl_jfunc sl_j_filters_text[], sl_j_filters_seq[], sl_j_filters_num[];
extern const struct sl_jfunc sl_j_tests[];
extern const struct sl_jfunc sl_j_str_methods[], sl_j_dict_methods[], sl_j_list_methods[],
    sl_j_tuple_methods[], sl_j_loop_methods[], sl_j_number_methods[];
struct sl_jv sl_j_tojson(struct sl_jrt *rt, struct sl_jv self, struct sl_jv *arg,
                         const struct sl_jargv *all);
struct sl_jv sl_j_strftime(struct sl_jrt *rt, const struct sl_jstr *fmt, int64_t now_s);

/* ---- evaluation (jinja_eval.c, jinja_exec.c) ---- */
struct sl_jv sl_j_eval(struct sl_jrt *rt, struct sl_jframe *f, const struct sl_jnode *n);
enum sl_j_flow { SL_FLOW_NEXT, SL_FLOW_BREAK, SL_FLOW_CONTINUE };
enum sl_j_flow sl_j_exec(struct sl_jrt *rt, struct sl_jframe *f, const struct sl_jnode *n);
void sl_j_exec_root(struct sl_jrt *rt, const struct sl_jnode *body, const struct sl_jscope *scope);
struct sl_jframe *sl_j_frame(struct sl_jrt *rt, const struct sl_junit *unit, struct sl_jframe *up);
void sl_j_enter_scope(struct sl_jrt *rt, struct sl_jframe *f, const struct sl_jscope *s);
void sl_j_leave_scope(struct sl_jframe *f, const struct sl_jscope *s);
void sl_j_assign(struct sl_jrt *rt, struct sl_jframe *f, const struct sl_jnode *target,
                 struct sl_jv v, bool export_);
/* The parts of sl_j_call that run template code. */
struct sl_jv sl_j_call_macro(struct sl_jrt *rt, const struct sl_jmacro *m,
                             const struct sl_jargv *args);
struct sl_jv sl_j_loop_recurse(struct sl_jrt *rt, struct sl_jloop *l, struct sl_jv iterable);

/* A compiled template. */
struct sl_template {
    struct sl_j_arena arena;
    const char *source;
    size_t len;
    const struct sl_jnode *body;
    const struct sl_jscope *scope;
    bool has_blocks;
};
/* "line 3, column 7" of an offset. */
void sl_j_position(const char *source, size_t len, uint32_t off, unsigned *out_line,
                   unsigned *out_col);

#endif
