/* The dashboard's files and what it asks for, over sockets, on the scripted engine. */
#include "fake_engine.c"

#include "common/log.h"
#include "server/exchange/exchange.h"
#include "server/server.h"

#include "client.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static struct sl_engine *engine;
static struct sl_tokenizer tok;
static struct sl_server *server;
static const char *keys[] = {"the-key"};

static void start(const struct sl_server_config *config, bool with_model) {
    struct sl_err err;
    if (sl_server_create(config, &server, &err) != SL_OK)
        fail_msg("%s", err.text);
    client_port = sl_server_port(server);
    struct sl_server_model m = {
        .engine = engine, .tokenizer = &tok, .id = "a \"model\"", .path = "m.gguf", .arch = "fake"};
    if (with_model && sl_server_attach(server, &m, &err) != SL_OK)
        fail_msg("%s", err.text);
}

static int setup(void **state) {
    (void)state;
    sl_log_set_level(SL_LOG_ERROR);
    fake_tokenizer_init(&tok);
    engine = fake_engine_create();
    return 0;
}
static int teardown(void **state) {
    (void)state;
    sl_server_destroy(&server);
    fake_engine_destroy(engine);
    return 0;
}

static void expect_head(const struct reply *r, const char *line) {
    if (!r->head || !strstr(r->head, line))
        fail_msg("'%s' is not in\n%s", line, r->head ? r->head : "(nothing)");
}

/* The page needs neither the model nor a key, and lets nothing else in. */
static void serves_the_page(void **state) {
    (void)state;
    start(&(struct sl_server_config){.api_keys = keys, .n_api_keys = 1}, false);
    struct reply r = client_get("/");
    assert_int_equal(r.status, 200);
    expect_head(&r, "Content-Type: text/html; charset=utf-8\r\n");
    expect_head(&r, "Content-Security-Policy: default-src 'none'; script-src 'self';");
    expect_head(&r, "frame-ancestors 'none'\r\n");
    expect_head(&r, "X-Content-Type-Options: nosniff\r\n");
    assert_null(strstr(r.head, "unsafe"));
    assert_memory_equal(r.body, "<!doctype html>", 15);
    assert_null(strstr(r.body, "http://"));
    assert_null(strstr(r.body, "https://"));
    assert_null(strstr(r.body, "style=")); /* the policy would refuse it */
    assert_null(strstr(r.body, " onclick"));

    /* Every file that it names is there, of its type. */
    uint32_t n = 0;
    size_t bytes = r.body_len;
    for (const char *p = r.body; (p = strstr(p, "\"dashboard/")) != NULL; n++) {
        char path[64];
        snprintf(path, sizeof path, "/%.*s", (int)strcspn(p + 1, "\""), p + 1);
        p++;
        struct reply f = client_get(path);
        assert_int_equal(f.status, 200);
        expect_head(&f, strstr(path, ".css")   ? "Content-Type: text/css"
                        : strstr(path, ".svg") ? "Content-Type: image/svg+xml"
                                               : "Content-Type: text/javascript");
        expect_head(&f, "Content-Security-Policy: default-src 'none'");
        assert_true(f.body_len > 100);
        bytes += f.body_len;
        reply_free(&f);
    }
    assert_true(n >= 3 && bytes < 100000);
    reply_free(&r);

    r = client_request("HEAD", "/", "", NULL);
    assert_int_equal(r.status, 200);
    assert_int_equal(r.body_len, 0);
    reply_free(&r);
    static const char *const none[] = {"/dashboard/", "/dashboard/../metrics", "/dashboard/none.js",
                                       "/dashboard/index.html/", "/index.html"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        r = client_get(none[i]);
        assert_true(r.status == 404 || r.status == 401);
        assert_null(strstr(r.body, "doctype"));
        reply_free(&r);
    }
    r = client_post("/", "{}");
    assert_true(r.status == 405 || r.status == 401);
    reply_free(&r);
}

