/* Answers in every family's form, whole and cut anywhere, to parts. The forms are written as the
 * families' chat templates write a model's earlier calls. */
#include "server/answer/splitter.h"

#include "common/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define TOOLS                                                                                      \
    "[{'type':'function','function':{'name':'get_weather','parameters':{'type':'object',"          \
    "'properties':{'city':{'type':'string'},'days':{'type':'integer'},'metric':{'type':'boolean'}" \
    ",'tags':{'type':'array'},'any':{},'unit':{'$ref':'#/$defs/u'},'opt':{'anyOf':[{'type':"       \
    "'string'},{'type':'null'}]}},'$defs':{'u':{'enum':['C','F']}}}}},"                            \
    "{'type':'function','function':{'name':'now'}}]"

struct log {
    struct sl_buf text;
    int kind;
    uint32_t call, n_calls;
};

/* "C[text]R[text]F0[name]{arguments}": fragments joined. */
static void note(void *ctx, const struct sl_part *p) {
    struct log *l = ctx;
    if (p->kind == SL_PART_CALL) {
        assert_int_equal(p->call, l->n_calls);
        l->n_calls++;
    }
    if (p->kind == SL_PART_ARGUMENTS)
        assert_int_equal(p->call + 1, l->n_calls);
    if (p->text.len) /* a part begins with a character */
        assert_int_not_equal((unsigned char)p->text.ptr[0] & 0xc0, 0x80);
    bool joins = l->kind == (int)p->kind && p->kind != SL_PART_CALL;
    if (!joins)
        sl_buf_puts(&l->text, p->kind == SL_PART_CONTENT     ? "\nC:"
                              : p->kind == SL_PART_REASONING ? "\nR:"
                              : p->kind == SL_PART_CALL      ? "\nF:"
                                                             : "\nA:");
    sl_buf_put(&l->text, p->text.ptr, p->text.len);
    l->kind = (int)p->kind;
}

static json_t *tools(void) {
    char text[] = TOOLS;
    for (char *p = text; *p; p++)
        *p = *p == '\'' ? '"' : *p;
    json_t *t = json_loads(text, 0, NULL);
    assert_non_null(t);
    return t;
}

struct setting {
    const char *format;
    bool no_tools, in_reasoning, hold, cut;
    const char *header;
};

static char *split(const struct setting *set, const json_t *t, const char *text, size_t len,
                   size_t cut, size_t piece) {
    struct sl_splitter_config config = {
        .format = sl_answer_format_named(set->format),
        .tools = set->no_tools ? NULL : t,
        .thinks = true,
        .in_reasoning = set->in_reasoning,
        .hold_calls = set->hold,
        .header = {set->header, set->header ? strlen(set->header) : 0},
    };
    assert_non_null(config.format);
    struct sl_splitter *s = NULL;
    struct log l = {.kind = -1};
    assert_int_equal(sl_splitter_create(&config, note, &l, &s), SL_OK);
    if (piece) {
        for (size_t i = 0; i < len; i += piece)
            assert_int_equal(sl_splitter_push(s, text + i, len - i < piece ? len - i : piece),
                             SL_OK);
    } else {
        assert_int_equal(sl_splitter_push(s, text, cut), SL_OK);
        assert_int_equal(sl_splitter_push(s, text + cut, len - cut), SL_OK);
    }
    assert_int_equal(sl_splitter_finish(s, set->cut), SL_OK);
    assert_int_equal(sl_splitter_n_calls(s), l.n_calls);
    sl_splitter_destroy(&s);
    sl_buf_put(&l.text, "", 1);
    assert_false(l.text.failed);
    return l.text.ptr;
}

/* Whole, cut in two at every byte, and byte by byte: the same parts, and the ones that are wanted.
 */
static void check(struct setting set, const char *text, const char *want) {
    json_t *t = tools();
    size_t len = strlen(text);
    for (size_t cut = 0; cut <= len + 1; cut++) {
        char *got = split(&set, t, text, len, cut <= len ? cut : 0, cut > len);
        if (strcmp(got, want) != 0)
            print_message("%s, cut at %zu of %zu, %s\n", set.format, cut, len, text);
        assert_string_equal(got, want);
        free(got);
    }
    json_decref(t);
}

/* The same for streams and whole answers. */
static void both(const char *format, const char *text, const char *want) {
    check((struct setting){.format = format}, text, want);
    check((struct setting){.format = format, .hold = true}, text, want);
}

