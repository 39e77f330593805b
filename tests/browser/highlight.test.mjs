// Colours of code, up to the tokens: no browser is needed.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { languageOf, tokens } from '../../web/highlight.js';

const shown = (text, name) => tokens(text, name).map(([kind, from, to]) => `${kind}:${text.slice(from, to)}`);

test('colours of each language', () => {
  const cases = [
    ['c', 'int x = 0x1f; // y', ['t:int', 'n:0x1f', 'c:// y']],
    ['c', '#include <a.h>\nreturn f("a\\"b", \'c\');', ['m:#include', 'k:return', 'f:f', 's:"a\\"b"', "s:'c'"]],
    ['c++', 'auto y = 1.5e-3f; /* a\nb */ x', ['k:auto', 'n:1.5e-3f', 'c:/* a\nb */']],
    ['py', '@d\ndef f(a):\n  """x\n"y" """\n  return None # z', ['m:@d', 'k:def', 'f:f', 's:"""x\n"y" """', 'k:return', 'n:None', 'c:# z']],
    ['js', 'const a = /[/"]/g, b = `x\n${y}`; a / b / "c"', ['k:const', 's:/[/"]/g', 's:`x\n${y}`', 's:"c"']],
    ['rust', "fn f<'a>(x: &'a str) -> char { 'x' }", ['k:fn', 't:str', 't:char', "s:'x'"].filter(Boolean)],
    ['bash', 'for i in $A "${b}"; do echo a#b; done # c', ['k:for', 'k:in', 'm:$A', 's:"${b}"', 'k:do', 't:echo', 'k:done', 'c:# c']],
    ['json', '{"a": [1, -2.5, true, "b"]}', ['a:"a"', 'n:1', 'n:2.5', 'n:true', 's:"b"']],
    ['sql', "SELECT a FROM b WHERE c = 'it' -- d", ['k:SELECT', 'k:FROM', 'k:WHERE', "s:'it'", 'c:-- d']],
    ['yaml', 'a: 1 # b\nc-d: "e"', ['a:a', 'n:1', 'c:# b', 'a:c-d', 's:"e"']],
    ['diff', '--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y\n z', ['k:--- a', 'k:+++ b', '@:@@ -1 +1 @@', '-:-x', '+:+y']],
    ['html', '<!-- a --><p class="b">1 < 2</p>', ['c:<!-- a -->', 't:<p', 'a:class', 's:"b"', 't:>', 't:</p', 't:>']],
    ['text', 'if x return', []],
    ['', 'if', []],
  ];
  for (const [name, text, want] of cases) assert.deepEqual(shown(text, name), want, `${name}: ${text}`);
  for (const name of ['constructor', '__proto__', 'toString', 'hasOwnProperty']) assert.equal(languageOf(name), null, name);
  assert.deepEqual(shown('constructor __proto__ toString', 'js'), []);
});

test('what never ends reaches to the end of its line or text', () => {
  assert.deepEqual(shown('x = "ab\ny = 1', 'js'), ['s:"ab', 'n:1']);
  assert.deepEqual(shown('/* a', 'c'), ['c:/* a']);
  assert.deepEqual(shown('"""a', 'python'), ['s:"""a']);
  assert.deepEqual(shown('"a\\', 'c'), ['s:"a\\']);
  assert.deepEqual(shown("'a", 'rust'), []);
});

const LANGUAGES = ['c', 'cpp', 'java', 'js', 'ts', 'go', 'rust', 'cs', 'kotlin', 'swift', 'php', 'css', 'python', 'ruby', 'shell', 'lua', 'sql', 'yaml', 'toml', 'json', 'make', 'diff', 'html'];

test('tokens are in order, within the text, and never empty', () => {
  const text = '#a "b\' /*c*/ $x ${y} $(z) @d 1.2e-3 f(x) <p a="b"> -- [[q]] `r` \\ /s/ 💡é\n+x\n-y\n"""t"""';
  for (const name of LANGUAGES)
    for (let n = 0; n <= text.length; n++) {
      let at = 0;
      for (const [, from, to] of tokens(text.slice(0, n), name)) {
        assert.ok(from >= at && to > from && to <= n, `${name}: ${from} ${to} of ${n}`);
        at = to;
      }
    }
});

// Work that grew with the square of the length would take many minutes here.
test('takes no more than time in proportion', () => {
  const hard = ['"', "'", '`', '/*', '=/[', '=/', '#', '<', '<a "', '<!--', '${', '$(', '"\\', '[[', 'a', '1e+', '.', '\n', "'a"];
  for (const name of ['js', 'rust', 'shell', 'html'])
    for (const unit of hard) {
      const start = performance.now();
      tokens(unit.repeat(Math.ceil((1 << 18) / unit.length)), name);
      assert.ok(performance.now() - start < 60000, `${name} ${JSON.stringify(unit)}`);
    }
  const code = 'for (int i = 0; i < n; i++) { sum += f(x[i], "a"); } // comment\n';
  assert.ok(tokens(code.repeat(Math.ceil((1 << 20) / code.length)), 'c').length > 90000);
});
