/* sluice inspect on small files: its numbers, its two outputs, and files that do not run. */
#include "cli/options/commands.h"
#include "cli/inspect/inspect.h"
#include "model/synth/synth.h"
#include "tests/support/gguf_builder.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>

enum { EMBD = 32, FF = 64, EXPERTS = 4, USED = 2, VOCAB = 6 };
static char dir[64], path[128], out_path[128];

/* llama with experts, whose down matrices are Q8_0 in the first layer and Q4_0 in the other two. */
static bool with_media; /* the file has an encoder of pictures and one of sound */

static void write_model(const char *arch) {
    struct gb b = gb_new(3);
    char key[64];
    const struct {
        const char *key;
        uint32_t v;
    } keys[] = {
        {"block_count", 3},          {"context_length", 128},   {"embedding_length", EMBD},
        {"attention.head_count", 2}, {"expert_count", EXPERTS}, {"expert_used_count", USED},
        {"feed_forward_length", FF},
    };
    gb_str(&b, "general.architecture", arch);
    gb_str(&b, "general.name", "Tiny \x1b[31m model");
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        snprintf(key, sizeof key, "%s.%s", arch, keys[i].key);
        gb_uint(&b, key, keys[i].v);
    }
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", arch);
    gb_float(&b, key, 1e-5f);
    gb_str(&b, "tokenizer.chat_template", "{{ messages }}\nsecond line");
    gb_str(&b, "tokenizer.chat_template.tool_use", "{{ tools }}");
    gb_tensor(&b, "token_embd.weight", SL_DTYPE_F16, 2, (uint64_t[]){EMBD, VOCAB});
    gb_tensor(&b, "output_norm.weight", SL_DTYPE_F32, 1, (uint64_t[]){EMBD});
    for (int l = 0; l < 3; l++) {
        const struct {
            const char *name;
            uint32_t type, n;
            uint64_t ne[3];
        } t[] = {
            {"attn_norm.weight", SL_DTYPE_F32, 1, {EMBD}},
            {"attn_q.weight", SL_DTYPE_F16, 2, {EMBD, EMBD}},
            {"attn_k.weight", SL_DTYPE_F16, 2, {EMBD, EMBD}},
            {"attn_v.weight", SL_DTYPE_F16, 2, {EMBD, EMBD}},
            {"attn_output.weight", SL_DTYPE_F16, 2, {EMBD, EMBD}},
            {"ffn_norm.weight", SL_DTYPE_F32, 1, {EMBD}},
            {"ffn_gate_inp.weight", SL_DTYPE_F32, 2, {EMBD, EXPERTS}},
            {"ffn_gate_exps.weight", SL_DTYPE_Q4_0, 3, {EMBD, FF, EXPERTS}},
            {"ffn_up_exps.weight", SL_DTYPE_Q4_0, 3, {EMBD, FF, EXPERTS}},
            {"ffn_down_exps.weight", l ? SL_DTYPE_Q4_0 : SL_DTYPE_Q8_0, 3, {FF, EMBD, EXPERTS}},
        };
        for (size_t i = 0; i < sizeof t / sizeof t[0]; i++) {
            snprintf(key, sizeof key, "blk.%d.%s", l, t[i].name);
            gb_tensor(&b, key, t[i].type, t[i].n, t[i].ne);
        }
    }
    for (int i = 0; i < 4 && with_media; i++) {
        static const char *const names[] = {"v.patch_embd.weight", "v.blk.0.attn_q.weight",
                                            "a.blk.0.ffn_up.weight", "mm.0.weight"};
        gb_tensor(&b, names[i], SL_DTYPE_F16, 2, (uint64_t[]){EMBD, EMBD});
    }
    size_t n;
    uint8_t *file = gb_finish(&b, &n);
    gb_write_file(path, file, n);
    free(file);
}