/* A call's text in each family: content before, two calls where it can have two. */
#define W1  "{\"city\": \"Rome\", \"days\": 2}"
#define BAR "\xef\xbd\x9c"
#define LOW "\xe2\x96\x81"
#define M3  "]<]minimax[>["
static const struct {
    const char *format, *text, *want;
} families[] = {
    {"hermes",
     "Let me see.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": " W1
     "}\n</tool_call>\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
     "\nC:Let me see.\nF:get_weather\nA:" W1 "\nF:now\nA:{}"},
    {"generic", "<tool_call>{\"name\":\"now\"}</tool_call>", "\nF:now\nA:{}"},
    {"hermes", "<tool_call>{\"arguments\": " W1 ", \"name\": \"get_weather\"}</tool_call>",
     "\nF:get_weather\nA:" W1},
    {"hermes",
     "<tool_call>{\"id\": [1, {\"a\": null}], \"name\": \"now\", \"arguments\": "
     "\"{\\\"a\\\": \\\"b\\\"}\"}</tool_call>",
     "\nF:now\nA:{\"a\": \"b\"}"},
    {"hermes", "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": \"x\ny\"}}</tool_call>",
     "\nF:now\nA:{\"a\": \"x\\u000ay\"}"},
    {"qwen3-coder",
     "Sure.\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nR\"o</x>me\n\n</parameter>\n"
     "<parameter=days>\n2\n</parameter>\n<parameter=metric>\nTrue\n</parameter>\n</function>\n"
     "</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
     "\nC:Sure.\nF:get_weather\nA:{\"city\": \"R\\\"o</x>me\\n\", \"days\": 2, \"metric\": true}"
     "\nF:now\nA:{}"},
    {"qwen3-coder",
     "<function=get_weather>\n<parameter=city>\na </parameter> b\n</parameter>\n</function>",
     "\nF:get_weather\nA:{\"city\": \"a </parameter> b\"}"},
    {"seed-oss",
     "<seed:think>Hm.</seed:think><seed:tool_call>\n<function=get_weather>\n"
     "<parameter=tags>[1, \"a\"]</parameter>\n<parameter=opt>null</parameter>\n"
     "<parameter=unit>C</parameter>\n<parameter=any>7</parameter></function>\n</seed:tool_call>",
     "\nR:Hm.\nF:get_weather\nA:{\"tags\": [1, \"a\"], \"opt\": null, \"unit\": \"C\", \"any\": "
     "7}"},
    {"llama3", "{\"name\": \"get_weather\", \"parameters\": " W1 "}", "\nF:get_weather\nA:" W1},
    {"llama3", "<|python_tag|>{\"name\": \"now\", \"parameters\": {}}; {\"name\": \"now\"}",
     "\nF:now\nA:{}\nF:now\nA:{}"},
    {"mistral",
     "[TOOL_CALLS] [{\"name\": \"get_weather\", \"arguments\": " W1
     ", \"id\": \"123456789\"}, {\"name\": \"now\", \"arguments\": {}}]",
     "\nF:get_weather\nA:" W1 "\nF:now\nA:{}"},
    {"mistral-args",
     "[THINK]Which?[/THINK]Now:[TOOL_CALLS]get_weather[ARGS]" W1
     "[TOOL_CALLS]now[CALL_ID]123456789[ARGS]{}[TOOL_CALLS]now{}",
     "\nR:Which?\nC:Now:\nF:get_weather\nA:" W1 "\nF:now\nA:{}\nF:now\nA:{}"},
    {"mistral-args", "[TOOL_CALLS][{\"name\": \"now\", \"arguments\": {}}]", "\nF:now\nA:{}"},
    {"deepseek-v3",
     "ok <" BAR "tool" LOW "calls" LOW "begin" BAR "><" BAR "tool" LOW "call" LOW "begin" BAR
     ">function<" BAR "tool" LOW "sep" BAR ">get_weather\n```json\n" W1 "\n```<" BAR "tool" LOW
     "call" LOW "end" BAR ">\n<" BAR "tool" LOW "call" LOW "begin" BAR ">function<" BAR "tool" LOW
     "sep" BAR ">now\n```json\n{}\n```<" BAR "tool" LOW "call" LOW "end" BAR "><" BAR "tool" LOW
     "calls" LOW "end" BAR ">",
     "\nC:ok\nF:get_weather\nA:" W1 "\nF:now\nA:{}"},
    {"deepseek-v3.1",
     "<think>Aha</think><" BAR "tool" LOW "calls" LOW "begin" BAR "><" BAR "tool" LOW "call" LOW
     "begin" BAR ">get_weather<" BAR "tool" LOW "sep" BAR ">" W1 "<" BAR "tool" LOW "call" LOW
     "end" BAR "><" BAR "tool" LOW "call" LOW "begin" BAR ">now<" BAR "tool" LOW "sep" BAR
     ">{}<" BAR "tool" LOW "call" LOW "end" BAR "><" BAR "tool" LOW "calls" LOW "end" BAR ">",
     "\nR:Aha\nF:get_weather\nA:" W1 "\nF:now\nA:{}"},
    {"deepseek-v3.2",
     "I look.\n\n<" BAR "DSML" BAR "function_calls>\n<" BAR "DSML" BAR
     "invoke name=\"get_weather\">\n<" BAR "DSML" BAR "parameter name=\"city\" string=\"true\">"
     "Ro\nme</" BAR "DSML" BAR "parameter>\n<" BAR "DSML" BAR
     "parameter name=\"days\" string=\"false\">2</" BAR "DSML" BAR "parameter>\n</" BAR "DSML" BAR
     "invoke>\n<" BAR "DSML" BAR "invoke name=\"now\">\n</" BAR "DSML" BAR "invoke>\n</" BAR
     "DSML" BAR "function_calls>",
     "\nC:I look.\nF:get_weather\nA:{\"city\": \"Ro\\nme\", \"days\": 2}\nF:now\nA:{}"},
    {"deepseek-v4",
     "<" BAR "DSML" BAR "tool_calls>\n<" BAR "DSML" BAR "invoke name=\"now\">\n<" BAR "DSML" BAR
     "parameter name=\"a\" string=\"false\">\"x\"</" BAR "DSML" BAR "parameter>\n</" BAR "DSML" BAR
     "invoke>\n</" BAR "DSML" BAR "tool_calls>",
     "\nF:now\nA:{\"a\": \"x\"}"},
    {"glm",
     "\n<think>Weather.</think>\nOne moment\n<tool_call>get_weather\n<arg_key>city</arg_key>\n"
     "<arg_value>Rome</arg_value>\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>"
     "\n<tool_call>now\n</tool_call><tool_call>now</tool_call>",
     "\nR:Weather.\nC:One moment\nF:get_weather\nA:{\"city\": \"Rome\", \"days\": 2}\nF:now\nA:{}"
     "\nF:now\nA:{}"},
    {"minimax",
     "<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">Rome</parameter>"
     "\n<parameter name=\"days\">2</parameter>\n</invoke>\n<invoke name=\"now\"></invoke>\n"
     "</minimax:tool_call>",
     "\nF:get_weather\nA:{\"city\": \"Rome\", \"days\": 2}\nF:now\nA:{}"},
    {"kimi-k2",
     "Hm<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
     "<|tool_call_argument_begin|>" W1 "<|tool_call_end|><|tool_call_begin|>functions.now:12"
     "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
     "\nC:Hm\nF:get_weather\nA:" W1 "\nF:now\nA:{}"},
    {"kimi-k2",
     "<think>I call <|tool_calls_section_begin|><|tool_call_begin|>functions.now:0"
     "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
     "\nR:I call\nF:now\nA:{}"},
    {"granite", "<|tool_call|>[{\"name\": \"now\", \"arguments\": {}}]", "\nF:now\nA:{}"},
    {"apertus",
     "<|inner_prefix|>x<|inner_suffix|><|tools_prefix|>[{\"get_weather\": " W1
     "}, {\"now\": {}}]<|tools_suffix|>",
     "\nR:x\nF:get_weather\nA:" W1 "\nF:now\nA:{}"},
    {"harmony",
     "<|channel|>analysis<|message|>Think. <|end|><|start|>assistant<|channel|>commentary"
     "<|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather "
     "<|constrain|>json<|message|>" W1 "<|call|>",
     "\nR:Think. \nC:I look.\nF:get_weather\nA:" W1},
    {"harmony", " to=functions.now<|channel|>commentary json<|message|>{}<|call|>",
     "\nC: to=functions.now\nF:now\nA:{}"}, /* without the prompt's header: see below */
    {"harmony", "<|channel|>final<|message|>Hello <b>.<|return|>", "\nC:Hello <b>."},
    {"functionary-v3.1",
     "On it.\n<function=get_weather>" W1 "</function><function=now>{}</function>",
     "\nC:On it.\nF:get_weather\nA:" W1 "\nF:now\nA:{}"},
    {"apriel",
     "Here are my reasoning steps:\nHm.\n[BEGIN FINAL RESPONSE]\nOne "
     "moment.\n<tool_calls>[{\"name\": "
     "\"get_weather\", \"arguments\": " W1 ", \"id\": \"c1\"}, {\"name\": \"now\", \"arguments\": "
     "{}}]</tool_calls>\n[END FINAL RESPONSE]",
     "\nR:Hm.\nC:One moment.\nF:get_weather\nA:" W1 "\nF:now\nA:{}"},
    {"apriel",
     "Here are my reasoning steps:\nI call <tool_calls>[{\"name\": \"now\"}]</tool_calls>",
     "\nR:I call\nF:now\nA:{}"},
    {"minimax-m1",
     "<think>\nx\n</think>\n\nLook:\n<tool_calls>\n{\"name\": \"get_weather\", \"arguments\": " W1
     "}\n{\"name\": \"now\", \"arguments\": {}}\n</tool_calls>",
     "\nR:x\nC:Look:\nF:get_weather\nA:" W1 "\nF:now\nA:{}"},
    {"minimax-m3",
     "<mm:think>Hm</mm:think>Yes." M3 "<tool_call>\n" M3 "<invoke name=\"get_weather\">" M3
     "<city>Ro</city>me" M3 "</city>" M3 "<days>2" M3 "</days>" M3 "<tags>" M3 "<item>a" M3
     "</item>" M3 "<item>" M3 "<k>1" M3 "</k>" M3 "<l>" M3 "<l>x" M3 "</l>" M3 "</l>" M3
     "</item>" M3 "</tags>" M3 "</invoke>\n" M3 "<invoke name=\"now\">" M3 "</invoke>\n" M3
     "</tool_call>",
     "\nR:Hm\nC:Yes.\nF:get_weather\nA:{\"city\": \"Ro</city>me\", \"days\": 2, \"tags\": [\"a\", "
     "{\"k\": 1, \"l\": {\"l\": \"x\"}}]}\nF:now\nA:{}"},
    {"minimax-m3", "</mm:think>Nothing to think of.", "\nC:Nothing to think of."},
    {"hy3",
     "<think:opensource>a</"
     "think:opensource>b<tool_calls:opensource>\n<tool_call:opensource>get_weather"
     "<tool_sep:opensource>\n<arg_key:opensource>city</"
     "arg_key:opensource>\n<arg_value:opensource>Rome"
     "</arg_value:opensource>\n<arg_key:opensource>days</"
     "arg_key:opensource>\n<arg_value:opensource>2"
     "</arg_value:opensource>\n</"
     "tool_call:opensource>\n<tool_call:opensource>now<tool_sep:opensource>"
     "\n</tool_call:opensource>\n</tool_calls:opensource>",
     "\nR:a\nC:b\nF:get_weather\nA:{\"city\": \"Rome\", \"days\": 2}\nF:now\nA:{}"},
    {"ling3",
     "<think>I call <tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>"
     "<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>\n<tool_call>now\n</"
     "tool_call>",
     "\nR:I call\nF:get_weather\nA:{\"city\": \"Rome\", \"days\": 2}\nF:now\nA:{}"},
    {"hunyuan",
     "<think>\na\n</think>\n<answer>\nb\n</answer>\n<tool_calls>[{\"name\": \"now\", "
     "\"arguments\": "
     "{}}]</tool_calls>",
     "\nR:a\nC:b\nF:now\nA:{}"},
    {"hunyuan",
     "<think>\na\n</think>\n<answer>\n\n<tool_calls>[{\"name\": \"get_weather\", \"arguments\": " W1
     "}, {\"name\": \"now\", \"arguments\": {}}]</tool_calls>\n</answer>",
     "\nR:a\nF:get_weather\nA:" W1 "\nF:now\nA:{}"},
    {"kimi-k3",
     "<|open|>think<|sep|>Hm<|close|>think<|sep|><|open|>response<|sep|>See:<|close|>response<|sep|"
     ">"
     "<|open|>tools<|sep|><|open|>call tool=\"get_weather\" index=\"1\"<|sep|><|open|>argument "
     "key=\"city\" type=\"string\"<|sep|>12<|close|>argument<|sep|><|open|>argument key=\"days\" "
     "type=\"number\"<|sep|>2<|close|>argument<|sep|><|close|>call<|sep|><|open|>call tool=\"now\" "
     "index=\"2\"<|sep|><|close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|>",
     "\nR:Hm\nC:See:\nF:get_weather\nA:{\"city\": \"12\", \"days\": 2}\nF:now\nA:{}"},
    {"gemma4",
     "<|channel>thought\nHm\n<channel|>So:<|tool_call>call:get_weather{city:<|\"|>Ro\"m'e\n<<|\"|>,"
     "days:2,metric:true,tags:[<|\"|>a<|\"|>,{k:-1.5e3,<|\"|>a b<|\"|>:null}],any:\"j\\u00e9\"}"
     "<tool_call|><|tool_call>call:now{}<tool_call|>",
     "\nR:Hm\nC:So:\nF:get_weather\nA:{\"city\": \"Ro\\\"m'e\\n<\", \"days\": 2, \"metric\": true, "
     "\"tags\": [\"a\", {\"k\": -1.5e3, \"a b\": null}], \"any\": \"j\xc3\xa9\"}\nF:now\nA:{}"},
    {"cohere",
     "<|START_THINKING|>Plan.<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", "
     "\"tool_name\": \"get_weather\", \"parameters\": " W1 "},\n    {\"tool_call_id\": \"1\", "
     "\"tool_name\": \"now\", \"parameters\": {}}\n]<|END_ACTION|>",
     "\nR:Plan.\nF:get_weather\nA:" W1 "\nF:now\nA:{}"},
    {"cohere", "<|START_RESPONSE|>Hello <b>.\n<|END_RESPONSE|>", "\nC:Hello <b>."},
    {"cohere2moe", "<|START_THINKING|>x<|END_THINKING|><|START_TEXT|>Hi<|END_TEXT|>",
     "\nR:x\nC:Hi"},
    {"cohere2moe",
     "<|START_THINKING|>Plan.<|END_THINKING|><|START_TEXT|>Wait.<|END_TEXT|><|START_ACTION|>[\n"
     "    {\"tool_call_id\": \"0\", \"tool_name\": \"get_weather\", \"parameters\": " W1
     "},\n    {\"tool_call_id\": \"1\", \"tool_name\": \"now\", \"parameters\": {}}\n]"
     "<|END_ACTION|>",
     "\nR:Plan.\nC:Wait.\nF:get_weather\nA:" W1 "\nF:now\nA:{}"},
    {"llama4",
     "<|python_start|>See<|python_end|>{\"name\": \"get_weather\", \"parameters\": " W1
     "}{\"name\": \"now\", \"parameters\": {}}",
     "\nC:See\nF:get_weather\nA:" W1 "\nF:now\nA:{}"},
    {"llama4", "<|python_start|>[now()]<|python_end|>", "\nF:now\nA:{}"},
    {"pythonic",
     "[get_weather(city='Ro\\'\"me\\n\\x41\\q', days = 2, metric=True, tags=[None, (1, 'b',), "
     "{\"k\": "
     "{}}, []]), now()]",
     "\nF:get_weather\nA:{\"city\": \"Ro'\\\"me\\nA\\\\q\", \"days\": 2, \"metric\": true, "
     "\"tags\": "
     "[null, [1, \"b\"], {\"k\": {}}, []]}\nF:now\nA:{}"},
    {"pythonic", "[now(), later(now=1)]", "\nF:now\nA:{}\nC:, later(now=1)]"},
    {"pythonic", "[{\"name\": \"now\"}, {\"name\": \"later\"}]",
     "\nF:now\nA:{}\nC:, {\"name\": \"later\"}]"},
    {"pythonic", " [ now ( ) ] ", "\nC:[ now ( ) ] "},
    {"pythonic", "[{\"name\": \"now\", \"parameters\": {}}]", "\nF:now\nA:{}"},
    {"llama3", "[get_weather(city=\"\\ud83d\\ude00\\/\")]",
     "\nF:get_weather\nA:{\"city\": \"\xf0\x9f\x98\x80/\"}"},
    {"lfm2",
     "<think>x</think>Ok.<|tool_call_start|>[get_weather(city='Rome', days=2), "
     "now()]<|tool_call_end|>"
     "Done?",
     "\nR:x\nC:Ok.\nF:get_weather\nA:" W1 "\nF:now\nA:{}\nC:Done?"},
    {"lfm2", "<|tool_call_start|>[{\"name\": \"now\", \"arguments\": {}}]<|tool_call_end|>",
     "\nF:now\nA:{}"},
    {"nemotron-nano-v2",
     "<think>\nx\n</think>\n<TOOLCALL>[{\"name\": \"now\", \"arguments\": {}}, {\"name\": \"now\", "
     "\"arguments\": \"{}\"}]</TOOLCALL>",
     "\nR:x\nF:now\nA:{}\nF:now\nA:{}"},
    {"nemotron-nano-v2",
     "<think>\nx\n</think>\n\nWait.\n<TOOLCALL>[{\"name\": \"get_weather\", \"arguments\": " W1
     "}]</TOOLCALL>",
     "\nR:x\nC:Wait.\nF:get_weather\nA:" W1},
    {"phi4-mini",
     "functools[{\"name\": \"get_weather\", \"arguments\": " W1
     "}, {\"name\": \"now\", \"arguments\": {}}]",
     "\nF:get_weather\nA:" W1 "\nF:now\nA:{}"},
    {"xlam", "[{\"name\": \"get_weather\", \"arguments\": " W1 "}, {\"name\": \"now\"}]",
     "\nF:get_weather\nA:" W1 "\nF:now\nA:{}"},
    {"internlm2",
     "Wait.<|action_start|><|plugin|>\n{\"name\": \"now\", \"parameters\": {}}<|action_end|>",
     "\nC:Wait.\nF:now\nA:{}"},
    {"internlm2",
     "<|action_start|><|plugin|>{\"name\": \"get_weather\", \"parameters\": " W1
     "}<|action_end|>\n",
     "\nF:get_weather\nA:" W1},
    {"granite-20b-fc",
     "<function_call> {\"name\": \"get_weather\", \"arguments\": " W1
     "}<function_call> {\"name\": \"now\", \"arguments\": {}}",
     "\nF:get_weather\nA:" W1 "\nF:now\nA:{}"},
    {"solar-open",
     "<|think|>Hm.<|end|><|begin|>assistant<|content|>Wait.<|end|><|begin|>assistant<|tool_calls|>"
     "<|tool_call:begin|>a1_B<|tool_call:name|>get_weather<|tool_call:args|>" W1
     "<|tool_call:end|><|tool_call:begin|>b2<|tool_call:name|>now<|tool_call:args|>{}"
     "<|tool_call:end|><|calls|>",
     "\nR:Hm.\nC:Wait.\nF:get_weather\nA:" W1 "\nF:now\nA:{}"},
    {"solar-open", "<|think|>Hm.<|end|><|begin|>assistant<|content|>Yes.<|end|>",
     "\nR:Hm.\nC:Yes."},
    {"gigachat", "Wait.<|function_call|>{\"name\": \"get_weather\", \"arguments\": " W1 "}",
     "\nC:Wait.\nF:get_weather\nA:" W1},
};

