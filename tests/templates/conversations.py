"""Conversations for chat templates: every feature of the chat API that a template may look at,
crossed with the arguments that templates know."""
import itertools

TEXTS = ["Hello!", "", "  padded \n", "Grüße, 日本語 🎉 \u200b\u00a0", "a\n\nb\r\nc\t",
         "<think>\nhmm\n</think>\n\nanswer", "<tool_response>\nx\n</tool_response>",
         "quotes \" ' \\ and {{ braces }} {% tags %}", "<|im_start|> <b>&amp;</b>", "x" * 300,
         "before</think>after</think>last", "/nothink", "<|channel|>analysis<|message|>no"]

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Current weather.\nIn a city",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "description": "The city, e.g. \"Zürich\""},
        "unit": {"type": "string", "enum": ["C", "F"], "default": "C"},
        "days": {"type": "integer", "minimum": 1, "maximum": 10, "default": 3},
        "detail": {"type": ["string", "null"], "nullable": True}}, "required": ["city"]}}}
BARE = {"type": "function", "function": {"name": "now", "description": "The time",
                                         "parameters": {"type": "object", "properties": {}}}}
COMPLEX = {"type": "function", "function": {
    "name": "plan", "description": "Plans.", "strict": True,
    "parameters": {"type": "object", "additionalProperties": False, "properties": {
        "steps": {"type": "array", "description": "what to do", "items": {
            "type": "object", "properties": {"n": {"type": "number", "examples": [1, 2.5]},
                                             "tags": {"type": "array", "items": {"type": "string"}},
                                             "grid": {"type": "array", "items": {"type": "array",
                                                      "items": {"type": "integer"}}}},
            "required": ["n"]}},
        "any": {"oneOf": [{"type": "string", "format": "date", "description": "d"},
                          {"type": "integer", "format": "int32", "default": 5}]},
        "objs": {"oneOf": [{"type": "object"}, {"type": "object"}]},
        "loose": {"type": "array"}, "flag": {"type": "boolean", "default": False, "description": "F."},
        "map": {"type": "object", "additionalProperties": {"type": "number"}},
        "choice": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
        "empty": {}}, "required": ["steps", "flag"]},
    "return": {"type": "string", "description": "the plan"},
    "returns": {"type": "object", "properties": {"id": {"type": "integer", "description": "Id"}}}}}
CODE = {"type": "code_interpreter"}
NO_FUNCTION = {"name": "flat", "description": "no wrapper", "parameters": {
    "type": "object", "properties": {"q": {"type": "string", "description": "query"}}}}
NO_PARAMETERS = {"type": "function", "function": {"name": "ping", "description": "Pings"}}
TOOLS = [None, [], [WEATHER], [BARE, WEATHER], [COMPLEX], [WEATHER, CODE], [NO_FUNCTION],
         [NO_PARAMETERS], [WEATHER, COMPLEX, BARE]]


def call(name, args, id_="call12345"):
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": args}}


CALLS = [
    [call("get_weather", {"city": "Zürich", "days": 3})],
    [call("get_weather", '{"city": "Oslo"}')],
    [call("now", {})],
    [call("plan", {"steps": [{"n": 1.5, "tags": ["a", None, True]}], "deep": {"x": {"y": []}}})],
    [call("get_weather", {"city": "A"}), call("now", {}, "call67890")],
    [{"name": "flat", "arguments": {"q": "x"}}],
    [call("get_weather", {"city": "B"}, "short")],
    [{"type": "function", "function": {"name": "now"}}],
    [],
]


def user(t):
    return {"role": "user", "content": t}


def assistant(t, **more):
    return dict({"role": "assistant", "content": t}, **more)


def tool(t, **more):
    return dict({"role": "tool", "content": t, "tool_call_id": "call12345", "name": "get_weather"},
                **more)


def system(t):
    return {"role": "system", "content": t}


