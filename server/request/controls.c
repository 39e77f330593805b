#include "server/request/controls.h"

#include "server/request/dry.h"
#include "server/request/samplers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNTOF(a)     (sizeof(a) / sizeof *(a))
#define MAX_WORD_BYTES 512u

/* --------------------------------------------------------------------------------- logit_bias */

struct biases {
    struct sl_gen_params *p;
    const struct sl_tokenizer *tok;
    uint32_t n, cap, n_vocab;
    struct sl_http_error *e;
};

static bool add_bias(struct biases *b, uint32_t id, float bias) {
    if (b->n == b->n_vocab)
        return sl_http_bad(b->e, "logit_bias",
                           "'logit_bias' has more entries than the vocabulary of %u tokens",
                           b->n_vocab);
    if (b->n == b->cap) {
        uint32_t cap = b->cap ? 2 * b->cap : 16;
        struct sl_logit_bias *more = realloc(b->p->bias, cap * sizeof *more);
        if (!more)
            return sl_http_from_status(b->e, SL_ERR_NOMEM, NULL);
        b->p->bias = more;
        b->cap = cap;
    }
    b->p->bias[b->n++] = (struct sl_logit_bias){id, bias};
    return true;
}

/* Each token of the text. */
static bool add_word(struct biases *b, const char *text, size_t len, float bias) {
    if (!len || len > MAX_WORD_BYTES)
        return sl_http_bad(b->e, "logit_bias",
                           "'logit_bias' has a text of %zu bytes; a text has 1 to %u", len,
                           MAX_WORD_BYTES);
    struct sl_ids ids = {0};
    enum sl_status status = sl_tokenizer_encode(b->tok, text, len, 0, &ids);
    bool ok = status == SL_OK || sl_http_from_status(b->e, status, NULL);
    for (size_t i = 0; ok && i < ids.n; i++)
        ok = add_bias(b, ids.ids[i], bias);
    sl_ids_release(&ids);
    return ok;
}

/* A number, or false: never. */
static bool read_bias(struct biases *b, const char *of, const json_t *v, float *out) {
    *out = 0;
    double x = json_is_false(v) ? -INFINITY : json_number_value(v);
    if (!json_is_false(v) && (!json_is_number(v) || !(x >= -100) || !(x <= 100)))
        return sl_http_bad(b->e, "logit_bias",
                           "'logit_bias' for '%.32s' must be a number from -100 to 100, or false",
                           of);
    *out = x <= -100 ? -INFINITY : (float)x; /* -100 bans, as the API promises */
    return true;
}

static bool add_id(struct biases *b, bool fits, json_int_t id, float bias) {
    if (!fits || id < 0 || id >= b->n_vocab)
        return sl_http_bad(b->e, "logit_bias",
                           "'logit_bias' has a token id outside the vocabulary: ids are from 0 "
                           "to %u",
                           b->n_vocab - 1);
    return add_bias(b, (uint32_t)id, bias);
}

/* A key of digits is an id, any other a text. */
static bool add_key(struct biases *b, const char *key, float bias) {
    size_t len = strlen(key);
    if (!len || strspn(key, "0123456789") < len)
        return add_word(b, key, len, bias);
    return add_id(b, len < 12, (json_int_t)strtoull(key, NULL, 10), bias);
}

static bool add_pair(struct biases *b, const json_t *pair) {
    const json_t *what = json_array_get(pair, 0);
    float bias;
    if (json_array_size(pair) != 2 || !(json_is_integer(what) || json_is_string(what)))
        return sl_http_bad(b->e, "logit_bias",
                           "'logit_bias' as an array must hold pairs [id, bias] or "
                           "[\"text\", bias]");
    char id[24] = "";
    if (json_is_integer(what))
        snprintf(id, sizeof id, "%lld", (long long)json_integer_value(what));
    if (!read_bias(b, json_is_integer(what) ? id : json_string_value(what), json_array_get(pair, 1),
                   &bias))
        return false;
    if (json_is_integer(what))
        return add_id(b, true, json_integer_value(what), bias);
    return add_word(b, json_string_value(what), json_string_length(what), bias);
}