/* Runs the command with stdout and stderr in a file; returns its text (static). */
static const char *run(int want_rc, int argc, const char **argv) {
    static char text[65536];
    fflush(stdout);
    fflush(stderr);
    int out = dup(1), err = dup(2);
    assert_non_null(freopen(out_path, "w", stdout));
    dup2(fileno(stdout), 2);
    int rc = sl_cmd_inspect(argc, (char **)argv);
    fflush(stdout);
    dup2(out, 1);
    dup2(err, 2);
    close(out);
    close(err);
    FILE *f = fopen(out_path, "r");
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    if (rc != want_rc)
        fail_msg("exit code %d, want %d:\n%s", rc, want_rc, text);
    return text;
}

static void expect(const char *text, const char *part) {
    if (!strstr(text, part))
        fail_msg("'%s' is not in:\n%s", part, text);
}

enum { Q4_PART = EMBD / 32 * 18 * FF, Q8_PART = FF / 32 * 34 * EMBD };

static void test_counts(void **state) {
    (void)state;
    static struct sl_inspect in;
    struct sl_err err = {""};
    write_model("llama");
    assert_int_equal(sl_inspect_open(path, &in, &err), SL_OK);
    if (!in.model)
        fail_msg("%s", in.model_err.text);
    assert_int_equal(in.n_layer, 3);
    assert_int_equal(in.layer[0].expert_bytes, 2 * Q4_PART + Q8_PART);
    assert_int_equal(in.layer[1].expert_bytes, 3 * Q4_PART);
    assert_int_equal(in.layer[1].expert_bytes, sl_model_expert_bytes(in.model, 1));
    assert_int_equal(in.layer[0].n_expert, EXPERTS);
    assert_int_equal(sl_inspect_same_until(&in, 0), 0);
    assert_int_equal(sl_inspect_same_until(&in, 1), 2);
    assert_int_equal(in.routed_per_token_bytes, USED * (8 * Q4_PART + Q8_PART));
    assert_int_equal(in.of[SL_PURPOSE_EXPERTS].bytes, EXPERTS * (8 * Q4_PART + Q8_PART));
    assert_int_equal(in.of[SL_PURPOSE_EXPERTS].bytes_of[SL_DTYPE_Q8_0], EXPERTS * Q8_PART);
    assert_int_equal(in.of[SL_PURPOSE_ATTENTION].bytes, 3 * 4 * EMBD * EMBD * 2);
    assert_int_equal(in.of[SL_PURPOSE_NORM].bytes, 7 * EMBD * 4);
    assert_int_equal(in.of[SL_PURPOSE_ROUTER].bytes, 3 * EMBD * EXPERTS * 4);
    assert_int_equal(in.of[SL_PURPOSE_EMBEDDING].bytes, EMBD * VOCAB * 2);
    assert_int_equal(in.of[SL_PURPOSE_OTHER].n_tensors, 0);
    /* tied: the embedding is read as the output matrix */
    assert_int_equal(in.dense_per_token_bytes, in.total.bytes - in.of[SL_PURPOSE_EXPERTS].bytes);
    assert_int_equal(in.active_elems, in.total.n_elems - (EXPERTS - USED) * 9 * EMBD * FF);
    sl_inspect_release(&in);
}

/* A token uses three experts in layers 0 and 2, one in layers 1 and 3. */
static void test_experts_by_layer(void **state) {
    (void)state;
    static struct sl_inspect in;
    struct sl_synth_config c = sl_synth_default;
    struct sl_err err = {""};
    c.n_expert_used = 3;
    c.n_expert_used_odd = 1;
    unlink(path);
    assert_int_equal(sl_synth_write(&c, path, NULL, NULL, &err), SL_OK);
    assert_int_equal(sl_inspect_open(path, &in, &err), SL_OK);
    if (!in.model)
        fail_msg("%s", in.model_err.text);
    assert_int_equal(in.n_layer, 4);
    assert_int_equal(in.routed_per_token_bytes, 8 * sl_model_expert_bytes(in.model, 0));
    uint64_t of_one = in.of[SL_PURPOSE_EXPERTS].n_elems / (4 * c.n_expert);
    assert_int_equal(in.active_elems, in.total.n_elems - (4 * c.n_expert - 8) * of_one);
    sl_inspect_release(&in);
}

