"""Small templates, one for each corner of the language that chat templates may lean on. Each is
rendered with VARS by both sides."""

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

EXPRESSIONS = r"""
1 + 2 * 3
(1 + 2) * 3
2 ** 3 ** 2
-2 ** 2
2 ** -1
7 // 2
-7 // 2
7 // -2
7 % 3
-7 % 3
7 % -3
7.5 // 2
-7.5 // 2
-7.5 % 2
7 / 2
6 / 2
1 / 0
1 // 0
1 % 0
1.0 / 0
n / z
1e3
1.5e-3
1_000
0x1f
0b101
0o17
00
1.
1.5.real
big
big + 1
9223372036854775807
-9223372036854775807 - 1
1.0
1e16
1e15
123456789012345678.0
0.1 + 0.2
1e100
1e308 * 10
-0.0
floats
t + 1
t * 3
t / 2
true and 1
1 and 0 or 2
not 1
not not 0
'a' 'b' "c"
'a' + 'b'
'a' ~ 1 ~ none ~ true ~ 1.5 ~ [1]
'a' * 3
3 * 'ab'
'a' * -1
'a' * 0
[1] * 3
(1, 2) * 2
[1] + [2]
(1,) + (2,)
[1] + (2,)
'a' + 1
1 + 'a'
none + 1
[] + ''
{} + {}
'%s' % 1
'%s and %s' % ('a', 'b')
'%d' % 3.99
'%5d|%-5d|%05d|%+d|% d' % (1, 2, 3, 4, 5)
'%x %X %o %#x %#o' % (255, 255, 8, 255, 8)
'%f %.2f %8.3f %e %g' % (1.5, 1.555, 2.0, 12345.678, 0.00001)
'%s' % none
'%r %s' % ('a', 'a')
'%a' % 'é'
'%c%c' % ('a', 98)
'%%'
'%%' % ()
'%(a)s %(b)d' % {'a': 1, 'b': 2}
'%s' % (1, 2)
'%s %s' % 1
'%s' % [1, 2]
'%s' % {'a': 1}
'%d' % 'a'
'%q' % 1
'%' % 1
'%.3s|' % 'abcdef'
'%10s|%-10s|' % ('a', 'b')
'%*d' % (5, 42)
'%.*f' % (2, 3.14159)
'%i%%' % 50
'%5.1f|' % 3.14159
'%.5d' % 42
'%-8.3e|' % 1234.5
'%(x)s' % {'y': 1}
'a' < 'b'
'a' < 'B'
'a' < 1
1 < 2 < 3
1 < 3 < 2
3 > 2 > 1
1 == 1.0
1 == true
'1' == 1
none == none
none == false
[1, 2] == [1, 2]
[1, 2] == (1, 2)
(1, 2) < (1, 3)
[1] < [1, 2]
[1] < ['a']
{'a': 1} == {'a': 1.0}
{} < {}
1 != 2
1 <= 1
2 >= 3
1 < 1.5
big < 9007199254740992.0
big == 9007199254740992.0
'b' in 'abc'
'' in 'abc'
'x' not in 'abc'
1 in [1, 2]
1 in '123'
'a' in d
'z' in d
1 in none
1 in 5
1 in missing
none in [none]
[1] in [[1]]
missing in [1]
missing in 'abc'
[1] in d
1 in (1, 2)
1.0 in [1]
not 1 in [2]
'a' if true else 'b'
'a' if false else 'b'
'a' if false
('a' if false) is undefined
1 if 0 else 2 if 0 else 3
'x' if missing else 'y'
missing
missing.x
missing['x']
missing + 1
missing ~ 'a'
missing == missing
missing == none
missing < 1
missing | length
missing | list
missing | string
missing | default('d')
missing | d
missing | int
missing | upper
missing()
missing.foo()
-missing
not missing
missing is defined
missing is undefined
missing is none
missing is string
missing is iterable
missing is sequence
missing is mapping
missing is number
missing is callable
d.missing
d.missing.x
d['missing']
d.a
d['a']
d.get('a')
d.get('zz')
d.get('zz', 5)
d.get()
d.keys()
d.values()
d.items()
d.keys() | list
d.values() | list
d.items() | list
d.items() | length
d.copy()
d.update({'x': 1})
d.pop('a')
d.clear
d.clear()
d.clear is defined
d | length
d | list
d | string
d | first
d | last
d | join(',')
d | items | list
none | items | list
5 | items | list
5 | items is defined
missing | items | list
d | dictsort
d | dictsort(true)
d | dictsort(false, 'value')
d | dictsort(reverse=true)
d | dictsort(by='value', reverse=true)
d | dictsort(by='zz')
{'b': 1, 1: 2} | dictsort
{3: 'a', 1: 'b'} | dictsort
shadow['items']
shadow['get']
shadow.name
ed.items is defined
ed['items'] is callable
ed['items']['x'] is defined
nested.x.y[0].z
nested['x']['y'][1]['z']
nested.x.y[5]
nested.x.y[5].z
nested.x.y[-1].z
nested.x.y.0.z
nested.x.y | map(attribute='z') | list
nested | string
l[0]
l[-1]
l[5]
l['0']
l[1.0]
l[true]
l[none]
l.0
l[0:2]
l[:2]
l[1:]
l[:]
l[::-1]
l[::2]
l[-2:]
l[:-1]
l[5:]
l[::0]
l['a':]
l[none:none]
l[1:2:1]
l[10:0:-1]
l[0:10:-1]
l[-100:100]
name[0]
name[-1]
name[99]
name[1:3]
name[::-1]
name[::2]
name[3:1:-1]
uni[0:3]
uni[2]
uni[::-1]
uni[-2:]
(1, 2, 3)[1:]
(1, 2, 3)[0]
d[1:2]
5[0]
none.x
none['x']
none.x.y
5.x
true.x
range(5)
range(5) | list
range(1, 5) | list
range(5, 0, -2) | list
range(0)
range(3) | length
range(5)[1]
range(5)[-1]
range(5)[1:3] | list
range(10)[::3] | list
2 in range(5)
range(1000000)
range(1, 2, 0)
range('a')
range(2) == range(0, 2)
range(5) | sum
range(5) | last
range(5) | reverse | list
dict(a=1, b=2)
dict([('a', 1)])
dict({'a': 1}, b=2)
dict(1)
namespace(a=1).a
namespace(a=1).b
namespace({'a': 1}, b=2).b
namespace(a=1)['a']
namespace()
namespace(a=1) is mapping
'a' in namespace(a=1)
{'a': 1, 'a': 2}
{1: 'x', true: 'y'}
{1: 'x', 1.0: 'y'}
{[1]: 2}
{(1, 2): 3}[(1, 2)]
{(1, 2): 3}[1, 2]
{'a': {'b': [1, (2,), ()]}}
{none: 1}[none]
[]
[1, 'a', none, true, 1.5, (1, 2), {'k': 'v'}]
[1, 2,]
()
(1,)
(1)
(1, 2)
1, 2
quotes
quotes | join('|')
mixed
mixed | string
mixed | join('-')
mixed | length
uni | upper
uni | lower
uni | title
uni | capitalize
uni.upper()
uni.lower()
uni.title()
uni.capitalize()
uni.swapcase()
uni | length
uni | list
uni | reverse
[uni]
'ΑΣ' | lower
'ΑΣ.' | lower
'Σ' | lower
'aΣb' | lower
'ﬁ' | upper
'ŉ' | title
'hello world-foo (bar) [baz] <qux> it\'s' | title
'hello WORLD' | capitalize
'hello-world foo_bar it\'s 3rd' .title()
'' | title
'' | capitalize
5 | upper
none | lower
s | trim
s | trim | length
'xxaxx' | trim('x')
'abcba' | trim('ab')
s.strip()
s.lstrip()
s.rstrip()
'xxaxx'.strip('x')
'xxaxx'.lstrip('x')
'xxaxx'.rstrip('x')
'éaé'.strip('é')
'  a b  c '.split()
'  a b  c '.split(none, 1)
'  a b  c '.rsplit(none, 1)
'a,b,c'.split(',')
'a,b,c'.split(',', 1)
'a,b,c'.rsplit(',', 1)
'a,b,c'.rsplit(',')
'a,,b'.split(',')
''.split(',')
''.split()
'abc'.split('')
'a--b--c'.split('--')
'a--b--c'.split('--', maxsplit=1)
'a--b--c'.split(sep='--')
'aaa'.rsplit('aa')
'a b'.split(maxsplit=0)
lines.splitlines()
lines.splitlines(true)
lines.splitlines(keepends=true)
'a\u2028b\x0bc\x1cd\x85e'.splitlines()
'abc'.partition('b')
'abc'.partition('x')
'abcbd'.rpartition('b')
'abc'.rpartition('x')
'abc'.startswith('a')
'abc'.startswith(('x', 'a'))
'abc'.startswith('b', 1)
'abc'.startswith('a', 1)
'abc'.endswith('c')
'abc'.endswith(('x', 'bc'))
'abc'.endswith('b', 0, 2)
'abc'.endswith('')
'abc'.startswith(1)
'abc'.startswith(['a'])
''.startswith('', 1)
'abcabc'.find('c')
'abcabc'.find('c', 3)
'abcabc'.find('x')
'abcabc'.rfind('c')
'abcabc'.rfind('a', 0, 3)
'abcabc'.index('b')
'abcabc'.index('x')
'abcabc'.rindex('b')
'日本語'.find('語')
'abcabc'.count('b')
'aaaa'.count('aa')
'abc'.count('')
'abcabc'.count('a', 1)
'aXbX'.replace('X', '-')
'aXbX'.replace('X', '-', 1)
'abc'.replace('', '-')
'abc'.replace('', '-', 2)
''.replace('', 'x')
'abc'.replace('b')
'aXbX' | replace('X', '-')
'aXbX' | replace('X', '-', 1)
5 | replace(5, 6)
'abc' | replace('b', none)
'-'.join(['a', 'b'])
'-'.join('abc')
'-'.join([1, 2])
''.join([])
'a'.join(d)
'abc'.isdigit()
'123'.isdigit()
''.isdigit()
'²'.isdigit()
'²'.isdecimal()
'½'.isnumeric()
'٣'.isdecimal()
'abc'.isalpha()
'日本'.isalpha()
'a1'.isalnum()
'a 1'.isalnum()
'  '.isspace()
'\u3000'.isspace()
'ABC'.isupper()
'Abc'.isupper()
'abc'.islower()
'A1'.isupper()
'1'.isupper()
'Ab Cd'.istitle()
'Ab cD'.istitle()
'abc'.isidentifier()
'1abc'.isidentifier()
'a\nb'.isprintable()
'é'.isascii()
'abc'.center(9)
'abc'.center(10, '*')
'ab'.center(7, '*')
'abc'.ljust(6) ~ '|'
'abc'.rjust(6)
'abc'.rjust(6, '0')
'42'.zfill(5)
'-42'.zfill(5)
'+4'.zfill(1)
'abc'.removeprefix('a')
'abc'.removesuffix('c')
'abc'.removesuffix('x')
'a\tb'.expandtabs()
'a\tb\n\tc'.expandtabs(4)
'aBc'.swapcase()
'ABC'.casefold()
'abc'.nope
'abc'.nope()
'abc'.__class__
'abc'.__class__.__mro__
''.__class__ is defined
'a{}b{}'.format(1, 'x')
'{0} {1} {0}'.format('a', 'b')
'{a} {b}'.format(a=1, b=2)
'{0.name}'.format(shadow)
'{0[name]}'.format(shadow)
'{0[0]}'.format(l)
'{:5}|{:<5}|{:>5}|{:^5}|'.format(1, 2, 3, 4)
'{:5}|{:<5}|{:>5}|{:^5}|'.format('a', 'b', 'c', 'd')
'{:*^9}'.format('abc')
'{:05d} {:+d} {: d} {:,} {:_}'.format(42, 42, 42, 1234567, 1234567)
'{:x} {:X} {:o} {:b} {:#x} {:#b}'.format(255, 255, 8, 5, 255, 5)
'{:.2f} {:8.3f} {:e} {:g} {:.1%}'.format(1.555, 2.0, 12345.678, 0.0001, 0.256)
'{:.3}'.format('abcdef')
'{:,.2f}'.format(1234567.891)
'{!r} {!s} {!a}'.format('a', 'b', 'é')
'{{}} {}'.format(1)
'{'.format(1)
'}'.format(1)
'{} {}'.format(1)
'{0} {}'.format(1, 2)
'{} {0}'.format(1, 2)
'{x}'.format(y=1)
'{:d}'.format('a')
'{:s}'.format(1)
'{:z}'.format(1)
'{:{}}'.format('a', 5) ~ '|'
'{:{w}.{p}f}'.format(3.14159, w=8, p=2)
'{}'.format(none)
'{}'.format([1, 'a'])
'{:5}'.format(none)
'{:5}'.format(true) ~ '|'
'{:>5}'.format(true)
'{}'.format(1.0)
'{:5}'.format(1.5) ~ '|'
'{:.3}'.format(3.14159)
'{:.0f}'.format(2.5)
'{0.__class__}'.format(1)
'{a.b}'.format(a={'b': 1})
'{a[b]}'.format_map({'a': {'b': 1}})
'{:c}'.format(65)
'{:%}'.format(1)
'{:n}'.format(5)
1.5.is_integer()
2.0.is_integer()
n.bit_length()
l.append(4)
l.append
l.append is defined
l.insert(0, 1)
l.sort()
l.reverse()
l.extend([1])
l.remove(1)
l.index(2)
l.index(9)
l.count(1)
l.copy()
(1, 2, 1).count(1)
(1, 2, 1).index(2)
l | first
e | first
e | last
e | first is defined
l | last
'abc' | first
'abc' | last
l | length
l | count
5 | length
none | length
l | sort
l | sort(reverse=true)
ls | sort
ls | sort(case_sensitive=true)
ls | sort(reverse=true)
mixed | sort
users | sort(attribute='name') | map(attribute='name') | list
users | sort(attribute='age,name') | map(attribute='name') | list
users | sort(attribute='addr.city') | map(attribute='name') | list
users | sort(attribute='age', reverse=true) | map(attribute='name') | list
d | sort
'bca' | sort
ls | unique | list
ls | unique(case_sensitive=true) | list
['a', 'A', 'a'] | unique | list
[1, 1.0, true, '1'] | unique | list
[[1], [1]] | unique | list
users | unique(attribute='age') | map(attribute='name') | list
l | min
l | max
e | min
e | max | default('none')
ls | min
ls | max(case_sensitive=true)
users | max(attribute='age') | attr('name')
mixed | max
l | sum
e | sum
e | sum(start=5)
l | sum(start=10)
['a'] | sum
[[1], [2]] | sum(start=[])
users | sum(attribute='age')
[1.5, 2] | sum
l | reverse | list
'abc' | reverse
d | reverse | list
(x for x in l)
5 | reverse
l | join
l | join(', ')
l | join(',', attribute='x')
users | join(',', attribute='name')
users | map(attribute='name') | join(', ')
users | map(attribute='tags') | list
users | map(attribute='tags.0') | list
users | map(attribute='zip', default='none') | list
users | map(attribute='addr.city') | map('upper') | list
ls | map('upper') | join
l | map('string') | list
l | map('nope') | list
l | map | list
l | map(attribute='x', foo=1) | list
l | map('default', 1) | list
['1', 'x'] | map('int', 7) | list
l | select('odd') | list
l | select('gt', 1) | list
l | select | list
mixed | select | list
mixed | select('string') | list
mixed | reject('string') | list
l | reject('odd') | list
l | select('divisibleby', 3) | list
l | select('nope') | list
ls | select('in', ['a', 'b']) | list
ls | reject('equalto', 'a') | list
users | selectattr('age', 'equalto', 30) | map(attribute='name') | list
users | selectattr('tags') | map(attribute='name') | list
users | selectattr('tags', 'defined') | map(attribute='name') | list
users | rejectattr('tags', 'defined') | map(attribute='name') | list
users | rejectattr('age', 'lt', 30) | map(attribute='name') | list
users | selectattr('addr.city', 'eq', 'Rome') | map(attribute='name') | first
users | selectattr | list
users | selectattr('x', 'nope') | list
none | select | list
5 | select | list
l | select('odd') | length
l | select('odd') is iterable
l | select('odd') is sequence
l | select('odd') | first
l | select('odd') | last
l | batch(2) | list
l | batch(2, 'x') | list
l | slice(2) | list
l | slice(2, 'x') | list
range(10) | slice(3) | list
l | slice(0) | list
users | groupby('age') | map('first') | list
users | groupby('addr.city') | map('first') | list
users | groupby('addr.city', case_sensitive=true) | map('first') | list
users | groupby('zip', default='x') | map(attribute='grouper') | list
(users | groupby('age'))[0].list | length
users | groupby('age') | map('last') | map('length') | list
'5' | int
'5.7' | int
'x' | int
'x' | int(3)
'x' | int(default=4)
'0x1f' | int(0, 16)
'0x1f' | int(base=16)
'1f' | int(0, 16)
'0b11' | int(0, 2)
'0x1f' | int(0, 0)
' 42 ' | int
'1_000' | int
'-7' | int
'+7' | int
'٣' | int
'inf' | int
'nan' | int
'1e3' | int
none | int
[] | int
5.9 | int
-5.9 | int
true | int
'1.5' | float
'x' | float
'x' | float(2.5)
'x' | float('d')
none | float
5 | float
'inf' | float
'-inf' | float
'nan' | float
'1e400' | float
' 1.5 ' | float
'1_0.5' | float
'0x10' | float
-5 | abs
-5.5 | abs
'x' | abs
2.5 | round
3.5 | round
-2.5 | round
2.675 | round(2)
42.55 | round(1, 'floor')
42.55 | round(1, 'ceil')
42 | round
45 | round(-1)
1234.5 | round(-2)
42.5 | round(0, 'nope')
'x' | round
2.5 | round | int
1e20 | round
7 | round(1, 'floor')
7.3 | round(method='ceil')
html | e
html | escape
html | safe
html | forceescape
html | e | e
html | safe | e
html | e | forceescape
(html | e) ~ '<'
(html | safe) + '<'
'<' + (html | safe)
(html | e) is escaped
(html | safe) | upper
(html | safe) is string
html | striptags
'<p>a &amp; b</p>\n  <!-- c --> d' | striptags
text | truncate(10)
text | truncate(10, true)
text | truncate(10, true, '…')
text | truncate(10, false, '', 0)
text | truncate(50)
text | truncate(2)
text | center(30) ~ '|'
text | wordcount
'a-b c_d é' | wordcount
text | indent
lines | indent
lines | indent(2, true)
lines | indent(2, blank=true)
lines | indent('> ', first=true)
lines | indent(width=1)
5 | indent
'' | indent
'a\n' | indent
'%s-%s' | format(1, 2)
'%(a)s' | format(a=1)
'%s' | format(1, a=2)
text | urlencode
'a/b?c=d&é' | urlencode
{'a b': 'c&d', 'x': 1} | urlencode
[('a', 1)] | urlencode
{'class': 'x', 'id': none, 'a': '<'} | xmlattr
1000 | filesizeformat
1 | filesizeformat
123456789 | filesizeformat
123456789 | filesizeformat(true)
500 | filesizeformat
5 | string
none | string
[1, 'a'] | string
'abc' | list
d | tojson
mixed | tojson
quotes | tojson
uni | tojson
uni | tojson(ensure_ascii=true)
'\x00\x01\x1f\x7f\u2028' | tojson
'🎉' | tojson(ensure_ascii=true)
floats | tojson
'nan' | float | tojson
'inf' | float | tojson
nested | tojson(indent=2)
mixed | tojson(indent=4)
{} | tojson(indent=2)
[] | tojson(indent=2)
{'a': [], 'b': {}} | tojson(indent=1)
d | tojson(indent='--')
d | tojson(indent=0)
d | tojson(indent=none)
d | tojson(true)
d | tojson(separators=(',', ':'))
d | tojson(indent=2, separators=(', ', ' = '))
d | tojson(sort_keys=true)
{1: 2, none: 3, true: 4, 1.5: 5} | tojson
{(1, 2): 3} | tojson
missing | tojson
[missing] | tojson
range(3) | tojson
(1, 2) | tojson
d.items() | tojson
d.items() | list | tojson
(html | safe) | tojson
1 | tojson(foo=1)
d | nope
d is nope
d is string
'a' is string
5 is number
5 is integer
5.0 is integer
5.0 is float
true is number
true is integer
true is boolean
5 is boolean
true is true
1 is true
false is false
0 is false
none is none
[] is iterable
'a' is iterable
5 is iterable
d is iterable
l is sequence
d is sequence
'a' is sequence
5 is sequence
range(3) is sequence
d is mapping
l is mapping
l is not mapping
5 is odd
5 is even
4 is not odd
'a' is odd
5.0 is odd
9 is divisibleby 3
9 is divisibleby(4)
9 is divisibleby 0
9 is divisibleby(num=3)
'abc' is lower
'ABC' is upper
'Abc' is lower
5 is lower
5 is eq 5
5 is equalto 5
5 is ne 4
5 is lt 6
5 is le 5
5 is gt 4
5 is ge 6
5 is greaterthan 4
5 is lessthan 4
5 is == 5
5 is sameas 5
none is sameas none
l is sameas l
1 is in [1, 2]
'a' is in 'abc'
1 is not in [1]
1 is in(d)
'upper' is filter
'nope' is filter
'odd' is test
range is callable
'a'.upper is callable
5 is callable
'a' is defined is true
x is defined and y is defined
missing is defined or true
not missing is defined
l is defined | string
1 is number and 2 is number
5 is odd if true else 1
'a' is string ~ 'b'
- 5 | abs
-5 | abs + 1
1 + 2 | string
(1 + 2) | string ~ 'x'
'a' ~ 'b' | upper
'a' + 'b' | upper
[1, 2] | join(',') | upper
n.real
n.imag
f.real
t.real
raise_exception('boom')
raise_exception()
strftime_now('%Y-%m-%d %H:%M:%S')
strftime_now('%d %b %Y, %A %j %U %%')
strftime_now('%B %-d, %e|%f|%z|%Z|%p %I')
strftime_now(5)
strftime_now('')
strftime_now('é%Yé')
cycler is undefined or true
self is defined or true
loop is defined
caller is defined
'\n\t\\\'\"'
"\x41\u00e9\U0001F600\101"
'\q\é'
'a\
b'
'\x4'
'\u12'
'é' == '\u00e9'
'日本' ~ '語'
1 if
(1
1)
[1
{'a'}
{'a': }
1 +
'abc
"abc
@
1 ! 2
a b
1 2
l[
l.
l.'a'
foo(1, a=2, 3)
foo(*l, *l)
foo(**d, **d)
foo(a=1, a=2)
dict(**{'a': 1})
dict(a=1, **{'b': 2})
dict(a=1, **{'a': 2})
dict(**5)
range(*[1, 4]) | list
'{}{}'.format(*l)
'{}{}'.format(*5)
'{a}'.format(**{'a': 1})
l | join(d=', ')
l | join(', ', d=', ')
l | join(sep=', ')
l | join(1, 2, 3, 4)
'a' | upper(1)
'a' | default
name | default('x', true)
empty | default('x', true)
empty | default('x', boolean=true)
empty | default('x')
none | default('x')
none | default('x', true)
l | attr('count') is callable
d | attr('a')
d | attr('a') is undefined
name | attr('upper')()
users[0]['name']
users[0].tags[1]
users[0].tags[1][0]
users[-1].addr.city
users[1:] | map(attribute='name') | list
users | length > 2
users | length is gt 2
not users
users and 'yes'
e or 'empty'
'' or none or 0 or 'last'
0 or missing
1 and missing
(missing or 1) + 1
n.x
n['x']
f[0]
range(3).start
range(3).stop
1 if l else 2
true.real
True
False
None
TRUE is defined
[true, false, none, True, False, None]
{'a': 1}.a
{'a': 1}['a']
[1, 2][0]
'abc'[1]
'abc'.upper()[0]
'abc'.split('b')[1]
(1, 2)[1]
'a' 'b'.upper()
5 .real
1.5e3
1E3
.5
1e
0x
1__0
1_
0_0
01
9223372036854775807 // -1
-7 / 2
2 ** 62
2 ** 0.5
(-8) ** 2
0 ** 0
0 ** -1
2.0 ** 3
4 ** 0.5
1.5 * 2
3 - 5.5
-neg
+neg
+'a'
-'a'
- - 5
5 - -5
not true == false
not (1 == 2) and 3
1 == 2 or 3 == 3
1 < 2 == true
(1 < 2) == true
1 in [1] == true
'a' < 'b' < 'c'
[1, [2, [3]]] == [1, [2, [3]]]
[1, 2] in [[1, 2]]
'x' in ['x'] and 'y' not in ['x']
"it's" ~ 'a "q"'
["it's", 'a "q"', 'both \' "']
[''] ~ ''
['\x00\x7f\xa0\u3000\U000e0001']
'a' ~ missing ~ 'b'
'a' ~ (1, 2)
[1.0, 1e20, 1e-7]
(range(3) | map('string') | list).0
[[1, 2], [3]] | map('sum') | list
[[1, 2], [3]] | map('join', '-') | list
['a b', 'c'] | map('replace', ' ', '_') | list
[1, 2, 3, 4] | select('even') | map('string') | join('+')
[{'a': {'b': 1}}] | map(attribute='a.b') | list
[[1, 'x'], [2, 'y']] | map(attribute=1) | list
[[1, 'x'], [2, 'y']] | map(attribute='1') | list
d | map('upper') | list
'abc' | map('upper') | list
"{{ x }}"
'{% raw %}'
'a' is in ['a'] and 'b'
5 is divisibleby(5) and not 5 is even
users | selectattr('name', 'in', ['bob', 'carol']) | map(attribute='name') | join(' & ')
users | map(attribute='name') | map('length') | sum
users | map(attribute='name') | sort | first
users | tojson | length
"a,b;c".replace(';', ',').split(',') | last
''.join(['a']) ~ 1
name.lower().startswith('w') and name | length == 5
""".strip("\n").split("\n")