static void reads_every_family(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (families[i].text[0] != ' ')
            both(families[i].format, families[i].text, families[i].want);
}

/* Answers whose reasoning the prompt has opened. */
static void goes_on_in_reasoning(void **state) {
    (void)state;
    static const struct {
        const char *format, *text, *want;
    } begun[] = {
        {"apriel",
         "Hm.\n[BEGIN FINAL RESPONSE]\n<tool_calls>[{\"name\": \"get_weather\", \"arguments\": " W1
         ", \"id\": \"c1\"}]</tool_calls>",
         "\nR:Hm.\nF:get_weather\nA:" W1},
        {"apriel", "Hm.\n[BEGIN FINAL RESPONSE]\nSee.\n[END FINAL RESPONSE]\n", "\nR:Hm.\nC:See."},
        {"minimax-m1",
         "Hm.\n</think>\n\n<tool_calls>\n{\"name\": \"get_weather\", \"arguments\": " W1
         "}\n</tool_calls>",
         "\nR:Hm.\nF:get_weather\nA:" W1},
        {"minimax-m3",
         "Hm.</mm:think>" M3 "<tool_call>\n" M3 "<invoke name=\"now\">" M3 "</invoke>\n" M3
         "</tool_call>",
         "\nR:Hm.\nF:now\nA:{}"},
        {"hy3",
         "Hm.</think:opensource>Look:<tool_calls:opensource>\n<tool_call:opensource>now"
         "<tool_sep:opensource>\n</tool_call:opensource>\n</tool_calls:opensource>",
         "\nR:Hm.\nC:Look:\nF:now\nA:{}"},
        {"kimi-k3",
         "Hm<|close|>think<|sep|><|open|>response<|sep|>See:<|close|>response<|sep|><|open|>tools"
         "<|sep|><|open|>call tool=\"now\" "
         "index=\"1\"<|sep|><|close|>call<|sep|><|close|>tools<|sep|>"
         "<|close|>message<|sep|>",
         "\nR:Hm\nC:See:\nF:now\nA:{}"},
        {"cohere",
         "Plan.<|END_THINKING|><|START_ACTION|>[{\"tool_call_id\": \"0\", \"tool_name\": "
         "\"get_weather\", \"parameters\": " W1 "}]<|END_ACTION|>",
         "\nR:Plan.\nF:get_weather\nA:" W1},
        {"cohere2moe",
         "Plan.<|END_THINKING|><|START_ACTION|>[{\"tool_call_id\": \"0\", \"tool_name\": "
         "\"get_weather\", \"parameters\": " W1 "}]<|END_ACTION|>",
         "\nR:Plan.\nF:get_weather\nA:" W1},
        {"lfm2",
         "Hm.</think><|tool_call_start|>[get_weather(city=\"Rome\", days=2)]<|tool_call_end|>",
         "\nR:Hm.\nF:get_weather\nA:" W1},
        {"nemotron-nano-v2",
         "Hm.\n</think>\n\n<TOOLCALL>[{\"name\": \"get_weather\", \"arguments\": " W1
         "}]</TOOLCALL>",
         "\nR:Hm.\nF:get_weather\nA:" W1},
    };
    for (size_t i = 0; i < sizeof begun / sizeof *begun; i++)
        for (int hold = 0; hold < 2; hold++)
            check((struct setting){.format = begun[i].format, .in_reasoning = true, .hold = hold},
                  begun[i].text, begun[i].want);
}

