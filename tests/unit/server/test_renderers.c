/* Events and bodies of the APIs, written from parts. */
#include "server/api/handlers.h"
#include "offline.h"

#include "server/api/renderers.h"

#include "json_at.h"

#include <string.h>

/* One part of an answer to be written; kind CALL has a name, ARGUMENTS go to the last call. */
struct said {
    enum sl_part_kind kind;
    const char *text;
};

/* As gen_text.c does it, with the text already in parts. */
static void say(struct sl_gen *g, const struct said *said, uint32_t n, enum sl_answer_end end) {
    const struct sl_renderer *r = g->renderer;
    struct sl_choice *c = &g->choices[0];
    bool stream = g->params.stream;
    if (stream && r->begin)
        r->begin(&g->out, g);
    if (stream && r->open)
        r->open(&g->out, c);
    for (uint32_t i = 0; i < n; i++) {
        c->n_calls += said[i].kind == SL_PART_CALL;
        struct sl_part part = {
            said[i].kind, c->n_calls ? c->n_calls - 1 : 0, {said[i].text, strlen(said[i].text)}};
        if (g->keeps_parts)
            sl_segments_add(&c->segments, &part);
        if (stream)
            r->part(&g->out, c, &part);
    }
    c->n_predicted = 11;
    c->n_reasoning = 3;
    c->done = true;
    c->end = end;
    if (!stream) {
        r->whole(&g->out, g);
        return;
    }
    r->finish(&g->out, c);
    r->end(&g->out, g);
}

static const struct said everything[] = {
    {SL_PART_REASONING, "I "},   {SL_PART_REASONING, "think"}, {SL_PART_CONTENT, ""},
    {SL_PART_CONTENT, "Let "},   {SL_PART_CONTENT, "me."},     {SL_PART_CALL, "f"},
    {SL_PART_ARGUMENTS, "{\"a"}, {SL_PART_ARGUMENTS, "\":1}"}, {SL_PART_CALL, "g"},
    {SL_PART_ARGUMENTS, "{}"},
};
#define N_EVERYTHING ((uint32_t)(sizeof everything / sizeof *everything))

/* The data of a stream's events in an array; each must be JSON, and its event line its type. */
static json_t *events_of(struct sl_buf *b, bool named) {
    json_t *all = json_array();
    sl_buf_put(b, "", 1);
    for (char *p = b->ptr, *end; *p; p = end + 2) {
        end = strstr(p, "\n\n");
        assert_non_null(end);
        char *data = strstr(p, "data: ");
        assert_true(data && data < end);
        if (strncmp(data, "data: [DONE]", 12) == 0)
            continue;
        json_t *v = json_loadb(data + 6, (size_t)(end - data - 6), 0, NULL);
        if (!v)
            fail_msg("not JSON: %.300s", data);
        if (named) {
            char line[96];
            snprintf(line, sizeof line, "event: %s\n",
                     json_string_value(json_object_get(v, "type")));
            assert_memory_equal(p, line, strlen(line));
        }
        json_array_append_new(all, v);
    }
    return all;
}

/* The member equals this JSON (with single quotes). */
static void expect_at(json_t *v, const char *path, const char *want) {
    char *json = quoted(want);
    json_t *w = json_loads(json, JSON_DECODE_ANY, NULL);
    assert_non_null(w);
    if (!json_equal(at(v, path), w)) {
        char *got = json_dumps(at(v, path), JSON_ENCODE_ANY);
        fail_msg("%s is %s, not %s", path, got ? got : "absent", json);
    }
    json_decref(w);
    free(json);
}

/* "type type type" of all events, one of each in a row. */
static void expect_types(json_t *events, const char *want) {
    struct sl_buf b = {0};
    const char *last = "";
    for (size_t i = 0; i < json_array_size(events); i++) {
        const char *type = str_at(json_array_get(events, i), "type");
        if (strcmp(type, last) != 0)
            sl_buf_printf(&b, "%s%s", i ? " " : "", type);
        last = type;
    }
    sl_buf_put(&b, "", 1);
    assert_string_equal(b.ptr, want);
    sl_buf_release(&b);
}

/* The n-th event of a type. */
static json_t *event(json_t *events, const char *type, int n) {
    for (size_t i = 0; i < json_array_size(events); i++)
        if (strcmp(str_at(json_array_get(events, i), "type"), type) == 0 && n-- == 0)
            return json_array_get(events, i);
    fail_msg("no event %s", type);
    return NULL;
}

