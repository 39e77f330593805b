#!/usr/bin/env python3
"""Writes the seeds of the fuzzer of templates' cost, tests/fuzz/corpus/template_cost/: templates that
work long in one call, or in many short ones. The variables are those of fuzz_template_cost.c.

usage: corpus_template_cost.py FOLDER"""
import hashlib
import os
import sys

LOOP = "{% for i in range(9999) %}{% set r = EXPR %}{% endfor %}"
GROW = "{% set ns = namespace(t=(1,)) %}{% for i in range(N) %}{% set ns.t = EXPR %}{% endfor %}"

# Values that nest or share.
SEEDS = [
    GROW.replace("N", "9999").replace("EXPR", "(ns.t,)") + "{{ {ns.t: 1} }}",
    GROW.replace("N", "9999").replace("EXPR", "(ns.t,)") + "{{ d[ns.t] }}",
    GROW.replace("N", "60").replace("EXPR", "(ns.t, ns.t)") + "{{ {ns.t: 1} }}",
    GROW.replace("N", "60").replace("EXPR", "(ns.t, ns.t)") + "{{ d[ns.t] }}",
    GROW.replace("N", "60").replace("EXPR", "(ns.t, ns.t)") + "{{ ns.t }}",
    GROW.replace("N", "60").replace("EXPR", "(ns.t, ns.t)") + "{{ ns.t|tojson }}",
    "{% set ns = namespace(t=(1,), s=(1,)) %}{% for i in range(60) %}{% set ns.t = (ns.t, ns.t) %}"
    "{% set ns.s = (ns.s, ns.s) %}{% endfor %}{{ ns.s == ns.t }}{{ ns.s < ns.t }}",
    # Loops over loops, each kept beyond its own end.
    "{% set ns = namespace(l=[1, 2]) %}{% for i in range(9999) %}{% for x in ns.l %}{% set ns.m = loop %}"
    "{% break %}{% endfor %}{% set ns.l = ns.m %}{% endfor %}{{ ns.l|list }}",
    "{% set ns = namespace(l=[1, 2]) %}{% for i in range(9999) %}{% for x in ns.l %}{% set ns.m = loop %}"
    "{% break %}{% endfor %}{% set ns.l = ns.m %}{% endfor %}{{ ns.l.length }}",
    "{{ deep == deep|list }}{{ deep|tojson|length }}{{ deep|string|length }}",
    "{% set e = {} %}{% for i in range(9999) %}{% set _ = e.update({(0.0 / 1e999 * 1e999): i}) %}{% endfor %}",
    "{% set e = {} %}{% for i in range(9999) %}{% macro m() %}{% endmacro %}{% set _ = e.update({m: i}) %}{% endfor %}",
    "{% macro m(" + ",".join(f"a{i}" for i in range(200)) + ") %}{% endmacro %}{{ m(**d) }}",
    "{% for i in range(9999) %}{{ '{key4095}'.format(**d)[:0] }}{% endfor %}",
    # Numbers at their ends.
    "{{ 1.5|round(-9223372036854775807-1) }}", "{{ 15|round(-9223372036854775807-1) }}",
    "{{ 1.5|round(9223372036854775807) }}{{ 1.5|round(-400, 'floor') }}",
    "{{ range(-9223372036854775807-1, 9223372036854775807, 9223372036854775807)|list }}",
    "{{ range(-9223372036854775807-1, 9223372036854775807, 9223372036854775807)[3:] }}",
    "{{ range(-9223372036854775807-1, 9223372036854775807, 9223372036854775807)[2] }}",
]
EXPRESSIONS = """
a.rfind(b ~ 'x'); a.rsplit(b ~ 'x'); a.rpartition('x' ~ b); a.rfind(''); a.find(b); a.find('x' ~ b); a.find(b ~ 'x')
a.removeprefix(b); a.removesuffix(b); a.strip(w); 'b'.strip(a); a.strip('a'); a.lstrip(u); a in a; b in a; (b ~ 'x') in a
a.count(b); a.count(''); a.count('aa'); a.replace('a', ''); a.replace(b, ''); a.split('a'); w.split(); w.rsplit()
t.splitlines(); a.partition(b); w.title(); w|title; w|capitalize; u.lower(); u.upper(); u.swapcase(); (u ~ u)|length
u[9999]; u[::-1]; a[::99999]; (a ~ u)[0]; a.startswith(a); a.endswith((b, a)); a == a ~ ''; a < a ~ ''; z|int; z|int(base=0)
(z ~ '1')|int(base=0); ('1' ~ z)|float; z[:4000]|float; '{:.1}'.format(a); '{:>9}'.format(u); '%.1s' % a; '%s' % u
'%r' % u; '{!r}'.format(u); '{:099999}'.format(1); '%.300f' % 1e308; (1 / 3)|string; [1 / 3] * 99|string; 1.5|round(300)
(z ~ '{}').format(1); (a ~ '%d') % 1; t|striptags; t|escape; t|urlencode; t|wordcount; w|truncate(9); w|indent
a.center(99999); a.zfill(999999); t.expandtabs(99); u.isalpha(); a.isascii(); w.istitle(); a.isidentifier(); a.isupper()
a is upper; u|tojson; u|tojson(ensure_ascii=true); l|tojson; d|tojson(sort_keys=true); d|tojson(indent=9); l|string; l|sort
l|unique|list; l|map('string')|list; l|sum; l|min; l|join(','); l|reverse|list; l|batch(3)|list; l|slice(9)|list
l|select('odd')|list; d|dictsort; d|items|list; l|groupby('real'); l + l; l * 9; l == l|list; l < l|list; l.index(1)
l.count(1); l|list; l[::-1]; d|last; l|first; 9999 in l; d == dict(d); d.copy(); d.get(a); d[a]; {a: 1}; a ~ a; a * 99
'' * 999999999; 'x' * 99999; [] * 999999999; (l|list).sort(); (l|list).reverse(); (l|list).insert(0, 1); (l|list).pop(1)
(l|list).remove(9); (l|list).extend(l); strftime_now(t); w|replace(' ', ''); d|xmlattr; d|urlencode; namespace(d)
l|map(attribute='a.b.c', default=1)|list; l|map(attribute=w, default=1)|list; range(9999)|list; a|safe ~ t; t|forceescape
'a'.join(l|map('string')); s.join([a, a]); (u,) == (u ~ '',); {(a, a): 1}; d|filesizeformat; 1e300|filesizeformat; a is in a
'%(key9)s' % d; '{0:{1}}'.format(1, z[:9]); ('%' ~ z ~ 'd') % 1; ('{:' ~ z ~ '}').format(1); a|list|join; a[0:99999]|upper
"""


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    seeds = list(SEEDS)
    seeds += [LOOP.replace("EXPR", e.strip()) for e in EXPRESSIONS.replace("\n", ";").split(";") if e.strip()]
    for s in seeds:
        with open(os.path.join(folder, hashlib.sha256(s.encode()).hexdigest()[:16]), "wb") as f:
            f.write(s.encode())


main()
