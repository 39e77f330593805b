#include "model/jinja/chat_template.h"
#include "common/clock.h"
#include "common/utf8.h"
#include "model/jinja/jinja_ast.h"
#include "model/jinja/jinja_value.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_SOURCE = 4 << 20, MAX_COMPILE_BYTES = 64 << 20 };

const struct sl_template_limits sl_template_default_limits = {
    .max_steps = 20000000,
    .max_depth = 1000,
    .max_output_bytes = 64u << 20,
    .max_memory_bytes = 512u << 20,
    .max_time_ns = 30000000000u,
};

/* Line ends become \n, and one at the very end goes, as Jinja does by default. */
static void take_source(struct sl_jc *c, const char *source, size_t len) {
    char *p = sl_jc_alloc(c, len + 1);
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        if (source[i] == '\r') {
            p[n++] = '\n';
            i += i + 1 < len && source[i + 1] == '\n';
        } else {
            p[n++] = source[i];
        }
    }
    if (n && p[n - 1] == '\n')
        n--;
    c->source = p;
    c->len = n;
}

static void compile(struct sl_jc *c, const char *source, size_t len, struct sl_template *t) {
    take_source(c, source, len);
    size_t n_valid = sl_utf8_valid_prefix(c->source, c->len);
    if (n_valid < c->len)
        sl_jc_fail(c, (uint32_t)n_valid, "the template is not valid UTF-8 (byte %zu)", n_valid);
    sl_jc_lex(c);
    struct sl_jnode *body = sl_jc_parse(c);
    t->scope = sl_jc_resolve(c, body);
    t->body = body;
    t->source = c->source;
    t->len = c->len;
    t->has_blocks = c->has_blocks;
}

enum sl_status sl_template_compile(const char *source, size_t len,
                                   struct sl_template **out_template, struct sl_err *err) {
    if (len > MAX_SOURCE)
        return sl_fail(err, SL_ERR_INVALID, "chat template of %zu bytes; the limit is %d", len,
                       MAX_SOURCE);
    struct sl_template *t = calloc(1, sizeof *t);
    struct sl_jc *c = calloc(1, sizeof *c); /* on the heap: it must survive the jump */
    if (!t || !c) {
        free(t);
        free(c);
        return sl_fail(err, SL_ERR_NOMEM, "out of memory for a chat template");
    }
    c->err = err;
    sl_j_arena_init(&c->arena, MAX_COMPILE_BYTES);
    if (setjmp(c->jump) == 0)
        compile(c, source, len, t);
    enum sl_status status = c->status;
    t->arena = c->arena;
    free(c);
    if (status != SL_OK) {
        sl_template_destroy(&t);
        return status;
    }
    *out_template = t;
    return SL_OK;
}

void sl_template_destroy(struct sl_template **t) {
    if (!*t)
        return;
    sl_j_arena_release(&(*t)->arena);
    free(*t);
    *t = NULL;
}

static void render(struct sl_jrt *rt, const json_t *vars) {
    struct sl_jv globals = sl_j_dict_new(rt), own = sl_j_from_json(rt, vars);
    if (own.type != SL_J_DICT)
        sl_j_fail(rt, "the variables must be a JSON object");
    for (const struct sl_jfunc *f = sl_j_globals; f->name; f++)
        sl_j_dict_set(rt, globals.d, sl_j_cstr(rt, f->name),
                      (struct sl_jv){.type = SL_J_FUNC, .fn = f});
    for (size_t i = 0; i < own.d->n; i++)
        sl_j_dict_set(rt, globals.d, own.d->e[i].key, own.d->e[i].val);
    rt->vars = globals.d;
    if (rt->t->has_blocks)
        rt->exported = sl_j_dict_new(rt).d;
    sl_j_put(rt, rt->out, "", 0);
    sl_j_exec_root(rt, rt->t->body, rt->t->scope);
}

/* Dictionary order is that of insertion, so the seed shows nowhere; it only keeps a client from
 * choosing keys that collide. */
static uint64_t hash_seed(const void *p) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    uint64_t x = (uint64_t)(uintptr_t)p ^ (uint64_t)ts.tv_nsec << 32 ^ (uint64_t)ts.tv_sec;
    return (x ^ (x >> 31)) * 0x9e3779b97f4a7c15u;
}

void sl_rendered_release(struct sl_rendered *r) {
    free(r->text);
    free(r->own);
    *r = (struct sl_rendered){0};
}

/* Moves what was written to out; the runs are the arena's, so they are copied. */
static enum sl_status take(struct sl_jout *final, struct sl_rendered *out, struct sl_err *err) {
    size_t n = final->own.n;
    if (!final->p)
        final->p = malloc(1);
    struct sl_range *own = n ? malloc(n * sizeof *own) : NULL;
    if (!final->p || (n && !own)) {
        free(own);
        return sl_fail(err, SL_ERR_NOMEM, "out of memory to render a chat template");
    }
    if (n)
        memcpy(own, final->own.run, n * sizeof *own);
    final->p[final->len] = 0;
    *out = (struct sl_rendered){final->p, final->len, own, n};
    final->p = NULL;
    return SL_OK;
}

enum sl_status sl_template_render(const struct sl_template *t, const json_t *vars,
                                  const struct sl_template_limits *limits, char **out,
                                  size_t *out_len, struct sl_err *err) {
    struct sl_rendered r;
    enum sl_status status = sl_template_render_own(t, vars, NULL, limits, &r, err);
    if (status == SL_OK) {
        free(r.own);
        *out = r.text;
        *out_len = r.len;
    }
    return status;
}

enum sl_status sl_template_render_own(const struct sl_template *t, const json_t *vars,
                                      const json_t *own, const struct sl_template_limits *limits,
                                      struct sl_rendered *out, struct sl_err *err) {
    struct sl_jrt *rt = calloc(1, sizeof *rt); /* on the heap: it must survive the jump */
    struct sl_jout *final = calloc(1, sizeof *final);
    if (!rt || !final) {
        free(rt);
        free(final);
        return sl_fail(err, SL_ERR_NOMEM, "out of memory to render a chat template");
    }
    rt->t = t;
    rt->err = err;
    rt->own = own;
    rt->limits = limits ? *limits : sl_template_default_limits;
    if (rt->limits.steps)
        rt->work = *rt->limits.steps < (UINT64_MAX >> 16) ? *rt->limits.steps * SL_J_STEP
                                                          : UINT64_MAX >> 8;
    rt->check_at = rt->work; /* the first charge looks at the limits and the watch */
    rt->start_ns = sl_now_ns();
    rt->hash_seed = hash_seed(rt);
    rt->out = final;
    final->final = true;
    sl_j_arena_init(&rt->arena, rt->limits.max_memory_bytes);
    if (setjmp(rt->jump) == 0)
        render(rt, vars);
    enum sl_status status = rt->status;
    if (rt->limits.steps)
        *rt->limits.steps = rt->work / SL_J_STEP + (rt->work % SL_J_STEP > 0);
    if (status == SL_OK)
        status = take(final, out, err);
    free(final->p);
    sl_j_arena_release(&rt->arena);
    free(rt);
    free(final);
    return status;
}