def message_lists(rng):
    yield "empty", []
    for t in TEXTS:
        yield "one user", [user(t)]
        yield "system and user", [system(t), user("Hi")]
        yield "answered", [user("Hi"), assistant(t)]
        yield "three turns", [user("Hi"), assistant("Hello"), user(t), assistant("Ok"), user("Bye")]
    for turns in (4, 9, 20):
        yield "long", [system("Be brief.")] + [
            (user if i % 2 == 0 else assistant)(rng.choice(TEXTS)) for i in range(turns)]
    yield "system only", [system("Alone")]
    yield "two systems", [system("One"), system("Two"), user("Hi")]
    yield "late system", [user("Hi"), system("Late"), user("Again")]
    yield "developer", [{"role": "developer", "content": "Dev"}, user("Hi")]
    yield "odd role", [user("Hi"), {"role": "critic", "content": "Hm"}]
    yield "two users", [user("A"), user("B")]
    yield "assistant first", [assistant("A"), user("B")]
    yield "no content", [user("Hi"), {"role": "assistant"}]
    yield "none content", [user("Hi"), assistant(None), user("B")]
    yield "none user", [user(None)]
    yield "parts", [user([{"type": "text", "text": "part one"}, {"type": "text", "text": "ü"}])]
    yield "string parts", [user(["a", {"type": "text", "text": "b"}, {"type": "image"}])]
    yield "image", [user([{"type": "image_url", "image_url": {"url": "x"}}])]
    yield "mapping content", [{"role": "user", "content": {"parts": [{"type": "text", "text": "p"}]}}]
    yield "system mapping", [{"role": "system", "content": {"text": "sys"}}, user("Hi")]
    yield "number content", [user(5)]
    yield "name", [{"role": "user", "content": "Hi", "name": "Ann"}]
    yield "prefix", [user("Hi"), assistant("Sure", prefix=True)]
    for r in ("Because.", "", None, "multi\nline\n"):
        yield "reasoning", [user("Why"), assistant("So", reasoning_content=r), user("And"),
                            assistant("Yes", reasoning_content=r)]
        yield "thinking", [user("Why"), assistant("So", thinking=r)]
    yield "blocks", [user("Q"), {"role": "assistant", "content": {"blocks": [
        {"type": "thoughts", "text": "t"}, {"type": "tool_calls", "calls": [
            {"name": "display_answers", "arguments": "{}"}]},
        {"type": "tool_outputs", "outputs": [{"output": "o"}, {"output": "p"}]},
        {"type": "response", "text": "r"}]}}]
    for calls in CALLS:
        for content in ("", None, "Let me see. "):
            a = assistant(content, tool_calls=calls)
            yield "call", [user("W?"), a]
            yield "called", [user("W?"), a, tool("21 °C"), assistant("It is 21."), user("Thanks")]
            yield "two results", [system("S"), user("W?"), a, tool('{"t": 1}'),
                                  tool("second", tool_call_id="call67890")]
        yield "called thinking", [user("W?"), assistant(None, tool_calls=calls, thinking="hm",
                                                        reasoning_content="hm"), tool("r")]
        yield "call without content", [user("W?"), {"role": "assistant", "tool_calls": calls}, tool("x")]
    yield "tool without call", [user("Hi"), tool("?")]
    yield "tool first", [tool("?"), user("Hi")]
    yield "tool parts", [user("W?"), assistant(None, tool_calls=CALLS[0]),
                         tool([{"type": "text", "text": "p", "output": "q"}])]
    yield "tool mapping", [user("W?"), assistant(None, tool_calls=CALLS[0]), tool({"a": 1, "content": "c"})]
    yield "tool none", [user("W?"), assistant(None, tool_calls=CALLS[0]), tool(None)]
    yield "ipython", [user("W?"), assistant(None, tool_calls=CALLS[0]), {"role": "ipython", "content": "o"}]
    yield "tool calls none", [user("Hi"), assistant("x", tool_calls=None), user("B")]


ARGUMENTS = [
    {},
    {"enable_thinking": False, "thinking": False},
    {"enable_thinking": True, "thinking": True, "reasoning_effort": "high"},
    {"reasoning_effort": "max", "thinking": True, "drop_thinking": False, "thinking_budget": 0},
    {"thinking_budget": 600, "model_identity": "I am Test.", "builtin_tools": ["browser", "python"]},
    {"date_string": "1 Jan 2025", "tools_in_user_message": False, "use_json_tooldef": True,
     "controls": {"citations": True, "length": "short"}},
    {"documents": [{"doc_id": 1, "text": "Döc"}, {"doc_id": "b", "text": ""}],
     "controls": ["citations", "hallucinations"], "custom_tools": [WEATHER],
     "builtin_tools": ["code_interpreter", "get_weather"]},
]


def cases(rng):
    lists = list(message_lists(rng))
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    for (label, messages), prompt in itertools.product(lists, (True, False)):
        yield label, dict(tokens, messages=messages, add_generation_prompt=prompt)
    for (label, messages), tools in itertools.product(lists, TOOLS):
        extra = rng.choice(ARGUMENTS)
        yield label + ", tools", dict(tokens, messages=messages, tools=tools,
                                      add_generation_prompt=rng.random() < 0.7, **extra)
    for (label, messages), extra in itertools.product(lists, ARGUMENTS[1:]):
        yield label + ", arguments", dict(tokens, messages=messages, add_generation_prompt=True,
                                          **extra)
    for label, messages in lists[:5]:
        yield label + ", no tokens", {"messages": messages}
    yield "no messages", dict(tokens, add_generation_prompt=True)
    yield "none messages", dict(tokens, messages=None)
