"""Small templates, one for each corner of the language that chat templates may lean on. Each is
rendered with VARS by both sides. They stand in snippets/: expressions and what must be refused, one a line; statements,
separated by lines of '---'."""
import os

VARS = {
    "name": "World", "n": 5, "z": 0, "neg": -7, "big": 9007199254740993, "f": 1.5, "t": True,
    "no": False, "nothing": None, "empty": "", "s": "  Hello, Wörld!\n", "text": "the quick brown fox",
    "uni": "naïve ÀÉÎ ß ǆ ΑΣΣ İ 日本語 🎉", "html": "<b>\"x\" & 'y'</b>",
    "l": [3, 1, 2], "ls": ["b", "A", "c", "a"], "mixed": [1, "a", None, True, 1.5, [1], {"k": 1}],
    "e": [], "d": {"b": 1, "a": 2, "C": 3}, "ed": {}, "nested": {"x": {"y": [{"z": 1}, {"z": 2}]}},
    "users": [{"name": "bob", "age": 30, "tags": ["x", "y"], "addr": {"city": "Rome"}},
              {"name": "Alice", "age": 25, "tags": [], "addr": {"city": "oslo"}},
              {"name": "carol", "age": 30, "addr": {"city": "Oslo"}}],
    "shadow": {"items": 1, "keys": "k", "get": "g", "name": "own"},
    "quotes": ["it's", 'say "hi"', "both ' and \"", "tab\there", "nl\n", "back\\slash", "\u200b\u00a0\u00ad"],
    "floats": [0.1, 1e16, 1e15, 123456789.123, 1e-5, 0.0001, -0.0, 1e300, 5e-324, 2.0**-44, 3.14159, 100.0],
    "lines": "one\n\ntwo\r\nthree\n  four",
}


def read(name, separator):
    """The snippets of a file in snippets/."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "snippets", name)
    with open(path, encoding="utf-8", newline="") as f:
        return f.read().removesuffix("\n").split(separator)


EXPRESSIONS = read("expressions.txt", "\n")
# Jinja2 folds these while compiling and then writes Python that does not know the names inf and nan.
NOT_FOLDED = {"1e308 * 10", "'inf' | float", "'-inf' | float", "'nan' | float", "'1e400' | float"}

# Where Jinja2 goes beyond what a bounded interpreter gives, an error is right: these must fail, and
# the program must live.
REFUSED = read("refused.txt", "\n")
STATEMENTS = read("statements.txt", "\n---\n")


def templates():
    out = []
    for e in EXPRESSIONS:
        out.append("{{ " + e + " }}")
    for e in EXPRESSIONS:  # the same where only truth counts, and with white space control
        if e in NOT_FOLDED:
            continue
        out.append("{%- if " + e + " -%} yes {%- else -%} no {%- endif %}\n")
    out += STATEMENTS
    out += [s.replace("\n", "\r\n") for s in STATEMENTS if "\n" in s]
    out += [s + "\n" for s in STATEMENTS[-40:]] + [s + "\n\n" for s in STATEMENTS[-40:]]
    return out
