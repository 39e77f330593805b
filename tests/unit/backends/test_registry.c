/* The registry: what lists of devices mean, and that whatever a backend finds opens by its id. */
#include "backends/backend_table.h"
#include "backends/cpu/cpu.h"
#include "backends/null/null.h"
#include "backends/registry/registry.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct sl_err err;

static void lists(void **state) {
    (void)state;
    /* want: each item as BACKEND:NUMBER, BACKEND for the first, BACKEND:* for all. */
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"cpu", "cpu "},
        {"cuda", "cuda "},
        {"null", "null "},
        {"cpu:0", "cpu:0 "},
        {"cuda:all", "cuda:* "},
        {"cuda:0,1", "cuda:0 cuda:1 "},
        {"cuda:63", "cuda:63 "},
        {"cuda:0,cpu", "cuda:0 cpu "},
        {"cpu,cuda:1,0", "cpu cuda:1 cuda:0 "},
        {"cuda:0,cuda:0", "cuda:0 cuda:0 "},
        {"cuda:all,cpu,null", "cuda:* cpu null "},
        {"cuda:1,2,cpu,cuda:3,4", "cuda:1 cuda:2 cpu cuda:3 cuda:4 "},
        {"cuda:0,1,2,3,4,5,6,7", "cuda:0 cuda:1 cuda:2 cuda:3 cuda:4 cuda:5 cuda:6 cuda:7 "}};
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sl_device_list l;
        char got[256] = "";
        if (sl_device_list_parse(cases[i].text, &l, &err) != SL_OK)
            fail_msg("'%s': %s", cases[i].text, err.text);
        assert_false(l.any);
        for (uint32_t k = 0; k < l.n; k++) {
            const struct sl_device_item *item = &l.at[k];
            size_t n = strlen(got);
            if (item->which == SL_DEVICE_NUMBER)
                snprintf(got + n, sizeof got - n, "%s:%u ", item->ref.backend->name,
                         item->ref.number);
            else
                snprintf(got + n, sizeof got - n, "%s%s ", item->ref.backend->name,
                         item->which == SL_DEVICE_ALL ? ":*" : "");
        }
        assert_string_equal(got, cases[i].want);
    }
    struct sl_device_list any;
    assert_int_equal(sl_device_list_parse("auto", &any, &err), SL_OK);
    assert_true(any.any && any.n == 0);
}

/* What is wrong is refused with what would be right, and names no hidden backend. */
static void wrong_lists(void **state) {
    (void)state;
    static const char *const wrong[] = {"",
                                        " ",
                                        ",",
                                        "0",
                                        "cpu,",
                                        ",cpu",
                                        "cuda:",
                                        "cuda:64",
                                        "cuda:-1",
                                        "cuda: 1",
                                        "cuda:1 ",
                                        "cuda:0x1",
                                        "cuda:a",
                                        "cuda:ALL",
                                        "cudaa",
                                        "cud",
                                        "cuda:0:1",
                                        "cuda:0,all",
                                        "auto,cpu",
                                        "cpu,auto",
                                        "cpu,0",
                                        "cuda,0",
                                        "cuda:all,0",
                                        "cuda:00000000000000000001x",
                                        "cuda:0,1,2,3,4,5,6,7,8"};
    for (uint32_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct sl_device_list l = {.n = 77};
        if (sl_device_list_parse(wrong[i], &l, &err) != SL_ERR_CONFIG)
            fail_msg("'%s' was taken", wrong[i]);
        assert_int_equal(l.n, 77); /* outputs are set on success only */
        assert_non_null(strstr(err.text, "must be auto, cuda, cuda:N"));
        assert_non_null(strstr(err.text, "here are "));
        assert_null(strstr(err.text, "null"));
    }
    char longer[2048];
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = 0;
    struct sl_device_list l;
    assert_int_equal(sl_device_list_parse(longer, &l, &err), SL_ERR_CONFIG);
}

/* Backends in order; the host is among them and is the last that is looked at. */
static void backends(void **state) {
    (void)state;
    const struct sl_backend *b, *host = sl_backend_of_host();
    uint32_t n = 0, n_host = 0;
    for (; (b = sl_backend_at(n)); n++) {
        assert_true(*b->name && *b->devices && b->enumerate && b->open);
        n_host += b->kind == SL_DEVICE_HOST;
        for (uint32_t i = 0; i < n; i++)
            assert_string_not_equal(b->name, sl_backend_at(i)->name);
        if (b->kind != SL_DEVICE_HOST && !b->hidden)
            assert_int_equal(n_host, 0);
    }
    assert_int_equal(n_host, 1);
    assert_null(sl_backend_at(n + 5));
    assert_string_equal(host->name, "cpu");
    for (uint32_t i = 0; i < SL_CPU_BEST; i++)
        assert_string_equal(host->isas[i], sl_cpu_isa_name((enum sl_cpu_isa)i));
    assert_null(host->isas[SL_CPU_BEST]);
    assert_null(sl_fused_name(31));
    assert_string_equal(sl_fused_name(SL_FUSED_moe_sum), "moe_sum");
}