static json_t *reply(struct sl_exchange *ex) {
    json_t *v = json_loadb(ex->gen->out.ptr, ex->gen->out.len, 0, NULL);
    assert_non_null(v);
    return v;
}

/* ----------------------------------------------------------------------------------- responses */

#define RESPONSE_OUTPUT                                                                            \
    "response.output_item.added response.content_part.added response.reasoning_text.delta "        \
    "response.reasoning_text.done response.content_part.done response.output_item.done "           \
    "response.output_item.added response.content_part.added response.output_text.delta "           \
    "response.output_text.done response.content_part.done response.output_item.done "              \
    "response.output_item.added response.function_call_arguments.delta "                           \
    "response.function_call_arguments.done response.output_item.done "                             \
    "response.output_item.added response.function_call_arguments.delta "                           \
    "response.function_call_arguments.done response.output_item.done "

static void expect_output(json_t *response) {
    assert_int_equal(json_array_size(at(response, "output")), 4);
    assert_string_equal(str_at(response, "output.0.type"), "reasoning");
    expect_at(response, "output.0.content", "[{'type':'reasoning_text','text':'I think'}]");
    expect_at(response, "output.0.summary", "[]");
    expect_at(response, "output.0.encrypted_content", "'sluice-reasoning:I think'");
    assert_string_equal(str_at(response, "output.1.content.0.text"), "Let me.");
    assert_string_equal(str_at(response, "output.1.status"), "completed");
    assert_string_equal(str_at(response, "output.2.type"), "function_call");
    assert_string_equal(str_at(response, "output.2.name"), "f");
    assert_string_equal(str_at(response, "output.2.arguments"), "{\"a\":1}");
    assert_string_equal(str_at(response, "output.3.arguments"), "{}");
    assert_string_not_equal(str_at(response, "output.2.call_id"),
                            str_at(response, "output.3.call_id"));
    expect_at(response, "usage.output_tokens_details", "{'reasoning_tokens':3}");
    expect_at(response, "metadata", "{'k':'v'}");
    expect_at(response, "tools.0.type", "'web_search'");
}

static const char ask_response[] =
    "{'model':'m','input':'q','include':['reasoning.encrypted_content'],'metadata':{'k':'v'},"
    "'tools':[{'type':'web_search'}],'temperature':0.5,'stream':%s}";

static void begin_response(struct sl_exchange *ex, bool stream) {
    char body[512];
    snprintf(body, sizeof body, ask_response, stream ? "true" : "false");
    run(ex, sl_responses_handle, body);
    assert_non_null(ex->gen);
}

static void test_responses_whole(void **state) {
    (void)state;
    struct sl_exchange ex;
    begin_response(&ex, false);
    say(ex.gen, everything, N_EVERYTHING, SL_END_STOP);
    json_t *v = reply(&ex);
    expect_output(v);
    assert_string_equal(str_at(v, "status"), "completed");
    expect_at(v, "temperature", "0.5");
    json_decref(v);
    done(&ex);
}

static void test_responses_stream(void **state) {
    (void)state;
    struct sl_exchange ex;
    begin_response(&ex, true);
    say(ex.gen, everything, N_EVERYTHING, SL_END_STOP);
    json_t *all = events_of(&ex.gen->out, true);
    expect_types(all,
                 "response.created response.in_progress " RESPONSE_OUTPUT "response.completed");
    for (size_t i = 0; i < json_array_size(all); i++)
        assert_int_equal(json_integer_value(at(json_array_get(all, i), "sequence_number")), i);
    expect_output(at(event(all, "response.completed", 0), "response"));
    json_t *added = event(all, "response.output_item.added", 2);
    expect_at(added, "output_index", "2");
    expect_at(added, "item.arguments", "''");
    expect_at(added, "item.status", "'in_progress'");
    json_t *delta = event(all, "response.function_call_arguments.delta", 0);
    assert_string_equal(str_at(delta, "item_id"), str_at(added, "item.id"));
    expect_at(delta, "delta", "'{\\'a'");
    expect_at(event(all, "response.function_call_arguments.done", 0), "name", "'f'");
    /* What ended is what the response holds. */
    for (int i = 0; i < 4; i++)
        assert_true(json_equal(
            at(event(all, "response.output_item.done", i), "item"),
            json_array_get(at(event(all, "response.completed", 0), "response.output"), (size_t)i)));
    json_decref(all);
    done(&ex);
}

