/* What plan says of several hosts, and that it names none where there is one. */
#include "tests/unit/engine/fixture.h"

#include "cli/plan/plan_report.h"
#include "engine/plan/stage_plan.h"
#include "tests/support/card.h"

#define MIB ((uint64_t)1 << 20)

static struct test_model model;

static int open_all(void **state) {
    (void)state;
    struct sl_synth_config c = tiny_config("qwen3moe");
    c.n_layer = 6;
    c.n_embd = 256;
    c.n_ff_expert = 512;
    c.n_expert = 64;
    c.n_expert_used = 4;
    open_model(&model, &c);
    return 0;
}

static int close_all(void **state) {
    (void)state;
    close_model(&model);
    return 0;
}

static const struct sl_host_config hosts[] = {
    {.name = "left", .ram_bytes = 68 * MIB, .ram_bytes_per_s = 2e10, .disk_bytes_per_s = 4e9},
    {.name = "right", .ram_bytes = 56 * MIB, .ram_bytes_per_s = 8e10, .disk_bytes_per_s = 1e9}};

/* A card on the first host, a CPU on the last. */
static void make(struct sl_plan_report *r, uint32_t n_hosts) {
    struct card_source source;
    struct sl_stage_plans plans;
    card_source_init(&source, &(struct card_config){.n_threads = 1, .n_cards = 2, .plain = 2});
    struct sl_engine_config c = {.ctx_tokens = 128,
                                 .parallel = 1,
                                 .queue_max = 1,
                                 .batch_tokens = 8,
                                 .n_threads = 1,
                                 .ram_bytes = 124 * MIB,
                                 .vram_bytes = 12 * MIB,
                                 .experts = SL_EXPERTS_STREAMED,
                                 .split = "3,3",
                                 .hosts = hosts,
                                 .n_hosts = n_hosts,
                                 .host_of = {0, 1},
                                 .device_source = &source.source};
    memset(r, 0, sizeof *r);
    r->model = model.model;
    assert_ok(sl_stage_plans_open(model.model, &c, &plans, &test_err));
    r->plan = plans.whole;
    sl_stage_plans_device(&r->plan, r->device);
    sl_stage_plans_release(&plans);
    assert_ok(sl_expert_layout_make(model.model, &r->layout, &test_err));
    assert_ok(sl_plan_speed_make(model.model, &r->plan, NULL, &r->speed, &test_err));
    r->plan.hosts[0].ram_bytes_per_s = hosts[0].ram_bytes_per_s;
    r->plan.hosts[0].disk_bytes_per_s = hosts[0].disk_bytes_per_s;
    r->plan.stages[0].memory_bytes_per_s = 4e11;
    r->plan.stages[0].link_bytes_per_s = 8e9;
    assert_ok(sl_plan_report_limit(r, NULL, &test_err));
}

static char *text_of(const struct sl_plan_report *r) {
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    assert_non_null(out);
    sl_plan_report_print(out, r);
    assert_int_equal(fclose(out), 0);
    return text;
}

static void has(const char *text, const char *what) {
    if (!strstr(text, what))
        fail_msg("no '%s' in:\n%s", what, text);
}

/* "12.3"; one of four texts in turn. */
static const char *of(uint64_t bytes) {
    static char texts[4][32];
    static uint32_t at;
    char *text = texts[at++ % 4];
    snprintf(text, sizeof texts[0], "%.1f", (double)bytes / 0x1p20);
    return text;
}

/* A line of the table with these in its two columns. */
static void line_has(const char *text, const char *label, const char *left, const char *right) {
    char line[128];
    snprintf(line, sizeof line, "%-24s%14s%14s\n", label, left, right);
    has(text, line);
}

/* In tenths of a MiB, as they are shown. */
static uint64_t tenths(double mib) {
    return (uint64_t)(mib * 10 + 0.5);
}
static uint64_t sum_of_rows(const struct sl_memory_plan *p, uint32_t host) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < p->n_rows; i++)
        sum += p->rows[i].host == host ? tenths(atof(of(p->rows[i].bytes))) : 0;
    return sum;
}
/* From the heading "layers" to the budgets of the device, and from "the process" to those of the
 * machine. */
