/* Statements of a template. The parser descends one C frame per nested statement or bracket, so its
 * depth is bounded.
 * Source: Jinja2's template documentation. */
#include "model/jinja/jinja_ast.h"

#include <stdio.h>

static void expect_word(struct sl_jc *c, const char *word) {
    char want[32];
    snprintf(want, sizeof want, "'%s'", word);
    if (!sl_jc_skip_name(c, word))
        sl_jc_unexpected(c, want);
}

static struct sl_jnode *statement(struct sl_jc *c);

/* Up to a tag whose first word is one of `ends` (NULL: the end of the template); stops at that
 * word. */
static struct sl_jnode *body_until(struct sl_jc *c, const char *const *ends, uint32_t open) {
    struct sl_jlist_of body = {0}, text = {0};
    struct sl_jnode *n = sl_jc_node(c, SL_N_BODY, open);
    sl_jc_enter(c);
    for (;;) {
        struct sl_j_token *t = sl_jc_tok(c);
        struct sl_jnode *piece = NULL;
        if (t->type == SL_T_DATA) {
            piece = sl_jc_node(c, SL_N_DATA, t->off);
            piece->value = sl_j_of_str(sl_jc_next(c)->u.s);
        } else if (t->type == SL_T_VAR_BEGIN) {
            sl_jc_next(c);
            piece = sl_jc_tuple(c, 0, NULL);
            if (sl_jc_tok(c)->type != SL_T_VAR_END)
                sl_jc_unexpected(c, "'}}'");
            sl_jc_next(c);
        }
        if (piece) {
            sl_jc_push(c, &text, piece);
            continue;
        }
        if (text.n) {
            struct sl_jnode *o = sl_jc_node(c, SL_N_OUTPUT, text.v[0]->off);
            o->list = text.v;
            o->n = text.n;
            for (uint32_t i = 0; i < o->n; i++)
                sl_jc_child(c, o, o->list[i]);
            sl_jc_push(c, &body, o);
            text = (struct sl_jlist_of){0};
        }
        if (t->type == SL_T_EOF) {
            if (ends)
                sl_jc_fail(c, open,
                           "this block is never closed: the template ends without {%% %s %%}",
                           ends[0]);
            break;
        }
        sl_jc_next(c); /* {% */
        bool done = false;
        for (const char *const *e = ends; e && *e; e++)
            done |= sl_jc_is_name(c, *e);
        if (done)
            break;
        sl_jc_push(c, &body, statement(c));
        if (sl_jc_tok(c)->type != SL_T_BLOCK_END)
            sl_jc_unexpected(c, "'%}'");
        sl_jc_next(c);
    }
    sl_jc_leave(c);
    n->list = body.v;
    n->n = body.n;
    for (uint32_t i = 0; i < n->n; i++)
        sl_jc_child(c, n, n->list[i]);
    return n;
}

/* "%} ... {% end"; with ends of one word that word is passed too. */
static struct sl_jnode *block_body(struct sl_jc *c, const char *const *ends, uint32_t open) {
    sl_jc_skip_op(c, ':');
    if (sl_jc_tok(c)->type != SL_T_BLOCK_END)
        sl_jc_unexpected(c, "'%}'");
    sl_jc_next(c);
    struct sl_jnode *n = body_until(c, ends, open);
    if (!ends[1])
        sl_jc_next(c);
    return n;
}

static struct sl_jnode *simple_body(struct sl_jc *c, const char *end, uint32_t open) {
    const char *const ends[] = {end, NULL};
    return block_body(c, ends, open);
}

static void check_target(struct sl_jc *c, const struct sl_jnode *n) {
    if (n->kind == SL_N_TUPLE) {
        for (uint32_t i = 0; i < n->n; i++)
            check_target(c, n->list[i]);
    } else if (n->kind != SL_N_NAME) {
        sl_jc_fail(c, n->off, "cannot assign to this");
    }
}

