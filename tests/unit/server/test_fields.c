/* Request fields, body limits, JSON writing, error shapes. */
#include "fake_engine.c"

#include "server/request/params.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

/* ------------------------------------------------------------------------------ JSON writing */

static void expect_json(const char *bytes, size_t len, const char *want) {
    struct sl_buf b = {0};
    sl_buf_json(&b, bytes, len);
    sl_buf_put(&b, "", 1);
    assert_false(b.failed);
    assert_string_equal(b.ptr, want);
    sl_buf_release(&b);
}

static void test_json_strings(void **state) {
    (void)state;
    expect_json("", 0, "\"\"");
    expect_json("a\"b\\c\n\r\t\x01\x7f", 10, "\"a\\\"b\\\\c\\n\\r\\t\\u0001\x7f\"");
    expect_json("a\0b", 3, "\"a\\u0000b\"");
    expect_json("\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80", 9,
                "\"\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80\"");
    /* One U+FFFD for each maximal part of a character: lone, cut, overlong, surrogate, too large.
     */
#define R "\xef\xbf\xbd"
    expect_json("\x80", 1, "\"" R "\"");
    expect_json("x\xe4\xb8y", 4, "\"x" R "y\"");
    expect_json("\xf0\x9f\x98", 3, "\"" R "\"");
    expect_json("\xc0\xaf", 2, "\"" R R "\"");
    expect_json("\xed\xa0\x80", 3, "\"" R R R "\"");
    expect_json("\xf4\x90\x80\x80", 4, "\"" R R R R "\"");
#undef R
}

