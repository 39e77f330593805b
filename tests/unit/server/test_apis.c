/* Requests of the other APIs as chats: what the template gets to see, and what is refused. */
#include "translated.h"

#include "server/api/handlers.h"
#include "server/api/anthropic.h"

#define RESPONSES(body, want)         expect(sl_responses_handle, "{'model':'m'," body "}", want)
#define NO_RESPONSES(body, param, at) refuse(sl_responses_handle, "{" body "}", param, at)
#define MESSAGES(body, want)                                                                       \
    expect(sl_messages_handle, "{'model':'m','max_tokens':9," body "}", want)
#define NO_MESSAGES(body, param, at)                                                               \
    refuse(sl_messages_handle, "{'model':'m','max_tokens':9," body "}", param, at)

/* ----------------------------------------------------------------------------------- responses */

static void test_responses_input(void **state) {
    (void)state;
    RESPONSES("'input':'hi'", "{'messages':[{'role':'user','content':'hi'}],'tools':[]}");
    /* What comes before the conversation is one system message. */
    RESPONSES("'instructions':'a','input':[{'type':'message','role':'developer','content':"
              "[{'type':'input_text','text':'b'}]},{'role':'system','content':'c'},"
              "{'role':'user','content':[{'type':'input_text','text':'d'},"
              "{'type':'input_text','text':'e'}]},{'role':'developer','content':'f'}]",
              "{'messages':[{'role':'system','content':'a\\nb\\nc'},"
              "{'role':'user','content':'d\\ne'},{'role':'system','content':'f'}]}");
    /* Reasoning, text and calls in a row are one turn; results name their functions. */
    RESPONSES("'input':[{'role':'user','content':'q'},"
              "{'type':'reasoning','summary':[],'content':[{'type':'reasoning_text','text':'t'}]},"
              "{'type':'message','role':'assistant','content':[{'type':'output_text','text':'s'}]},"
              "{'type':'function_call','call_id':'1','name':'f','arguments':'{}'},"
              "{'type':'function_call','call_id':'2','name':'g','arguments':'{}'},"
              "{'type':'function_call_output','call_id':'2','output':'r2'},"
              "{'type':'function_call_output','call_id':'1','output':[{'type':'input_text',"
              "'text':'r1'}]},"
              "{'type':'web_search_call','id':'w'},"
              "{'type':'reasoning','summary':[],'encrypted_content':'sluice-reasoning:u'},"
              "{'role':'assistant','content':'v'}]",
              "{'messages':[{'role':'user','content':'q'},{'role':'assistant','content':'s',"
              "'reasoning_content':'t','tool_calls':["
              "{'id':'1','type':'function','function':{'name':'f','arguments':{}}},"
              "{'id':'2','type':'function','function':{'name':'g','arguments':{}}}]},"
              "{'role':'tool','tool_call_id':'2','name':'g','content':'r2'},"
              "{'role':'tool','tool_call_id':'1','name':'f','content':'r1'},"
              "{'role':'assistant','content':'v','reasoning_content':'u'}]}");
    /* A custom tool's free text becomes an argument; foreign or lonely reasoning goes. */
    RESPONSES("'input':[{'role':'user','content':'q'},"
              "{'type':'reasoning','summary':[],'encrypted_content':'gAAA'},"
              "{'type':'custom_tool_call','call_id':'1','name':'p','input':'x'},"
              "{'type':'custom_tool_call_output','call_id':'1','output':'y'},"
              "{'type':'reasoning','summary':[{'type':'summary_text','text':'z'}]}]",
              "{'messages':[{'role':'user','content':'q'},{'role':'assistant','content':null,"
              "'tool_calls':[{'id':'1','type':'function','function':{'name':'p',"
              "'arguments':{'input':'x'}}}]},"
              "{'role':'tool','tool_call_id':'1','name':'p','content':'y'}]}");
}

