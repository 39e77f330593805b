/* Ollama's requests as chats: what the template gets to see, and what is refused. */
#include "translated.h"

#include "server/api/handlers.h"

#define CHAT(body, want) expect(sl_ollama_chat_handle, "{'model':'m'," body "}", want)
#define NO_CHAT(body, param, part)                                                                 \
    refuse(sl_ollama_chat_handle, "{'model':'m'," body "}", param, part)
#define GENERATE(body, want) expect(sl_ollama_generate_handle, "{'model':'m'," body "}", want)
#define NO_GENERATE(body, param, part)                                                             \
    refuse(sl_ollama_generate_handle, "{'model':'m'," body "}", param, part)
#define Q "'messages':[{'role':'user','content':'q'}]"

static void test_chat(void **state) {
    (void)state;
    CHAT(Q, "{'messages':[{'role':'user','content':'q'}],'tools':[],'thinking':'-'}");
    /* Calls without ids, and results that name a function or nothing. */
    CHAT("'messages':[{'role':'system','content':'s'},{'role':'user','content':'q','images':[]},"
         "{'role':'assistant','content':'','thinking':'t','tool_calls':["
         "{'function':{'name':'f','arguments':{'a':1}}},{'function':{'name':'g'}},"
         "{'id':'own','function':{'name':'h','arguments':{}}}]},"
         "{'role':'tool','content':'of g','tool_name':'g'},"
         "{'role':'tool','content':'of own','tool_call_id':'own'},"
         "{'role':'tool','content':'of f'},{'role':'assistant','content':'z'},"
         "{'role':'assistant','content':'y'}]",
         "{'messages':[{'role':'system','content':'s'},{'role':'user','content':'q'},"
         "{'role':'assistant','content':null,'reasoning_content':'t','tool_calls':["
         "{'id':'call_0','type':'function','function':{'name':'f','arguments':{'a':1}}},"
         "{'id':'call_1','type':'function','function':{'name':'g','arguments':{}}},"
         "{'id':'own','type':'function','function':{'name':'h','arguments':{}}}]},"
         "{'role':'tool','tool_call_id':'call_1','name':'g','content':'of g'},"
         "{'role':'tool','tool_call_id':'own','name':'h','content':'of own'},"
         "{'role':'tool','tool_call_id':'call_0','name':'f','content':'of f'},"
         "{'role':'assistant','content':'z'},{'role':'assistant','content':'y'}]}");
    CHAT(Q ",'think':true,'tools':[{'type':'function','function':{'name':'f'}}]",
         "{'thinking':true,'tools':[{'type':'function','function':{'name':'f'}}]}");
    CHAT(Q ",'think':'high'", "{'thinking':true,'effort':'high'}");
    CHAT(Q ",'think':false,'keep_alive':'5m','format':''", "{'thinking':false}");
}

static void test_generate(void **state) {
    (void)state;
    GENERATE("'prompt':'p','system':'s','template':'','images':null,'context':[],'raw':false",
             "{'messages':[{'role':'system','content':'s'},{'role':'user','content':'p'}]}");
    NO_GENERATE("'prompt':'p','template':'{{ .Prompt }}'", "template", "own template");
    NO_GENERATE("'prompt':'p','context':[1,2]", "context", "/api/chat");
    NO_GENERATE("'prompt':'p','images':['aGk=']", "images", "text only");
    NO_GENERATE("'prompt':'p','raw':'yes'", "raw", "true or false");
    NO_GENERATE("'prompt':'p','raw':true,'system':'s'", "system", "no template");
    NO_GENERATE("'prompt':7", "prompt", "a number");
    NO_GENERATE("'prompt':'p','suffix':'s'", "suffix", "filling in the middle");
}

static struct sl_gen_params *params_of(struct sl_exchange *ex, void (*handle)(struct sl_exchange *),
                                       const char *body) {
    run(ex, handle, body);
    if (!ex->gen)
        fail_msg("%s", ex->error.err.text);
    return &ex->gen->params;
}