/* Whatever the bytes, the result is JSON that a strict parser takes. */
static void test_json_any_bytes(void **state) {
    (void)state;
    uint64_t x = 88172645463325252u;
    for (int round = 0; round < 2000; round++) {
        char bytes[24];
        for (size_t i = 0; i < sizeof bytes; i++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            bytes[i] = (char)(x >> 32);
        }
        struct sl_buf b = {0};
        sl_buf_json(&b, bytes, sizeof bytes);
        json_t *v = json_loadb(b.ptr, b.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        assert_non_null(v);
        json_decref(v);
        sl_buf_release(&b);
    }
}

static void test_json_numbers(void **state) {
    (void)state;
    struct sl_buf b = {0};
    sl_buf_json_number(&b, -0.5);
    sl_buf_put(&b, " ", 1);
    sl_buf_json_number(&b, (double)NAN);
    sl_buf_put(&b, " ", 1);
    sl_buf_json_number(&b, -INFINITY);
    sl_buf_put(&b, "", 1);
    assert_string_equal(b.ptr, "-0.5 null null");
    sl_buf_release(&b);
}

static void test_printf_grows(void **state) {
    (void)state;
    struct sl_buf b = {0};
    char big[5000];
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    for (int i = 0; i < 10; i++)
        sl_buf_printf(&b, "<%s>", big);
    assert_int_equal(b.len, 10 * (sizeof big + 1));
    sl_buf_release(&b);
}

/* ---------------------------------------------------------------------------------- errors */

static void test_error_shape(void **state) {
    (void)state;
    struct sl_http_error e = {0};
    struct sl_buf b = {0};
    sl_http_bad(&e, "top_p", "'top_p' is \"bad\"");
    sl_http_error_json(&b, &e);
    sl_buf_put(&b, "", 1);
    assert_string_equal(b.ptr, "{\"error\":{\"message\":\"'top_p' is \\\"bad\\\"\",\"type\":"
                               "\"invalid_request_error\",\"param\":\"top_p\",\"code\":null}}");
    sl_buf_release(&b);
    static const struct {
        enum sl_status status;
        unsigned http;
        const char *type;
    } map[] = {
        {SL_ERR_INVALID, 400, "invalid_request_error"},
        {SL_ERR_CONTEXT_FULL, 400, "invalid_request_error"},
        {SL_AGAIN, 429, "rate_limit_error"},
        {SL_ERR_IO, 500, "server_error"},
        {SL_ERR_DEVICE_LOST, 503, "unavailable_error"},
        {SL_ERR_DEVICE_OOM, 503, "unavailable_error"},
        {SL_ERR_CANCELED, 503, "unavailable_error"},
    };
    for (size_t i = 0; i < sizeof map / sizeof *map; i++) {
        assert_false(sl_http_from_status(&e, map[i].status, NULL));
        assert_int_equal(e.http_status, map[i].http);
        assert_string_equal(e.type, map[i].type);
        assert_true(e.err.text[0] != '\0');
    }
}

/* ------------------------------------------------------------------------------ body limits */

static void expect_refused(const char *body, size_t len, const char *part) {
    struct sl_http_error e = {0};
    assert_null(sl_json_parse_object(body, len, SL_JSON_MAX_UNITS, NULL, &e));
    assert_int_equal(e.http_status, 400);
    if (!strstr(e.err.text, part))
        fail_msg("'%s' does not say '%s'", e.err.text, part);
}

static void test_body_limits(void **state) {
    (void)state;
    expect_refused("", 0, "no body");
    expect_refused("{", 1, "not valid JSON");
    expect_refused("[1]", 3, "must be a JSON object, not an array");
    expect_refused("{\"a\":\"\xff\"}", 9, "not valid JSON");
    expect_refused("{}x", 3, "not valid JSON");
    size_t n = 1000000;
    char *deep = malloc(n);
    assert_non_null(deep);
    memset(deep, '[', n);
    expect_refused(deep, n, "deeper than");
    for (size_t i = 0; i < n; i++)
        deep[i] = i % 2 ? ',' : '1';
    char *wide = malloc(5 * n);
    assert_non_null(wide);
    for (size_t i = 0; i < 5 * n; i++)
        wide[i] = i % 2 ? ',' : '1';
    memcpy(wide, "{\"a\":[", 6);
    expect_refused(wide, 5 * n, "too many values");
    /* Small objects take more memory than numbers: fewer of them. */
    for (size_t i = 6; i + 3 <= 5 * n; i += 3)
        memcpy(wide + i, "{},", 3);
    expect_refused(wide, 3 * 300000, "too many values");
    memcpy(wide + 3 * 200000, "0]}", 3);
    struct sl_http_error none = {0};
    json_t *fits = sl_json_parse_object(wide, 3 * 200000 + 3, SL_JSON_MAX_UNITS, NULL, &none);
    assert_non_null(fits);
    json_decref(fits);
    /* Brackets in strings do not count; an escaped quote does not end one. */
    struct sl_http_error e = {0};
    memset(deep, '[', n);
    memcpy(deep, "{\"a\":\"\\\"", 8);
    memcpy(deep + n - 2, "\"}", 2);
    json_t *v = sl_json_parse_object(deep, n, SL_JSON_MAX_UNITS, NULL, &e);
    assert_non_null(v);
    json_decref(v);
    free(deep);
    free(wide);
}

/* Half a character and NUL become U+FFFD, wherever the parser's pieces of the body end; all else
 * stays. */
static void test_half_characters(void **state) {
    (void)state;
#define R "\xef\xbf\xbd"
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"\\ud83d", R},
        {"\\uDE00x", R "x"},
        {"a\\ud83d\\ud83d\\ude00b", "a" R "\xf0\x9f\x98\x80"
                                    "b"},
        {"\\ude00\\ud83d", R R},
        {"\\u0000", R},
        {"\\ud83d\\u0041", R "A"},
        {"\\\\ud83d", "\\ud83d"},
        {"\\\\\\ud83d", "\\" R},
        {"\\u00e9\\n", "\xc3\xa9\n"},
    };
    enum { MOST = 2100 };
    char body[MOST + 64], want[MOST + 64];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t pad = 0; pad<MOST; pad += pad> 16 && pad < 990 ? 67 : 1) {
            int n = snprintf(body, sizeof body, "{\"k\":\"%*s%s\"}", (int)pad, "", cases[i].in);
            snprintf(want, sizeof want, "%*s%s", (int)pad, "", cases[i].out);
            struct sl_http_error e = {0};
            json_t *v = sl_json_parse_object(body, (size_t)n, SL_JSON_MAX_UNITS, NULL, &e);
            if (!v)
                fail_msg("%s: %s", cases[i].in, e.err.text);
            assert_string_equal(json_string_value(json_object_get(v, "k")), want);
            json_decref(v);
        }
    static const char key[] = "{\"a\\u0000\":1}";
    struct sl_http_error e = {0};
    json_t *v = sl_json_parse_object(key, sizeof key - 1, SL_JSON_MAX_UNITS, NULL, &e);
    assert_non_null(json_object_get(v, "a" R));
    json_decref(v);
    expect_refused("{\"a\":\"x", 7, "it ends too early");
    expect_refused("{\"a\":\"\\ud83\"}", 13, "not valid JSON");
#undef R
}