static void goes_on_with_the_prompts_header(void **state) {
    (void)state;
    struct setting s = {.format = "harmony", .header = "<|start|>assistant"};
    for (int hold = 0; hold < 2; hold++) {
        s.hold = hold;
        check(s, " to=functions.now<|channel|>commentary json<|message|>{}<|call|>",
              "\nF:now\nA:{}");
        check(
            s,
            "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b",
            "\nR:a\nC:b");
        check(s, "Hello!", "\nC:Hello!");
        check(s, "<|channel|>commentary to=functions.now<|message|>no<|call|>",
              "\nC:<|channel|>commentary to=functions.now<|message|>no<|call|>");
    }
}

/* Without tools, the markers of calls are text; reasoning is still apart. */
static void without_tools(void **state) {
    (void)state;
    struct setting s = {.format = "hermes", .no_tools = true};
    check(s, "<think>\n\nx y\n</think>\n\nsee <tool_call>{\"name\": \"now\"}</tool_call> ",
          "\nR:x y\nC:see <tool_call>{\"name\": \"now\"}</tool_call> ");
    check(s, "<think>\n\n</think>\n\nhi", "\nC:hi");
    check(s, "  plain <think> text \n", "\nC:  plain <think> text \n");
    check(s, "<thin", "\nC:<thin");
    check(s, "", "");
    check(s, " ", "\nC: ");
    s.in_reasoning = true;
    check(s, "deep</think>said", "\nR:deep\nC:said");
    check(s, "<think>\ndeep </thin</think>said", "\nR:deep </thin\nC:said");
    check(s, "never ends </thi", "\nR:never ends </thi");
    s.format = "harmony";
    check(s, "<|channel|>commentary to=functions.now<|message|>{}<|call|>", "\nC:{}");
    s = (struct setting){.format = "llama3", .no_tools = true};
    check(s, "{\"name\": \"now\"}", "\nC:{\"name\": \"now\"}");
}