# Jinja2 folds these while compiling and then writes Python that does not know the names inf and nan.
NOT_FOLDED = {"1e308 * 10", "'inf' | float", "'-inf' | float", "'nan' | float", "'1e400' | float"}

# Where Jinja2 goes beyond what a bounded interpreter gives, an error is right: these must fail, and
# the program must live.
REFUSED = r"""
99999999999999999999
9223372036854775807 + 1
-9223372036854775807 - 2
9223372036854775807 * 2
10 ** 19
2 ** 63
2 ** 9223372036854775807
'9223372036854775808' | int
(-1) ** 0.5
1e300 | int
'x' * 9223372036854775807
'x' * 4000000000
[0] * 1000000000
(1, 2) * 9223372036854775807
'%9999999999d' % 1
'%*d' % (99999999, 1)
'{:9999999999}'.format(1)
'%.99999f' % 1.5
'a'.center(99999999999)
'a'.ljust(9223372036854775807)
'a'.zfill(9223372036854775807)
'ab'.replace('', 'x' * 100000000).replace('', 'y' * 1000)
range(9223372036854775807)
range(-9223372036854775807, 9223372036854775807)
'\ud800'
'\N{BULLET}'
l.pop(0)
l.clear()
'a'.encode()
'a b' | wordwrap
'http://a' | urlize
l | random
l | pprint
lipsum()
(((l | batch(1, 2)) | list) * 1000000000)
l | slice(99999999999) | list
l | batch(99999999999, 'x') | list
""".strip("\n").split("\n")