static void test_responses_fields(void **state) {
    (void)state;
    RESPONSES("'input':'q','tools':[{'type':'web_search'},{'type':'function','name':'f',"
              "'description':'d','parameters':{'type':'object'},'strict':true},"
              "{'type':'custom','name':'c'},{'type':'function','name':'g'}],"
              "'reasoning':{'effort':'low','summary':'auto'},'store':true,"
              "'include':['reasoning.encrypted_content'],'metadata':{'a':'b'},'truncation':'auto',"
              "'parallel_tool_calls':false,'service_tier':'flex','prompt_cache_key':'k',"
              "'text':{'verbosity':'low','format':{'type':'text'}},'temperature':0.5",
              "{'tools':[{'type':'function','function':{'name':'f','description':'d',"
              "'parameters':{'type':'object'},'strict':true}},"
              "{'type':'function','function':{'name':'g'}}],'effort':'low','thinking':'-'}");
    RESPONSES("'input':'q','reasoning':{'effort':'none'},'tools':[{'type':'web_search'}],"
              "'tool_choice':'required'",
              "{'thinking':false,'effort':'-','tools':[]}");
    RESPONSES("'input':'q','tools':[{'type':'function','name':'f'},{'type':'function','name':'g'}],"
              "'tool_choice':{'type':'allowed_tools','mode':'auto','tools':[{'type':'function',"
              "'name':'g'}]}",
              "{'tools':[{'type':'function','function':{'name':'f'}},{'type':'function','function':"
              "{'name':'g'}}]}"); /* all are shown, so that the prompt stays the same */
    RESPONSES("'input':'q','tools':[{'type':'web_search'},{'type':'function','name':'f'}],"
              "'tool_choice':{'type':'allowed_tools','mode':'required','tools':["
              "{'type':'web_search'}]}",
              "{'tools':[]}");
}

#define FOUR(s) s s s s
#define MANY    FOUR(FOUR(FOUR(FOUR("0,")))) "0"

static void test_responses_errors(void **state) {
    (void)state;
    /* Before each of one list is looked for in the other. */
    NO_RESPONSES("'input':'x','tools':[" MANY "]", "tools", "at most 256");
    NO_RESPONSES("'input':'x','tool_choice':{'type':'allowed_tools','mode':'auto','tools':[" MANY
                 "]}",
                 "tool_choice.tools", "at most 256");
#define ALLOW(mode, tools)                                                                         \
    "'input':'x','tools':[{'type':'function','name':'f'}],'tool_choice':{'type':'allowed_tools',"  \
    "'mode':" mode ",'tools':[" tools "]}"
    NO_RESPONSES(ALLOW("'auto'", "{'type':'function','name':'f'},{'type':'function','name':'g'}"),
                 "tool_choice.tools[1]", "'g', which is not in 'tools'");
    NO_RESPONSES(ALLOW("'auto'", "{'type':'function'}"), "tool_choice.tools[0].name", "a string");
    NO_RESPONSES(ALLOW("'auto'", "5"), "tool_choice.tools[0]", "type");
    NO_RESPONSES(ALLOW("'all'", ""), "tool_choice.mode", "'required'");
#undef ALLOW
    NO_RESPONSES("'model':'m'", "input", "absent");
    NO_RESPONSES("'input':[]", "input", "at least one");
    NO_RESPONSES("'input':'x','previous_response_id':'resp_1'", "previous_response_id",
                 "not stored");
    NO_RESPONSES("'input':'x','conversation':'c'", "conversation", "stores responses only");
    NO_RESPONSES("'input':'x','background':true", "background", "false");
    NO_RESPONSES("'input':'x','truncation':'much'", "truncation", "'auto'");
    NO_RESPONSES("'input':'x','max_output_tokens':0", "max_output_tokens", "from 1");
    NO_RESPONSES("'input':'x','temperature':3", "temperature", "from 0 to 2");
    NO_RESPONSES("'input':'x','metadata':{'a':1}", "metadata", "metadata.a");
    NO_RESPONSES("'input':'x','top_logprobs':21", "top_logprobs", "20");
    NO_RESPONSES("'input':'x','text':{'format':{'type':'json_schema','name':'n'}}",
                 "text.format.schema", "'text.format.schema' must be an object");
    NO_RESPONSES("'input':'x','text':{'format':{'type':'xml'}}", "text.format", "xml");
    NO_RESPONSES("'input':'x','reasoning':{'effort':'huge'}", "reasoning.effort", "xhigh");
    NO_RESPONSES("'input':'x','tools':[{'type':'function'}]", "tools[0].name", "a string");
    NO_RESPONSES("'input':'x','tool_choice':{'type':'file_search'}", "tool_choice", "function");
    NO_RESPONSES("'input':[3]", "input[0]", "an object");
    NO_RESPONSES("'input':[{'role':'user','content':[{'type':'input_image'}]}]",
                 "input[0].content[0]", "text only");
    NO_RESPONSES("'input':[{'role':'robot','content':'x'}]", "input[0].role", "developer");
    NO_RESPONSES("'input':[{'type':'item_reference','id':'x'}]", "input[0]", "not stored");
    NO_RESPONSES("'input':[{'type':'telepathy'}]", "input[0]", "telepathy");
    NO_RESPONSES("'input':[{'type':'function_call','call_id':'1','arguments':'{}'}]",
                 "input[0].name", "a string");
    NO_RESPONSES("'input':[{'type':'function_call_output','call_id':'1','output':7}]",
                 "input[0].output", "a string or an array");
}