/* What does not parse is content, all of it. */
static void gives_back_what_does_not_parse(void **state) {
    (void)state;
    static const struct {
        const char *format, *text;
    } wrong[] = {
        {"hermes", "<tool_call>"},
        {"hermes", "a <tool_call>\nnow()\n</tool_call>"},
        {"hermes", "<tool_call>{\"name\": now}</tool_call>"},
        {"hermes", "<tool_call>{\"name\": \"a b\", \"arguments\": {}}</tool_call>"},
        {"hermes", "<tool_call>{\"arguments\": {\"a\": 1}}</tool_call> x"},
        {"hermes", "<tool_call>{\"name\": 3}</tool_call>"},
        {"hermes", "<tool_call>{}"},
        {"hermes", "<tool_call>{\"name\": \"now\", \"name\": \"now\"}"},
        {"hermes", "1 < 2 <tool"},
        {"llama3", "{\"name\": \"Bob\", \"parameters\": {}}"},
        {"llama3", "{\"answer\": 42} and more"},
        {"llama3", "<|python_tag|>brave_search.call(query=\"x\")"},
        {"mistral", "[TOOL_CALLS]"},
        {"mistral-args", "[TOOL_CALLS]no w[ARGS]{}"},
        {"mistral-args", "[TOOL_CALLS]now[ARGS]4"},
        {"kimi-k2", "<|tool_calls_section_begin|><|tool_calls_section_end|>"},
        {"kimi-k2", "<|tool_calls_section_begin|>x"},
        {"deepseek-v3.2", "<" BAR "DSML" BAR "function_calls>x"},
        {"qwen3-coder", "<function=a b>"},
        {"qwen3-coder", "<tool_call>{\"name\": \"now\"}</tool_call>"},
        {"glm", "<tool_call>\n{\"name\": \"now\"}</tool_call>"},
        {"apertus", "<|tools_prefix|>[{\"now\": 3}]"},
        {"functionary-v3.1", "<function=now>now</function>"},
        {"functionary-v3.1", "a <function=no w>{}"},
        {"functionary-v3.1", "<|python_tag|>print(1)"},
        {"apriel", "<tool_calls>[{\"name\": 1}]</tool_calls>"},
        {"minimax-m1", "<tool_calls>\nnow()\n</tool_calls>"},
        {"minimax-m3", M3 "<tool_call>x"},
        {"minimax-m3", M3 "<tool_call>\n" M3 "<invoke name=\"a b\">"},
        {"minimax-m3", M3 "<tool_call>\n" M3 "<invok"},
        {"hy3", "<tool_calls:opensource>\n</tool_calls:opensource>"},
        {"hy3", "<tool_calls:opensource>\n<tool_call:opensource>a b<tool_sep:opensource>"},
        {"hunyuan", "<tool_calls>now</tool_calls>"},
        {"kimi-k3", "<|open|>tools<|sep|><|open|>call tool=\"now\" index=\"x\"<|sep|>"},
        {"kimi-k3", "<|open|>tools<|sep|>none"},
        {"gemma4", "<|tool_call>now()<tool_call|>"},
        {"gemma4", "<|tool_call>call:n w{}<tool_call|>"},
        {"gemma4", "<|tool_call>call:now"},
        {"cohere", "<|START_ACTION|>[{\"tool_name\": \"a b\"}]"},
        {"cohere", "<|START_ACTION|>none<|START"},
        {"pythonic", "[link](now)"},
        {"pythonic", "[now, then]"},
        {"pythonic", "[later(now=1)]"},
        {"pythonic", "[1, 2]"},
        {"pythonic", "["},
        {"pythonic", "[{\"name\": \"later\", \"parameters\": {}}]"},
        {"llama4", "{\"name\": \"Bob\"}"},
        {"lfm2", "<|tool_call_start|>[]<|tool_call_end|>"},
        {"lfm2", "<|tool_call_start|>now()<|tool_call_end|>"},
        {"nemotron-nano-v2", "<TOOLCALL>[]</TOOLCALL>"},
        {"phi4-mini", "functools is a module, functools"},
        {"xlam", "[{\"name\": \"later\", \"arguments\": {}}]"},
        {"xlam", "[1]"},
        {"internlm2", "<|action_start|><|plugin|>\nnow<|action_end|>"},
        {"granite-20b-fc", "<function_call> now()"},
        {"gigachat", "<|function_call|>now()"},
        {"solar-open", "<|tool_calls|><|tool_call:begin|>now<|tool_call:args|>{}"},
        {"solar-open", "<|tool_calls|><|tool_call:begin|>1<|tool_call:name|>n w<|tool_call:args|>"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char want[256];
        snprintf(want, sizeof want, "\nC:%s", wrong[i].text);
        both(wrong[i].format, wrong[i].text, want);
    }
}

/* Broken within the arguments: a whole answer has it as content, a stream keeps what went out. */
static void breaks_in_the_middle(void **state) {
    (void)state;
    static const char text[] = "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": oops}}";
    struct setting stream = {.format = "hermes"}, whole = {.format = "hermes", .hold = true};
    check(stream, text, "\nF:now\nA:{\"a\": \nC:oops}}");
    check(whole, text, "\nC:<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": oops}}");
    static const char cut[] = "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": \"b";
    check(stream, cut, "\nF:now\nA:{\"a\": \"b");
    check(whole, cut, "\nC:<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": \"b");
    stream.cut = whole.cut = true; /* by max_tokens: as far as it came */
    check(stream, cut, "\nF:now\nA:{\"a\": \"b");
    check(whole, cut, "\nF:now\nA:{\"a\": \"b");
    stream.format = whole.format = "qwen3-coder";
    static const char tagged[] = "<function=get_weather>\n<parameter=city>\nRo\n</param";
    check(stream, tagged, "\nF:get_weather\nA:{\"city\": \"Ro\\n</param");
    check(whole, tagged, "\nF:get_weather\nA:{\"city\": \"Ro\\n</param");
    /* The second of two. */
    static const char second[] = "[TOOL_CALLS][{\"name\": \"now\"}, {\"nam: \"now\"}]";
    check((struct setting){.format = "mistral", .hold = true}, second,
          "\nF:now\nA:{}\nC:, {\"nam: \"now\"}]");
}