# Statements; separated by lines of '---'.
STATEMENTS = r"""
{% for x in l %}{{ x }},{% endfor %}
---
{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }};{% endfor %}
---
{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }};{% endfor %}
---
{% for x in l %}{{ loop.previtem is defined }}{{ loop.nextitem.foo is defined }}{% endfor %}
---
{% for x in l %}{{ loop.cycle('a', 'b') }}{% endfor %}
---
{% for x in l %}{{ loop.cycle() }}{% endfor %}
---
{% for x in [1, 1, 2, 2, 1] %}{{ loop.changed(x) }},{% endfor %}
---
{% for x in l %}{{ loop.depth }}{{ loop.depth0 }}{% endfor %}
---
{% for x in e %}a{% else %}empty{% endfor %}
---
{% for x in missing %}a{% else %}none{% endfor %}
---
{% for x in none %}a{% endfor %}
---
{% for x in 5 %}a{% endfor %}
---
{% for x in d %}{{ x }}{% endfor %}|{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}|{% for k, v in d | items %}{{ k }}{{ v }}{% endfor %}
---
{% for c in "añ日🎉" %}[{{ c }}]{% endfor %}
---
{% for a, b in [(1, 2), [3, 4], 'xy'] %}{{ a }}-{{ b }};{% endfor %}
---
{% for a, b in [(1, 2, 3)] %}{{ a }}{% endfor %}
---
{% for a, b in [(1,)] %}{{ a }}{% endfor %}
---
{% for a, b in [1] %}{{ a }}{% endfor %}
---
{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}
---
{% for x in l if x > 1 %}{{ x }}{{ loop.index }}{{ loop.last }}{{ loop.length }};{% endfor %}
---
{% for x in l if x > 5 %}{{ x }}{% else %}none{% endfor %}
---
{% for x in l if loop.index %}{{ x }}{% endfor %}
---
{% for x in l %}{% for y in l if y > x %}{{ x }}{{ y }} {% endfor %}{% endfor %}
---
{% for x in l %}{% for y in l if y == loop.index %}{{ x }}{{ y }} {% endfor %}{% endfor %}
---
{% for x in l %}{% for y in l %}{{ loop.index }}{% endfor %}{{ loop.index }};{% endfor %}
---
{% for x in l %}{% set outer = loop %}{% for y in l %}{{ outer.index }}{{ loop.index }} {% endfor %}{% endfor %}
---
{% for x in [1, [2, [3]]] recursive %}{% if x is iterable %}({{ loop(x) }}){% else %}{{ x }}@{{ loop.depth }}{% endif %}{% endfor %}
---
{% for u in [{'n': 1, 'c': [{'n': 2, 'c': []}]}] recursive %}<{{ u.n }}{{ loop(u.c) }}>{% else %}leaf{% endfor %}
---
{% for x in l %}{{ loop([1]) }}{% endfor %}
---
{% for x in l recursive %}{{ x }}{% if x == 3 %}{{ loop([9, 8]) }}{% endif %}{% endfor %}
---
{% for x in range(10) %}{% if x == 3 %}{% break %}{% endif %}{{ x }}{% endfor %}
---
{% for x in range(10) %}{% if x % 2 %}{% continue %}{% endif %}{{ x }}{% endfor %}
---
{% for x in [1] %}{% break %}{% else %}else{% endfor %}
---
{% for x in [1, 2] %}{% continue %}{% else %}else{% endfor %}
---
{% for x in [1, 2] %}{% if x == 2 %}{% break %}{% endif %}{% else %}else{% endfor %}
---
{% break %}
---
{% for x in l %}{% for y in e %}{% else %}{% break %}{% endfor %}{{ x }}{% endfor %}
---
{% for x in l %}{% set q %}{{ x }}{% break %}{% endset %}{% endfor %}done
---
{% for x in l %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}
---
{% for x in l recursive %}{{ x }}{% break %}{% endfor %}
---
{% for loop in l %}{{ loop }}{% endfor %}
---
{% set x = 1 %}{% for i in l %}{% set x = i %}{{ x }}{% endfor %}{{ x }}
---
{% set x = 1 %}{% for i in l %}{{ x }}{% set x = x + i %}{{ x }};{% endfor %}{{ x }}
---
{% for i in l %}{% if loop.first %}{% set y = 7 %}{% endif %}{{ y }},{% endfor %}{{ y }}
---
{% for i in l %}{{ name }}{% set name = i %}{{ name }};{% endfor %}{{ name }}
---
{% set name = 'x' %}{{ name }}
---
{{ name }}{% set name = 'x' %}{{ name }}
---
{% for i in [1] %}{{ n }}{% endfor %}{% set n = 2 %}{{ n }}
---
{% if true %}{% set v = 1 %}{% endif %}{{ v }}
---
{% if false %}{% set n = 1 %}{% endif %}{{ n }}
---
{% if false %}{% set v = 1 %}{% endif %}{{ v is defined }}
---
{% if false %}{% set n = 1 %}{% elif true %}{% set m = n %}{% else %}{% set n = 3 %}{% endif %}{{ n }}{{ m }}
---
{% if n == 5 %}{% set n = n + 1 %}{% else %}{% set n = 0 %}{% endif %}{{ n }}
---
{% if false %}a{% elif n == 5 %}b{% else %}c{% endif %}
---
{% if missing %}a{% elif missing.x %}b{% endif %}
---
{% set a, b = 1, 2 %}{{ a }}{{ b }}
---
{% set a, b = [1] %}
---
{% set (a, b) = (b, a) %}{{ a is defined }}
---
{% set a = 1, 2 %}{{ a }}
---
{% set a = b = 1 %}
---
{% set a %}text {{ n }}{% endset %}{{ a }}|{{ a | length }}
---
{% set a | upper %}text {{ n }}{% endset %}{{ a }}
---
{% set a | replace('t', 'T') | trim %} text {% endset %}[{{ a }}]
---
{% set a %}{% set b = 1 %}{{ b }}{% endset %}{{ a }}{{ b is defined }}
---
{% set ns = namespace(x=0) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}
---
{% set ns = namespace() %}{% set ns.a = 1 %}{{ ns.a }}{{ ns.b }}{{ ns }}
---
{% set d.x = 1 %}
---
{% set q.x = 1 %}
---
{% set ns = namespace(a=[]) %}{% set ns.a = ns.a + [1] %}{% set ns.a = ns.a + [2] %}{{ ns.a }}
---
{% set ns = namespace(s='') %}{% for i in range(5) %}{% set old = ns.s %}{% set ns.s = ns.s + i | string %}{{ old }}/{{ ns.s }} {% endfor %}
---
{% set a = 'x' %}{% set b = a + 'y' %}{% set c = a + 'z' %}{% set e2 = b + '1' %}{% set f2 = b + '2' %}{{ a }}{{ b }}{{ c }}{{ e2 }}{{ f2 }}
---
{% set _ = l.append(1) %}
---
{% macro m(a, b=2, c=none) %}{{ a }}-{{ b }}-{{ c }}{% endmacro %}{{ m(1) }}|{{ m(1, 3) }}|{{ m(1, c=4) }}|{{ m(b=1, a=2) }}|{{ m() }}
---
{% macro m(a) %}{{ a is defined }}{{ a }}{% endmacro %}{{ m() }}{{ m(1) }}
---
{% macro m(a) %}{{ a.x }}{% endmacro %}{{ m() }}
---
{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}
---
{% macro m(a) %}{% endmacro %}{{ m(b=2) }}
---
{% macro m(a, a) %}{% endmacro %}
---
{% macro m(a=1, b) %}{% endmacro %}
---
{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}
---
{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs | dictsort }}{% endmacro %}{{ m(1, 2, y=3, x=4) }}
---
{% macro m(a, b=a) %}{{ b }}{% endmacro %}{{ m(5) }}
---
{% macro m(a=b, b=1) %}{{ a is defined }}{% endmacro %}{{ m() }}
---
{% macro m(n) %}{{ n }}{% if n > 0 %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(5) }}
---
{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}
---
{% macro a() %}A{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}
---
{% macro m() %}{{ x }}{% endmacro %}{% set x = 1 %}{{ m() }}{% set x = 2 %}{{ m() }}
---
{% set x = 1 %}{% macro m() %}{{ x }}{% set x = 2 %}{{ x }}{% endmacro %}{{ m() }}{{ x }}
---
{% macro m() %}{{ i }}{% endmacro %}{% for i in l %}{{ m() }}{% endfor %}
---
{% for i in l %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}
---
{% macro m() %}{{ name }}{% endmacro %}{{ m() }}
---
{% macro m() %}[{{ caller() }}]{% endmacro %}{% call m() %}body {{ n }}{% endcall %}
---
{% macro m(x) %}[{{ caller(x, 2) }}]{% endmacro %}{% call(a, b) m(1) %}{{ a }}{{ b }}{% endcall %}
---
{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}
---
{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}
---
{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}
---
{% macro m(caller=none) %}{{ caller() if caller else 'none' }}{% endmacro %}{{ m() }}{% call m() %}y{% endcall %}
---
{% macro m(caller) %}{{ caller() }}{% endmacro %}
---
{% call n %}{% endcall %}
---
{% call raise_exception() %}x{% endcall %}
---
{% macro m() %}{% call k() %}i{{ caller() }}{% endcall %}{% endmacro %}{% macro k() %}({{ caller() }}){% endmacro %}{% call m() %}o{% endcall %}
---
{% macro m(a, b=1) %}{{ varargs }}{% endmacro %}{{ m.name }}{{ m.arguments }}{{ m.catch_kwargs }}{{ m.catch_varargs }}{{ m.caller }}{{ m }}
---
{% macro _m() %}x{% endmacro %}{{ _m() }}{{ m | default('y') }}
---
{% macro outer() %}{% macro inner() %}I{% endmacro %}{{ inner() }}{% endmacro %}{{ outer() }}
---
{% macro m() %}
  a
  {%- if true %} b {% endif %}
{% endmacro %}[{{ m() }}]
---
{% macro m(x) -%} {{ x }} {%- endmacro %}[{{ m('a') | upper }}][{{ m('b') ~ 'c' }}][{{ m('x') == 'x' }}][{{ m('') | length }}]
---
{% macro m() %}{% set ns.x = ns.x + 1 %}{% endmacro %}{% set ns = namespace(x=0) %}{{ m() }}{{ m() }}{{ ns.x }}
---
{% with %}{% set x = 1 %}{{ x }}{% endwith %}{{ x is defined }}
---
{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}
---
{% with a = n, n = 3 %}{{ a }}{{ n }}{% endwith %}{{ n }}
---
{% with a = 1, b = a %}{{ b }}{% endwith %}
---
{% filter upper %}abc {{ name }}{% endfilter %}
---
{% filter replace('a', 'b') | upper %}aab{% endfilter %}
---
{% filter indent(2) %}a
b
{% endfilter %}|
---
{% filter nope %}a{% endfilter %}
---
{% autoescape false %}<{{ html }}>{% endautoescape %}
---
{% generation %}a{{ n }}{% set q = 1 %}{% endgeneration %}{{ q is defined }}
---
{% for i in l %}{% generation %}{{ i }}{{ loop.index }}{% endgeneration %}{% endfor %}
---
{% block b %}in {{ name }}{% endblock %}
---
{% set x = 1 %}{% block b %}{{ x }}{% endblock b %}{% set x = 2 %}
---
{% for i in l %}{% block b %}{{ i }}{% endblock %}{% endfor %}
---
{% block b required %}{% endblock %}
---
{% include 'x' %}
---
{% if false %}{% include 'x' %}{% import 'y' as z %}{% from 'a' import b %}{% endif %}ok
---
{% import 'x' as y %}
---
{% from 'x' import y %}
---
{% extends 'x' %}
---
{% do 1 %}
---
{% nope %}
---
{% if true %}a
---
{% if true %}a{% endfor %}
---
{% endif %}
---
{% else %}
---
{% for x in l %}a{% endif %}
---
{% for x l %}{% endfor %}
---
{% for 1 in l %}{% endfor %}
---
{% for x in %}{% endfor %}
---
{% set 1 = 2 %}
---
{% set true = 2 %}
---
{% set x %}
---
{% set x = %}
---
{% if %}a{% endif %}
---
{% %}
---
{{ }}
---
{{ x
---
{% if x
---
{# x
---
{% raw %}x
---
{{ 1 }
---
{% print 1, 'a', n %}
---
{% raw %}{{ x }}{% if %}{% endraw %}|
---
{%- raw -%}  {{ x }}  {%- endraw -%}  |
---
  {% raw %}
 x {% endraw %}
|
---
a {#- comment -#} b
---
a {# comment #}
b
---
   {# comment #}
b
---
  {#- comment #}
b {#+ c +#}
c
---
a
  {% if true %}
b
  {% endif %}
c
---
a
  {%- if true -%}
b
  {%- endif -%}
c
---
a
  {%+ if true %}
b
  {%+ endif +%}
c
---
a {% if true %} b {% endif %} c
---
	{% if true %}	x
{% endif %}
---
{{ n }}
{{- n -}}
{{ n }}
---
  {{ n }}
  {{ n }}

---
x {{ n -}}   
  y
---
{{ 'a' -}} b {{- 'c' }}
---
{{ {'a': {'b': 1}} }}
---
{{ {'a': 1}}}
---
{{ {'a': {'b': 1}}['a']['b']}}
---
{% if n %}{{ n }}{% endif %}{{'}}'}}{{ "%}" }}
---
{{ '{%' }}{{ '{{' }}{{ "#}" }}
---
a{{ n }}b{% if n %}c{% endif %}

---
{% if true %}

a

{% endif %}

b
---
{%if true%}a{%endif%}
---
{%-if true-%} a {%-endif-%}
---
{% if true: %}a{% endif %}
---
{% for x in l: %}{{ x }}{% endfor %}
---
{% if n is defined and n is not none and n | int > 3 %}y{% endif %}
---
{%- for m in users -%}
    {{- '<' + m.name + '>' }}
    {%- if not loop.last %}, {% endif -%}
{%- endfor -%}
---
{%- set content = users[0].name -%}
{%- if content is string -%}{{ content }}{%- endif -%}
---
{% for k in d if k != 'a' %}{{ k }}{% endfor %}
---
{% set x = l | map('string') %}{{ x | join }}{{ x | join }}
---
{% set it = users | selectattr('age', 'eq', 30) %}{% for u in it %}{{ u.name }}{{ loop.last }}{% endfor %}{{ it | list }}
---
{% for u in users | selectattr('age', 'eq', 30) %}{{ loop.length }}{{ loop.revindex }}{% endfor %}
---
{% for g in users | groupby('age') %}{{ g.grouper }}:{{ g.list | map(attribute='name') | join(',') }};{{ g[0] }}{% endfor %}
---
{% for a, list in users | groupby('age') %}{{ a }}:{{ list | length }};{% endfor %}
---
{% set ns = namespace(go=true) %}{% for x in l if ns.go %}{{ x }}{% set ns.go = false %}{% endfor %}
---
{% for x in l %}{{ loop }}{% endfor %}
---
{% for x in l %}{{ loop.nope }}{{ loop['index'] }}{% endfor %}
---
{% for x in [l, l] %}{% for y in x %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}
---
{% for i in range(3) %}{% for j in range(i) %}{{ i }}{{ j }} {% else %}none {% endfor %}{% endfor %}
---
{% if l is not string and l is iterable %}list{% endif %}
---
{{ range(3) | map('string') | join(',') }}{{ 'a' if l | length > 2 else 'b' }}
---
{% if x is nope %}{% endif %}ok
---
{% if false %}{{ x | nope }}{% endif %}ok
---
{% if true %}{{ x | nope }}{% endif %}ok
---
{{ (x | nope) if false else 'ok' }}
---
{% if false %}{% for i in l %}{{ i | nope }}{% endfor %}{% endif %}ok
---
{% if false %}{% set a = x | nope %}{% endif %}ok
---
{% macro m() %}{% if false %}{{ x | nope }}{% endif %}{% endmacro %}ok
---
{% macro m() %}{{ x | nope }}{% endmacro %}ok
---
{% set loop = 5 %}{{ loop }}
---
{% set range = 5 %}{{ range }}
---
{{ range is callable }}{% if false %}{% set range = 5 %}{% endif %}
---
{% if namespace is defined %}{{ namespace(a=1).a }}{% endif %}
---
{% set messages = users[1:] %}{% for m in messages %}{{ m.name }}{% endfor %}
---
{% for m in users %}{% set m = m.addr %}{{ m.city }}{% endfor %}
---
{% for m in users %}{% if m.addr is defined %}{% set m = m.addr %}{% endif %}{{ m.city }}{% endfor %}
---
{% for m in users %}{% if m.zip is defined %}{% set m = m.zip %}{% endif %}{{ m.name }}{% endfor %}
---
{% set x = 'a' %}{% if n %}{% set x = x + 'b' %}{% if n %}{% set x = x + 'c' %}{% endif %}{% endif %}{{ x }}
---
{% if n %}{% for i in l %}{% set x = i %}{% endfor %}{% endif %}{{ x is defined }}
---
{% macro m() %}{% for i in l %}{% if i == 2 %}{{ i }}{% endif %}{% endfor %}{% endmacro %}{{ m() }}
---
{% set x %}{% for i in l %}{{ i }}{% endfor %}{% endset %}{% set y %}{{ x }}{{ x }}{% endset %}{{ y }}
---
line one\n
{{ "line\ntwo" }}
{{ 'tab\t' }}end

""".strip("\n").split("\n---\n")


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
