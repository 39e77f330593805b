#include "server/request/params.h"

#include "server/request/constrain.h"
#include "server/request/controls.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* What the tables fill; two spellings of a field fill one member in table order. */
struct raw {
    struct sl_gen_params p;
    uint32_t max_tokens, max_completion_tokens, n_predict; /* UINT32_MAX: no limit */
    uint32_t top_logprobs, logprobs_count, best_of;
    bool logprobs;
    bool without_effect; /* fields that are checked and change nothing */
};

#define P(member) offsetof(struct raw, p.member)
#define R(member) offsetof(struct raw, member)

/* Ranges are OpenAI's where the API defines the field. */
static const struct sl_field shared_fields[] = {
    {"stream", SL_FIELD_BOOL, P(stream), 0, 0},
    {"n", SL_FIELD_U32, P(n), 1, SL_MAX_CHOICES},
    {"n_cmpl", SL_FIELD_U32, P(n), 1, SL_MAX_CHOICES}, /* llama.cpp's name */
    {"max_tokens", SL_FIELD_U32, R(max_tokens), -1, INT32_MAX},
    {"max_completion_tokens", SL_FIELD_U32, R(max_completion_tokens), -1, INT32_MAX},
    {"n_predict", SL_FIELD_U32, R(n_predict), -1, INT32_MAX},
    {"min_tokens", SL_FIELD_U32, P(sampling.min_tokens), 0, INT32_MAX},
    {"timings_per_token", SL_FIELD_BOOL, P(timings_per_token), 0, 0},
    {"return_progress", SL_FIELD_BOOL, P(return_progress), 0, 0},
    {"temperature", SL_FIELD_F32, P(sampling.temperature), 0, 2},
    {"top_p", SL_FIELD_F32, P(sampling.top_p), 0, 1},
    {"min_p", SL_FIELD_F32, P(sampling.min_p), 0, 1},
    {"typical_p", SL_FIELD_F32, P(sampling.typical_p), 0, 1},
    {"xtc_probability", SL_FIELD_F32, P(sampling.xtc_probability), 0, 1},
    {"xtc_threshold", SL_FIELD_F32, P(sampling.xtc_threshold), 0, 1},
    {"dry_multiplier", SL_FIELD_F32, P(sampling.dry.multiplier), 0, 100},
    {"dry_base", SL_FIELD_F32, P(sampling.dry.base), 1, 100},
    {"dry_allowed_length", SL_FIELD_U32, P(sampling.dry.allowed_length), 0, SL_DRY_MAX_LENGTH},
    {"dry_penalty_last_n", SL_FIELD_U32, P(sampling.dry.last_n), -1, INT32_MAX},
    {"top_n_sigma", SL_FIELD_F32, P(sampling.top_n_sigma), -1, 1e6},
    {"top_k", SL_FIELD_U32, P(sampling.top_k), -1, INT32_MAX},
    {"presence_penalty", SL_FIELD_F32, P(sampling.presence_penalty), -2, 2},
    {"frequency_penalty", SL_FIELD_F32, P(sampling.frequency_penalty), -2, 2},
    {"repetition_penalty", SL_FIELD_F32, P(sampling.repeat_penalty), 0.01, 100},
    {"repeat_penalty", SL_FIELD_F32, P(sampling.repeat_penalty), 0.01, 100},
    {"repeat_last_n", SL_FIELD_U32, P(sampling.repeat_last_n), -1, INT32_MAX},
    {"seed", SL_FIELD_SEED, P(sampling.seed), 0, 0},
    {"ignore_eos", SL_FIELD_BOOL, P(ignore_eos), 0, 0},
    {"cache_prompt", SL_FIELD_BOOL, P(cache_prompt), 0, 0},
    {"timeout_s", SL_FIELD_F32, P(timeout_s), 0.001, 86400},
    {"user", SL_FIELD_STRING, 0, 0, 0}, /* from here on: known, and of no effect */
    {"metadata", SL_FIELD_OBJECT, 0, 0, 0},
    {"service_tier", SL_FIELD_STRING, 0, 0, 0},
    {"store", SL_FIELD_BOOL, R(without_effect), 0, 0},
    {"safety_identifier", SL_FIELD_STRING, 0, 0, 0},
    {"prompt_cache_key", SL_FIELD_STRING, 0, 0, 0},
    {"verbosity", SL_FIELD_STRING, 0, 0, 0},
};
static const struct sl_field chat_fields[] = {
    {"logprobs", SL_FIELD_BOOL, R(logprobs), 0, 0},
    {"top_logprobs", SL_FIELD_U32, R(top_logprobs), 0, SL_MAX_TOP_LOGPROBS},
};
static const struct sl_field completion_fields[] = {
    {"logprobs", SL_FIELD_U32, R(logprobs_count), 0, SL_MAX_TOP_LOGPROBS},
    {"best_of", SL_FIELD_U32, R(best_of), 1, SL_MAX_CHOICES},
};
#define COUNTOF(a) ((uint32_t)(sizeof(a) / sizeof *(a)))