/* A value is what the model wrote, also where a parser has no room for it. */
static void values_of_any_size(void **state) {
    (void)state;
#define CALL_WITH(key, text)                                                                       \
    "<function=get_weather>\n<parameter=" key ">\n" text "\n</parameter>\n</function>"
    both("qwen3-coder", CALL_WITH("days", "18446744073709551616"),
         "\nF:get_weather\nA:{\"days\": 18446744073709551616}");
    both("qwen3-coder", CALL_WITH("days", "1e999"), "\nF:get_weather\nA:{\"days\": 1e999}");
    both("qwen3-coder", CALL_WITH("days", "1e"), "\nF:get_weather\nA:{\"days\": \"1e\"}");
    both("qwen3-coder", CALL_WITH("days", "1 2"), "\nF:get_weather\nA:{\"days\": \"1 2\"}");
    both("qwen3-coder", CALL_WITH("days", ""), "\nF:get_weather\nA:{\"days\": \"\"}");
    both("qwen3-coder", CALL_WITH("tags", "[None]"), "\nF:get_weather\nA:{\"tags\": \"[None]\"}");
    both("qwen3-coder", CALL_WITH("opt", "None"), "\nF:get_weather\nA:{\"opt\": \"None\"}");
    both("qwen3-coder", CALL_WITH("opt", "null"), "\nF:get_weather\nA:{\"opt\": null}");
}