/* Layers of 8, 3, 0 and 5 experts, of which a token uses three. */
static void test_numbers_of_experts(void **state) {
    (void)state;
    static struct sl_inspect in;
    struct sl_synth_config c = sl_synth_default;
    static const uint32_t n[] = {8, 3, 0, 5};
    struct sl_err err = {""};
    memcpy(c.n_expert_each, n, sizeof n);
    c.n_each = 4;
    c.n_expert_used = 3;
    unlink(path);
    assert_int_equal(sl_synth_write(&c, path, NULL, NULL, &err), SL_OK);
    assert_int_equal(sl_inspect_open(path, &in, &err), SL_OK);
    if (!in.model)
        fail_msg("%s", in.model_err.text);
    for (uint32_t l = 0; l < 4; l++)
        assert_int_equal(in.layer[l].n_expert, n[l]);
    assert_int_equal(in.routed_per_token_bytes, 9 * sl_model_expert_bytes(in.model, 0));
    uint64_t of_one = in.of[SL_PURPOSE_EXPERTS].n_elems / 16;
    assert_int_equal(in.active_elems, in.total.n_elems - (16 - 9) * of_one);
    json_t *j = json_loads(run(0, 3, (const char *[]){"inspect", path, "--json"}), 0, NULL);
    const json_t *each = json_object_get(json_object_get(j, "hparams"), "n_expert");
    assert_int_equal(json_array_size(each), 4);
    for (uint32_t l = 0; l < 4; l++)
        assert_int_equal(json_integer_value(json_array_get(each, l)), n[l]);
    json_decref(j);
    sl_inspect_release(&in);
    c.n_expert = 9;
    assert_int_equal(sl_synth_write(&c, path, NULL, NULL, &err), SL_ERR_CONFIG);
    assert_non_null(strstr(err.text, "most of --experts-each, which is 8"));
    c.n_expert = 8, c.n_expert_used = 4;
    assert_int_equal(sl_synth_write(&c, path, NULL, NULL, &err), SL_ERR_CONFIG);
    assert_non_null(strstr(err.text, "--experts-each has 3"));
}

/* Experts that several routed ones share are no dense feed-forward. */
static void test_adjugate(void **state) {
    (void)state;
    static struct sl_inspect in;
    struct sl_synth_config c = sl_synth_default;
    struct sl_err err = {""};
    c.arch = "grovemoe";
    unlink(path);
    assert_int_equal(sl_synth_write(&c, path, NULL, NULL, &err), SL_OK);
    assert_int_equal(sl_inspect_open(path, &in, &err), SL_OK);
    if (!in.model)
        fail_msg("%s", in.model_err.text);
    assert_int_equal(in.of[SL_PURPOSE_ADJUGATE].n_tensors, 3 * in.n_layer);
    assert_int_equal(in.of[SL_PURPOSE_FFN].n_tensors, 0);
    expect(run(0, 2, (const char *[]){"inspect", path}), "adjugate");
    sl_inspect_release(&in);
    assert_int_equal(unlink(path), 0);
}

