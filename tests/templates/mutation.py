"""Templates that change lists and dictionaries: what they made themselves changes as in Python, with
every name of it; what they were given does not."""

# Separated by lines of '---'.
SNIPPETS = r"""
{% set a = [1] %}{{ a.append(2) }}{{ a }}
---
{% set a = [] %}{% set b = a %}{% set _ = b.append(1) %}{{ a }}{{ b }}{{ a is sameas b }}
---
{% set a = [1] %}{% set b = a + [] %}{% set _ = b.append(2) %}{{ a }}{{ b }}
---
{% set a = [1, 2] %}{% set b = a[:] %}{% set _ = b.pop() %}{{ a }}{{ b }}
---
{% set a = [[n]] * 3 %}{% set _ = a[1].append(1) %}{{ a }}
---
{% set a = [0] %}{% set b = [a, a, a | list] %}{% set _ = a.append(1) %}{{ b }}
---
{% for i in range(3) %}{% set a = [] %}{% set _ = a.append(i) %}{{ a }}{% endfor %}
---
{% for i in range(3) %}{% set a = [[], {}] %}{% set _ = a[0].append(i) %}{% set _ = a[1].update(x=i) %}{{ a }}{% endfor %}
---
{% macro m(x=[]) %}{% set _ = x.append(1) %}{{ x }}{% endmacro %}{{ m() }}{{ m() }}{{ m([0]) }}
---
{% macro m(x) %}{% set _ = x.append(1) %}{% endmacro %}{% set a = [] %}{{ m(a) }}{{ m(a) }}{{ a }}
---
{% macro m() %}{% set _ = kwargs.update(b=2) %}{{ kwargs }}{% endmacro %}{% set d2 = {'a': 1} %}{{ m(**d2) }}{{ d2 }}
---
{% macro m() %}{{ varargs.append is defined }}{{ varargs }}{% endmacro %}{{ m(1) }}
---
{% set ns = namespace(ids=[]) %}{% for i in l %}{% set _ = ns.ids.append('f:' ~ i) %}{% endfor %}{% for i in l %}{{ ns.ids.pop(0) }} {% endfor %}{{ ns.ids }}{% if ns.ids %}more{% endif %}
---
{% set ns = namespace(a=l) %}{% set _ = ns.a.append(1) %}
---
{% set ns = namespace(a=l | list) %}{% set _ = ns.a.append(1) %}{{ ns.a }}{{ l }}
---
{% set a = [3, 1, 2] %}{{ a.sort() }}{{ a }}{{ a.sort(reverse=true) }}{{ a }}{{ a.reverse() }}{{ a }}
---
{% set a = ['b', 'A', 'c'] %}{{ a.sort() }}{{ a }}
---
{% set a = [1, 'a'] %}{{ a.sort() }}
---
{% set a = [[2, 'b'], [1, 'z'], [2, 'a']] %}{{ a.sort() }}{{ a }}
---
{% set a = [3, 1, 2] %}{{ a.sort(1) }}
---
{% set a = [3, 1, 2] %}{{ a.sort(key=none, reverse=1) }}{{ a }}
---
{% set a = [3, 1, 2] %}{{ a.sort(reverse='x') }}
---
{% set a = [3, 1, 2] %}{{ a.sort(nope=1) }}
---
{% macro size(x) %}{{ x | length }}{% endmacro %}{% set a = ['ccc', 'a', 'bb'] %}{{ a.sort(key=size) }}{{ a }}
---
{% set a = ['ccc', 'a', 'bb'] %}{% macro size(x) %}{{ x | length }}{% set _ = a.append(x) %}{% endmacro %}{{ a.sort(key=size) }}{{ a }}
---
{% set a = [2, 1] %}{% macro seen(x) %}{{ x }}{{ a }}{% endmacro %}{{ a.sort(key=seen) }}{{ a }}
---
{% set a = [1, 2] %}{{ a.extend([3]) }}{{ a.extend((4, 5)) }}{{ a.extend('xy') }}{{ a.extend({'k': 1}) }}{{ a.extend(range(2)) }}{{ a }}
---
{% set a = [1, 2] %}{{ a.extend(a) }}{{ a }}{{ a.extend(a | map('string')) if false }}
---
{% set a = [1] %}{{ a.extend(d.items()) }}{{ a.extend(d.values()) }}{{ a.extend(l | map('string')) }}{{ a }}
---
{% set a = [1] %}{{ a.extend(none) }}
---
{% set a = [1] %}{{ a.extend(5) }}
---
{% set a = [1] %}{{ a.extend(unset) }}{{ a }}
---
{% set a = [1] %}{{ a.extend() }}
---
{% set a = [1] %}{{ a.append() }}
---
{% set a = [1] %}{{ a.append(1, 2) }}
---
{% set a = [1] %}{{ a.append(object=1) }}
---
{% set a = [1] %}{{ a.append(unset) }}{{ a }}{{ a | length }}
---
{% set a = [1, 2, 3] %}{{ a.insert(0, 'a') }}{{ a.insert(-1, 'b') }}{{ a.insert(99, 'c') }}{{ a.insert(-99, 'd') }}{{ a.insert(true, 'e') }}{{ a }}
---
{% set a = [1, 2, 3] %}{{ a.insert('0', 'a') }}
---
{% set a = [1, 2, 3] %}{{ a.insert(1) }}
---
{% set a = [1, 2, 3] %}{{ a.insert(1.0, 1) }}
---
{% set a = [1, 2, 3] %}{{ a.pop() }}{{ a.pop(0) }}{{ a }}{{ a.pop(-1) }}{{ a }}
---
{% set a = [1, 2, 3] %}{{ a.pop(-3) }}{{ a.pop(1) }}{{ a }}
---
{% set a = [1, 2, 3] %}{{ a.pop(3) }}
---
{% set a = [1, 2, 3] %}{{ a.pop(-4) }}
---
{% set a = [1, 2, 3] %}{{ a.pop('0') }}
---
{% set a = [1, 2, 3] %}{{ a.pop(none) }}
---
{{ [].pop() }}
---
{{ [1, 2].pop() }}{{ [1, 2].pop(0) }}
---
{% set f2 = [].append %}{{ f2(1) }}
---
{% set a = [] %}{% set f2 = a.append %}{% for i in l %}{% set _ = f2(i) %}{% endfor %}{{ a }}
---
{% set a = [] %}{% set _ = (a | attr('append'))(4) %}{{ a }}{% set _ = a['append'](5) %}{{ a }}
---
{% set a = [1, 2, 1, true] %}{{ a.remove(1) }}{{ a }}{{ a.remove(1.0) }}{{ a }}{{ a.remove(1) }}{{ a }}
---
{% set a = [1, 2] %}{{ a.remove(3) }}
---
{% set a = [1, [2], {'k': []}] %}{{ a.remove([2]) }}{{ a.remove({'k': []}) }}{{ a }}
---
{% set a = [1, 2] %}{{ a.clear() }}{{ a }}{{ a | length }}{% if not a %}empty{% endif %}{% set _ = a.append(1) %}{{ a }}
---
{% set a = [1, 2] %}{{ a.clear(1) }}
---
{% set a = [1, 2, 3] %}{% set b = a.copy() %}{% set _ = b.clear() %}{{ a }}{{ b }}
---
{% set a = l.copy() %}{% set _ = a.append(9) %}{{ a }}{{ l }}
---
{% set a = l + [4] %}{% set _ = a.append(9) %}{{ a }}{{ l }}
---
{% set a = l | sort %}{% set _ = a.append(9) %}{{ a }}{{ l }}
---
{% set a = l[1:] %}{% set _ = a.append(9) %}{{ a }}{{ l }}
---
{% set a = l or [] %}{% set _ = a.append(9) %}
---
{% set a = e or [] %}{% set _ = a.append(9) %}{{ a }}{{ e }}
---
{% set a = e | default([]) %}{% set _ = a.append(9) %}
---
{% set a = unset | default([]) %}{% set _ = a.append(9) %}{{ a }}
---
{% set a = users | list %}{% set _ = a.append(1) %}{% set _ = a[0].tags.append('z') %}
---
{{ users[0].append is defined }}{{ users.append is defined }}{{ users[0].update is defined }}{{ (users | list).append is defined }}
---
{{ users.pop() }}
---
{% set u = dict(users[0]) %}{% set _ = u.update(name='x') %}{{ u.name }}{{ users[0].name }}
---
{% set u = dict(users[0], name='y') %}{% set _ = u.pop('tags') %}{% set _ = u.pop('addr') %}{{ u }}
---
{% set u = users[0].copy() %}{% set _ = u.pop('name') %}{{ u }}{{ users[0].name }}
---
{% set _ = users[0].pop('name') %}
---
{% set _ = nested.x.update(a=1) %}
---
{% set a = {} %}{{ a.update({'x': 1}) }}{{ a.update(y=2) }}{{ a.update({'x': 3}, z=4) }}{{ a.update([['p', 1], ('q', 2), 'rs']) }}{{ a }}
---
{% set a = {} %}{{ a.update() }}{{ a }}
---
{% set a = {} %}{{ a.update(none) }}
---
{% set a = {} %}{{ a.update(5) }}
---
{% set a = {} %}{{ a.update(unset) }}{{ a }}
---
{{ dict(unset) }}
---
{% set a = {} %}{{ a.update([1]) }}
---
{% set a = {} %}{{ a.update(['abc']) }}
---
{% set a = {} %}{{ a.update({}, {}) }}
---
{% set a = {} %}{{ a.update([[[], 1]]) }}
---
{% set a = {'x': 1} %}{{ a.update(a) }}{{ a.update(a.items()) }}{{ a }}
---
{% set a = {'x': 1, 'y': 2} %}{{ a.pop('x') }}{{ a }}{{ a.pop('x', 'none') }}{{ a.pop('y', 0) }}{{ a }}
---
{% set a = {'x': 1} %}{{ a.pop('y') }}
---
{% set a = {'x': 1} %}{{ a.pop() }}
---
{% set a = {'x': 1} %}{{ a.pop([]) }}
---
{% set a = {'x': 1} %}{{ a.pop('y', default=1) }}
---
{% set a = {'x': 1, 'y': 2} %}{{ a.popitem() }}{{ a.popitem() }}{{ a }}
---
{{ {}.popitem() }}
---
{% set a = {'x': 1} %}{{ a.setdefault('x', 2) }}{{ a.setdefault('y') }}{{ a.setdefault('z', []).append(1) }}{{ a }}
---
{% set a = {} %}{% for u in users %}{% set _ = a.setdefault(u.age, []).append(u.name) %}{% endfor %}{{ a }}
---
{% set a = {'x': 1} %}{{ a.clear() }}{{ a }}{{ a.update(k=1) }}{{ a }}
---
{{ {}.fromkeys('ab') }}{{ {}.fromkeys([1, 2], 0) }}{{ {}.fromkeys([[]]) }}
---
{% set a = {1: 'a', true: 'b', 1.0: 'c', '1': 'd'} %}{{ a.pop(true) }}{{ a }}
---
{% set a = {'k': 1} %}{% set ks = a.keys() %}{% set vs = a.values() %}{% set its = a.items() %}{% set _ = a.update(m=2) %}{{ ks }}{{ vs }}{{ its }}{{ ks | length }}{{ 'm' in ks }}
---
{% set a = dict(a=1) %}{% set b = {'in': a} %}{% set _ = a.update(b=2) %}{{ b }}{% set _ = b['in'].clear() %}{{ a }}
---
{% set a = {} %}{% for i in range(100) %}{% set _ = a.update({i: i * i}) %}{% endfor %}{% for i in range(0, 100, 3) %}{% set _ = a.pop(i) %}{% endfor %}{{ a }}{{ 99 in a }}{{ 98 in a }}{{ a[50] }}
---
{% set a = {} %}{% for i in range(60) %}{% set _ = a.update({'k' ~ i: i}) %}{% endfor %}{% for i in range(59) %}{% set _ = a.popitem() %}{% endfor %}{{ a }}{% for i in range(60) %}{% set _ = a.update({'k' ~ i: i}) %}{% endfor %}{{ a }}
---
{% set a = {} %}{% for i in range(300) %}{% set _ = a.update({(i * 37) % 101: i}) %}{% if i % 3 == 0 %}{% set _ = a.pop((i * 11) % 101, none) %}{% endif %}{% endfor %}{{ a }}
---
{% set a = [1, 2, 3] %}{% for x in a %}{{ x }}{% if x < 3 %}{% set _ = a.append(x + 2) %}{% endif %} {% endfor %}{{ a }}
---
{% set a = [1, 2, 3, 4] %}{% for x in a %}{{ x }}{% set _ = a.pop(0) %}{% endfor %}{{ a }}
---
{% set a = [1, 2, 3, 4] %}{% for x in a %}{{ x }}{% set _ = a.pop() %}{% endfor %}{{ a }}
---
{% set a = [1, 2, 3] %}{% for x in a %}{{ x }}{% set _ = a.clear() %}{% else %}none{% endfor %}{{ a }}
---
{% set a = [1, 2] %}{% for x in a %}{{ x }}{{ loop.last }}{% if loop.index < 5 %}{% set _ = a.append(x) %}{% endif %}{% endfor %}
---
{% set a = [1, 2] %}{% for x in a %}{{ x }}{{ loop.length }}{{ loop.revindex }}{% if loop.index < 5 %}{% set _ = a.append(x) %}{% endif %}{% endfor %}
---
{% set a = [1, 2] %}{% for x in a %}{{ x }}{{ loop.nextitem }}{{ loop.previtem }}{% if loop.index < 5 %}{% set _ = a.append(x * 10) %}{% endif %}{% endfor %}
---
{% set a = [1, 2, 3] %}{% for x in a if x != 2 %}{{ x }}{% if loop.index < 4 %}{% set _ = a.append(x * 2) %}{% endif %}{% endfor %}
---
{% set a = [1, 2, 3] %}{% for x in a | reverse %}{{ x }}{% set _ = a.pop(0) %}{% endfor %}{{ a }}
---
{% set a = [1, 2, 3] %}{% for x in a | reverse %}{{ x }}{% set _ = a.append(x) %}{% endfor %}{{ a }}
---
{% set a = [1, 2, 3] %}{% set r = a | reverse %}{% set _ = a.append(4) %}{{ r | list }}{{ r | list }}
---
{% set a = [1, 2, 3] %}{% set r = a | reverse %}{% set _ = a.clear() %}{{ r | list }}{% set _ = a.extend([5, 6, 7]) %}{{ r | list }}
---
{% set a = [1, 2, 3] %}{% set r = a | map('string') %}{% set _ = a.append(4) %}{{ r | list }}
---
{% set a = [1, 2, 3] %}{% set r = a | select('odd') %}{% set _ = a.append(5) %}{{ r | list }}{% set _ = a.append(7) %}{{ r | list }}
---
{% set a = [1, 2, 1] %}{% set r = a | unique %}{% set _ = a.append(5) %}{{ r | list }}
---
{% set a = [1, []] | unique %}{{ a is defined }}
---
{% set a = 5 | unique %}{{ a is defined }}
---
{{ 5 | unique | list }}
---
{{ [1, []] | unique | list }}
---
{{ ['a', 'B', 'A', 'b'] | unique | join }}{{ ['a', 'A'] | unique(case_sensitive=true) | join }}{{ users | unique(attribute='age') | map(attribute='name') | join }}
---
{% set a = {'x': 1} %}{% for k in a %}{% set _ = a.update(y=1) %}{% endfor %}
---
{% set a = {'x': 1, 'y': 2} %}{% for k, v in a.items() %}{% set _ = a.pop(k) %}{% endfor %}
---
{% set a = {'x': 1, 'y': 2} %}{% for k, v in a.items() %}{% set _ = a.update({k: v + 1}) %}{% endfor %}{{ a }}
---
{% set a = {'x': 1, 'y': 2} %}{% for k, v in a.items() | list %}{% set _ = a.pop(k) %}{{ v }}{% endfor %}{{ a }}
---
{% set a = {'x': 1, 'y': 2} %}{% for k in a | list %}{% set _ = a.pop(k) %}{% endfor %}{{ a }}
---
{% set a = [] %}{% set _ = a.append(a) %}{{ a }}{{ a | length }}{{ a[0][0] is sameas a }}
---
{% set a = [1] %}{% set b = [a] %}{% set _ = a.append(b) %}{{ a }}{{ b }}
---
{% set a = {} %}{% set _ = a.update(me=a) %}{{ a }}{{ a.values() }}{{ a.items() }}
---
{% set a = [] %}{% set _ = a.append((a, 1)) %}{{ a }}{{ a[0] }}
---
{% set ns = namespace(x=1) %}{% set ns.me = ns %}{{ ns }}
---
{% set a = [] %}{% set _ = a.append(a) %}{{ a | tojson }}
---
{% set a = {} %}{% set _ = a.update(me=[a]) %}{{ a | tojson }}
---
{% set a = [1] %}{{ [a, a] | tojson }}{{ {'x': a, 'y': a} | tojson }}{{ [a, a] }}
---
{% set a = [] %}{% set _ = a.append(a) %}{% set b = [] %}{% set _ = b.append(b) %}{{ a == b }}
---
{% set a = [] %}{% set _ = a.append(a) %}{{ a == a }}{{ a in a }}
---
{% set a = [1, 2] %}{% set b = [1, 2] %}{{ a == b }}{% set _ = a.pop() %}{{ a == b }}{{ a < b }}
---
{% set a = [1] %}{{ a.append(2) or a }}
---
{% set a = [] %}{% if a.append(1) is none %}{{ a }}{% endif %}
---
{% set a = [] %}{% for t in ['x', 'y'] %}{% if t not in a %}{{ a.append(t) or '' }}{% endif %}{% endfor %}{{ a | join(',') }}
---
{% set out = [] %}{% for u in users %}{% set _ = out.append({'n': u.name, 't': u.tags | default([])}) %}{% endfor %}{{ out | tojson }}
---
{% set ns = namespace(m=[]) %}{% for u in users %}{% if ns.m and ns.m[-1].age == u.age %}{% set _ = ns.m[-1].names.append(u.name) %}{% else %}{% set _ = ns.m.append({'age': u.age, 'names': [u.name]}) %}{% endif %}{% endfor %}{{ ns.m }}
---
{% set a = [1, 2, 3] %}{% set x, y = a.pop(), a.pop() %}{{ x }}{{ y }}{{ a }}
---
{% set a = [1] %}{{ [a.append(2), a.append(3), a] }}
---
{% set a = [1] %}{{ a ~ a.append(2) ~ a }}
---
{% set a = [1] %}{% set b %}{{ a.append(2) }}{% endset %}{{ a }}{{ b }}
---
{% set a = (1, 2) %}{{ a.append }}{{ a.append(1) }}
---
{{ 'abc'.append(1) }}
---
{{ range(3).pop() }}
---
{% set a = range(3) | list %}{{ a.pop() }}{{ a }}
---
{% set a = 'a b'.split() %}{% set _ = a.append('c') %}{{ a }}
---
{% set g = users | groupby('age') %}{% set _ = g[0].list.append(1) %}{{ g[0].list | length }}{% set _ = g.append(1) %}{{ g | length }}
---
{% set b = [1, 2, 3] | batch(2) | list %}{% set _ = b[1].append(4) %}{{ b }}
---
{% set a = [1] %}{% with b = a %}{% set _ = b.append(2) %}{% endwith %}{{ a }}
---
{% set a = [[2], [1]] %}{% set b = a | sort %}{% set _ = b[0].append(9) %}{{ a }}
---
{% set a = [1, 2] %}{% set t = (a, 3) %}{% set _ = a.append(4) %}{{ t }}
---
{{ {'pop': 1}.pop('pop') }}{{ {'pop': 1}['pop'] }}{{ {'update': 1}.update is callable }}
""".strip("\n").split("\n---\n")