static struct sl_jnode *name_node(struct sl_jc *c) {
    uint32_t off = sl_jc_tok(c)->off;
    struct sl_jnode *n = sl_jc_node(c, SL_N_NAME, off);
    n->name = sl_jc_expect_name(c);
    static const char *const constant[] = {"true", "false", "none", "True", "False", "None"};
    for (size_t i = 0; i < sizeof constant / sizeof *constant; i++)
        if (sl_j_str_is(n->name, constant[i]))
            sl_jc_fail(c, off, "cannot assign to '%s'", constant[i]);
    return n;
}

static struct sl_jnode *target(struct sl_jc *c, bool with_ns, const char *end) {
    struct sl_j_token *look = sl_jc_look(c);
    if (with_ns && look->type == SL_T_OP && look->op == '.') {
        struct sl_jnode *n = sl_jc_node(c, SL_N_NSREF, sl_jc_tok(c)->off);
        n->a = sl_jc_node(c, SL_N_NAME, n->off);
        n->a->name = sl_jc_expect_name(c);
        sl_jc_next(c);
        n->name = sl_jc_expect_name(c);
        return n;
    }
    struct sl_jnode *n = sl_jc_tuple(c, SL_TUPLE_SIMPLE, end);
    check_target(c, n);
    return n;
}

static struct sl_jnode *parse_for(struct sl_jc *c, uint32_t off) {
    static const char *const ends[] = {"endfor", "else", NULL};
    struct sl_jnode *n = sl_jc_node(c, SL_N_FOR, off);
    n->a = target(c, false, "in");
    expect_word(c, "in");
    n->b = sl_jc_tuple(c, SL_TUPLE_NO_COND, "recursive");
    if (sl_jc_skip_name(c, "if"))
        n->d = sl_jc_expression(c, true);
    n->flag = sl_jc_skip_name(c, "recursive");
    n->body = block_body(c, ends, off);
    if (sl_jc_is_name(c, "else")) {
        sl_jc_next(c);
        n->else_body = simple_body(c, "endfor", off);
    } else {
        sl_jc_next(c);
    }
    return n;
}

static struct sl_jnode *parse_if(struct sl_jc *c, uint32_t off) {
    static const char *const ends[] = {"endif", "elif", "else", NULL};
    struct sl_jnode *n = sl_jc_node(c, SL_N_IF, off);
    struct sl_jlist_of l = {0};
    for (;;) {
        sl_jc_push(c, &l, sl_jc_tuple(c, SL_TUPLE_NO_COND, NULL));
        sl_jc_push(c, &l, block_body(c, ends, off));
        bool more = sl_jc_is_name(c, "elif"), last = sl_jc_is_name(c, "else");
        sl_jc_next(c);
        if (more)
            continue;
        if (last)
            n->c = simple_body(c, "endif", off);
        break;
    }
    n->list = l.v;
    n->n = l.n;
    for (uint32_t i = 0; i < n->n; i++)
        sl_jc_child(c, n, n->list[i]);
    return n;
}

static struct sl_jparams *signature(struct sl_jc *c, bool present) {
    struct sl_jparams *p = sl_jc_alloc(c, sizeof *p);
    struct sl_jlist_of names = {0}, fallbacks = {0};
    p->caller_slot = p->kwargs_slot = p->varargs_slot = -1;
    if (!present)
        return p;
    bool optional = false;
    sl_jc_expect_op(c, '(');
    while (!sl_jc_is_op(c, ')')) {
        if (names.n)
            sl_jc_expect_op(c, ',');
        struct sl_jnode *name = name_node(c), *fallback = NULL;
        sl_jc_charge(c, names.n);
        for (uint32_t i = 0; i < names.n; i++)
            if (sl_j_str_eq(names.v[i]->name, name->name))
                sl_jc_fail(c, name->off, "the parameter '%.*s' is there twice",
                           (int)name->name->len, name->name->p);
        if (sl_jc_skip_op(c, '=')) {
            fallback = sl_jc_expression(c, true);
            optional = true;
        } else if (optional) {
            sl_jc_fail(c, name->off, "parameter without a default after one with a default");
        }
        sl_jc_push(c, &names, name);
        sl_jc_push(c, &fallbacks, fallback);
    }
    sl_jc_next(c);
    p->name = names.v;
    p->fallback = fallbacks.v;
    p->n = names.n;
    return p;
}

