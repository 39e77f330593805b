#!/usr/bin/env python3
"""Writes the seeds of the chat template fuzzer, tests/fuzz/corpus/template/: the language snippets of
tests/templates, those that render some to a file, and inputs that are made to be trouble. Needs
python3-jinja2.

usage: corpus_template.py FOLDER"""
import hashlib
import json
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "templates"))
import mutation
import oracle
import snippets

EVIL = [
    b"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    b"{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
    b"{% set ns = namespace(x='a') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
    b"{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
    b"{% set ns = namespace(x=[]) %}{% for i in range(5000) %}{% set ns.x = [ns.x] %}{% endfor %}"
    b"{{ ns.x }}{{ ns.x|tojson }}{{ ns.x == ns.x }}",
    b"{% set ns = namespace(x=l) %}{% for i in range(5000) %}{% set ns.x = ns.x|map('string') %}"
    b"{% endfor %}{{ ns.x|list }}",
    b"{{ 'x' * 9223372036854775807 }}", b"{{ [0] * 4611686018427387904 }}",
    b"{{ '%*d' % (2147483647, 1) }}", b"{{ '{:999999999}'.format(1) }}", b"{{ -9223372036854775807 - 1 // -1 }}",
    b"{{ (-9223372036854775807 - 1) // -1 }}{{ (-9223372036854775807 - 1) % -1 }}",
    b"{{ " + b"(" * 400 + b"1" + b")" * 400 + b" }}", b"{{ " + b"-" * 3000 + b"1 }}",
    b"{{ " + b"not " * 3000 + b"1 }}", b"{{ x" + b".a" * 3000 + b" }}", b"{{ x" + b"|trim" * 3000 + b" }}",
    b"{{ " + b"[" * 3000, b"{% if 1 %}" * 1000, b"{{ 1 " + b"+ 1 " * 3000 + b"}}",
    b"{{ 1 if 1 else " * 500, b"{% for x in l recursive %}{{ loop([1]) }}{% endfor %}",
    b"{{ 'a\xff\xfe' }}", b"\xef\xbb\xbf{{ 1 }}", b"{{ '\\ud83d' }}", b"{{ l[::-9223372036854775807] }}",
    b"{{ l[9223372036854775807:-9223372036854775807:-1] }}", b"{{ s[::2] }}{{ s[-1:0:-2] }}",
    b"{% for i in range(300) %}{{ ('a' * i)|center(i * 2) }}{% endfor %}",
    b"{{ messages|tojson(indent=' ' * 1000) }}", b"{{ messages[0] }}\0{\"messages\": [{\"a\": [1, 2, null]}]}",
    b"{{ messages|length }}\0[]", b"{{ x }}\0nonsense", b"", b"\0", b"{", b"{{", b"{%", b"{#", b"{{'", b"{%raw%}",
    b"{% set x %}{% call m() %}{% endset %}", b"{% block a %}{% block a %}{% endblock %}{% endblock %}",
    b"{{ loop }}{{ loop() }}{% for a in l %}{{ loop.length.x }}{{ loop.changed(loop) }}{% endfor %}",
    b"{% for a in l %}{% set ns = namespace(l=loop) %}{% for b in ns.l %}{{ b }}{% endfor %}{% endfor %}",
    b"{% set a = [1] %}{% for x in a %}{% set _ = a.append(x) %}{% endfor %}",
    b"{% set a = [] %}{% for i in range(900) %}{% set _ = a.append(a) %}{% endfor %}{{ a }}{{ [a] == [a[0]] }}"
    b"{{ a.copy() == a }}",
    b"{% set d = {} %}{% set _ = d.update(me=d, l=[d]) %}{{ d }}{{ d.values() }}{{ d == d.copy() }}{{ d|tojson }}",
    b"{% set a = [2, 1] %}{% macro k(x) %}{{ a.sort(key=k) }}{{ a.append(x) }}{% endmacro %}{{ a.sort(key=k) }}",
    b"{% set a = [1] %}{% set _ = a.extend(a|map('string')|map('upper')) %}",
    b"{% set a = [1, 2, 3] %}{% for x in a|reverse if a.pop() %}{{ x }}{{ loop.length }}{% endfor %}{{ a.insert(-9, a) }}{{ a }}",
    b"{% set d = {} %}{% for i in range(400) %}{% set _ = d.update({i * 7919 % 512: d}) %}{% set _ = d.pop(i // 2, 0) %}"
    b"{% endfor %}{% for k in d %}{% set _ = d.popitem() %}{% endfor %}",
    b"{% set a = [] %}{% set f = a.append %}{% for x in [f, a.pop, a.insert, {}.update, {}.pop] %}{{ x(0, 1) }}{% endfor %}",
    b"{{ strftime_now('%9999999d%Ez%Oy%+%-') }}", b"{{ dict(a=dict)|tojson }}{{ {}[{}] }}{{ {{}: 1} }}",
]


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    seeds = list(EVIL)
    good, bad = [], []
    theirs = oracle.Oracle(1)
    for t in ["{{ " + e + " }}" for e in snippets.EXPRESSIONS] + snippets.STATEMENTS:
        (good if theirs.render(t, snippets.VARS)[0] == "ok" else bad).append(t.encode())
    variables = json.dumps(snippets.VARS).encode()
    for i in range(0, len(good), 12):
        seeds.append(b"\n".join(good[i:i + 12]) + b"\0" + variables)
    seeds += bad[::3]
    seeds += [t.encode() + b"\0" + variables for t in mutation.programs(random.Random(1), 12)]
    seeds += ["".join(mutation.SNIPPETS[i::16]).encode() for i in range(16)]
    for s in seeds:
        with open(os.path.join(folder, hashlib.sha256(s).hexdigest()[:16]), "wb") as f:
            f.write(s)


main()