/* Says no at the poll numbered `last`. */
struct polls {
    uint32_t n, last;
};
static enum sl_status poll_some(void *ctx, struct sl_err *err) {
    struct polls *p = ctx;
    return ++p->n >= p->last ? sl_fail(err, SL_ERR_TIMEOUT, "given up") : SL_OK;
}

/* Two passes, of which each asks every 64 KiB, in one long string and among many values. */
static void test_body_watch(void **state) {
    (void)state;
    const size_t n = 1u << 20;
    char *body = malloc(n + 1);
    assert_non_null(body);
    for (int kind = 0; kind < 2; kind++) {
        memset(body, kind ? '1' : 'x', n);
        for (size_t i = 0; kind && i < n; i += 4)
            body[i] = ',';
        memcpy(body, kind ? "{\"a\":[10" : "{\"a\":\"xx", 8);
        memcpy(body + n - 2, kind ? "]}" : "\"}", 2);
        struct polls all = {0, UINT32_MAX};
        struct sl_template_watch watch = {poll_some, &all};
        struct sl_http_error e = {0};
        json_t *v = sl_json_parse_object(body, n, SL_JSON_MAX_UNITS, &watch, &e);
        if (!v)
            fail_msg("%s", e.err.text);
        json_decref(v);
        assert_true(all.n >= 2 * (n / 65536) - 2 && all.n <= 2 * (n / 65536) + 4);
        for (uint32_t last = 1; last <= all.n; last++) {
            struct polls some = {0, last};
            watch.ctx = &some;
            e = (struct sl_http_error){0};
            assert_null(sl_json_parse_object(body, n, SL_JSON_MAX_UNITS, &watch, &e));
            assert_int_equal(some.n, last); /* and not asked again */
            assert_int_equal(e.http_status, 504);
            assert_string_equal(e.err.text, "given up");
        }
    }
    free(body);
}

/* ----------------------------------------------------------------------------------- fields */

static bool read(const char *body, enum sl_api api, struct sl_gen_params *p,
                 struct sl_http_error *e) {
    json_error_t je;
    json_t *v = json_loads(body, 0, &je);
    if (!v)
        fail_msg("%s: %s", body, je.text);
    *p = (struct sl_gen_params){0};
    *e = (struct sl_http_error){0};
    static struct sl_tokenizer tok; /* DRY keeps it */
    fake_tokenizer_init(&tok);
    bool ok = sl_params_read(v, api, &tok, p, e);
    json_decref(v);
    return ok;
}

static void test_defaults(void **state) {
    (void)state;
    struct sl_gen_params p, q;
    struct sl_http_error e;
    assert_true(read("{}", SL_API_CHAT, &p, &e));
    assert_int_equal(p.n, 1);
    assert_int_equal(p.max_tokens, 0);
    assert_false(p.stream || p.logprobs || p.include_usage);
    assert_true(p.sampling.temperature == 1 && p.sampling.top_p == 1);
    assert_true(
        read("{\"n\":null,\"stop\":null,\"unknown\":{\"a\":1}}", SL_API_COMPLETIONS, &q, &e));
    assert_int_equal(q.max_tokens, 16);
    assert_true(p.sampling.seed != q.sampling.seed); /* drawn */
    sl_params_release(&p);
    sl_params_release(&q);
}

