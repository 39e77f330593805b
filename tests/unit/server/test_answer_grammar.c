/* Grammars of answers: whatever a model says within one is read as the calls that were asked for.
 * In every family's form texts are drawn at random from the grammar and given to the splitter. */
#include "tests/unit/server/fake_engine.c"

#include "common/rng.h"
#include "model/chat/answer_grammar.h"
#include "model/grammar/automaton.h"
#include "server/answer/splitter.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#define TOOLS                                                                                      \
    "[{'type':'function','function':{'name':'get_weather','strict':true,'parameters':{'type':"     \
    "'object','properties':{'city':{'type':'string'},'days':{'type':'integer','minimum':1,"        \
    "'maximum':9},'unit':{'enum':['C','F']},'tags':{'type':'array','items':{'type':'boolean'},"    \
    "'maxItems':2}},'required':['city','days']}}},"                                                \
    "{'type':'function','function':{'name':'now'}}]"

static json_t *parse(const char *quoted) {
    char text[2048];
    snprintf(text, sizeof text, "%s", quoted);
    for (char *p = text; *p; p++)
        *p = *p == '\'' ? '"' : *p;
    json_t *t = json_loads(text, 0, NULL);
    assert_non_null(t);
    return t;
}

static enum sl_status build(const struct sl_answer_grammar *g, struct sl_buf *text,
                            struct sl_err *err) {
    struct sl_schema_rules r;
    sl_json_schema_rules_begin(&r, text);
    return sl_answer_grammar(g, &r, err);
}

static struct sl_grammar *compile(const struct sl_answer_grammar *g) {
    struct sl_buf text = {0};
    struct sl_err err = {""};
    struct sl_grammar *out = NULL;
    if (build(g, &text, &err) != SL_OK ||
        sl_grammar_parse_from(text.ptr, text.len, "sl-answer", &out, &err) != SL_OK)
        fail_msg("%s: %s\n%.*s", g->format->name, err.text, (int)text.len, text.ptr);
    sl_buf_release(&text);
    return out;
}

/* A marker as the model would write it: control tokens where it has them. */
static bool push_marker(struct sl_cursor *c, const struct sl_tokenizer *tok, const char *text) {
    struct sl_cursor at;
    bool ok = true;
    sl_cursor_copy(&at, c);
    for (size_t i = 0, n = strlen(text); i < n && ok;) {
        uint32_t best = SL_NO_TOKEN;
        size_t len = 1;
        for (uint32_t id = FAKE_WORDS; id < FAKE_WORDS + tok->n_words; id++) {
            struct sl_str piece = sl_tokenizer_piece(tok, id, true);
            if (sl_tokenizer_is_control(tok, id) && strncmp(text + i, piece.ptr, piece.len) == 0) {
                best = id;
                len = piece.len;
            }
        }
        ok = (best == SL_NO_TOKEN ? sl_cursor_push_bytes(&at, text + i, 1, NULL)
                                  : sl_cursor_push_token(&at, best, NULL)) == SL_OK;
        i += len;
    }
    if (ok)
        c->state = at.state;
    sl_cursor_release(&at);
    return ok;
}

/* Closes what is open, if one of the format's closing markers may come: at random one never comes
 * about. */
static bool draw_end(const struct sl_answer_format *f, const struct sl_tokenizer *tok,
                     struct sl_cursor *c, struct sl_rng *rng, struct sl_buf *out) {
    const char *const ends[] = {f->think_close,   f->value_close, "<|end|>",       "\"",
                                "\n</parameter>", f->quote,       f->section_close};
    uint32_t n = sizeof ends / sizeof *ends, first = (uint32_t)sl_rng_below(rng, n);
    for (uint32_t i = 0; i < n; i++) {
        const char *end = ends[(first + i) % n];
        if (end && push_marker(c, tok, end)) {
            sl_buf_puts(out, end);
            return true;
        }
    }
    return false;
}