/* Literals that are none: a stream keeps what went out, a whole answer has it all as content. */
static void literals_that_break(void **state) {
    (void)state;
    static const char *const wrong[][2] = {
        {"city=Rome)]", "{\"city\": "},
        {"'city':1)]", "{\"city\""},
        {"city)]", "{\"city\""},
        {"\"Rome\")]", "{\"Rome\""},
        {"days=1_0)]", "{\"days\": "},
        {"days=0x1)]", "{\"days\": "},
        {"tags=[1})]", "{\"tags\": [1"},
        {"tags={'a':1])]", "{\"tags\": {\"a\": 1"},
        {"city='a\\xg')]", "{\"city\": \"a"},
        {"city=f'a')]", "{\"city\": "},
        {"days=1;city=2)]", "{\"days\": "},
        {"a=1, =2)]", "{\"a\": 1"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char text[128], whole[192];
        snprintf(text, sizeof text, "[now(%s", wrong[i][0]);
        snprintf(whole, sizeof whole, "\nC:%s", text);
        check((struct setting){.format = "pythonic", .hold = true}, text, whole);
        json_t *t = tools();
        struct setting stream = {.format = "pythonic"};
        char *got = split(&stream, t, text, strlen(text), 0, 1);
        char begins[128];
        snprintf(begins, sizeof begins, "\nF:now\nA:%s\nC:", wrong[i][1]);
        if (strncmp(got, begins, strlen(begins)) != 0)
            fail_msg("%s gives %s", text, got);
        free(got);
        json_decref(t);
    }
    struct setting cut = {.format = "gemma4", .hold = true, .cut = true};
    check(cut, "<|tool_call>call:get_weather{city:<|\"|>Ro", "\nF:get_weather\nA:{\"city\": \"Ro");
    struct sl_buf deep = {0};
    sl_buf_puts(&deep, "[now(a=");
    for (int i = 0; i < 100; i++)
        sl_buf_puts(&deep, "[");
    sl_buf_put(&deep, "", 1);
    struct sl_buf want = {0};
    sl_buf_printf(&want, "\nC:%s", deep.ptr);
    check((struct setting){.format = "pythonic", .hold = true}, deep.ptr, want.ptr);
    sl_buf_release(&deep);
    sl_buf_release(&want);
}

/* Values with tags within become what their schema says, and a tag that does not fit makes them a
 * string. */
static void nested_values(void **state) {
    (void)state;
#define M3_CALL(inside)                                                                            \
    M3 "<tool_call>\n" M3 "<invoke name=\"get_weather\">" inside M3 "</invoke>\n" M3 "</"          \
       "tool_call>"
    both("minimax-m3", M3_CALL(M3 "<tags>" M3 "</tags>"), "\nF:get_weather\nA:{\"tags\": []}");
    both("minimax-m3", M3_CALL(M3 "<tags>[1, 2]" M3 "</tags>"),
         "\nF:get_weather\nA:{\"tags\": [1, 2]}");
    both("minimax-m3", M3_CALL(M3 "<city>" M3 "<b>x" M3 "</b>" M3 "</city>"),
         "\nF:get_weather\nA:{\"city\": \"" M3 "<b>x" M3 "</b>\"}");
    both("minimax-m3", M3_CALL(M3 "<any>" M3 "<a>1" M3 "</b>" M3 "</any>"),
         "\nF:get_weather\nA:{\"any\": \"" M3 "<a>1" M3 "</b>\"}");
    both("minimax-m3", M3_CALL(M3 "<any>" M3 "<any>1" M3 "</any>" M3 "</any>"),
         "\nF:get_weather\nA:{\"any\": {\"any\": 1}}");
    both("minimax-m3", M3_CALL(M3 "<any>a" M3 "</other>b" M3 "</any>"),
         "\nF:get_weather\nA:{\"any\": \"a" M3 "</other>b\"}");
}

static void text_behind_calls_is_content(void **state) {
    (void)state;
    both("hermes", "<tool_call>{\"name\": \"now\"}</tool_call>\n\nDone. ",
         "\nF:now\nA:{}\nC:Done. ");
    both("hermes", "<tool_call>{\"name\": \"now\"}\n", "\nF:now\nA:{}");
    both("hermes", "<tool_call>{\"name\": \"now\"}}</tool_call>", "\nF:now\nA:{}\nC:}</tool_call>");
    both("hermes", " \n <tool_call>{\"name\": \"now\"}</tool_call>", "\nF:now\nA:{}");
}

/* Random text of markers and JSON in all families: the same parts however it is cut. */
static void cut_at_random(void **state) {
    (void)state;
    static const char *const words[] = {"<tool_call>",
                                        "</tool_call>",
                                        "{\"name\": \"now\"",
                                        ", \"arguments\": {",
                                        "}",
                                        "\"",
                                        "a",
                                        " ",
                                        "\n",
                                        "<",
                                        "[TOOL_CALLS]",
                                        "now[ARGS]",
                                        "{}",
                                        "[",
                                        "]",
                                        ",",
                                        "<function=now>",
                                        "<parameter=days>",
                                        "</parameter>",
                                        "</function>",
                                        "<think>",
                                        "</think>",
                                        "\xc3\xa9",
                                        "<|channel|>final",
                                        "<|message|>",
                                        "<|end|>",
                                        "<|start|>",
                                        "to=functions.now",
                                        "<arg_key>",
                                        "</arg_key>",
                                        "<arg_value>",
                                        "</arg_value>",
                                        "\\",
                                        "1",
                                        ":",
                                        "<|tool_call>call:now{",
                                        "a:",
                                        "<|\"|>",
                                        "<tool_call|>",
                                        "[now(",
                                        "a=",
                                        "'",
                                        "\\u0041",
                                        ")",
                                        M3,
                                        "<invoke name=\"now\">",
                                        "</invoke>",
                                        "<a>",
                                        "</a>",
                                        "<|open|>",
                                        "<|close|>",
                                        "<|sep|>",
                                        "tools",
                                        "call tool=\"now\" index=\"1\"",
                                        "argument key=\"a\" type=\"number\"",
                                        "response",
                                        "<tool_calls>",
                                        "</tool_calls>",
                                        "<function=now>{",
                                        "<|python_start|>",
                                        "<|START_ACTION|>"};
    struct sl_rng rng = {7};
    json_t *t = tools();
    uint32_t n_formats = 0;
    while (sl_answer_format_at(n_formats))
        n_formats++;
    for (uint32_t round = 0; round < 8000; round++) {
        const struct sl_answer_format *f = sl_answer_format_at(round % n_formats);
        struct sl_buf b = {0};
        uint32_t n = 1 + (uint32_t)sl_rng_below(&rng, 24);
        sl_buf_puts(&b, "");
        for (uint32_t i = 0; i < n; i++)
            sl_buf_puts(&b, words[sl_rng_below(&rng, sizeof words / sizeof *words)]);
        struct setting set = {.format = f->name,
                              .hold = sl_rng_below(&rng, 2),
                              .cut = sl_rng_below(&rng, 2),
                              .in_reasoning = sl_rng_below(&rng, 8) == 0};
        char *whole = split(&set, t, b.ptr, b.len, 0, 0);
        char *bytes = split(&set, t, b.ptr, b.len, 0, 1);
        char *two = split(&set, t, b.ptr, b.len, sl_rng_below(&rng, (uint32_t)b.len + 1), 0);
        if (strcmp(whole, bytes) != 0 || strcmp(whole, two) != 0)
            print_message("%s hold %d: %.*s\n", f->name, set.hold, (int)b.len, b.ptr);
        assert_string_equal(whole, bytes);
        assert_string_equal(whole, two);
        free(whole);
        free(bytes);
        free(two);
        sl_buf_release(&b);
    }
    json_decref(t);
}

/* Where a bound is reached nothing is cut in a character: a stream could not show its halves. */
static void bounds_keep_characters_whole(void **state) {
    (void)state;
    json_t *t = tools();
    struct setting header = {.format = "harmony"}, early = {.format = "hermes"};
    for (uint32_t shift = 0; shift < 3; shift++) {
        struct sl_buf b = {0};
        sl_buf_printf(&b, "<|channel|>%.*s", (int)shift, "ab");
        for (uint32_t i = 0; i < 300; i++)
            sl_buf_puts(&b, LOW);
        char *got = split(&header, t, b.ptr, b.len, 0, shift == 1);
        assert_int_equal(strlen(got), b.len + 3);
        assert_memory_equal(got + 3, b.ptr, b.len);
        free(got);
        sl_buf_clear(&b);
        sl_buf_printf(&b, "<tool_call>{\"x\": \"%.*s", (int)shift, "ab");
        while (b.len < SL_SPLIT_HELD_BYTES + 100)
            sl_buf_puts(&b, LOW);
        got = split(&early, t, b.ptr, b.len, 0, shift == 1);
        assert_int_equal(strlen(got), b.len + 3);
        assert_memory_equal(got + 3, b.ptr, b.len);
        free(got);
        sl_buf_release(&b);
    }
    json_decref(t);
}

static void drop_part(void *ctx, const struct sl_part *p) {
    *(uint64_t *)ctx += p->text.len;
}

/* White space that something may follow is waited behind, but not without end: the same parts
 * however it comes, and what is held stays small. */
static void white_space_is_bounded(void **state) {
    (void)state;
    static const char *const before[][2] = {
        {"hermes", ""},
        {"hermes", "Text"},
        {"hermes", "<think>"},
        {"hermes", "<tool_call>"},
        {"hermes", "<tool_call>{\"name\""},
        {"hermes", "<tool_call>{\"arguments\":"},
        {"hermes", "<tool_call>{\"name\": \"now\"}"},
        {"hermes", "<tool_call>{\"name\": \"now\"}</tool_call>"},
        {"llama3", "{"},
        {"llama3", "{\"name\": \"now\","},
        {"mistral", "[TOOL_CALLS]"},
        {"mistral-args", "[TOOL_CALLS]now"},
        {"mistral-args", "[TOOL_CALLS]now[ARGS]"},
        {"deepseek-v3", "<" BAR "tool" LOW "calls" LOW "begin" BAR ">"},
        {"kimi-k2", "<|tool_calls_section_begin|>"},
        {"kimi-k2", "<|tool_call_begin|>functions.now:0<|tool_call_argument_begin|>"},
        {"qwen3-coder", "<tool_call>"},
        {"qwen3-coder", "<tool_call>\n<function=now>"},
        {"glm", "<tool_call>"},
        {"glm", "<tool_call>now\n"},
        {"gemma4", "<|tool_call>"},
        {"gemma4", "<|tool_call>call:now{"},
        {"gemma4", "<|tool_call>call:now{a:"},
        {"gemma4", "<|tool_call>call:now{}"},
        {"pythonic", "["},
        {"pythonic", "[now(a=1"},
        {"pythonic", "[now()"},
        {"lfm2", "<|tool_call_start|>[now(),"},
        {"xlam", "["},
        {"minimax-m1", "<tool_calls>{\"name\": \"now\"}"},
        {"minimax-m3", M3 "<tool_call>"},
        {"minimax-m3", M3 "<tool_call>" M3 "<invoke name=\"now\">"},
        {"hy3", "<tool_calls:opensource><tool_call:opensource>now<tool_sep:opensource>"},
        {"ling3", "<think>I <tool_call>now\n"},
        {"kimi-k3", "<|open|>response<|sep|>"},
        {"solar-open", "<|tool_call:begin|>"},
        {"solar-open", "<|tool_call:begin|>1<|tool_call:name|>now<|tool_call:args|>"},
        {"kimi-k3", "<|open|>tools<|sep|>"},
        {"harmony", "<|channel|>analysis<|message|>hm<|end|>"},
        {"harmony", "<|channel|>commentary to=functions.now<|message|>"},
    };
    json_t *t = tools();
    struct sl_buf b = {0};
    for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
        struct setting set = {.format = before[i][0]};
        sl_buf_clear(&b);
        sl_buf_puts(&b, before[i][1]);
        for (int k = 0; k < 9000; k++)
            sl_buf_puts(&b, k % 7 ? " " : "\n");
        sl_buf_puts(&b, "{} <tool_call>x");
        char *whole = split(&set, t, b.ptr, b.len, 0, 0);
        /* Not bytes: what is held is looked through again with each. */
        char *pieces = split(&set, t, b.ptr, b.len, 0, 13);
        if (strcmp(whole, pieces) != 0)
            fail_msg("%s: %s differs by how it comes", before[i][0], before[i][1]);
        free(whole);
        free(pieces);
        /* Tokens of white space alone, for ever. */
        struct sl_splitter_config config = {
            .format = sl_answer_format_named(set.format), .tools = t, .thinks = true};
        struct sl_splitter *s = NULL;
        uint64_t shown = 0;
        assert_int_equal(sl_splitter_create(&config, drop_part, &shown, &s), SL_OK);
        assert_int_equal(sl_splitter_push(s, before[i][1], strlen(before[i][1])), SL_OK);
        for (int k = 0; k < 1000; k++) /* twice of what may be held */
            assert_int_equal(sl_splitter_push(s, b.ptr + strlen(before[i][1]), 100), SL_OK);
        if (sl_splitter_held_bytes(s) > 48 << 10)
            fail_msg("%s behind %s: %llu bytes are held", before[i][0], before[i][1],
                     (unsigned long long)sl_splitter_held_bytes(s));
        sl_splitter_destroy(&s);
    }
    sl_buf_release(&b);
    json_decref(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(white_space_is_bounded),
        cmocka_unit_test(reads_every_family),
        cmocka_unit_test(goes_on_in_reasoning),
        cmocka_unit_test(goes_on_with_the_prompts_header),
        cmocka_unit_test(bounds_keep_characters_whole),
        cmocka_unit_test(values_of_any_size),
        cmocka_unit_test(without_tools),
        cmocka_unit_test(gives_back_what_does_not_parse),
        cmocka_unit_test(breaks_in_the_middle),
        cmocka_unit_test(text_behind_calls_is_content),
        cmocka_unit_test(literals_that_break),
        cmocka_unit_test(nested_values),
        cmocka_unit_test(cut_at_random),
    };
    return cmocka_run_group_tests_name("the splitter", tests, NULL, NULL);
}