static bool read_stop(const json_t *body, struct sl_stop_set *set, struct sl_http_error *e) {
    const json_t *v = json_object_get(body, "stop");
    if (!v || json_is_null(v))
        return true;
    struct sl_err err;
    if (json_is_string(v)) {
        enum sl_status status = sl_stop_add(set, json_string_value(v), json_string_length(v), &err);
        if (status == SL_ERR_INVALID)
            return sl_http_bad(e, "stop", "'stop': %s", err.text);
        return status == SL_OK || sl_http_from_status(e, status, &err);
    }
    if (!json_is_array(v))
        return sl_http_bad(e, "stop", "'stop' must be a string or an array of strings, not %s",
                           sl_json_kind(v));
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *s = json_array_get(v, i);
        if (!json_is_string(s))
            return sl_http_bad(e, "stop", "'stop[%zu]' must be a string, not %s", i,
                               sl_json_kind(s));
        enum sl_status status = sl_stop_add(set, json_string_value(s), json_string_length(s), &err);
        if (status == SL_ERR_INVALID)
            return sl_http_bad(e, "stop", "'stop[%zu]': %s", i, err.text);
        if (status != SL_OK)
            return sl_http_from_status(e, status, &err);
    }
    return true;
}

/* What clients may ask of other servers and get from this one only in its usual form. */
static bool check_unsupported(const json_t *body, struct sl_http_error *e) {
    static const char *const old[] = {"functions", "function_call"};
    for (size_t i = 0; i < COUNTOF(old); i++) {
        const json_t *v = json_object_get(body, old[i]);
        if (v && !json_is_null(v))
            return sl_http_bad(e, old[i],
                               "'%s' is the old name of 'tools' and 'tool_choice': use "
                               "those",
                               old[i]);
    }
    const json_t *modalities = json_object_get(body, "modalities");
    if (!modalities || json_is_null(modalities))
        return true;
    const char *only = json_string_value(json_array_get(modalities, 0));
    if (json_array_size(modalities) != 1 || !only || strcmp(only, "text") != 0)
        return sl_http_bad(e, "modalities",
                           "'modalities' must be [\"text\"]: this model makes text "
                           "only");
    return true;
}

/* Fields that are asked of one of the two modes alone. */
static bool check_other_modes(const json_t *body, enum sl_api api, uint32_t n,
                              struct sl_http_error *e) {
    bool chat = api != SL_API_COMPLETIONS && api != SL_API_NATIVE;
    const json_t *best = json_object_get(body, "best_of");
    const json_t *special = json_object_get(body, "add_special_tokens");
    if (chat && json_is_true(json_object_get(body, "echo")))
        return sl_http_bad(e, "echo", "'echo' is not supported here: use /v1/completions");
    if (best && !json_is_null(best) && !(json_is_integer(best) && json_integer_value(best) == n))
        return sl_http_bad(e, "best_of", "'best_of' other than 'n' is not supported");
    /* The template writes what a conversation begins with; in front of a text stands what the model
     * asks for. */
    if (json_is_boolean(special) && json_is_true(special) == chat)
        return sl_http_bad(e, "add_special_tokens", "'add_special_tokens' can only be %s here",
                           chat ? "false" : "true");
    return true;
}

#define NOT_GIVEN (UINT32_MAX - 1)

/* The limit under any of its names. A limit of 0 asks for the prompt alone. */
static bool read_length(const struct raw *r, enum sl_api api, struct sl_gen_params *p,
                        struct sl_http_error *e) {
    uint32_t n = r->max_completion_tokens;
    if (n == NOT_GIVEN)
        n = r->max_tokens;
    if (n == NOT_GIVEN)
        n = r->n_predict;
    bool limited = api == SL_API_RESPONSES || api == SL_API_MESSAGES;
    if (limited && (n == 0 || n == UINT32_MAX))
        return sl_http_bad(e, "max_tokens", "'max_tokens' must be an integer from 1 to %d",
                           INT32_MAX);
    if (n == NOT_GIVEN)
        n = api == SL_API_COMPLETIONS ? 16 : UINT32_MAX; /* 16: the API's default */
    p->prompt_only = n == 0;
    p->max_tokens = n == UINT32_MAX ? 0 : n == 0 ? 1 : n;
    return true;
}