LISTS, DICTS = ("a", "b", "c"), ("p", "q")


def item(rng):
    return rng.choice(["1", "2", "-3", "'x'", "'yy'", "none", "true", "1.5", "[]", "[0]", "{}", "l", "d",
                       rng.choice(LISTS), rng.choice(DICTS), f"{rng.choice(LISTS)} | length"])


def key(rng):
    return rng.choice(["'x'", "'y'", "'z'", "1", "2", "none", "(1, 'k')"])


def change(rng):
    """An expression that changes something, or that must not."""
    a, b, p = rng.choice(LISTS), rng.choice(LISTS), rng.choice(DICTS)
    return rng.choice([
        f"{a}.append({item(rng)})", f"{a}.append({item(rng)})", f"{a}.insert({rng.randint(-4, 4)}, {item(rng)})",
        f"{a}.pop({rng.choice(['', '0', '-1', '1', '-2'])}) if {a} | length > 1 else 0", f"{a}.reverse()",
        f"{a}.extend({b} if {b} | length < 9 else [])", f"{a}.remove({item(rng)}) if {item(rng)} in {a} else 'no'",
        f"{a}.clear() if {a} | length > 6 else 1", f"{a}.copy()", f"{a}[0].append(7) if {a} and {a}[0] is sequence else 2",
        f"{a}.count({item(rng)})", f"({a} | map('string') | list).sort()",
        f"{p}.update({{{key(rng)}: {item(rng)}}})", f"{p}.pop({key(rng)}, {item(rng)})", f"{p}.setdefault({key(rng)}, {item(rng)})",
        f"{p}.popitem() if {p} else 3", f"{p}.update({rng.choice(DICTS)})", f"{p}.update(x={item(rng)}, w={a})",
        f"{p}.clear() if {p} | length > 4 else 4", f"{p}.get({key(rng)})", f"{p}.values() | list | length",
    ])