static void test_values(void **state) {
    (void)state;
    struct sl_gen_params p;
    struct sl_http_error e;
    assert_true(read("{\"stream\":true,\"stream_options\":{\"include_usage\":true},\"n\":3,"
                     "\"max_tokens\":7,\"max_completion_tokens\":5,\"temperature\":0,"
                     "\"top_p\":0.5,\"min_p\":0.1,\"typical_p\":0.9,\"top_k\":40,"
                     "\"presence_penalty\":-1,\"frequency_penalty\":2,\"repeat_penalty\":1.1,"
                     "\"repeat_last_n\":-1,\"metadata\":{\"a\":\"b\"},\"modalities\":[\"text\"],"
                     "\"service_tier\":\"auto\",\"store\":true,\"verbosity\":\"low\",\"seed\":-5,"
                     "\"ignore_eos\":true,"
                     "\"logprobs\":true,\"top_logprobs\":4,\"stop\":[\"a\",\"bc\"],"
                     "\"logit_bias\":{\"7\":-100,\"8\":1.5},\"user\":\"me\",\"metadata\":{}}",
                     SL_API_CHAT, &p, &e));
    const struct sl_sampling *s = &p.sampling;
    assert_true(p.stream && p.include_usage && p.ignore_eos && p.logprobs);
    assert_int_equal(p.n, 3);
    assert_int_equal(p.max_tokens, 5);
    assert_int_equal(p.n_top_logprobs, 4);
    assert_true(s->temperature == 0 && s->top_p == 0.5f && s->min_p == 0.1f);
    assert_true(s->typical_p == 0.9f && s->repeat_penalty == 1.1f);
    assert_true(s->presence_penalty == -1 && s->frequency_penalty == 2);
    assert_int_equal(s->top_k, 40);
    assert_true(s->repeat_last_n == UINT32_MAX);
    assert_true(s->seed == (uint64_t)-5);
    assert_int_equal(p.stop.n, 2);
    assert_int_equal(s->n_logit_bias, 2);
    for (uint32_t i = 0; i < 2; i++) {
        assert_true(s->logit_bias[i].token == 7 || s->logit_bias[i].token == 8);
        assert_true(s->logit_bias[i].bias == (s->logit_bias[i].token == 7 ? -INFINITY : 1.5f));
    }
    sl_params_release(&p);
    assert_true(read("{\"top_k\":-1,\"top_p\":0,\"logprobs\":3,\"stop\":\"x\"}", SL_API_COMPLETIONS,
                     &p, &e));
    assert_int_equal(p.sampling.top_k, 0);
    assert_true(p.sampling.top_p > 0);
    assert_true(p.logprobs && p.n_top_logprobs == 3 && p.stop.n == 1);
    sl_params_release(&p);
}

