/* llama.cpp's own requests: which ids the engine gets, and what is refused. */
#include "translated.h"

#include "server/api/handlers.h"

/* The prompt's ids, numbers separated by spaces; bytes are their characters. */
static void expect_ids(struct sl_exchange *ex, uint32_t prompt, const char *want) {
    char got[1024] = "";
    const struct sl_ids *ids = &ex->gen->prompts[prompt];
    for (size_t i = 0; i < ids->n; i++) {
        uint32_t id = ids->ids[i];
        struct sl_str s = sl_tokenizer_piece(&tok, id, true);
        sprintf(got + strlen(got), id < 256 ? "%.*s" : "[%.*s]", (int)s.len, s.ptr);
    }
    assert_string_equal(got, want);
}

static struct sl_gen *generate(struct sl_exchange *ex, void (*handle)(struct sl_exchange *),
                               const char *body) {
    run(ex, handle, body);
    if (!ex->gen)
        fail_msg("%s", ex->error.err.text);
    return ex->gen;
}

static void test_prompts(void **state) {
    (void)state;
    static const struct {
        const char *prompt;
        uint32_t n;
        const char *want[3];
    } cases[] = {
        {"'ab'", 1, {"ab"}},
        {"[97,98]", 1, {"ab"}},
        {"[97,'bc',100,'</s>']", 1, {"abcd[</s>]"}},
        {"['ab',[99],{'prompt_string':'d'}]", 3, {"ab", "c", "d"}},
        {"[[97,'b'],'c']", 2, {"ab", "c"}},
        {"{'prompt_string':'ab'}", 1, {"ab"}},
        {"{'prompt_string':['a',98]}", 1, {"ab"}},
    };
    struct sl_exchange ex;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[256];
        snprintf(body, sizeof body, "{'prompt':%s}", cases[i].prompt);
        struct sl_gen *g = generate(&ex, sl_native_handle, body);
        assert_int_equal(g->n_prompts, cases[i].n);
        for (uint32_t k = 0; k < cases[i].n; k++)
            expect_ids(&ex, k, cases[i].want[k]);
        done(&ex);
    }
    tok.add_bos = true; /* which the first text of a mixed prompt begins with */
    generate(&ex, sl_native_handle, "{'prompt':['a',98,'c']}");
    expect_ids(&ex, 0, "[<s>]abc");
    done(&ex);
    tok.add_bos = false;
    refuse(sl_native_handle, "{}", "prompt", "missing");
    refuse(sl_native_handle, "{'prompt':7}", "prompt", "a number");
    refuse(sl_native_handle, "{'prompt':[]}", "prompt", "empty");
    refuse(sl_native_handle, "{'prompt':{}}", "prompt", "'prompt_string'");
    refuse(sl_native_handle, "{'prompt':['a',{'prompt_string':7}]}", "prompt[1]", "a number");
    refuse(sl_native_handle, "{'prompt':[1,true]}", "prompt", "token id");
    refuse(sl_native_handle, "{'prompt':['a',1.5]}", "prompt", "a fraction");
    refuse(sl_native_handle, "{'prompt':['a',999999]}", "prompt", "ids of this model");
    refuse(sl_native_handle, "{'prompt':{'prompt_string':'a','multimodal_data':['aGk=']}}",
           "prompt", "text only");
}

static void test_fields(void **state) {
    (void)state;
    struct sl_exchange ex;
    const struct sl_gen_params *p =
        &generate(&ex, sl_native_handle,
                  "{'prompt':'a','n_predict':5,'n_probs':3,'return_tokens':true,'seed':7,"
                  "'temperature':0.5,'stop':['x'],'stream':false,'id_slot':1,'n_keep':0,"
                  "'cache_prompt':false,'lora':[],'t_max_predict_ms':-1}")
             ->params;
    assert_int_equal(p->max_tokens, 5);
    assert_true(p->logprobs && p->n_top_logprobs == 3 && p->about.return_tokens);
    assert_true(p->sampling.seed == 7 && p->sampling.temperature == 0.5f && !p->cache_prompt);
    assert_int_equal(p->stop.n, 1);
    done(&ex);
    p = &generate(&ex, sl_native_handle,
                  "{'prompt':'a','n_predict':-1,'seed':-1,'json_schema':{'type':'integer'}}")
             ->params;
    assert_int_equal(p->max_tokens, 0);         /* no limit, nor the 16 of text completions */
    assert_true(p->sampling.seed <= INT32_MAX); /* any, of those that come back unchanged */
    assert_true(!p->stream && !p->logprobs && p->grammar);
    done(&ex);
#define NO(body, param, part) refuse(sl_native_handle, "{'prompt':'a'," body "}", param, part)
    NO("'n_predict':-3", "n_predict", "from 0 up");
    NO("'n_predict':'all'", "n_predict", "from 0 up");
    NO("'n_probs':21", "n_probs", "from 0 to 20");
    NO("'return_tokens':1", "return_tokens", "true or false");
    NO("'post_sampling_probs':true", "post_sampling_probs", "not supported");
    NO("'response_fields':'content'", "response_fields", "an array");
    NO("'response_fields':['content',7]", "response_fields", "'response_fields[1]'");
    NO("'response_fields':['content'],'temperature':9", "temperature", "from 0 to 2");
    NO("'t_max_predict_ms':500", "t_max_predict_ms", "not supported");
    NO("'lora':[{'id':0}]", "lora", "not supported");
    NO("'temperature':'hot'", "temperature", "a string");
    NO("'json_schema':{'type':'strange'}", "json_schema", "'json_schema'");
#undef NO
}