static bool read_logit_bias(const json_t *body, struct biases *b) {
    const json_t *v = json_object_get(body, "logit_bias");
    const char *key;
    json_t *value;
    float bias;
    if (!v || json_is_null(v))
        return true;
    if (!json_is_object(v) && !json_is_array(v))
        return sl_http_bad(b->e, "logit_bias",
                           "'logit_bias' must be an object from token ids to numbers, or an array "
                           "of pairs, not %s",
                           sl_json_kind(v));
    json_object_foreach((json_t *)v, key, value) if (!read_bias(b, key, value, &bias) ||
                                                     !add_key(b, key, bias)) return false;
    for (size_t i = 0; i < json_array_size(v); i++)
        if (!add_pair(b, json_array_get(v, i)))
            return false;
    b->p->sampling.logit_bias = b->p->bias;
    b->p->sampling.n_logit_bias = b->n;
    return true;
}

/* ------------------------------------------------------------------------------------ the rest */

static bool read_stop_ids(const json_t *body, uint32_t n_vocab, struct sl_gen_params *p,
                          struct sl_http_error *e) {
    const json_t *v = json_object_get(body, "stop_token_ids");
    size_t n = json_array_size(v);
    if (!v || json_is_null(v))
        return true;
    if (!json_is_array(v) || n > SL_MAX_STOP_IDS)
        return sl_http_bad(e, "stop_token_ids",
                           "'stop_token_ids' must be an array of at most %u token ids",
                           SL_MAX_STOP_IDS);
    if (!n)
        return true;
    p->stop_ids = calloc(n, sizeof *p->stop_ids);
    if (!p->stop_ids)
        return sl_http_from_status(e, SL_ERR_NOMEM, NULL);
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(v, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= n_vocab)
            return sl_http_bad(e, "stop_token_ids",
                               "'stop_token_ids[%zu]' must be a token id from 0 to %u", i,
                               n_vocab - 1);
        p->stop_ids[i] = (uint32_t)json_integer_value(id);
    }
    p->n_stop_ids = (uint32_t)n;
    return true;
}

static bool read_reasoning_format(const json_t *body, struct sl_gen_params *p,
                                  struct sl_http_error *e) {
    const json_t *v = json_object_get(body, "reasoning_format");
    const char *s = json_string_value(v);
    if (!v || json_is_null(v))
        return true;
    p->raw_reasoning = s && strcmp(s, "none") == 0;
    if (!p->raw_reasoning && !(s && (strcmp(s, "auto") == 0 || strcmp(s, "deepseek") == 0)))
        return sl_http_bad(e, "reasoning_format",
                           "'reasoning_format' must be none, auto or deepseek");
    return true;
}

/* Under llama.cpp's name, those of its clients and vLLM's; below 0: no limit. */
static bool read_budget(const json_t *body, struct sl_gen_params *p, struct sl_http_error *e) {
    static const char *const names[] = {"reasoning_budget", "reasoning_budget_tokens",
                                        "thinking_budget", "thinking_budget_tokens",
                                        "thinking_token_budget"};
    for (size_t i = 0; i < COUNTOF(names); i++) {
        const json_t *v = json_object_get(body, names[i]);
        json_int_t n = json_integer_value(v);
        if (!v || json_is_null(v))
            continue;
        if (!json_is_integer(v) || n < -1 || n > INT32_MAX)
            return sl_http_bad(e, names[i],
                               "'%s' must be an integer from -1 (no limit) to %d, not %s", names[i],
                               INT32_MAX, json_is_integer(v) ? "one outside" : sl_json_kind(v));
        p->budget.asked = true;
        p->budget.given = n >= 0;
        p->budget.tokens = n >= 0 ? (uint32_t)n : 0;
    }
    return true;
}

/* ------------------------------------------------------------------------------- what is not */

/* What is as if the field were not there: clients send every setting of another server with its
 * default. */
enum off {
    OFF_ZERO,     /* null, false, 0, "", [] */
    OFF_ONE,      /* these and 1 */
    OFF_TO_ZERO,  /* the first, and all numbers up to 0 */
    OFF_NEGATIVE, /* null, false, and numbers below 0 */
    OFF_NULL,     /* null and false alone */
    OFF_TRUE,     /* null and true alone */
};