/* A text of the grammar: allowed tokens at random. False: no end was found within the length. */
static bool draw(const struct sl_answer_format *f, struct sl_automaton *a,
                 const struct sl_tokenizer *tok, struct sl_rng *rng, struct sl_buf *out) {
    struct sl_cursor c;
    assert_int_equal(sl_cursor_init(&c, a, NULL), SL_OK);
    sl_buf_clear(out);
    sl_buf_puts(out, "");
    for (uint32_t n = 0; n < 1500 && !c.ended; n++) {
        const uint64_t *set;
        assert_int_equal(sl_cursor_mask(&c, &set, NULL), SL_OK);
        uint32_t id = FAKE_EOS, n_vocab = sl_tokenizer_n_vocab(tok);
        if (sl_rng_below(rng, 6) == 0 && draw_end(f, tok, &c, rng, out))
            continue;
        if (!(set[id / 64] >> (id % 64) & 1) || sl_rng_below(rng, 4)) {
            /* Of all bytes, markup and quotation marks more often: texts must come to an end. */
            static const char likely[] = "\"}]</>\n,{[:";
            id = sl_rng_below(rng, 2) ? (unsigned char)likely[sl_rng_below(rng, sizeof likely - 1)]
                                      : sl_rng_below(rng, n_vocab);
            while (!(set[id / 64] >> (id % 64) & 1) || id == FAKE_IM_END)
                id = (id + 1) % n_vocab;
        }
        assert_int_equal(sl_cursor_push_token(&c, id, NULL), SL_OK);
        struct sl_str piece = sl_tokenizer_piece(tok, id, true);
        if (id != FAKE_EOS)
            sl_buf_put(out, piece.ptr, piece.len);
    }
    bool ended = c.ended;
    sl_cursor_release(&c);
    return ended;
}

struct answer {
    struct sl_buf content, reasoning, name[SL_MAX_CALLS], arguments[SL_MAX_CALLS];
    uint32_t n_calls;
};

static void note(void *ctx, const struct sl_part *p) {
    struct answer *a = ctx;
    a->n_calls += p->kind == SL_PART_CALL;
    assert_true(a->n_calls <= SL_MAX_CALLS);
    struct sl_buf *b = p->kind == SL_PART_CONTENT     ? &a->content
                       : p->kind == SL_PART_REASONING ? &a->reasoning
                       : p->kind == SL_PART_CALL      ? &a->name[p->call]
                                                      : &a->arguments[p->call];
    sl_buf_put(b, p->text.ptr, p->text.len);
}

static void answer_release(struct answer *a) {
    sl_buf_release(&a->content);
    sl_buf_release(&a->reasoning);
    for (uint32_t i = 0; i < SL_MAX_CALLS; i++) {
        sl_buf_release(&a->name[i]);
        sl_buf_release(&a->arguments[i]);
    }
    *a = (struct answer){0};
}

static void split(const struct sl_answer_grammar *g, const struct sl_buf *text, bool hold,
                  struct answer *out) {
    bool harmony = g->format->syntax == SL_CALL_HARMONY;
    struct sl_splitter_config config = {.format = g->format,
                                        .tools = g->tools,
                                        .thinks = g->thinks,
                                        .in_reasoning = g->place == SL_ANSWER_IN_REASONING,
                                        .hold_calls = hold,
                                        .header = {"<|start|>assistant", harmony ? 18 : 0}};
    struct sl_splitter *s;
    assert_int_equal(sl_splitter_create(&config, note, out, &s), SL_OK);
    assert_int_equal(sl_splitter_push(s, text->ptr, text->len), SL_OK);
    assert_int_equal(sl_splitter_finish(s, false), SL_OK);
    sl_splitter_destroy(&s);
}

static void check_arguments(const char *name, const struct sl_buf *text) {
    json_t *v = json_loadb(text->ptr, text->len, JSON_ALLOW_NUL, NULL);
    if (!json_is_object(v))
        fail_msg("no object: %.*s", (int)text->len, text->ptr);
    if (strcmp(name, "now") == 0) {
        assert_int_equal(json_object_size(v), 0);
    } else {
        const json_t *unit = json_object_get(v, "unit"), *tags = json_object_get(v, "tags");
        assert_true(json_is_string(json_object_get(v, "city")));
        json_int_t days = json_integer_value(json_object_get(v, "days"));
        assert_true(days >= 1 && days <= 9);
        assert_true(!unit || strchr("CF", json_string_value(unit)[0]));
        assert_true(!tags || json_array_size(tags) <= 2);
    }
    json_decref(v);
}