/* Whatever is found opens by its id, and says the same of itself then. */
static void found_is_opened(void **state) {
    (void)state;
    const struct sl_backend *b;
    const struct sl_device_options options = {.n_threads = 1};
    char all[256];
    sl_registry_list(all, sizeof all);
    for (uint32_t i = 0; (b = sl_backend_at(i)); i++) {
        struct sl_device_found found[4];
        uint32_t n = 0;
        if (b->enumerate(found, 4, &n, &err) != SL_OK) {
            assert_true(strlen(err.text) > 0);
            continue;
        }
        assert_true(n > 0);
        for (uint32_t k = 0; k < n && k < 4; k++) {
            struct sl_device *d = NULL;
            char id[SL_DEVICE_ID_BYTES];
            if (found[k].why_not.text[0])
                continue;
            sl_device_ref_id((struct sl_device_ref){b, k}, id);
            assert_string_equal(found[k].id, id);
            assert_true((strstr(all, id) != NULL) == !b->hidden);
            if (sl_registry_open_id(id, &options, &d, &err) != SL_OK)
                fail_msg("%s: %s", id, err.text);
            assert_string_equal(d->caps.id, id);
            assert_string_equal(d->ops->name, b->name);
            assert_int_equal(d->caps.kind, found[k].kind);
            assert_true(strncmp(d->caps.name, id, strlen(id)) == 0);
            assert_non_null(strstr(d->caps.name, ": "));
            assert_string_equal(strstr(d->caps.name, ": ") + 2, d->caps.model);
            assert_true(*d->caps.arithmetic_id && strlen(sl_device_kind_name(d->caps.kind)) > 0);
            sl_device_close(&d);
        }
    }
    assert_non_null(strstr(all, "cpu"));
    assert_null(strstr(all, "null"));
    sl_registry_list_planned(all, sizeof all);
    for (uint32_t i = 0; (b = sl_backend_at(i)); i++)
        assert_true((strstr(all, b->name) != NULL) == (b->planned && !b->hidden));
    char cut[3];
    sl_registry_list(cut, sizeof cut);
    assert_true(strlen(cut) <= 2);
}

static void what_is_not_there(void **state) {
    (void)state;
    static const struct {
        const char *id, *says;
        enum sl_status status;
    } cases[] = {{"cpu:1", "all CPUs are one device", SL_ERR_UNSUPPORTED},
                 {"null:2", "there is one", SL_ERR_UNSUPPORTED},
                 {"cuda:63", "cuda", SL_ERR_UNSUPPORTED},
                 {"cuda:all", "is no device's id", SL_ERR_CONFIG},
                 {"cuda:0,1", "is no device's id", SL_ERR_CONFIG},
                 {"auto", "is no device's id", SL_ERR_CONFIG},
                 {"", "is no device's id", SL_ERR_CONFIG}};
    const struct sl_device_options options = {.n_threads = 1};
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sl_device *d = NULL;
        enum sl_status status = sl_registry_open_id(cases[i].id, &options, &d, &err);
        if (status != cases[i].status || !strstr(err.text, cases[i].says))
            fail_msg("'%s': %d, %s", cases[i].id, status, err.text);
        assert_null(d);
    }
}

/* The host's options. */
static void options_of_the_host(void **state) {
    (void)state;
    struct sl_device *d = NULL;
    struct sl_device_options o = {.n_threads = 3, .cpu_isa = "c"};
    assert_int_equal(sl_registry_open_id("cpu", &o, &d, &err), SL_OK);
    assert_non_null(strstr(d->caps.model, "plain C, 3 threads"));
    assert_string_equal(d->caps.arithmetic_id, "cpu"); /* whatever computes it */
    assert_int_equal(d->caps.arithmetic, SL_CPU_ARITHMETIC);
    sl_device_close(&d);
    o.cpu_isa = "";
    assert_int_equal(sl_registry_open_id("cpu:0", &o, &d, &err), SL_OK);
    sl_device_close(&d);
    o.cpu_isa = "sse9";
    assert_int_equal(sl_registry_open_id("cpu", &o, &d, &err), SL_ERR_CONFIG);
    assert_non_null(strstr(err.text, "instruction set 'sse9' is unknown"));
}

/* Names are cut to their room, ids never. */
static void ids_and_names(void **state) {
    (void)state;
    struct sl_device_caps caps = {.model = "0123456789012345678901234567890123456789012345678901234"
                                           "56789012"};
    sl_device_caps_set_id(&caps, "level_zero", 63, false);
    assert_string_equal(caps.id, "level_zero:63");
    assert_int_equal(strlen(caps.name), sizeof caps.name - 1);
    sl_device_caps_set_id(&caps, "cpu", 0, true);
    assert_string_equal(caps.id, "cpu");
    sl_device_caps_set_id(&caps, "card", 1, true);
    assert_string_equal(caps.id, "card:1");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists),
        cmocka_unit_test(wrong_lists),
        cmocka_unit_test(backends),
        cmocka_unit_test(found_is_opened),
        cmocka_unit_test(what_is_not_there),
        cmocka_unit_test(options_of_the_host),
        cmocka_unit_test(ids_and_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