/* What a client has already is not sent again; what it takes compressed is sent so. */
static void saves_what_is_known(void **state) {
    (void)state;
    start(&(struct sl_server_config){0}, false);
    struct reply plain = client_get("/dashboard/app.js");
    assert_int_equal(plain.status, 200);
    assert_null(strstr(plain.head, "Content-Encoding"));
    expect_head(&plain, "Vary: Accept-Encoding\r\n");
    expect_head(&plain, "Cache-Control: no-cache\r\n");
    char tag[32] = "", headers[128];
    assert_int_equal(sscanf(strstr(plain.head, "ETag: "), "ETag: %31s", tag), 1);
    assert_memory_equal(tag, "W/\"", 3);

    static const struct {
        const char *accept;
        bool gzip;
    } cases[] = {{"gzip", true},
                 {"deflate, GZIP;q=0.5, br", true},
                 {"*", true},
                 {"gzip;q=0", false},
                 {"br, gzip ; q=0.000", false},
                 {"xgzip, gzipx", false},
                 {"identity", false},
                 {"", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(headers, sizeof headers, "Accept-Encoding: %s\r\n", cases[i].accept);
        struct reply r = client_request("GET", "/dashboard/app.js", headers, NULL);
        assert_int_equal(r.status, 200);
        if ((strstr(r.head, "Content-Encoding: gzip\r\n") != NULL) != cases[i].gzip)
            fail_msg("Accept-Encoding: %s", cases[i].accept);
        expect_head(&r, tag); /* one tag for both */
        if (cases[i].gzip) {
            assert_memory_equal(r.body, "\x1f\x8b\x08", 3);
            uint32_t n; /* RFC 1952: the size of what is in it comes last */
            memcpy(&n, r.body + r.body_len - 4, 4);
            assert_int_equal(n, plain.body_len);
            assert_true(r.body_len < plain.body_len * 2 / 3);
        } else {
            assert_int_equal(r.body_len, plain.body_len);
            assert_memory_equal(r.body, plain.body, plain.body_len);
        }
        reply_free(&r);
    }

    static const char *const known[] = {"%s", "\"x\", %s", " *"};
    for (size_t i = 0; i < 3; i++) {
        int n = snprintf(headers, sizeof headers, "Accept-Encoding: gzip\r\nIf-None-Match: ");
        n += snprintf(headers + n, sizeof headers - (size_t)n, known[i], tag);
        snprintf(headers + n, sizeof headers - (size_t)n, "\r\n");
        struct reply r = client_request("GET", "/dashboard/app.js", headers, NULL);
        assert_int_equal(r.status, 304);
        assert_int_equal(r.body_len, 0);
        assert_null(strstr(r.head, "Content-Encoding"));
        expect_head(&r, tag);
        expect_head(&r, "Cache-Control: no-cache\r\n");
        reply_free(&r);
    }
    static const char other[] = "If-None-Match: W/\"0123\"\r\n";
    struct reply r = client_request("GET", "/dashboard/app.js", other, NULL);
    assert_int_equal(r.status, 200);
    reply_free(&r);
    snprintf(headers, sizeof headers, "If-None-Match: %s\r\n", tag); /* of another file */
    r = client_request("GET", "/", headers, NULL);
    assert_int_equal(r.status, 200);
    reply_free(&r);
    reply_free(&plain);
}

/* What it shows does need both. */
static void guards_what_it_shows(void **state) {
    (void)state;
    start(&(struct sl_server_config){.api_keys = keys, .n_api_keys = 1}, false);
    static const char *const paths[] = {"/v1/sluice/machine", "/v1/sluice/experts", "/metrics"};
    for (uint32_t i = 0; i < 3; i++) {
        struct reply r = client_get(paths[i]);
        assert_int_equal(r.status, 401);
        reply_free(&r);
        r = client_request("GET", paths[i], "Authorization: Bearer the-key\r\n", NULL);
        assert_int_equal(r.status, i == 2 ? 200 : 503);
        reply_free(&r);
    }
}

static json_t *get_json(const char *path) {
    struct reply r = client_get(path);
    assert_int_equal(r.status, 200);
    expect_head(&r, "Content-Type: application/json\r\n");
    json_t *v = json_loadb(r.body, r.body_len, 0, NULL);
    assert_non_null(v);
    reply_free(&r);
    return v;
}

static void describes_the_machine(void **state) {
    (void)state;
    start(&(struct sl_server_config){0}, true);
    json_t *v = get_json("/v1/sluice/machine");
    const char *object, *model, *what, *detail, *computing;
    int layers, per_layer, used, heat, budget, bytes, queue, parallel;
    assert_int_equal(json_unpack(v, "{s:s, s:s, s:{s:i, s:i, s:i, s:b, s:s}, s:{s:i, s:i}}",
                                 "object", &object, "model", &model, "experts", "layers", &layers,
                                 "per_layer", &per_layer, "used", &used, "heat", &heat, "computing",
                                 &computing, "sessions", "parallel", &parallel, "queue", &queue),
                     0);
    assert_string_equal(object, "sluice.machine");
    assert_string_equal(model, "a \"model\"");
    assert_int_equal(layers, FAKE_LAYERS);
    assert_int_equal(per_layer, FAKE_EXPERTS);
    assert_int_equal(used, 2);
    assert_true(heat);
    assert_string_equal(computing, "host");
    assert_int_equal(parallel, 4);
    assert_int_equal(queue, 17);
    assert_int_equal(json_unpack(v, "{s:{s:i, s:[{s:s, s:s, s:i}]}}", "memory", "budget_bytes",
                                 &budget, "rows", "what", &what, "detail", &detail, "bytes",
                                 &bytes),
                     0);
    assert_int_equal(budget, 1000);
    assert_string_equal(what, "weights");
    assert_string_equal(detail, "all \"of\" them");
    assert_int_equal(bytes, 600);
    json_t *other = get_json("/props"), *devices = json_object_get(v, "devices");
    assert_int_equal(json_array_size(devices), 2);
    assert_true(json_equal(json_object_get(other, "devices"), devices));
    json_decref(other);
    int first = 0, n = 0, total = 0, on_device = 0, in_host = 0;
    assert_int_equal(
        json_unpack(json_array_get(devices, 1), "{s:s, s:i, s:i, s:i, s:i, s:i, s:i !}", "name",
                    &detail, "first_layer", &first, "layers", &n, "budget_bytes", &budget,
                    "total_bytes", &total, "device_slots", &on_device, "host_slots", &in_host),
        0);
    assert_string_equal(detail, "half \"of\" it");
    assert_true(first == 2 && n == 2 && budget == 81 && total == 71);
    assert_true(on_device == 4 && in_host == 5);
    json_decref(v);
}

static void maps_the_experts(void **state) {
    (void)state;
    start(&(struct sl_server_config){0}, true);
    json_t *v = get_json("/v1/sluice/experts");
    json_t *layers = json_object_get(v, "layers");
    assert_int_equal(json_array_size(layers), FAKE_LAYERS);
    assert_true(json_number_value(json_object_get(v, "age_s")) > 0);
    static const char *const heat[] = {"AEIMQUYc", "gkosw048"}; /* 0, 4, .. 60 in base64's digits */
    for (uint32_t i = 0; i < FAKE_LAYERS; i++) {
        json_t *l = json_array_get(layers, i);
        assert_int_equal(json_integer_value(json_object_get(l, "layer")), i ? 3 : 1);
        assert_string_equal(json_string_value(json_object_get(l, "tiers")), "11110000");
        assert_string_equal(json_string_value(json_object_get(l, "heat")), heat[i]);
    }
    json_decref(v);
}

/* Answers that nobody reads are counted with the others that wait. */
static void bounds_what_waits(void **state) {
    (void)state;
    start(&(struct sl_server_config){.max_replies_bytes = 1}, true);
    struct reply r = client_get("/v1/sluice/experts");
    assert_int_equal(r.status, 503);
    assert_non_null(strstr(r.body, "does not fit beside those that wait"));
    reply_free(&r);
    assert_int_equal(atomic_load(&server->replies_bytes), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(serves_the_page, setup, teardown),
        cmocka_unit_test_setup_teardown(saves_what_is_known, setup, teardown),
        cmocka_unit_test_setup_teardown(guards_what_it_shows, setup, teardown),
        cmocka_unit_test_setup_teardown(describes_the_machine, setup, teardown),
        cmocka_unit_test_setup_teardown(maps_the_experts, setup, teardown),
        cmocka_unit_test_setup_teardown(bounds_what_waits, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