static void test_responses_cut_and_failed(void **state) {
    (void)state;
    struct sl_exchange ex;
    begin_response(&ex, true);
    say(ex.gen, everything, N_EVERYTHING, SL_END_LENGTH);
    json_t *all = events_of(&ex.gen->out, true), *last;
    last = event(all, "response.incomplete", 0);
    expect_at(last, "response.incomplete_details", "{'reason':'max_output_tokens'}");
    expect_at(last, "response.output.2.status", "'completed'");
    expect_at(last, "response.output.3.status", "'incomplete'");
    json_decref(all);
    done(&ex);

    struct sl_http_error e = {0};
    sl_http_fail(&e, 500, NULL, NULL, "the disk is gone");
    begin_response(&ex, true);
    ex.gen->renderer->begin(&ex.gen->out, ex.gen);
    (ex.gen->renderer->fail)(&ex.gen->out, ex.gen, &e);
    all = events_of(&ex.gen->out, true);
    last = event(all, "response.failed", 0);
    expect_at(last, "response.status", "'failed'");
    expect_at(last, "response.error", "{'code':'server_error','message':'the disk is gone'}");
    json_decref(all);
    done(&ex);
}

/* ------------------------------------------------------------------------------------- messages */

static void begin_message(struct sl_exchange *ex, bool stream) {
    run(ex, sl_messages_handle,
        stream ? "{'model':'m','max_tokens':50,'messages':[{'role':'user','content':'q'}],"
                 "'stop_sequences':['A','B'],'stream':true}"
               : "{'model':'m','max_tokens':50,'messages':[{'role':'user','content':'q'}],"
                 "'stop_sequences':['A','B']}");
    assert_non_null(ex->gen);
}

static void test_messages_whole(void **state) {
    (void)state;
    struct sl_exchange ex;
    begin_message(&ex, false);
    say(ex.gen, everything, N_EVERYTHING, SL_END_STOP);
    json_t *v = reply(&ex);
    assert_int_equal(json_array_size(at(v, "content")), 4);
    expect_at(v, "content.0.thinking", "'I think'");
    assert_true(strlen(str_at(v, "content.0.signature")) > 0);
    expect_at(v, "content.1", "{'type':'text','text':'Let me.'}");
    expect_at(v, "content.2.name", "'f'");
    expect_at(v, "content.2.input", "{'a':1}");
    expect_at(v, "content.3.input", "{}");
    assert_memory_equal(str_at(v, "content.2.id"), "toolu_", 6);
    expect_at(v, "stop_reason", "'tool_use'");
    expect_at(v, "stop_sequence", "null");
    json_decref(v);
    done(&ex);

    /* Cut off in its arguments: still an object. And a stop sequence says which. */
    static const struct said cut[] = {{SL_PART_CALL, "f"}, {SL_PART_ARGUMENTS, "{\"a\":[1"}};
    begin_message(&ex, false);
    say(ex.gen, cut, 2, SL_END_LENGTH);
    v = reply(&ex);
    expect_at(v, "content.0.input", "{}");
    expect_at(v, "stop_reason", "'max_tokens'");
    json_decref(v);
    done(&ex);
    /* What a parser has no room for is an object as well. */
    static const struct said large[] = {
        {SL_PART_CALL, "f"}, {SL_PART_ARGUMENTS, "{\"a\":18446744073709551616,\"b\":\"\\u0000\"}"}};
    begin_message(&ex, false);
    say(ex.gen, large, 2, SL_END_STOP);
    sl_buf_put(&ex.gen->out, "", 1);
    assert_non_null(strstr(ex.gen->out.ptr, "\"input\":{\"a\":18446744073709551616,"));
    done(&ex);
    begin_message(&ex, false);
    ex.gen->choices[0].stop.which = 1;
    say(ex.gen, NULL, 0, SL_END_STOP_STRING);
    v = reply(&ex);
    expect_at(v, "content", "[]");
    expect_at(v, "stop_reason", "'stop_sequence'");
    expect_at(v, "stop_sequence", "'B'");
    json_decref(v);
    done(&ex);
}

