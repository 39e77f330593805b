#include "model/tokenizer/pretokenize.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

struct sl_pretok {
    struct sl_pretok_traits traits;
    uint32_t n_steps;
    enum sl_pretok_step_kind kind[SL_PRETOK_MAX_STEPS];
    pcre2_code *code[SL_PRETOK_MAX_STEPS];
    bool jit[SL_PRETOK_MAX_STEPS];
};

static const struct sl_pretok_rule *find_rule(const char *name, size_t len) {
    for (uint32_t i = 0; i < sl_pretok_n_rules; i++) {
        for (const char *n = sl_pretok_rules[i].names; *n;) {
            size_t n_len = strcspn(n, " ");
            if (n_len == len && memcmp(n, name, len) == 0)
                return &sl_pretok_rules[i];
            n += n_len;
            n += strspn(n, " ");
        }
    }
    return NULL;
}

const char *sl_pretok_name_at(uint32_t i, size_t *out_len) {
    for (uint32_t r = 0; r < sl_pretok_n_rules; r++) {
        for (const char *n = sl_pretok_rules[r].names; *n;) {
            *out_len = strcspn(n, " ");
            if (i-- == 0)
                return n;
            n += *out_len;
            n += strspn(n, " ");
        }
    }
    return NULL;
}

enum sl_status sl_pretok_create(const char *name, size_t len, struct sl_pretok **out_pretok,
                                struct sl_err *err) {
    const struct sl_pretok_rule *rule = find_rule(name, len);
    if (!rule) {
        int shown = len > 64 ? 64 : (int)len;
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "tokenizer.ggml.pre: unknown pre-split '%.*s'; 'sluice tokenize --list-pre' "
                       "prints the known ones",
                       shown, name);
    }
    struct sl_pretok *p = calloc(1, sizeof *p);
    if (!p)
        return sl_fail(err, SL_ERR_NOMEM, "out of memory for the tokenizer's regexes");
    p->traits = rule->traits;
    for (uint32_t i = 0; i < SL_PRETOK_MAX_STEPS && rule->steps[i].kind != SL_PRETOK_END; i++) {
        int code = 0;
        PCRE2_SIZE at = 0;
        p->kind[i] = rule->steps[i].kind;
        /* Dollar means the end of the piece alone, as in the tokenizers' own engines. */
        p->code[i] = pcre2_compile(
            (PCRE2_SPTR)rule->steps[i].pattern, PCRE2_ZERO_TERMINATED,
            PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY | PCRE2_NO_UTF_CHECK, &code, &at, NULL);
        if (!p->code[i]) {
            char text[128] = "";
            pcre2_get_error_message(code, (PCRE2_UCHAR *)text, sizeof text);
            enum sl_status status = code == PCRE2_ERROR_HEAPLIMIT || code == PCRE2_ERROR_NOMEMORY
                                        ? SL_ERR_NOMEM
                                        : SL_ERR_UNSUPPORTED;
            sl_pretok_destroy(&p);
            return sl_fail(err, status,
                           "pre-split '%.*s', step %u: this PCRE2 does not take the pattern, at "
                           "%zu: %s",
                           (int)len, name, i, (size_t)at, text);
        }
        /* No JIT (a hardened system, an odd CPU) only costs speed. */
        p->jit[i] = pcre2_jit_compile(p->code[i], PCRE2_JIT_COMPLETE) == 0;
        p->n_steps = i + 1;
    }
    *out_pretok = p;
    return SL_OK;
}

void sl_pretok_destroy(struct sl_pretok **p) {
    if (!*p)
        return;
    for (uint32_t i = 0; i < SL_PRETOK_MAX_STEPS; i++)
        pcre2_code_free((*p)->code[i]);
    free(*p);
    *p = NULL;
}

const struct sl_pretok_traits *sl_pretok_traits(const struct sl_pretok *p) {
    return &p->traits;
}