/* Draws texts; returns how many were whole. */
static uint32_t check_random(const struct sl_answer_grammar *g, const struct sl_tokenizer *tok,
                             uint32_t seed) {
    static const uint32_t eog = FAKE_EOS;
    struct sl_vocab_trie *trie;
    struct sl_automaton *a;
    struct sl_grammar *grammar = compile(g);
    assert_int_equal(sl_vocab_trie_create(tok, &trie), SL_OK);
    assert_int_equal(sl_automaton_create(grammar, trie, &eog, 1, &a), SL_OK);
    struct sl_rng rng = {seed};
    struct sl_buf text = {0};
    uint32_t n_whole = 0;
    for (uint32_t round = 0; round < 40; round++) {
        if (!draw(g->format, a, tok, &rng, &text))
            continue;
        n_whole++;
        struct answer answer = {0};
        split(g, &text, round & 1, &answer);
        bool required = g->choice == SL_TOOLS_REQUIRED;
        if ((required && (answer.n_calls == 0 || answer.content.len)) ||
            (!g->parallel && answer.n_calls > 1))
            fail_msg("%s: %u calls and '%.*s' of\n%.*s", g->format->name, answer.n_calls,
                     (int)answer.content.len, answer.content.ptr, (int)text.len, text.ptr);
        for (uint32_t i = 0; i < answer.n_calls; i++) {
            sl_buf_put(&answer.name[i], "", 1);
            check_arguments(answer.name[i].ptr, &answer.arguments[i]);
        }
        answer_release(&answer);
    }
    sl_buf_release(&text);
    sl_automaton_destroy(&a);
    sl_grammar_destroy(&grammar);
    sl_vocab_trie_destroy(&trie);
    return n_whole;
}

/* Markers as the models have them: as control tokens, and as plain text. */
static void init_tokenizer(struct sl_tokenizer *tok, bool control) {
    static const char *const markers[] = {"<tool_call>",
                                          "</tool_call>",
                                          "[TOOL_CALLS]",
                                          "[ARGS]",
                                          "<|python_tag|>",
                                          "<|channel|>",
                                          "<|message|>",
                                          "<|start|>",
                                          "<|constrain|>",
                                          "<|tool_call_begin|>",
                                          "<|tool_call_end|>",
                                          "<|tool_call_argument_begin|>",
                                          "<|tools_prefix|>",
                                          "<|tool_call|>",
                                          "<think>",
                                          "</think>",
                                          "\xef\xbd\x9c"
                                          "DSML\xef\xbd\x9c",
                                          "<\xef\xbd\x9ctool\xe2\x96\x81sep\xef\xbd\x9c>",
                                          "<\xef\xbd\x9ctool\xe2\x96\x81"
                                          "calls\xe2\x96\x81"
                                          "begin\xef\xbd\x9c>",
                                          "<arg_key>",
                                          "</arg_value>",
                                          "]<]minimax[>[",
                                          "<|open|>",
                                          "<|sep|>",
                                          "<|close|>",
                                          "<|tool_call>",
                                          "<|\"|>",
                                          "<channel|>",
                                          "<|START_ACTION|>",
                                          "<|END_THINKING|>",
                                          "<|START_RESPONSE|>",
                                          "<|tool_call_start|>",
                                          "<tool_sep:opensource>",
                                          "</arg_value:opensource>"};
    fake_tokenizer_init(tok);
    for (size_t i = 0; control && i < sizeof markers / sizeof *markers; i++)
        fake_control_word(tok, markers[i]);
    fake_word(tok, "get_weather");
    fake_word(tok, "\": ");
    fake_word(tok, "</");
}

static void every_family(void **state) {
    (void)state;
    json_t *tools = parse(TOOLS);
    for (uint32_t k = 0; sl_answer_format_at(k); k++)
        for (uint32_t way = 0; way < 8; way++) {
            struct sl_tokenizer tok;
            init_tokenizer(&tok, way & 1);
            struct sl_answer_grammar g = {
                .format = sl_answer_format_at(k),
                .tok = &tok,
                .tools = tools,
                .choice = way & 2 ? SL_TOOLS_AUTO : SL_TOOLS_REQUIRED,
                .parallel = way & 4,
                .thinks = true,
                .place = way & 4 ? SL_ANSWER_IN_REASONING : SL_ANSWER_FRESH,
            };
            uint32_t n = check_random(&g, &tok, 31 * k + way);
            if (n < 6)
                fail_msg("%s, way %u: only %u texts came to an end", g.format->name, way, n);
        }
    json_decref(tools);
}

