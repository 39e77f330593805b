/* The context that serve and plan choose where none is asked for: by the model and the memory. */
#include "tests/unit/engine/fixture.h"

#include "cli/process/serve_memory.h"
#include "model/tokenizer/tokenizer.h"

#define MIB ((uint64_t)1 << 20)

struct served_model {
    struct test_model model;
    struct sl_tokenizer *tok;
};

static void open_served(struct served_model *m, uint32_t n_ctx) {
    struct sl_synth_config c = tiny_config("qwen3moe");
    c.n_layer = 4;
    c.n_embd = 256;
    c.n_ff_expert = 512;
    c.n_expert = 64;
    c.n_expert_used = 4;
    c.n_ctx = n_ctx;
    open_model(&m->model, &c);
    assert_ok(sl_tokenizer_create(m->model.model->gguf, &m->tok, &test_err));
}

static void close_served(struct served_model *m) {
    sl_tokenizer_destroy(&m->tok);
    close_model(&m->model);
}

static enum sl_status plan(const struct served_model *m, struct sl_engine_config c,
                           uint64_t ram_bytes, struct sl_memory_plan *p,
                           char note[SL_CTX_NOTE_BYTES]) {
    struct sl_server_config server = {.max_connections = 16};
    struct sl_process_memory memory;
    c.n_threads = 1;
    c.ram_bytes = ram_bytes;
    c.cache_ram_bytes = SL_CACHE_RAM_AUTO;
    return sl_serve_plan(m->model.model, m->tok, &c, &server, &memory, p, NULL, note, &test_err);
}

static uint64_t slots_of(const struct sl_memory_plan *p) {
    return (uint64_t)p->n_slots + p->n_device_slots;
}

static void as_the_model_says(void **state) {
    (void)state;
    struct served_model m;
    struct sl_memory_plan p;
    char note[SL_CTX_NOTE_BYTES];
    open_served(&m, 40960);
    assert_ok(plan(&m, (struct sl_engine_config){0}, 8192 * MIB, &p, note));
    assert_int_equal(p.config.ctx_tokens, 40960); /* no power of two */
    assert_non_null(strstr(note, "40960 tokens"));
    assert_non_null(strstr(note, "all that the model"));
    assert_null(strstr(note, "coding agents"));
    /* What is asked for is taken, and nothing is said unless agents need more. */
    assert_ok(plan(&m, (struct sl_engine_config){.ctx_tokens = 16384}, 8192 * MIB, &p, note));
    assert_int_equal(p.config.ctx_tokens, 16384);
    assert_string_equal(note, "");
    assert_ok(plan(&m, (struct sl_engine_config){.ctx_tokens = 512}, 8192 * MIB, &p, note));
    assert_int_equal(p.config.ctx_tokens, 512);
    assert_string_equal(note,
                        "512 tokens a request, as --ctx says; coding agents need at least 16384");
    close_served(&m);
    open_served(&m, 4096);
    assert_ok(plan(&m, (struct sl_engine_config){0}, 8192 * MIB, &p, note));
    assert_int_equal(p.config.ctx_tokens, 4096);
    assert_non_null(strstr(note, "4096 tokens a request, all that the model was made for"));
    assert_non_null(strstr(note, "coding agents need at least 16384"));
    close_served(&m);
}

/* More memory never gives less, and what was resident with little context stays so. */
static void as_memory_allows(void **state) {
    (void)state;
    struct served_model m;
    struct sl_memory_plan p, small;
    char note[SL_CTX_NOTE_BYTES];
    uint32_t last = 0, n_larger = 0;
    open_served(&m, 131072);
    for (uint64_t ram = 320 * MIB; ram < 16384 * MIB; ram += ram / 3) {
        struct sl_engine_config none = {.parallel = 4}, least = {.parallel = 4, .ctx_tokens = 8192};
        enum sl_status status = plan(&m, least, ram, &small, note);
        assert_int_equal(plan(&m, none, ram, &p, note), status);
        if (status != SL_OK)
            continue;
        assert_true(p.config.ctx_tokens >= 8192 && p.config.ctx_tokens >= last);
        assert_true(p.total_bytes <= ram);
        assert_int_equal(p.streaming, small.streaming);
        /* Less memory would still do. What the process holds varies a little. */
        assert_true(p.least_bytes <= small.least_bytes + 16 * MIB);
        assert_int_equal(strstr(note, "131072 that") == NULL, p.config.ctx_tokens == 131072);
        assert_int_equal(strstr(note, "coding agents") != NULL, p.config.ctx_tokens < 16384);
        n_larger += p.config.ctx_tokens > last;
        last = p.config.ctx_tokens;
    }
    assert_int_equal(last, 131072);
    assert_true(n_larger >= 3);
    close_served(&m);
}

/* Where experts are streamed, an eighth of their slots may go at most. */
static void experts_keep_their_slots(void **state) {
    (void)state;
    struct served_model m;
    struct sl_memory_plan p, small;
    char note[SL_CTX_NOTE_BYTES];
    open_served(&m, 131072);
    struct sl_engine_config c = {.parallel = 1, .experts = SL_EXPERTS_STREAMED};
    struct sl_engine_config least = c;
    least.ctx_tokens = 8192;
    uint32_t n_larger = 0;
    for (uint64_t ram = 256 * MIB; ram < 1024 * MIB; ram += 64 * MIB) {
        if (plan(&m, least, ram, &small, note) != SL_OK)
            continue;
        assert_ok(plan(&m, c, ram, &p, note));
        assert_true(p.streaming && p.config.ctx_tokens >= 8192);
        assert_true(slots_of(&p) * 10 >= slots_of(&small) * 8);
        n_larger += p.config.ctx_tokens > 8192;
        if (p.config.ctx_tokens < 131072)
            assert_non_null(strstr(note, "from its experts with 1 session"));
    }
    assert_true(n_larger > 0);
    close_served(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_the_model_says),
        cmocka_unit_test(as_memory_allows),
        cmocka_unit_test(experts_keep_their_slots),
    };
    return cmocka_run_group_tests_name("serve_memory", tests, NULL, NULL);
}