static void test_each_bad_field(void **state) {
    (void)state;
    static const struct {
        const char *body, *param;
    } chat[] = {
        {"{\"stream\":1}", "stream"},
        {"{\"stream\":\"true\"}", "stream"},
        {"{\"n\":0}", "n"},
        {"{\"n\":1.5}", "n"},
        {"{\"n\":129}", "n"},
        {"{\"max_tokens\":-2}", "max_tokens"},
        {"{\"n_predict\":1.5}", "n_predict"},
        {"{\"min_tokens\":-1}", "min_tokens"},
        {"{\"timings_per_token\":1}", "timings_per_token"},
        {"{\"stop_token_ids\":5}", "stop_token_ids"},
        {"{\"stop_token_ids\":[1000]}", "stop_token_ids"},
        {"{\"stop_token_ids\":[\"a\"]}", "stop_token_ids"},
        {"{\"reasoning_format\":\"x\"}", "reasoning_format"},
        {"{\"mirostat\":2}", "mirostat"},
        {"{\"return_progress\":1}", "return_progress"},
        {"{\"dynatemp_range\":0.5}", "dynatemp_range"},
        {"{\"dry_multiplier\":-0.8}", "dry_multiplier"},
        {"{\"dry_multiplier\":1e9}", "dry_multiplier"},
        {"{\"dry_base\":0.5}", "dry_base"},
        {"{\"dry_allowed_length\":4097}", "dry_allowed_length"},
        {"{\"dry_penalty_last_n\":-2}", "dry_penalty_last_n"},
        {"{\"dry_sequence_breakers\":{}}", "dry_sequence_breakers"},
        {"{\"dry_multiplier\":1,\"dry_sequence_breakers\":[\"a\",\"\"]}", "dry_sequence_breakers"},
        {"{\"xtc_probability\":1.5}", "xtc_probability"},
        {"{\"xtc_threshold\":-1}", "xtc_threshold"},
        {"{\"top_n_sigma\":\"a\"}", "top_n_sigma"},
        {"{\"samplers\":[\"infill\"]}", "samplers"},
        {"{\"samplers\":\"kz\"}", "samplers"},
        {"{\"top_k\":3,\"samplers\":[\"top_k\",\"top_k\"]}", "samplers"},
        {"{\"top_k\":5,\"top_p\":0.5,\"samplers\":[\"top_p\",\"top_k\"]}", "samplers"},
        {"{\"max_tokens\":\"5\"}", "max_tokens"},
        {"{\"max_completion_tokens\":true}", "max_completion_tokens"},
        {"{\"temperature\":\"hot\"}", "temperature"},
        {"{\"temperature\":-0.1}", "temperature"},
        {"{\"temperature\":2.1}", "temperature"},
        {"{\"top_p\":1.1}", "top_p"},
        {"{\"top_p\":[]}", "top_p"},
        {"{\"min_p\":-1}", "min_p"},
        {"{\"typical_p\":2}", "typical_p"},
        {"{\"top_k\":-2}", "top_k"},
        {"{\"top_k\":1e10}", "top_k"},
        {"{\"presence_penalty\":3}", "presence_penalty"},
        {"{\"frequency_penalty\":-3}", "frequency_penalty"},
        {"{\"repeat_penalty\":0}", "repeat_penalty"},
        {"{\"repeat_last_n\":-2}", "repeat_last_n"},
        {"{\"seed\":\"x\"}", "seed"},
        {"{\"seed\":1.5}", "seed"},
        {"{\"user\":5}", "user"},
        {"{\"metadata\":\"x\"}", "metadata"},
        {"{\"service_tier\":1}", "service_tier"},
        {"{\"store\":\"yes\"}", "store"},
        {"{\"modalities\":[\"text\",\"audio\"]}", "modalities"},
        {"{\"functions\":[]}", "functions"},
        {"{\"cache_prompt\":5}", "cache_prompt"},
        {"{\"logprobs\":5}", "logprobs"},
        {"{\"top_logprobs\":5}", "top_logprobs"},
        {"{\"logprobs\":true,\"top_logprobs\":21}", "top_logprobs"},
        {"{\"stop\":\"\"}", "stop"},
        {"{\"stop\":5}", "stop"},
        {"{\"stop\":[\"a\",5]}", "stop"},
        {"{\"stream_options\":{}}", "stream_options"},
        {"{\"stream\":true,\"stream_options\":5}", "stream_options"},
        {"{\"stream\":true,\"stream_options\":{\"include_usage\":5}}",
         "stream_options.include_usage"},
        {"{\"logit_bias\":5}", "logit_bias"},
        {"{\"logit_bias\":[5]}", "logit_bias"},
        {"{\"logit_bias\":[[5]]}", "logit_bias"},
        {"{\"logit_bias\":[[5,true]]}", "logit_bias"},
        {"{\"logit_bias\":[[-1,1]]}", "logit_bias"},
        {"{\"logit_bias\":[[\"\",1]]}", "logit_bias"},
        {"{\"logit_bias\":{\"\":1}}", "logit_bias"},
        {"{\"logit_bias\":{\"1000\":1}}", "logit_bias"},
        {"{\"logit_bias\":{\"99999999999999999999\":1}}", "logit_bias"},
        {"{\"logit_bias\":{\"1\":101}}", "logit_bias"},
        {"{\"logit_bias\":{\"1\":\"a\"}}", "logit_bias"},
    };
    static const struct {
        const char *body, *param;
    } completions[] = {
        {"{\"logprobs\":true}", "logprobs"},
        {"{\"logprobs\":21}", "logprobs"},
        {"{\"best_of\":2}", "best_of"},
    };
    struct sl_gen_params p;
    struct sl_http_error e;
    char quoted[64];
    for (size_t i = 0; i < sizeof chat / sizeof *chat; i++) {
        if (read(chat[i].body, SL_API_CHAT, &p, &e))
            fail_msg("%s was accepted", chat[i].body);
        assert_int_equal(e.http_status, 400);
        assert_string_equal(e.param, chat[i].param);
        snprintf(quoted, sizeof quoted, "'%.20s", chat[i].param);
        if (!strstr(e.err.text, quoted))
            fail_msg("%s: '%s' does not name the field", chat[i].body, e.err.text);
        sl_params_release(&p);
    }
    for (size_t i = 0; i < sizeof completions / sizeof *completions; i++) {
        if (read(completions[i].body, SL_API_COMPLETIONS, &p, &e))
            fail_msg("%s was accepted", completions[i].body);
        assert_string_equal(e.param, completions[i].param);
        sl_params_release(&p);
    }
}