static struct sl_jnode *parse_call_block(struct sl_jc *c, uint32_t off) {
    struct sl_jnode *n = sl_jc_node(c, SL_N_CALLBLOCK, off);
    n->params = signature(c, sl_jc_is_op(c, '('));
    n->a = sl_jc_expression(c, true);
    if (n->a->kind != SL_N_CALL)
        sl_jc_fail(c, off, "{%% call %%} wants a call");
    n->body = simple_body(c, "endcall", off);
    return n;
}

static struct sl_jnode *parse_set(struct sl_jc *c, uint32_t off) {
    struct sl_jnode *n = sl_jc_node(c, SL_N_SET, off);
    n->a = target(c, true, NULL);
    if (sl_jc_skip_op(c, '=')) {
        n->b = sl_jc_tuple(c, 0, NULL);
        return n;
    }
    n->kind = SL_N_SETBLOCK;
    n->b = sl_jc_filters(c, NULL, false);
    n->body = simple_body(c, "endset", off);
    return n;
}

static struct sl_jnode *parse_with(struct sl_jc *c, uint32_t off) {
    struct sl_jnode *n = sl_jc_node(c, SL_N_WITH, off);
    struct sl_jlist_of l = {0};
    while (sl_jc_tok(c)->type != SL_T_BLOCK_END) {
        if (l.n)
            sl_jc_expect_op(c, ',');
        struct sl_jnode *t = target(c, false, NULL);
        sl_jc_push(c, &l, t);
        sl_jc_expect_op(c, '=');
        sl_jc_push(c, &l, sl_jc_expression(c, true));
    }
    n->list = l.v;
    n->n = l.n;
    for (uint32_t i = 0; i < n->n; i++)
        sl_jc_child(c, n, n->list[i]);
    n->body = simple_body(c, "endwith", off);
    return n;
}

static struct sl_jnode *parse_block(struct sl_jc *c, uint32_t off) {
    struct sl_jnode *n = sl_jc_node(c, SL_N_BLOCK, off);
    n->name = sl_jc_expect_name(c);
    if (sl_jc_skip_name(c, "scoped"))
        sl_jc_fail(c, off, "scoped blocks are not supported");
    n->flag = sl_jc_skip_name(c, "required");
    n->body = simple_body(c, "endblock", off);
    if (sl_jc_is_name(c, NULL) && sl_j_str_eq(sl_jc_tok(c)->u.s, n->name))
        sl_jc_next(c);
    c->has_blocks = true;
    return n;
}

/* Tags that would read other files: they parse, and fail when reached. */
static struct sl_jnode *parse_refused(struct sl_jc *c, uint32_t off, const struct sl_jstr *tag) {
    struct sl_jnode *n = sl_jc_node(c, SL_N_REFUSE, off);
    n->name = tag;
    while (sl_jc_tok(c)->type != SL_T_BLOCK_END && sl_jc_tok(c)->type != SL_T_EOF)
        sl_jc_next(c);
    return n;
}

static struct sl_jnode *parse_macro(struct sl_jc *c, uint32_t off) {
    struct sl_jnode *n = sl_jc_node(c, SL_N_MACRO, off);
    n->a = name_node(c);
    n->name = n->a->name;
    n->params = signature(c, true);
    n->body = simple_body(c, "endmacro", off);
    return n;
}