/* ------------------------------------------------------------------------------------ messages */

static void test_messages(void **state) {
    (void)state;
    MESSAGES("'messages':[{'role':'user','content':'q'}],'system':'s'",
             "{'messages':[{'role':'system','content':'s'},{'role':'user','content':'q'}]}");
    MESSAGES("'system':[{'type':'text','text':'a','cache_control':{'type':'ephemeral'}},"
             "{'type':'text','text':'b'}],'messages':[{'role':'user','content':["
             "{'type':'text','text':'c'},{'type':'text','text':'d'}]},"
             "{'role':'assistant','content':[{'type':'thinking','thinking':'t','signature':'x'},"
             "{'type':'redacted_thinking','data':'x'},{'type':'text','text':'s'},"
             "{'type':'tool_use','id':'1','name':'f','input':{'x':[1,'\\u00e9']}},"
             "{'type':'tool_use','id':'2','name':'g','input':{}}]},"
             "{'role':'user','content':[{'type':'tool_result','tool_use_id':'1','content':'r1'},"
             "{'type':'tool_result','tool_use_id':'2','is_error':true,'content':["
             "{'type':'text','text':'r2'}]},{'type':'tool_result','tool_use_id':'3'},"
             "{'type':'text','text':'e'}]}]",
             "{'messages':[{'role':'system','content':'a\\nb'},{'role':'user','content':'c\\nd'},"
             "{'role':'assistant','content':'s','reasoning_content':'t','tool_calls':["
             "{'id':'1','type':'function','function':{'name':'f','arguments':{'x':[1,'\\u00e9']}}},"
             "{'id':'2','type':'function','function':{'name':'g','arguments':{}}}]},"
             "{'role':'tool','tool_call_id':'1','name':'f','content':'r1'},"
             "{'role':'tool','tool_call_id':'2','name':'g','content':'r2'},"
             "{'role':'tool','tool_call_id':'3','content':''},{'role':'user','content':'e'}]}");
    MESSAGES("'messages':[{'role':'user','content':'q'}],'thinking':{'type':'enabled',"
             "'budget_tokens':2048},'tools':[{'type':'web_search_20250305','name':'web_search'},"
             "{'name':'f','description':'d','input_schema':{'type':'object'}}],"
             "'output_config':{'effort':'high'},'metadata':{'user_id':'u'},'service_tier':'auto',"
             "'stop_sequences':['x'],'top_k':5",
             "{'thinking':true,'effort':'high','tools':[{'type':'function','function':{'name':'f',"
             "'description':'d','parameters':{'type':'object'}}}]}");
    refuse(sl_messages_handle,
           "{'model':'m','max_tokens':9,'messages':[{'role':'user','content':'q'}],'timeout_s':-1}",
           "timeout_s", "'timeout_s'");
    refuse(sl_responses_handle, "{'input':'q','timeout_s':'x'}", "timeout_s", "'timeout_s'");
    MESSAGES("'messages':[{'role':'user','content':'q'}],'thinking':{'type':'disabled'},"
             "'tools':[{'type':'web_search_20250305','name':'web_search'}],"
             "'tool_choice':{'type':'any'}",
             "{'thinking':false,'tools':[]}");
    refuse(sl_messages_handle,
           "{'model':'m','max_tokens':9,'messages':[{'role':'user','content':'q'}],"
           "'tool_choice':{'type':'any'}}",
           "tool_choice", "there are no 'tools'");
}