static bool read_stream_options(const json_t *body, struct sl_gen_params *p,
                                struct sl_http_error *e) {
    const json_t *v = json_object_get(body, "stream_options");
    if (!v || json_is_null(v))
        return true;
    if (!json_is_object(v))
        return sl_http_bad(e, "stream_options", "'stream_options' must be an object, not %s",
                           sl_json_kind(v));
    if (!p->stream)
        return sl_http_bad(e, "stream_options",
                           "'stream_options' is only allowed when 'stream' is true");
    const json_t *u = json_object_get(v, "include_usage");
    if (u && !json_is_null(u) && !json_is_boolean(u))
        return sl_http_bad(e, "stream_options.include_usage",
                           "'stream_options.include_usage' must be true or false, not %s",
                           sl_json_kind(u));
    p->include_usage = json_is_true(u);
    return true;
}

bool sl_params_read(const json_t *body, enum sl_api api, const struct sl_tokenizer *tok,
                    struct sl_gen_params *out, struct sl_http_error *e) {
    struct raw r = {0};
    r.p.n = 1;
    r.p.cache_prompt = true;
    r.p.sampling = sl_sampling_default;
    r.p.sampling.xtc_threshold = 0.1f;
    r.top_logprobs = r.logprobs_count = r.best_of = UINT32_MAX;
    r.max_tokens = r.max_completion_tokens = r.n_predict = NOT_GIVEN;
    if (!sl_fields_read(body, shared_fields, COUNTOF(shared_fields), &r, e))
        return false;
    const json_t *seed = json_object_get(body, "seed");
    if (!seed || json_is_null(seed) || json_integer_value(seed) == -1) { /* -1: any */
        /* Never fails for so few bytes; were it to, a fixed seed is still a valid one. */
        if (getrandom(&r.p.sampling.seed, sizeof r.p.sampling.seed, 0) < 0)
            r.p.sampling.seed = 0;
    }
    bool chat = api != SL_API_COMPLETIONS;
    if (!sl_fields_read(body, chat ? chat_fields : completion_fields,
                        chat ? COUNTOF(chat_fields) : COUNTOF(completion_fields), &r, e))
        return false;

    if (chat && !check_unsupported(body, e))
        return false;

    struct sl_gen_params *p = &r.p;
    if (!read_length(&r, api, p, e))
        return false;
    if (chat) {
        p->logprobs = r.logprobs;
        if (r.top_logprobs != UINT32_MAX) {
            if (!r.logprobs)
                return sl_http_bad(e, "top_logprobs", "'top_logprobs' needs 'logprobs' to be true");
            p->n_top_logprobs = r.top_logprobs;
        }
    } else {
        if (r.logprobs_count != UINT32_MAX) {
            p->logprobs = true;
            p->n_top_logprobs = r.logprobs_count;
        }
    }
    bool own_events = api == SL_API_RESPONSES || api == SL_API_MESSAGES;
    if (own_events && (p->return_progress || p->timings_per_token)) {
        const char *name = p->return_progress ? "return_progress" : "timings_per_token";
        return sl_http_bad(e, name, "'%s' is not supported here: leave it out", name);
    }
    if (!check_other_modes(body, api, p->n, e))
        return false;
    p->return_progress = p->return_progress && p->stream;
    struct sl_sampling *s = &p->sampling;
    if (s->top_k == UINT32_MAX)
        s->top_k = 0; /* -1 is a usual spelling of "off" */
    if (s->top_n_sigma < 0)
        s->top_n_sigma = 0; /* as llama.cpp spells "off" */
    if (s->top_p < FLT_MIN)
        s->top_p = FLT_MIN; /* 0 keeps the likeliest token */
    if (s->typical_p < FLT_MIN)
        s->typical_p = FLT_MIN;

    *out = r.p;
    if (!read_stream_options(body, out, e) || !read_stop(body, &out->stop, e) ||
        !sl_controls_read(body, tok, out, e))
        return false;
    out->n_own_stop = out->stop.n;
    return true;
}

bool sl_params_bind(struct sl_gen_params *p, const struct sl_content_form *form, const char *rule,
                    const char *field, const struct sl_tokenizer *tok, struct sl_http_error *e) {
    if (!sl_content_form_compile(form, rule, field, tok, &p->grammar, e))
        return false;
    if (p->grammar && p->ignore_eos)
        return sl_http_bad(e, "ignore_eos", "'ignore_eos' cannot be true with '%.60s'", field);
    if (p->grammar && p->sampling.min_tokens)
        return sl_http_bad(e, "min_tokens", "'min_tokens' cannot be given with '%.60s'", field);
    return true;
}

void sl_request_about_release(struct sl_request_about *a) {
    free(a->members);
    free(a->input);
    free(a->previous);
    json_decref(a->fields);
    *a = (struct sl_request_about){0};
}

void sl_params_release(struct sl_gen_params *p) {
    free(p->bias);
    free(p->breakers);
    free(p->stop_ids);
    sl_ids_release(&p->budget.close);
    sl_stop_set_release(&p->stop);
    sl_grammar_destroy(&p->grammar);
    json_decref(p->tools);
    free(p->header);
    sl_request_about_release(&p->about);
    *p = (struct sl_gen_params){0};
}