static bool takes(const struct sl_answer_grammar *g, const char *text) {
    struct sl_grammar *grammar = compile(g);
    struct sl_automaton *a;
    struct sl_cursor c;
    assert_int_equal(sl_automaton_create(grammar, NULL, NULL, 0, &a), SL_OK);
    assert_int_equal(sl_cursor_init(&c, a, NULL), SL_OK);
    bool ok = sl_cursor_push_bytes(&c, text, strlen(text), NULL) == SL_OK && sl_cursor_complete(&c);
    sl_cursor_release(&c);
    sl_automaton_destroy(&a);
    sl_grammar_destroy(&grammar);
    return ok;
}

/* What models write in the usual forms is taken, what breaks the rules is not. */
static void usual_texts(void **state) {
    (void)state;
    struct sl_tokenizer tok;
    init_tokenizer(&tok, false);
    json_t *tools = parse(TOOLS);
    struct sl_answer_grammar g = {.format = sl_answer_format_named("hermes"),
                                  .tok = &tok,
                                  .tools = tools,
                                  .choice = SL_TOOLS_AUTO,
                                  .parallel = true,
                                  .thinks = true};
#define CALL                                                                                       \
    "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\", \"days\": 2}}\n" \
    "</tool_call>"
    assert_true(takes(&g, "just <text>"));
    assert_true(takes(&g, "<think>\nhm <tool_call> hm</think>\n\nI call\n" CALL));
    assert_true(takes(&g, CALL "\n" CALL));
    assert_false(takes(&g, "I call\n<tool_call>"));
    assert_false(takes(&g, CALL " and more"));
    assert_false(takes(&g, "<tool_call>\n{\"name\": \"other\", \"arguments\": {}}\n</tool_call>"));
    g.choice = SL_TOOLS_REQUIRED;
    assert_false(takes(&g, "just text"));
    assert_false(takes(&g, "I call\n" CALL));
    assert_true(takes(&g, "<think>\nhm</think>" CALL));
    g.parallel = false;
    assert_false(takes(&g, CALL "\n" CALL));
    g.place = SL_ANSWER_IN_REASONING;
    assert_false(takes(&g, CALL));
    assert_true(takes(&g, "hm</think>" CALL));
    g.place = SL_ANSWER_BEHIND_REASONING;
    assert_false(takes(&g, "<think>hm</think>" CALL));
    /* Content of a form, behind reasoning. */
    g = (struct sl_answer_grammar){
        .format = g.format, .tok = &tok, .thinks = true, .content = "str"};
    assert_true(takes(&g, "\"a\""));
    assert_true(takes(&g, "<think>why</think>\n\n\"a\""));
    assert_false(takes(&g, "why\"a\""));
    g.format = sl_answer_format_named("harmony");
    assert_true(takes(&g, "<|channel|>analysis<|message|>x<|end|><|start|>assistant<|channel|>final"
                          "<|message|>\"a\""));
    assert_false(takes(&g, "<|channel|>final<|message|>a"));
    json_decref(tools);
}