static void test_billing_header(void **state) {
    (void)state;
    static const char want[] = "{'messages':[{'role':'system','content':'You are.'},"
                               "{'role':'user','content':'q'}]}";
    MESSAGES("'system':[{'type':'text','text':'x-anthropic-billing-header: cc_version=1; cch=0;'},"
             "{'type':'text','text':'You are.'}],'messages':[{'role':'user','content':'q'}]",
             want);
    MESSAGES("'system':'X-Anthropic-Billing-Header: cch=1;\\nYou are.',"
             "'messages':[{'role':'user','content':'q'}]",
             want);
    MESSAGES("'system':'x-anthropic-billing-header: alone','messages':[{'role':'user',"
             "'content':'q'}]",
             "{'messages':[{'role':'user','content':'q'}]}");
    /* Only there: a user may write what he likes. */
    MESSAGES("'messages':[{'role':'user','content':'x-anthropic-billing-header: 1'}]",
             "{'messages':[{'role':'user','content':'x-anthropic-billing-header: 1'}]}");
    expect(sl_chat_handle,
           "{'messages':[{'role':'system','content':'x-anthropic-billing-header: cch=2;\\nYou "
           "are.'},{'role':'user','content':'q'}]}",
           want);
}

static void test_messages_errors(void **state) {
    (void)state;
    static const char q[] = "{'messages':[{'role':'user','content':'q'}],'model':'m'}";
    refuse(sl_messages_handle, q, "max_tokens", "missing");
    refuse(sl_messages_handle, "{'max_tokens':1}", "model", "missing");
#define Q "'messages':[{'role':'user','content':'q'}]"
    NO_MESSAGES("'messages':[]", "messages", "at least one");
    NO_MESSAGES("'messages':[{'role':'tool','content':'x'}]", "messages[0].role", "assistant");
    NO_MESSAGES("'messages':[{'role':'user','content':7}]", "messages[0].content", "a number");
    NO_MESSAGES("'messages':[{'role':'user','content':[{'type':'image','source':{}}]}]",
                "messages[0].content[0]", "text only");
    NO_MESSAGES("'messages':[{'role':'user','content':[{'type':'tool_result','tool_use_id':'1',"
                "'content':[{'type':'image'}]}]}]",
                "messages[0].content[0].content[0]", "text only");
    NO_MESSAGES("'messages':[{'role':'assistant','content':[{'type':'tool_use','id':'1',"
                "'name':'f','input':'{}'}]}]",
                "messages[0].content[0].input", "an object");
    NO_MESSAGES(Q ",'system':5", "system", "a number");
    NO_MESSAGES(Q ",'stop_sequences':'x'", "stop_sequences", "an array");
    NO_MESSAGES(Q ",'stop_sequences':['']", "stop_sequences", "'stop_sequences[0]'");
    NO_MESSAGES(Q ",'thinking':{'type':'much'}", "thinking", "adaptive");
    NO_MESSAGES(Q ",'thinking':{'type':'enabled','budget_tokens':-1}", "thinking.budget_tokens",
                "positive");
    NO_MESSAGES(Q ",'output_config':{'effort':'huge'}", "output_config.effort", "xhigh");
    NO_MESSAGES(Q ",'output_config':{'format':{'type':'json_schema','schema':{'type':'x'}}}",
                "output_config.format.schema", "output_config.format.schema");
    NO_MESSAGES(Q ",'tools':[{'name':'f'}]", "tools[0].input_schema", "an object");
    NO_MESSAGES(Q ",'tools':[{'name':'f','input_schema':{}}],'tool_choice':{'type':'tool'}",
                "tool_choice.name", "a string");
    NO_MESSAGES(Q ",'tool_choice':{'type':'some'}", "tool_choice", "any");
    NO_MESSAGES(Q ",'tool_choice':{'type':'auto','disable_parallel_tool_use':3}",
                "tool_choice.disable_parallel_tool_use", "true or false");
    NO_MESSAGES(Q ",'metadata':'x'", "metadata", "an object");
    NO_MESSAGES(Q ",'temperature':'hot'", "temperature", "a string");
#undef Q
}