static struct sl_jnode *parse_filter_block(struct sl_jc *c, uint32_t off) {
    struct sl_jnode *n = sl_jc_node(c, SL_N_FILTERBLOCK, off);
    n->a = sl_jc_filters(c, NULL, true);
    n->body = simple_body(c, "endfilter", off);
    return n;
}

static struct sl_jnode *parse_generation(struct sl_jc *c, uint32_t off) {
    struct sl_jnode *n = sl_jc_node(c, SL_N_CALLBLOCK, off);
    n->params = signature(c, false);
    n->body = simple_body(c, "endgeneration", off);
    return n;
}

static struct sl_jnode *parse_autoescape(struct sl_jc *c, uint32_t off) {
    struct sl_jnode *n = sl_jc_node(c, SL_N_SCOPE, off), *on = sl_jc_expression(c, true);
    if (on->kind != SL_N_CONST || on->value.type != SL_J_BOOL || on->value.b)
        sl_jc_fail(c, off, "{%% autoescape %%} other than false is not supported");
    n->body = simple_body(c, "endautoescape", off);
    return n;
}

static struct sl_jnode *parse_print(struct sl_jc *c, uint32_t off) {
    struct sl_jnode *n = sl_jc_node(c, SL_N_OUTPUT, off);
    struct sl_jlist_of l = {0};
    while (sl_jc_tok(c)->type != SL_T_BLOCK_END) {
        if (l.n)
            sl_jc_expect_op(c, ',');
        sl_jc_push(c, &l, sl_jc_expression(c, true));
        sl_jc_child(c, n, l.v[l.n - 1]);
    }
    n->list = l.v;
    n->n = l.n;
    return n;
}

static struct sl_jnode *parse_break(struct sl_jc *c, uint32_t off) {
    return sl_jc_node(c, SL_N_BREAK, off);
}

static struct sl_jnode *parse_continue(struct sl_jc *c, uint32_t off) {
    return sl_jc_node(c, SL_N_CONTINUE, off);
}

static struct sl_jnode *parse_tag(struct sl_jc *c, uint32_t off, const struct sl_jstr *tag) {
    static const struct {
        const char *name;
        struct sl_jnode *(*parse)(struct sl_jc *c, uint32_t off);
    } tags[] = {{"for", parse_for},
                {"if", parse_if},
                {"set", parse_set},
                {"with", parse_with},
                {"call", parse_call_block},
                {"block", parse_block},
                {"macro", parse_macro},
                {"filter", parse_filter_block},
                {"generation", parse_generation},
                {"autoescape", parse_autoescape},
                {"print", parse_print},
                {"break", parse_break},
                {"continue", parse_continue}};
    static const char *const refused[] = {"include", "import", "from", "extends"};
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++)
        if (sl_j_str_is(tag, tags[i].name))
            return tags[i].parse(c, off);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (sl_j_str_is(tag, refused[i]))
            return parse_refused(c, off, tag);
    sl_jc_fail(c, off, "unknown tag '%.*s'", (int)(tag->len > 40 ? 40 : tag->len), tag->p);
}

static struct sl_jnode *statement(struct sl_jc *c) {
    uint32_t off = sl_jc_tok(c)->off;
    if (!sl_jc_is_name(c, NULL))
        sl_jc_unexpected(c, "a tag name");
    sl_jc_enter(c);
    struct sl_jnode *n = parse_tag(c, off, sl_jc_next(c)->u.s);
    sl_jc_leave(c);
    sl_jc_child(c, n, n->a);
    sl_jc_child(c, n, n->b);
    sl_jc_child(c, n, n->c);
    sl_jc_child(c, n, n->d);
    sl_jc_child(c, n, n->body);
    sl_jc_child(c, n, n->else_body);
    for (uint32_t i = 0; n->params && i < n->params->n; i++)
        sl_jc_child(c, n, n->params->fallback[i]);
    return n;
}

struct sl_jnode *sl_jc_parse(struct sl_jc *c) {
    return body_until(c, NULL, 0);
}