#define GAP "'input_prefix':'ab</s>','input_suffix':'yz'"

static void test_infill(void **state) {
    (void)state;
    struct sl_exchange ex;
    run(&ex, sl_infill_handle, "{" GAP "}");
    assert_int_equal(ex.error.http_status, 400);
    assert_non_null(strstr(ex.error.err.text, "cannot fill a gap"));
    done(&ex);

    fake_control_word(&tok, "<PRE>");
    fake_control_word(&tok, "<SUF>");
    fake_control_word(&tok, "<MID>");
    /* What a client writes around the gap never becomes a control token. */
    generate(&ex, sl_infill_handle, "{" GAP "}");
    expect_ids(&ex, 0, "[<PRE>]ab</s>[<SUF>]yz[<MID>]");
    done(&ex);
    generate(&ex, sl_infill_handle, "{'input_prefix':'','input_suffix':'','prompt':'c'}");
    expect_ids(&ex, 0, "[<PRE>]c[<SUF>][<MID>]");
    done(&ex);
    generate(&ex, sl_infill_handle,
             "{" GAP ",'input_extra':[{'text':'one'},{'filename':'b.c','text':'two'}]}");
    expect_ids(&ex, 0,
               "\n\n--- snippet ---\n\none\n\n--- snippet ---\n\ntwo"
               "[<PRE>]ab</s>[<SUF>]yz[<MID>]");
    done(&ex);

    fake_control_word(&tok, "<REP>");
    fake_control_word(&tok, "<SEP>");
    server.served->chat.prepend_bos = true;
    generate(&ex, sl_infill_handle,
             "{" GAP ",'prompt':'c','input_extra':[{'text':'one'},{'filename':'b.c',"
             "'text':'two'}]}");
    expect_ids(&ex, 0,
               "[<s>][<REP>]myproject\n[<SEP>]tmp\none[<SEP>]b.c\ntwo[<SEP>]filename\n"
               "[<PRE>]ab</s>c[<SUF>]yz[<MID>]");
    done(&ex);
    /* Of files that do not all fit, the last ones, beside the answer that was asked for. */
    generate(&ex, sl_infill_handle,
             "{" GAP ",'n_predict':4052,'input_extra':[{'text':'one'},{'filename':'b.c',"
             "'text':'two'}]}");
    expect_ids(&ex, 0,
               "[<s>][<REP>]myproject\n[<SEP>]b.c\ntwo[<SEP>]filename\n"
               "[<PRE>]ab</s>[<SUF>]yz[<MID>]");
    assert_int_equal(ex.gen->params.max_tokens, 4052);
    done(&ex);
    generate(&ex, sl_infill_handle,
             "{" GAP ",'n_predict':5000,'input_extra':[{'filename':'b.c','text':'two'}]}");
    expect_ids(&ex, 0, "[<s>][<REP>]myproject\n[<SEP>]filename\n[<PRE>]ab</s>[<SUF>]yz[<MID>]");
    done(&ex);

#define NO(body, param, part) refuse(sl_infill_handle, "{" body "}", param, part)
    NO("'input_suffix':'x'", "input_prefix", "absent");
    NO("'input_prefix':'x'", "input_suffix", "absent");
    NO(GAP ",'prompt':7", "prompt", "a number");
    NO(GAP ",'input_extra':{}", "input_extra", "an array");
    NO(GAP ",'input_extra':[{}]", "input_extra[0].text", "absent");
    NO(GAP ",'input_extra':[{'text':'x','filename':1}]", "input_extra[0]", "a string");
    NO(GAP ",'n_predict':-3", "n_predict", "from 0 up");
#undef NO
    char *long_body = malloc(9000);
    strcpy(long_body, "{'input_suffix':'','input_prefix':'");
    memset(long_body + strlen(long_body), 'a', 4200);
    strcpy(long_body + 35 + 4200, "'}");
    refuse(sl_infill_handle, long_body, "input_prefix", "the context 4096");
    free(long_body);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prompts),
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_infill),
    };
    return cmocka_run_group_tests_name("native", tests, setup, teardown);
}