static void test_count_tokens(void **state) {
    (void)state;
    struct sl_exchange ex, answer;
    run(&ex, sl_count_tokens_handle,
        "{'model':'m','messages':[{'role':'user','content':'count me'}]}");
    run(&answer, sl_messages_handle,
        "{'model':'m','max_tokens':1,'messages':[{'role':'user','content':'count me'}]}");
    assert_int_equal(ex.error.http_status, 0);
    json_t *v = json_loadb(ex.reply.ptr, ex.reply.len, 0, NULL);
    assert_int_equal(json_integer_value(json_object_get(v, "input_tokens")),
                     answer.gen->prompts[0].n);
    json_decref(v);
    done(&ex);
    done(&answer);
}

/* ---------------------------------------------------------------------------- reluctant templates
 */

/* Orders first if at all, then user and assistant by turns: as Mistral's and Gemma's want it. */
#define BY_TURNS                                                                                   \
    "{%- set ns = namespace(want='user') -%}{%- for m in messages -%}"                             \
    "{%- if m.role == 'system' and loop.first and takes_system -%}"                                \
    "{%- elif m.role != ns.want -%}{{- raise_exception('not the turn of ' + m.role) -}}"           \
    "{%- else -%}{%- set ns.want = 'assistant' if ns.want == 'user' else 'user' -%}{%- endif -%}"  \
    "{%- endfor -%}{{- {'messages': messages} | tojson -}}"

static void test_shapes(void **state) {
    (void)state;
    static const char ask[] =
        "{'messages':[{'role':'system','content':'a'},{'role':'user','content':'b'},"
        "{'role':'user','content':'c'},{'role':'system','content':'d'},"
        "{'role':'assistant','content':'e'},{'role':'system','content':'f'}]}";
    /* One that takes all gets all. */
    expect(sl_chat_handle, ask,
           "{'messages':[{'role':'system','content':'a'},{'role':'user','content':'b'},"
           "{'role':'user','content':'c'},{'role':'system','content':'d'},"
           "{'role':'assistant','content':'e'},{'role':'system','content':'f'}]}");
    assert_true(serve("{%- set takes_system = true -%}" BY_TURNS));
    expect(
        sl_chat_handle, ask,
        "{'messages':[{'role':'system','content':'a'},{'role':'user','content':'b\\n\\nc\\n\\nd'},"
        "{'role':'assistant','content':'e'},{'role':'user','content':'f'}]}");
    assert_true(serve("{%- set takes_system = false -%}" BY_TURNS));
    expect(sl_chat_handle, ask,
           "{'messages':[{'role':'user','content':'a\\n\\nb\\n\\nc\\n\\nd'},"
           "{'role':'assistant','content':'e'},{'role':'user','content':'f'}]}");
    /* What no shape helps is refused with the words of the first. */
    refuse(sl_chat_handle,
           "{'messages':[{'role':'assistant','content':'b'},{'role':'system','content':'c'}]}",
           "messages", "not the turn of assistant");
    assert_true(serve(template));
}

/* -------------------------------------------------------------------------- fill in the middle */

static void test_suffix(void **state) {
    (void)state;
    static const char ask[] = "{'prompt':['ab',[99]],'suffix':'d'}";
    refuse(sl_completions_handle, ask, "suffix", "no tokens for filling");
    refuse(sl_completions_handle, "{'prompt':'ab','suffix':3}", "suffix", "a number");
    uint32_t marks[] = {fake_word(&tok, "<PRE>"), fake_word(&tok, "<SUF>"),
                        fake_word(&tok, "<MID>")};
    for (int bos = 0; bos < 2; bos++) {
        tok.add_bos = bos;
        server.served->chat.prepend_bos = bos;
        struct sl_exchange ex;
        run(&ex, sl_completions_handle, ask);
        assert_non_null(ex.gen);
        const uint32_t want[] = {FAKE_BOS, marks[0], 'a', 'b', marks[1], 'd', marks[2]};
        const struct sl_ids *got = ex.gen->prompts;
        assert_int_equal(got[0].n, 6 + bos);
        assert_memory_equal(got[0].ids, want + 1 - bos, (6u + (size_t)bos) * sizeof *want);
        const uint32_t ids[] = {marks[0], 99, marks[1], 'd', marks[2]}; /* as given: no BOS */
        assert_int_equal(got[1].n, 5);
        assert_memory_equal(got[1].ids, ids, sizeof ids);
        done(&ex);
    }
    tok.add_bos = server.served->chat.prepend_bos = false;
    tok.n_words = 0;
}

