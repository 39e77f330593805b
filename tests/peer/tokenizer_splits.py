#!/usr/bin/env python3
"""Compares the pre-splits of byte-level BPE with Python's `regex` module as oracle.

usage: tokenizer_splits.py SLUICE

The patterns here are the models' own (tokenizer.json, tokenization_*.py), in the wording of their
files; those in the program are reworded for PCRE2. Both cut the same random text, rich in what
matters to them: white space of all kinds, digits, case, marks, CJK, contractions. Left out are the
characters whose category changed lately (Python's own tables and the module's disagree, or know
none), because the two sides may follow different versions of Unicode.

TAP output; exit 77 where the module is not installed."""
import json
import random
import subprocess
import sys
import unicodedata

try:
    import regex
except ImportError:
    print("python module 'regex' is not installed")
    sys.exit(77)

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3 = CONTRACTIONS + (r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
                         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def o200k(upper, lower, contraction, digits, end):
    return (rf"[^\r\n\p{{L}}\p{{N}}]?{upper}*{lower}+{contraction}"
            rf"|[^\r\n\p{{L}}\p{{N}}]?{upper}+{lower}*{contraction}"
            rf"|{digits}| ?[^\s\p{{L}}\p{{N}}]+{end}|\s*[\r\n]+|\s+(?!\S)|\s+")


O200K = o200k(UPPER, LOWER, CONTRACTIONS + "?", r"\p{N}{1,3}", r"[\r\n/]*")
HAN = r"&&[^\p{Han}]]"
DEEPSEEK3 = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
             r"""| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""")
CJK = "[一-龥\u3040-\u309f\u30a0-\u30ff]+"
JAIS_SPACES = "|".join(r"\s{%s}(?!\S)" % n for n in "512 256 128 64 32 16 8 4 1,2".split()) + r"|\s{1}"

RULES = {
    "gpt-2": [GPT2],
    "starcoder": [r"\p{N}", GPT2],
    "falcon": [r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"],
    "default": [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
    "llama-bpe": [LLAMA3],
    "qwen2": [QWEN2],
    "qwen35": [CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
               r"|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "laguna": [r"[^\n]+|[\n]+", QWEN2],
    "minicpm5": [r"\p{N}{1,3}", LLAMA3.replace("{1,3}", "+")],
    "seed-coder": [CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+"
                   r"|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "bailingmoe": [r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*"
                   r"|\s*[\r\n]|\s+(?!\S)|\s+"],
    "exaone-moe": [CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}"
                   r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"],
    "jais-2": [LLAMA3.split(r"|\s+(?!\S)")[0] + "|" + JAIS_SPACES],
    "gpt-4o": [O200K],
    "minimax-m2": [O200K],
    "tekken": [o200k(UPPER, LOWER, "", r"\p{N}", r"[\r\n/]*")],
    "tiny_aya": [r"\d{1,3}(?=(?:\d{3})*\b)", O200K],
    "kimi-k2": [r"(?V1)[\p{Han}]+|" + o200k(UPPER[:-1] + HAN, LOWER[:-1] + HAN, CONTRACTIONS + "?",
                                            r"\p{N}{1,3}", r"[\r\n]*")],
    "deepseek-coder": ["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", None, r"\p{N}"],
    "deepseek-v3": [r"\p{N}{1,3}", CJK, DEEPSEEK3],
    "superbpe": [r"\p{N}+", r"(?=(?:\d{3})+(?!\d))"],
    "bloom": [" ?[^(\\s|.,!?…。，、।۔،)]+"],
    "viking": [" ?[^(\\s|.,!?…。，、।۔،)]+", r"\p{N}"],
}
# llama.cpp's reading of DeepSeek's CJK class: the range 0800-4E00 without its white space.
RULES["deepseek-coder"][3] = (r"(?V1)[[一-龥\u0800-\u4e00\uac00-\ud7ff]&&[^\s]]+")


def cut(pieces, pattern):
    out = []
    for piece in pieces:
        done = 0
        for m in pattern.finditer(piece):
            out += [piece[done:m.start()], m.group()]
            done = m.end()
        out.append(piece[done:])
    return [p for p in out if p]


def sample(seed, n):
    r = random.Random(seed)
    by_category = {}
    for c in range(0x110000):
        by_category.setdefault(unicodedata.category(chr(c)), []).append(chr(c))
    known = [c for category, chars in by_category.items() if category not in ("Cn", "Co", "Cs")
             for c in regex.findall(r"\p{%s}" % category, "".join(chars))]
    low = [c for c in known if ord(c) < 0x800]
    spaces = " \t\n\r\v\f\u0085\u00a0\u1680\u180e\u2003\u2028\u202f\u3000\u200b"
    cjk = "中文汉字々〇〻⼀ㄅひらカナー가나다、。「」！"
    marks = "\u0301\u0308\u093f\u0e31\u05b0"
    out = []
    while len(out) < n:
        kind = r.randrange(12)
        k = r.randrange(1, 9)
        pool = (known, low, spaces, cjk, "0123456789٣²½Ⅷ", "abcXYZéÉǅʰªß", "'sStTdDmMlLvVrReE ſ",
                "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", marks + "aA ", " \n\r", "aZ9_ \n.", "😀👍🏽🇩🇪")[kind]
        out += r.choices(pool, k=k)
        if r.random() < 0.02:
            out += r.choice(" \n0aA\t") * r.randrange(1500)
    return "".join(out[:n])


def main():
    sluice = sys.argv[1]
    failed = 0
    text = sample(1, 60000)
    for i, (name, patterns) in enumerate(RULES.items()):
        want = [text]
        for p in patterns:
            want = cut(want, regex.compile(p))
        got = json.loads(subprocess.run([sluice, "tokenize", "--splits", name, "--file", "-"],
                                        input=text.encode(), capture_output=True, check=True).stdout)
        bad = next((k for k, (a, b) in enumerate(zip(want, got)) if a != b), None)
        if bad is None and len(want) != len(got):
            bad = min(len(want), len(got))
        print(f"{'ok' if bad is None else 'not ok'} {i + 1} - splits of {name} ({len(want)} pieces)")
        if bad is not None:
            failed += 1
            print(f"# piece {bad}: regex {want[bad:bad + 4]!r}, sluice {got[bad:bad + 4]!r}")
    print(f"1..{len(RULES)}")
    return 1 if failed else 0


sys.exit(main())