/* The forms of other servers' APIs. */
static void test_controls(void **state) {
    (void)state;
    struct sl_gen_params p;
    struct sl_http_error e;
    assert_true(read("{\"n_predict\":9,\"min_tokens\":3,\"stop_token_ids\":[4,5],"
                     "\"timings_per_token\":true,\"reasoning_format\":\"none\",\"mirostat\":0,"
                     "\"mirostat_tau\":5,\"top_n_sigma\":-1,\"xtc_threshold\":0.2,\"xtc_"
                     "probability\":0.5,\"samplers\":[\"dry\",\"xtc\"],\"top_k\":5,"
                     "\"dry_multiplier\":0.5,\"dry_base\":1.25,\"dry_allowed_length\":3,"
                     "\"dry_penalty_last_n\":-1,\"dry_sequence_breakers\":[\"ab\",\"c\"],"
                     "\"logit_bias\":[[7,false],[\"ab\",2],[8,-100]]}",
                     SL_API_CHAT, &p, &e));
    assert_int_equal(p.max_tokens, 9);
    assert_int_equal(p.sampling.min_tokens, 3);
    assert_true(p.sampling.top_n_sigma == 0 && p.sampling.xtc_threshold == 0.2f &&
                p.sampling.xtc_probability == 0.5f);
    assert_int_equal(p.sampling.top_k, 0); /* not in the list */
    const struct sl_dry *d = &p.sampling.dry;
    assert_true(d->multiplier == 0.5f && d->base == 1.25f && d->allowed_length == 3);
    assert_true(d->last_n == UINT32_MAX && d->breakers == p.breakers && d->breakers->n == 2);
    assert_int_equal(d->breakers->breaker[0].len, 2);
    assert_memory_equal(d->breakers->breaker[0].bytes, "ab", 2);
    uint32_t len;
    assert_memory_equal(d->breakers->text(d->breakers->ctx, 'q', &len), "q", 1);
    assert_int_equal(len, 1);
    assert_int_equal(p.n_stop_ids, 2);
    assert_int_equal(p.stop_ids[0], 4);
    assert_int_equal(p.stop_ids[1], 5);
    assert_true(p.timings_per_token && p.raw_reasoning && !p.prompt_only);
    static const struct sl_logit_bias want[] = {{7, -INFINITY}, {'a', 2}, {'b', 2}, {8, -INFINITY}};
    assert_int_equal(p.sampling.n_logit_bias, 4);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(p.sampling.logit_bias[i].token, want[i].token);
        assert_true(p.sampling.logit_bias[i].bias == want[i].bias);
    }
    sl_params_release(&p);
    assert_true(read("{\"dry_multiplier\":1}", SL_API_CHAT, &p, &e));
    assert_int_equal(p.sampling.dry.breakers->n, 4);
    sl_params_release(&p);
    assert_true(read("{\"dry_multiplier\":1,\"dry_sequence_breakers\":[]}", SL_API_CHAT, &p, &e));
    assert_int_equal(p.sampling.dry.breakers->n, 0);
    sl_params_release(&p);
    assert_true(read("{\"logit_bias\":{\"x\":false,\"9\":1}}", SL_API_CHAT, &p, &e));
    assert_int_equal(p.sampling.n_logit_bias, 2);
    for (uint32_t i = 0; i < 2; i++)
        assert_true(p.bias[i].token == 'x' ? p.bias[i].bias == -INFINITY
                                           : p.bias[i].token == 9 && p.bias[i].bias == 1);
    sl_params_release(&p);
}

/* -1 is no limit, 0 the prompt alone; APIs that need a limit take neither. */
static void test_lengths(void **state) {
    (void)state;
    struct sl_gen_params p;
    struct sl_http_error e;
    static const char *const names[] = {"max_tokens", "max_completion_tokens", "n_predict"};
    char body[64];
    for (size_t i = 0; i < 3; i++)
        for (int n = -1; n <= 1; n++) {
            snprintf(body, sizeof body, "{\"%s\":%d}", names[i], n);
            assert_true(read(body, SL_API_CHAT, &p, &e));
            assert_int_equal(p.max_tokens, n < 0 ? 0 : 1);
            assert_int_equal(p.prompt_only, n == 0);
            sl_params_release(&p);
        }
    assert_true(read("{\"max_tokens\":-1}", SL_API_COMPLETIONS, &p, &e));
    assert_int_equal(p.max_tokens, 0); /* and not the default of 16 */
    sl_params_release(&p);
    for (int n = -1; n <= 0; n++) {
        snprintf(body, sizeof body, "{\"max_tokens\":%d}", n);
        assert_false(read(body, SL_API_MESSAGES, &p, &e));
        assert_string_equal(e.param, "max_tokens");
        sl_params_release(&p);
        assert_false(read(body, SL_API_RESPONSES, &p, &e));
        sl_params_release(&p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_strings),    cmocka_unit_test(test_json_any_bytes),
        cmocka_unit_test(test_json_numbers),    cmocka_unit_test(test_printf_grows),
        cmocka_unit_test(test_error_shape),     cmocka_unit_test(test_body_limits),
        cmocka_unit_test(test_body_watch),      cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_values),          cmocka_unit_test(test_each_bad_field),
        cmocka_unit_test(test_half_characters), cmocka_unit_test(test_controls),
        cmocka_unit_test(test_lengths),
    };
    return cmocka_run_group_tests_name("fields", tests, NULL, NULL);
}