/* -------------------------------------------------------------------------------------- errors */

static void test_error_shapes(void **state) {
    (void)state;
    static const struct {
        unsigned status;
        const char *code;
        unsigned want_status;
        const char *want_type;
    } cases[] = {
        {400, NULL, 400, "invalid_request_error"},
        {401, "invalid_api_key", 401, "authentication_error"},
        {404, "model_not_found", 404, "not_found_error"},
        {405, NULL, 405, "invalid_request_error"},
        {413, NULL, 413, "request_too_large"},
        {429, "queue_full", 429, "rate_limit_error"},
        {500, NULL, 500, "api_error"},
        {503, "overloaded", 529, "overloaded_error"},
        {504, "deadline_exceeded", 504, "timeout_error"},
        {503, "model_loading", 529, "overloaded_error"},
        {503, "peer_lost", 503, "api_error"},
        {503, "device_lost", 503, "api_error"},
        {400, "context_length_exceeded", 400, "invalid_request_error"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sl_http_error e = {0};
        struct sl_buf b = {0};
        sl_http_fail(&e, cases[i].status, cases[i].code, "f", "what");
        assert_int_equal(sl_anthropic_error(&b, &e), cases[i].want_status);
        json_t *v = json_loadb(b.ptr, b.len, 0, NULL), *error = json_object_get(v, "error");
        assert_string_equal(json_string_value(json_object_get(v, "type")), "error");
        assert_string_equal(json_string_value(json_object_get(error, "type")), cases[i].want_type);
        assert_non_null(strstr(json_string_value(json_object_get(error, "message")), "what"));
        json_decref(v);
        sl_buf_release(&b);
    }
    struct sl_exchange ex = {.path = (char[]){"/v1/messages"}}; /* without a connection: by path */
    assert_true(sl_anthropic_client(&ex));
    ex.path = (char[]){"/v1/messages/x"};
    assert_true(sl_anthropic_client(&ex));
    ex.path = (char[]){"/v1/messagesx"};
    assert_false(sl_anthropic_client(&ex));
    ex.path = (char[]){"/v1/responses"};
    assert_false(sl_anthropic_client(&ex));
}

static void test_rename(void **state) {
    (void)state;
    struct sl_http_error e = {0};
    sl_http_bad(&e, "stop[1].x", "'stop[1].x' and 'stop' but not 'stopped' or stop");
    sl_http_rename_field(&e, "stopp", "no");
    sl_http_rename_field(&e, "stop", "stop_sequences");
    assert_string_equal(e.param, "stop_sequences[1].x");
    assert_string_equal(e.err.text,
                        "'stop_sequences[1].x' and 'stop_sequences' but not 'stopped' or stop");
    /* Cut, never past the end. */
    char *quotes = calloc(1, 501);
    for (size_t i = 0; i < 500; i += 4)
        memcpy(quotes + i, "'aa'", 4);
    sl_http_bad(&e, "aa", "%s", quotes);
    sl_http_rename_field(&e, "aa", "a_long_name_that_fills_all_of_it");
    assert_int_equal(strlen(e.err.text), sizeof e.err.text - 1);
    free(quotes);
}

/* JSON in a string takes memory as well, once it is parsed for a template. */
static void test_large_arguments(void **state) {
    (void)state;
    struct sl_buf b = {0};
    sl_buf_puts(&b, "{'messages':[{'role':'assistant','tool_calls':[{'function':{'name':'f',"
                    "'arguments':'{\\'a\\':[");
    for (uint32_t i = 0; i < 400000; i++)
        sl_buf_puts(&b, "{},");
    sl_buf_puts(&b, "0]}'}}]}]}");
    sl_buf_put(&b, "", 1);
    refuse(sl_chat_handle, b.ptr, "messages", "hold too many values");
    sl_buf_release(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_responses_input),  cmocka_unit_test(test_responses_fields),
        cmocka_unit_test(test_responses_errors), cmocka_unit_test(test_messages),
        cmocka_unit_test(test_billing_header),   cmocka_unit_test(test_messages_errors),
        cmocka_unit_test(test_count_tokens),     cmocka_unit_test(test_error_shapes),
        cmocka_unit_test(test_rename),           cmocka_unit_test(test_suffix),
        cmocka_unit_test(test_shapes),           cmocka_unit_test(test_large_arguments),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