static void test_options(void **state) {
    (void)state;
    struct sl_exchange ex;
    const struct sl_gen_params *p = params_of(
        &ex, sl_ollama_chat_handle,
        "{'model':'m'," Q ",'options':{'num_predict':7,'temperature':0.5,'top_k':3,'top_p':0.25,"
        "'min_p':0.125,'typical_p':0.75,'seed':42,'stop':['a','b'],'repeat_penalty':1.5,"
        "'repeat_last_n':9,'presence_penalty':0.5,'frequency_penalty':-0.5,'num_ctx':4096,"
        "'num_gpu':99,'num_thread':8,'mirostat':0}}");
    assert_true(p->stream); /* unless told not to */
    assert_int_equal(p->max_tokens, 7);
    assert_true(p->sampling.temperature == 0.5f && p->sampling.top_p == 0.25f);
    assert_true(p->sampling.min_p == 0.125f && p->sampling.typical_p == 0.75f);
    assert_true(p->sampling.repeat_penalty == 1.5f && p->sampling.presence_penalty == 0.5f);
    assert_true(p->sampling.frequency_penalty == -0.5f);
    assert_int_equal(p->sampling.top_k, 3);
    assert_int_equal(p->sampling.repeat_last_n, 9);
    assert_int_equal(p->sampling.seed, 42);
    assert_int_equal(p->stop.n, 2);
    done(&ex);
    p = params_of(&ex, sl_ollama_generate_handle,
                  "{'model':'m','prompt':'x','stream':false,'options':{'num_predict':-1}}");
    assert_false(p->stream);
    assert_int_equal(p->max_tokens, 0);
    done(&ex);
    /* The raw prompt passes by the template. */
    p = params_of(&ex, sl_ollama_generate_handle, "{'model':'m','prompt':'x','raw':true}");
    assert_int_equal(p->max_tokens, 0);
    assert_int_equal(ex.gen->prompts[0].n, 1);
    assert_int_equal(ex.gen->prompts[0].ids[0], 'x');
    done(&ex);
    p = params_of(&ex, sl_ollama_chat_handle, "{'model':'m:latest'," Q ",'format':'json'}");
    assert_non_null(p->grammar);
    assert_string_equal(sl_gen_model(ex.gen), "m:latest");
    done(&ex);
    p = params_of(&ex, sl_ollama_chat_handle,
                  "{'model':'m'," Q ",'format':{'type':'object','properties':{'a':{'type':"
                  "'integer'}},'required':['a']}}");
    assert_non_null(p->grammar);
    done(&ex);
}

static void test_errors(void **state) {
    (void)state;
    refuse(sl_ollama_chat_handle, "{" Q "}", "model", "a string");
    NO_CHAT("'messages':'q'", "messages", "an array");
    NO_CHAT("'messages':[7]", "messages[0]", "an object");
    NO_CHAT("'messages':[{'role':'robot','content':'x'}]", "messages[0].role", "assistant");
    NO_CHAT("'messages':[{'role':'user'}]", "messages[0].content", "a string");
    NO_CHAT("'messages':[{'role':'user','content':'x','images':['aGk=']}]", "messages[0].images",
            "text only");
    NO_CHAT("'messages':[{'role':'user','content':'x','images':7}]", "messages[0].images",
            "text only");
    NO_CHAT("'messages':[{'role':'assistant','tool_calls':7}]", "messages[0].tool_calls",
            "an array");
    NO_CHAT("'messages':[{'role':'assistant','tool_calls':[{'function':{}}]}]",
            "messages[0].tool_calls[0].function.name", "a string");
    NO_CHAT("'messages':[{'role':'assistant','tool_calls':[{'function':{'name':'f',"
            "'arguments':'{}'}}]}]",
            "messages[0].tool_calls[0].function.arguments", "an object");
    NO_CHAT(Q ",'stream':1", "stream", "true or false");
    NO_CHAT(Q ",'keep_alive':[]", "keep_alive", "a duration");
    NO_CHAT(Q ",'think':'hard'", "think", "medium");
    NO_CHAT(Q ",'format':'xml'", "format", "JSON schema");
    NO_CHAT(Q ",'format':{'type':'strange'}", "format", "null, boolean");
    NO_CHAT(Q ",'logprobs':true", "logprobs", "/v1/chat/completions");
    NO_CHAT(Q ",'options':[]", "options", "an object");
    NO_CHAT(Q ",'options':{'num_ctx':4097}", "options.num_ctx", "4096 tokens");
    NO_CHAT(Q ",'options':{'num_ctx':0}", "options.num_ctx", "above 0");
    NO_CHAT(Q ",'options':{'num_predict':-3}", "options.num_predict", "from -2");
    NO_CHAT(Q ",'options':{'num_predict':'all'}", "options.num_predict", "a string");
    NO_CHAT(Q ",'options':{'mirostat':2}", "options.mirostat", "not supported");
    NO_CHAT(Q ",'options':{'temperature':3}", "options.temperature", "from 0 to 2");
    NO_CHAT(Q ",'options':{'stop':7}", "options.stop", "'options.stop' must be");
    NO_CHAT(Q ",'tools':7", "tools", "an array");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chat),
        cmocka_unit_test(test_generate),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests_name("ollama", tests, setup, teardown);
}