static uint64_t sum_of_column(const char *text, uint32_t host) {
    uint64_t sum = 0;
    bool counts = false;
    for (const char *line = text; *line; line = strchr(line, '\n') + 1) {
        if (strncmp(line, "all of", 6) == 0)
            counts = false;
        const char *end = strchr(line, '\n');
        if (counts && end - line > 24 + 14 * (long)host)
            sum += tenths(strtod(line + 24 + 14 * host, NULL));
        if (strncmp(line, "layers", 6) == 0 || strncmp(line, "the process", 11) == 0)
            counts = true;
    }
    return sum;
}

static json_int_t number(const json_t *j, const char *key) {
    const json_t *v = json_object_get(j, key);
    assert_true(json_is_integer(v));
    return json_integer_value(v);
}

static void several_hosts_are_named(void **state) {
    (void)state;
    struct sl_plan_report r;
    make(&r, 2);
    char *text = text_of(&r);
    line_has(text, "memory, MiB", "left", "right");
    line_has(text, "device", r.plan.stages[0].id, r.plan.stages[1].id);
    line_has(text, "layers", "0 to 2", "3 to 5");
    line_has(text, "  its least", of(r.plan.stages[0].vram_least_bytes), "-");
    line_has(text, "its link, GB/s", "8.00", "-");
    line_has(text, "its memory, GB/s", "400.00", "-");
    line_has(text, "its RAM, GB/s", "20.00", "80.00");
    line_has(text, "its disk, GB/s", "4.00", "1.00");
    has(text, "ceilings for one sequence: causal ");
    assert_null(strstr(text, "--ram")); /* no one budget would do */
    const struct sl_plan_host *both = r.plan.hosts;
    line_has(text, "all of its RAM", of(both[0].ram_total_bytes), of(both[1].ram_total_bytes));
    line_has(text, "  its budget", of(hosts[0].ram_bytes), of(hosts[1].ram_bytes));
    line_has(text, "  its least", of(both[0].ram_least_bytes), of(both[1].ram_least_bytes));
    line_has(text, "  pinned", of(both[0].pinned_total_bytes), of(both[1].pinned_total_bytes));
    /* Every row is there, in its machine's column, and nothing else is. */
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(sum_of_column(text, i), sum_of_rows(&r.plan, i));
    free(text);

    json_t *j = sl_plan_report_json(&r), *list = json_object_get(j, "hosts");
    assert_int_equal(json_array_size(list), 2);
    for (uint32_t h = 0; h < 2; h++) {
        json_t *host = json_array_get(list, h), *stage;
        assert_string_equal(json_string_value(json_object_get(host, "name")), hosts[h].name);
        assert_int_equal(number(host, "budget_bytes"), hosts[h].ram_bytes);
        assert_int_equal(number(host, "total_bytes"), r.plan.hosts[h].ram_total_bytes);
        assert_int_equal(number(host, "stages"), 1);
        stage = json_array_get(json_object_get(j, "stages"), h);
        assert_int_equal(number(stage, "host"), h);
        json_int_t sum = 0;
        json_t *rows = json_object_get(j, "rows"), *row;
        for (size_t i = 0; i < json_array_size(rows); i++) {
            row = json_array_get(rows, i);
            const char *memory = json_string_value(json_object_get(row, "memory"));
            if (number(row, "host") == h && strcmp(memory, "device") != 0)
                sum += number(row, "bytes");
        }
        assert_int_equal(sum, r.plan.hosts[h].ram_total_bytes);
    }
    json_decref(j);
    sl_expert_layout_release(&r.layout);
}

static void one_host_is_not(void **state) {
    (void)state;
    struct sl_plan_report r;
    make(&r, 0);
    char *text = text_of(&r);
    assert_null(strstr(text, ", host "));
    assert_null(strstr(text, "hosts"));
    assert_null(strstr(text, "left"));
    has(text, "\nthe process\n");
    has(text, "smallest that works: --ram ");
    has(text, "RAM 20.0 GB/s, disk 4.00 GB/s, device ");
    free(text);
    json_t *j = sl_plan_report_json(&r);
    assert_null(json_object_get(j, "hosts"));
    assert_null(json_object_get(json_array_get(json_object_get(j, "rows"), 0), "host"));
    json_t *stage = json_array_get(json_object_get(j, "stages"), 0);
    assert_null(json_object_get(stage, "host"));
    assert_null(json_object_get(stage, "link_bytes_per_s"));
    json_decref(j);
    sl_expert_layout_release(&r.layout);
}

int main(void) {
    sl_log_set_level(SL_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(several_hosts_are_named),
        cmocka_unit_test(one_host_is_not),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