/* Layers that draft tokens are in the file, and neither run nor read. */
static void test_nextn(void **state) {
    (void)state;
    static struct sl_inspect in, without;
    struct sl_synth_config c = sl_synth_default;
    struct sl_err err = {""};
    c.arch = "nemotron_h_moe";
    unlink(path); /* another test's, which is not written over */
    assert_int_equal(sl_synth_write(&c, path, NULL, NULL, &err), SL_OK);
    assert_int_equal(sl_inspect_open(path, &without, &err), SL_OK);
    c.n_nextn = 2;
    assert_int_equal(sl_synth_write(&c, path, NULL, NULL, &err), SL_OK);
    assert_int_equal(sl_inspect_open(path, &in, &err), SL_OK);
    if (!in.model)
        fail_msg("%s", in.model_err.text);
    assert_int_equal(in.model->hp.n_layer_nextn, 2);
    assert_int_equal(without.of[SL_PURPOSE_NEXTN].n_tensors, 0);
    assert_int_equal(in.total.bytes - in.of[SL_PURPOSE_NEXTN].bytes, without.total.bytes);
    assert_int_equal(in.n_layer, without.n_layer);
    assert_int_equal(in.active_elems, without.active_elems);
    assert_int_equal(in.dense_per_token_bytes, without.dense_per_token_bytes);
    assert_int_equal(in.routed_per_token_bytes, without.routed_per_token_bytes);
    sl_inspect_release(&in);
    sl_inspect_release(&without);
    const char *text = run(0, 2, (const char *[]){"inspect", path});
    expect(text, "2 layers behind these, which draft tokens: left on disk\n");
    assert_int_equal(unlink(path), 0);
    c.arch = "glm4moe";
    assert_int_equal(sl_synth_write(&c, path, NULL, NULL, &err), SL_OK);
    text = run(0, 2, (const char *[]){"inspect", path});
    expect(text, "left on disk, unless --draft uses the first\n");
    assert_int_equal(unlink(path), 0);
}

/* So are an encoder's tensors, whose names are like those of layers. */
static void test_media(void **state) {
    (void)state;
    static struct sl_inspect in, without;
    struct sl_err err = {""};
    write_model("llama");
    assert_int_equal(sl_inspect_open(path, &without, &err), SL_OK);
    with_media = true;
    write_model("llama");
    with_media = false;
    assert_int_equal(sl_inspect_open(path, &in, &err), SL_OK);
    if (!in.model)
        fail_msg("%s", in.model_err.text);
    assert_int_equal(without.of[SL_PURPOSE_MEDIA].n_tensors, 0);
    assert_int_equal(in.of[SL_PURPOSE_MEDIA].n_tensors, 4);
    assert_int_equal(in.total.bytes - in.of[SL_PURPOSE_MEDIA].bytes, without.total.bytes);
    assert_int_equal(in.of[SL_PURPOSE_ATTENTION].bytes, without.of[SL_PURPOSE_ATTENTION].bytes);
    assert_int_equal(in.active_elems, without.active_elems);
    assert_int_equal(in.dense_per_token_bytes, without.dense_per_token_bytes);
    expect(run(0, 2, (const char *[]){"inspect", path}), "vision, audio");
    sl_inspect_release(&in);
    sl_inspect_release(&without);
}

static void test_report(void **state) {
    (void)state;
    write_model("llama");
    const char *text = run(0, 2, (const char *[]){"inspect", path});
    expect(text, "architecture    llama\n");
    expect(text, "Tiny \\x1b[31m model");
    assert_null(strchr(text, '\x1b'));
    expect(text, "4 per layer, 2 per token, width 64; softmax router, renormalised");
    expect(text, "(tied output)");
    expect(text, "layer 0 ");
    expect(text, "layers 1-2");
    expect(text, "gate Q4_0 up Q4_0 down Q8_0");
    expect(text, "tokenizer       none in this file");
    expect(text, "26 bytes, 2 lines, begins \"{{ messages }}\"");
    expect(text, "tool_use: 11 bytes");
    text = run(0, 5, (const char *[]){"inspect", "-m", path, "--kv", "--tensors"});
    expect(text, "llama.attention.layer_norm_rms_epsilon");
    expect(text, " 1e-05\n");
    expect(text, "blk.2.ffn_down_exps.weight");
    expect(text, "64 x 32 x 4");
    text = run(0, 3, (const char *[]){"inspect", path, "--template"});
    assert_string_equal(text, "{{ messages }}\nsecond line");
    text = run(0, 4, (const char *[]){"inspect", path, "--template-name", "tool_use"});
    assert_string_equal(text, "{{ tools }}");
    text = run(1, 4, (const char *[]){"inspect", path, "--template-name", "rag"});
    expect(text, "no key 'tokenizer.chat_template.rag'");
}