/* Ignoring one of these would give another answer than the one asked for. Other settings of the
 * same steps (mirostat_tau) change nothing while those are off. */
static const struct refused {
    const char *name;
    enum off off;
} refused[] = {
    /* sampling */
    {"mirostat", OFF_ZERO},
    {"dynatemp_range", OFF_ZERO},
    {"adaptive_target", OFF_NEGATIVE},
    {"min_keep", OFF_ONE},
    {"tfs_z", OFF_ONE},
    {"length_penalty", OFF_ONE},
    {"use_beam_search", OFF_ZERO},
    {"no_repeat_ngram_size", OFF_ZERO},
    {"bad_words", OFF_ZERO},
    {"allowed_token_ids", OFF_ZERO},
    {"logits_processors", OFF_ZERO},
    {"lora", OFF_ZERO},
    /* the prompt */
    {"chat_template", OFF_ZERO},
    {"documents", OFF_ZERO},
    {"truncate_prompt_tokens", OFF_NEGATIVE},
    {"generation_prompt", OFF_ZERO},
    {"web_search_options", OFF_NULL},
    /* the end of the answer, and its form */
    {"t_max_predict_ms", OFF_TO_ZERO},
    {"n_indent", OFF_TO_ZERO},
    {"grammar_lazy", OFF_ZERO},
    {"grammar_triggers", OFF_ZERO},
    {"structural_tag", OFF_ZERO},
    {"include_stop_str_in_output", OFF_ZERO},
    {"skip_special_tokens", OFF_TRUE},
    {"parse_tool_calls", OFF_TRUE},
    {"chat_parser", OFF_ZERO},
    {"reasoning_budget_message", OFF_ZERO},
    {"reasoning_budget_start_tag", OFF_ZERO},
    {"reasoning_budget_end_tag", OFF_ZERO},
    {"reasoning_budget_end_tags", OFF_ZERO},
    {"audio", OFF_NULL},
    /* what is told beside it */
    {"n_probs", OFF_ZERO}, /* /completion has read it */
    {"post_sampling_probs", OFF_ZERO},
    {"prompt_logprobs", OFF_NULL},
    {"return_token_ids", OFF_ZERO},
    {"return_tokens_as_token_ids", OFF_ZERO},
    {"include_reasoning", OFF_TRUE},
};

const char *sl_controls_refused(size_t i) {
    return i < COUNTOF(refused) ? refused[i].name : NULL;
}

static bool is_off(const json_t *v, enum off off) {
    double x = json_number_value(v);
    if (!v || json_is_null(v))
        return true;
    if (off == OFF_TRUE)
        return json_is_true(v);
    if (json_is_false(v))
        return true;
    if (off == OFF_NULL)
        return false;
    if (json_is_number(v) && x != 0)
        return x < 0 ? off == OFF_NEGATIVE || off == OFF_TO_ZERO : off == OFF_ONE && x == 1;
    if (json_is_number(v))
        return off != OFF_NEGATIVE;
    return (json_is_array(v) && json_array_size(v) == 0) ||
           (json_is_string(v) && json_string_length(v) == 0);
}

static bool refuse(const json_t *body, struct sl_http_error *e) {
    for (size_t i = 0; i < COUNTOF(refused); i++)
        if (!is_off(json_object_get(body, refused[i].name), refused[i].off))
            return sl_http_bad(e, refused[i].name, "'%s' is not supported: leave it out",
                               refused[i].name);
    return true;
}

bool sl_controls_read(const json_t *body, const struct sl_tokenizer *tok, struct sl_gen_params *p,
                      struct sl_http_error *e) {
    uint32_t n_vocab = sl_tokenizer_n_vocab(tok);
    struct biases b = {.p = p, .tok = tok, .n_vocab = n_vocab, .e = e};
    return read_logit_bias(body, &b) && read_stop_ids(body, n_vocab, p, e) &&
           read_reasoning_format(body, p, e) && read_budget(body, p, e) &&
           sl_dry_read(body, tok, p, e) && sl_samplers_read(body, &p->sampling, e) &&
           refuse(body, e);
}
