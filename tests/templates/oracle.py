"""Renders chat templates with Python's Jinja2 under the settings that transformers uses: the
reference that model/chat_template.c is compared with."""
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


def environment(now):
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
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
            text = self.last[1].render(**variables)
            text.encode("utf-8")
            return "ok", text
        except Exception as e:  # whatever Python raises is an error to compare with
            if self.last is not None and self.last[0] != source:
                self.last = None
            return "error", f"{type(e).__name__}: {e}"