struct run {
    const struct sl_pretok *p;
    sl_pretok_emit *emit;
    void *user;
    pcre2_match_data *match;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

static enum sl_status split_step(struct run *r, uint32_t step, const char *text, size_t len);

/* Finds the next match at or after from; *out_start = len when there is none. */
static enum sl_status next_match(struct run *r, uint32_t step, const char *text, size_t len,
                                 size_t from, size_t *out_start, size_t *out_end) {
    const struct sl_pretok *p = r->p;
    int rc = PCRE2_ERROR_JIT_STACKLIMIT;
    if (p->jit[step])
        rc = pcre2_jit_match(p->code[step], (PCRE2_SPTR)text, len, from, 0, r->match, r->context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(p->code[step], (PCRE2_SPTR)text, len, from,
                         PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, r->match, r->context);
    if (rc == PCRE2_ERROR_NOMATCH) {
        *out_start = *out_end = len;
        return SL_OK;
    }
    if (rc == PCRE2_ERROR_NOMEMORY || rc == PCRE2_ERROR_HEAPLIMIT)
        return SL_ERR_NOMEM;
    if (rc < 0)
        return SL_ERR_INVALID;
    const PCRE2_SIZE *o = pcre2_get_ovector_pointer(r->match);
    *out_start = o[0];
    *out_end = o[1];
    return SL_OK;
}

/* Calls the next step with the pieces of text cut at every third character from the end. */
static enum sl_status split_threes(struct run *r, uint32_t step, const char *text, size_t len) {
    size_t n_chars = 0;
    for (size_t i = 0; i < len; i++)
        n_chars += ((unsigned char)text[i] & 0xc0) != 0x80;
    size_t in_group = n_chars % 3 ? n_chars % 3 : 3, start = 0;
    for (size_t i = 0; i < len;) {
        i++;
        while (i < len && ((unsigned char)text[i] & 0xc0) == 0x80)
            i++;
        if (--in_group == 0) {
            SL_TRY(split_step(r, step + 1, text + start, i - start));
            start = i;
            in_group = 3;
        }
    }
    return SL_OK;
}

/* Like split_threes, but what comes before the first mark and after the last stays attached. */
static enum sl_status split_marks(struct run *r, uint32_t step, const char *text, size_t len) {
    size_t from = 0, piece = 0;
    while (from < len) {
        size_t start, end;
        SL_TRY(next_match(r, step, text, len, from, &start, &end));
        if (start >= len || end <= start)
            break;
        size_t n_chars = 0;
        for (size_t i = start; i < end; i++)
            n_chars += ((unsigned char)text[i] & 0xc0) != 0x80;
        size_t left = n_chars; /* characters from i to the end of the match */
        for (size_t i = start; i < end; i++) {
            if (((unsigned char)text[i] & 0xc0) == 0x80)
                continue;
            if (left % 3 == 0 && i > piece) {
                SL_TRY(split_step(r, step + 1, text + piece, i - piece));
                piece = i;
            }
            left--;
        }
        from = end;
    }
    return piece < len ? split_step(r, step + 1, text + piece, len - piece) : SL_OK;
}

static enum sl_status split_step(struct run *r, uint32_t step, const char *text, size_t len) {
    if (step == r->p->n_steps)
        return r->emit(r->user, text, len);
    if (r->p->kind[step] == SL_PRETOK_MARKS3)
        return split_marks(r, step, text, len);
    size_t done = 0; /* everything before it is with the next step */
    while (done < len) {
        size_t start, end;
        SL_TRY(next_match(r, step, text, len, done, &start, &end));
        if (start > done)
            SL_TRY(split_step(r, step + 1, text + done, start - done));
        if (end > start)
            SL_TRY(r->p->kind[step] == SL_PRETOK_GROUPS3
                       ? split_threes(r, step, text + start, end - start)
                       : split_step(r, step + 1, text + start, end - start));
        /* No pattern in the table matches nothing; were one to, the rest stays one piece. */
        if (end == start && end < len)
            return split_step(r, step + 1, text + end, len - end);
        done = end;
    }
    return SL_OK;
}

enum sl_status sl_pretok_split(const struct sl_pretok *p, const char *text, size_t len,
                               sl_pretok_emit *emit, void *user) {
    if (len == 0)
        return SL_OK;
    struct run r = {.p = p, .emit = emit, .user = user};
    /* One pair is enough: what a group caught is never asked for. */
    r.match = pcre2_match_data_create(1, NULL);
    r.context = pcre2_match_context_create(NULL);
    r.stack = pcre2_jit_stack_create(32 * 1024, 4 * 1024 * 1024, NULL);
    enum sl_status status = SL_ERR_NOMEM;
    if (r.match && r.context && r.stack) {
        pcre2_jit_stack_assign(r.context, NULL, r.stack);
        /* The patterns are ours and linear; the limits only have to be out of a long text's way. */
        pcre2_set_match_limit(r.context, UINT32_MAX);
        pcre2_set_heap_limit(r.context, 1024 * 1024);
        status = split_step(&r, 0, text, len);
    }
    pcre2_jit_stack_free(r.stack);
    pcre2_match_context_free(r.context);
    pcre2_match_data_free(r.match);
    return status;
}