static void test_messages_stream(void **state) {
    (void)state;
    struct sl_exchange ex;
    begin_message(&ex, true);
    say(ex.gen, everything, N_EVERYTHING, SL_END_STOP);
    json_t *all = events_of(&ex.gen->out, true);
#define BLOCK "content_block_start content_block_delta content_block_stop "
    expect_types(all, "message_start ping " BLOCK BLOCK BLOCK BLOCK "message_delta message_stop");
#undef BLOCK
    expect_at(all, "0.message.content", "[]");
    for (int i = 0; i < 4; i++) {
        assert_int_equal(json_integer_value(at(event(all, "content_block_start", i), "index")), i);
        assert_int_equal(json_integer_value(at(event(all, "content_block_stop", i), "index")), i);
    }
    expect_at(event(all, "content_block_delta", 0), "delta",
              "{'type':'thinking_delta','thinking':'I '}");
    expect_at(event(all, "content_block_delta", 2), "delta.type", "'signature_delta'");
    expect_at(event(all, "content_block_delta", 3), "delta", "{'type':'text_delta','text':'Let '}");
    expect_at(event(all, "content_block_start", 2), "content_block.input", "{}");
    expect_at(event(all, "content_block_delta", 5), "delta",
              "{'type':'input_json_delta','partial_json':'{\\'a'}");
    expect_at(event(all, "message_delta", 0), "delta",
              "{'stop_reason':'tool_use','stop_sequence':null}");
    expect_at(event(all, "message_delta", 0), "usage.output_tokens", "11");
    json_decref(all);
    sl_buf_clear(&ex.gen->out);

    struct sl_http_error e = {0};
    sl_http_fail(&e, 500, NULL, NULL, "the disk is gone");
    (ex.gen->renderer->fail)(&ex.gen->out, ex.gen, &e);
    ex.gen->renderer->keepalive(&ex.gen->out, ex.gen);
    all = events_of(&ex.gen->out, true);
    expect_at(all, "0.error", "{'type':'api_error','message':'the disk is gone'}");
    expect_at(all, "1", "{'type':'ping'}");
    json_decref(all);
    done(&ex);
}

/* ----------------------------------------------------------------------------------------- chat */

static void test_chat(void **state) {
    (void)state;
    struct sl_exchange ex;
    run(&ex, sl_chat_handle, "{'messages':[{'role':'user','content':'q'}]}");
    say(ex.gen, everything, N_EVERYTHING, SL_END_STOP);
    json_t *v = reply(&ex);
    expect_at(v, "choices.0.message.content", "'Let me.'");
    expect_at(v, "choices.0.message.reasoning_content", "'I think'");
    expect_at(v, "choices.0.message.tool_calls.0.function",
              "{'name':'f','arguments':'{\\'a\\':1}'}");
    expect_at(v, "choices.0.message.tool_calls.1.type", "'function'");
    expect_at(v, "choices.0.finish_reason", "'tool_calls'");
    json_decref(v);
    done(&ex);

    run(&ex, sl_chat_handle, "{'messages':[{'role':'user','content':'q'}]}");
    say(ex.gen, everything + 5, 3, SL_END_STOP);
    v = reply(&ex);
    expect_at(v, "choices.0.message.content", "null");
    json_decref(v);
    done(&ex);

    run(&ex, sl_chat_handle, "{'messages':[{'role':'user','content':'q'}],'stream':true}");
    say(ex.gen, everything, N_EVERYTHING, SL_END_STOP);
    json_t *all = events_of(&ex.gen->out, false);
    expect_at(all, "0.choices.0.delta", "{'role':'assistant','content':''}");
    expect_at(all, "1.choices.0.delta", "{'reasoning_content':'I '}");
    expect_at(all, "4.choices.0.delta", "{'content':'Let '}");
    expect_at(all, "6.choices.0.delta.tool_calls.0.index", "0");
    expect_at(all, "6.choices.0.delta.tool_calls.0.function", "{'name':'f','arguments':''}");
    expect_at(all, "7.choices.0.delta.tool_calls",
              "[{'index':0,'function':{'arguments':'{\\'a'}}]");
    expect_at(all, "9.choices.0.delta.tool_calls.0.index", "1");
    expect_at(all, "11.choices.0.finish_reason", "'tool_calls'");
    json_decref(all);
    done(&ex);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_responses_whole),          cmocka_unit_test(test_responses_stream),
        cmocka_unit_test(test_responses_cut_and_failed), cmocka_unit_test(test_messages_whole),
        cmocka_unit_test(test_messages_stream),          cmocka_unit_test(test_chat),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
