"""Renders chat templates with Python's Jinja2 under the settings that transformers uses: the
reference that model/jinja/chat_template.c is compared with. In one thing it allows more than those: a
template may change the lists and dictionaries that it made itself, as some in circulation do."""
import datetime
import json
import warnings

import jinja2
import jinja2.ext
import jinja2.sandbox

warnings.simplefilter("ignore")


class GenerationTag(jinja2.ext.Extension):
    """{% generation %} ... {% endgeneration %}: the body, in a scope of its own."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_render_body")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    @jinja2.pass_eval_context
    def _render_body(self, context, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def containers(value, found):
    """The lists and dictionaries in a value, by id."""
    if isinstance(value, (list, dict)):
        found[id(value)] = value
        for v in value.values() if isinstance(value, dict) else value:
            containers(v, found)
    return found


class Environment(jinja2.sandbox.ImmutableSandboxedEnvironment):
    given = {}  # of the variables of the rendering
    CHANGES = ("append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort",
               "popitem", "setdefault", "update")

    def is_safe_attribute(self, obj, attr, value):
        if not isinstance(obj, (list, dict)):
            return super().is_safe_attribute(obj, attr, value)
        if id(obj) in self.given and attr in self.CHANGES:
            return False  # older versions of Jinja forget some of them
        return jinja2.sandbox.SandboxedEnvironment.is_safe_attribute(self, obj, attr, value)


def environment(now):
    env = Environment(
        trim_blocks=True, lstrip_blocks=True,
        extensions=[GenerationTag, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda fmt: datetime.datetime.utcfromtimestamp(now).strftime(fmt)
    return env


class Oracle:
    def __init__(self, now):
        self.env = environment(now)
        self.last = None

    def render(self, source, variables):
        """("ok", text) or ("error", message)."""
        try:
            if self.last is None or self.last[0] != source:
                self.last = (source, self.env.from_string(source))
            self.env.given = containers(variables, {})
            text = self.last[1].render(**variables)
            text.encode("utf-8")
            return "ok", text
        except Exception as e:  # whatever Python raises is an error to compare with
            if self.last is not None and self.last[0] != source:
                self.last = None
            return "error", f"{type(e).__name__}: {e}"