static void refuses_schemas(void **state) {
    (void)state;
    struct sl_tokenizer tok;
    struct sl_err err;
    init_tokenizer(&tok, false);
    struct sl_answer_grammar g = {
        .format = sl_answer_format_named("hermes"), .tok = &tok, .choice = SL_TOOLS_REQUIRED};
    struct sl_buf text = {0};
    static const struct {
        const char *format, *tools, *says;
    } bad[] = {
        {"hermes",
         "[{'function':{'name':'f','strict':true,'parameters':{'type':'object','$dynamicRef':'#a'}}"
         "}]",
         "$dynamicRef: this keyword"},
        {"qwen3-coder",
         "[{'function':{'name':'f','strict':true,'parameters':{'type':'object','properties':{'a':"
         "{'type':'string','pattern':'a'}}}}}]",
         "pattern: not supported in a strict function"},
        {"qwen3-coder",
         "[{'function':{'name':'f','strict':true,'parameters':{'type':'object','anyOf':[]}}}]",
         "anyOf: not supported"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        json_t *tools = parse(bad[i].tools);
        g.tools = tools;
        g.format = sl_answer_format_named(bad[i].format);
        assert_int_equal(build(&g, &text, &err), SL_ERR_INVALID);
        assert_non_null(strstr(err.text, bad[i].says));
        assert_non_null(strstr(err.text, "the function 'f'"));
        /* The same, not strict: any object will do. */
        json_object_del(json_object_get(json_array_get(tools, 0), "function"), "strict");
        struct sl_grammar *grammar = compile(&g);
        sl_grammar_destroy(&grammar);
        json_decref(tools);
    }
    sl_buf_release(&text);
}

/* Of so many parameters none may be looked for among all of the others. */
static void bounds_parameters(void **state) {
    (void)state;
    struct sl_tokenizer tok;
    struct sl_err err;
    init_tokenizer(&tok, false);
    json_t *tools = parse("[{'function':{'name':'f','parameters':{'properties':{}}}}]");
    json_t *p =
        json_object_get(json_object_get(json_array_get(tools, 0), "function"), "parameters");
    json_t *properties = json_object_get(p, "properties"), *required = json_array();
    json_object_set_new(p, "required", required);
    for (uint32_t i = 0; i < 200000; i++) {
        char name[16];
        snprintf(name, sizeof name, "p%u", i);
        json_object_set_new(properties, name, json_pack("{s:s}", "type", "string"));
        json_array_append_new(required, json_string(name));
    }
    struct sl_answer_grammar g = {.format = sl_answer_format_named("qwen3-coder"),
                                  .tok = &tok,
                                  .tools = tools,
                                  .choice = SL_TOOLS_REQUIRED};
    struct sl_buf text = {0};
    assert_int_equal(build(&g, &text, &err), SL_ERR_INVALID);
    assert_non_null(strstr(err.text, "the function 'f': its parameters make too large a grammar"));
    sl_buf_release(&text);
    json_decref(tools);
}

static void checks_tools(void **state) {
    (void)state;
    static const struct {
        const char *tools, *says;
        size_t index;
    } bad[] = {
        {"{}", "must be an array", SL_MAX_TOOLS},
        {"[3]", "must be an object", 0},
        {"[{'type':'web_search'}]", "'type' must be 'function'", 0},
        {"[{'type':'function'}]", "'function' must be an object", 0},
        {"[{'function':{'name':7}}]", "'function.name' must be a string", 0},
        {"[{'function':{'name':''}}]", "1 to 128", 0},
        {"[{'function':{'name':'a b'}}]", "1 to 128", 0},
        {"[{'function':{'name':'a'}},{'function':{'name':'a'}}]", "there twice", 1},
        {"[{'function':{'name':'a','description':1}}]", "'description'", 0},
        {"[{'function':{'name':'a','strict':1}}]", "'strict'", 0},
        {"[{'function':{'name':'a','parameters':[]}}]", "'parameters' must be a schema", 0},
        {"[{'function':{'name':'a','parameters':{'type':'string'}}}]", "of type 'object'", 0},
        {"[{'function':{'name':'a','parameters':{'properties':[]}}}]", "properties", 0},
    };
    struct sl_err err;
    size_t index;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        json_t *tools = parse(bad[i].tools);
        assert_int_equal(sl_tools_check(tools, &index, &err), SL_ERR_INVALID);
        assert_non_null(strstr(err.text, bad[i].says));
        assert_int_equal(index, bad[i].index);
        json_decref(tools);
    }
    json_t *tools = parse(TOOLS);
    assert_int_equal(sl_tools_check(tools, &index, &err), SL_OK);
    json_decref(tools);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family),    cmocka_unit_test(usual_texts),
        cmocka_unit_test(refuses_schemas), cmocka_unit_test(bounds_parameters),
        cmocka_unit_test(checks_tools),
    };
    return cmocka_run_group_tests_name("answer grammars", tests, NULL, NULL);
}