static void test_json(void **state) {
    (void)state;
    write_model("llama");
    const char *text = run(0, 5, (const char *[]){"inspect", path, "--json", "--kv", "--tensors"});
    json_error_t e;
    json_t *o = json_loads(text, 0, &e);
    if (!o)
        fail_msg("%s:\n%s", e.text, text);
    assert_string_equal(json_string_value(json_object_get(o, "architecture")), "llama");
    assert_true(json_is_true(json_object_get(o, "supported")));
    assert_int_equal(json_integer_value(json_object_get(o, "routed_bytes_per_token")),
                     USED * (8 * Q4_PART + Q8_PART));
    assert_int_equal(json_array_size(json_object_get(o, "experts")), 2);
    json_t *hp = json_object_get(o, "hparams");
    assert_int_equal(json_integer_value(json_object_get(hp, "n_expert_used")), USED);
    assert_int_equal(json_array_size(json_object_get(o, "tensors")), 32);
    assert_int_equal(json_object_size(json_object_get(o, "keys")), 12);
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(o, "chat_templates"), "tool_use")),
        "{{ tools }}");
    json_decref(o);
}

static void test_unsupported(void **state) {
    (void)state;
    write_model("newarch");
    const char *text = run(0, 2, (const char *[]){"inspect", path});
    expect(text, "architecture    newarch\n");
    expect(text, "architecture 'newarch' is not supported");
    expect(text, "newarch.expert_used_count");
    expect(text, "layers 1-2"); /* experts are counted all the same */
    expect(text, "routed experts");
    text = run(0, 3, (const char *[]){"inspect", path, "--json"});
    json_t *o = json_loads(text, 0, NULL);
    assert_non_null(o);
    assert_true(json_is_false(json_object_get(o, "supported")));
    json_decref(o);
}

static void test_vocabulary_only_and_empty(void **state) {
    (void)state;
    size_t n;
    struct gb b = gb_new(2);
    gb_str(&b, "general.architecture", "llama");
    gb_strings(&b, "tokenizer.ggml.tokens", (const char *[]){"a", "b"}, 2);
    gb_str(&b, "tokenizer.ggml.model", "unheard-of");
    uint8_t *file = gb_finish(&b, &n);
    gb_write_file(path, file, n);
    free(file);
    const char *text = run(0, 2, (const char *[]){"inspect", path});
    expect(text, "vocabulary only: no weights");
    expect(text, "unheard-of, 2 tokens; not usable:");
    b = gb_new(3);
    file = gb_finish(&b, &n);
    gb_write_file(path, file, n);
    free(file);
    text = run(0, 4, (const char *[]){"inspect", path, "--kv", "--tensors"});
    expect(text, "architecture    not stated");
    json_t *o = json_loads(run(0, 3, (const char *[]){"inspect", path, "--json"}), 0, NULL);
    assert_non_null(o);
    json_decref(o);
}

static void test_errors(void **state) {
    (void)state;
    expect(run(1, 2, (const char *[]){"inspect", "/nonexistent.gguf"}), "cannot open");
    expect(run(2, 1, (const char *[]){"inspect"}), "no model given");
    expect(run(2, 3, (const char *[]){"inspect", path, "--tensor"}), "--tensors");
    gb_write_file(path, (const uint8_t *)"not a model", 11);
    expect(run(1, 2, (const char *[]){"inspect", path}), "not a GGUF file");
}

int main(void) {
    strcpy(dir, "/tmp/sl_test_inspect_XXXXXX");
    if (!mkdtemp(dir))
        return 1;
    snprintf(path, sizeof path, "%s/m.gguf", dir);
    snprintf(out_path, sizeof out_path, "%s/out", dir);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),           cmocka_unit_test(test_nextn),
        cmocka_unit_test(test_adjugate),         cmocka_unit_test(test_media),
        cmocka_unit_test(test_experts_by_layer), cmocka_unit_test(test_numbers_of_experts),
        cmocka_unit_test(test_report),           cmocka_unit_test(test_json),
        cmocka_unit_test(test_unsupported),      cmocka_unit_test(test_vocabulary_only_and_empty),
        cmocka_unit_test(test_errors),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    unlink(out_path);
    rmdir(dir);
    return failed;
}