def statement(rng, depth=0):
    roll = rng.random()
    a = rng.choice(LISTS)
    if roll < 0.6 or depth > 1:
        return f"{{% set r = {change(rng)} %}}"
    if roll < 0.7:
        return f"{{{{ {change(rng)} }}}};"
    if roll < 0.75:
        return f"{{% set {a} = {rng.choice([rng.choice(LISTS), '[1, [2]]', '[]', rng.choice(LISTS) + ' + [3]', rng.choice(LISTS) + '[1:]', 'l | list'])} %}}"
    if roll < 0.8:
        return f"{{% set {rng.choice(DICTS)} = {rng.choice([rng.choice(DICTS), 'dict(d)', 'dict(' + rng.choice(DICTS) + ', v=1)'])} %}}"
    inner = "".join(statement(rng, depth + 1) for _ in range(rng.randint(1, 3)))
    if roll < 0.9:
        loop = rng.choice([a, f"{a} | reverse", f"{rng.choice(DICTS)}.items()", rng.choice(DICTS), f"{a} if x"])
        return f"{{% for x in {loop} %}}{{% if loop.index > 6 %}}{{% break %}}{{% endif %}}{{{{ loop.last }}}}{inner}{{% endfor %}}"
    return f"{{% if {a} | length is odd %}}{inner}{{% endif %}}"


def programs(rng, n):
    out = []
    for _ in range(n):
        body = "".join(statement(rng) for _ in range(rng.randint(3, 12)))
        out.append("{% set a = [1, 2] %}{% set b = [a, 'x'] %}{% set c = a %}{% set p = {'x': a} %}{% set q = dict(d) %}" + body +
                   "{{ [a, b, c, p, q] }}")
    return out
