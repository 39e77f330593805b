// The dashboard's reader of Markdown, up to the tree that it makes: no browser is needed.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { inline, parse, safeHref } from '../../web/markdown.js';

const blocks = (text) => JSON.parse(JSON.stringify(parse(text), (k, v) => (k === 'raw' ? undefined : v)));
const p = (...c) => ({ t: 'p', c });

test('inline forms', () => {
  const cases = [
    ['plain', ['plain']],
    ['a **b** c', ['a ', { t: 'b', c: ['b'] }, ' c']],
    ['*a* _b_ ~~c~~', [{ t: 'i', c: ['a'] }, ' ', { t: 'i', c: ['b'] }, ' ', { t: 's', c: ['c'] }]],
    ['***both***', [{ t: 'b', c: [{ t: 'i', c: ['both'] }] }]],
    ['**a *b* c**', [{ t: 'b', c: ['a ', { t: 'i', c: ['b'] }, ' c'] }]],
    ['snake_case_name', ['snake_case_name']],
    ['2 * 3 * 4', ['2 * 3 * 4']],
    ['**open', ['**open']],
    ['`a*b*`', [{ t: 'code', text: 'a*b*' }]],
    ['``a ` b``', [{ t: 'code', text: 'a ` b' }]],
    ['`open', ['`open']],
    ['\\*a\\* \\`', ['*a* `']],
    ['a  \nb', ['a', { t: 'br' }, 'b']],
    ['a\\\nb', ['a', { t: 'br' }, 'b']],
    ['a\nb', ['a\nb']],
    ['[a **b**](https://e.org/x)', [{ t: 'a', href: 'https://e.org/x', c: ['a ', { t: 'b', c: ['b'] }] }]],
    ['[a https://f.org](https://e.org/)', [{ t: 'a', href: 'https://e.org/', c: ['a https://f.org'] }]],
    ['[a](https://e.org/a_(b) "title")', [{ t: 'a', href: 'https://e.org/a_(b)', c: ['a'] }]],
    ['see https://e.org/x_y_z.', ['see ', { t: 'a', href: 'https://e.org/x_y_z', c: ['https://e.org/x_y_z'] }, '.']],
    ['(https://e.org)', ['(', { t: 'a', href: 'https://e.org/', c: ['https://e.org'] }, ')']],
    ['<https://e.org/>', [{ t: 'a', href: 'https://e.org/', c: ['https://e.org/'] }]],
    ['![pic](https://e.org/p.png)', [{ t: 'a', href: 'https://e.org/p.png', c: ['pic'] }]],
    ['[a](javascript:x)', ['[a](javascript:x)']],
    ['<b>x</b>', ['<b>x</b>']],
    ['&lt;', ['&lt;']],
  ];
  for (const [text, want] of cases) assert.deepEqual(inline(text), want, text);
});

test('links of brackets in brackets, and addresses that are none', () => {
  const a = (text, href = 'https://e.org/') => ({ t: 'a', href, c: [text] });
  assert.deepEqual(inline('[[a]](https://e.org) ]['), [a('[a]'), ' ][']);
  assert.deepEqual(inline('] [a [b](https://e.org)'), ['] [a ', a('b')]);
  assert.deepEqual(inline('`[` [a](https://e.org)'), [{ t: 'code', text: '[' }, ' ', a('a')]);
  assert.deepEqual(inline('\\[ [a\\]](https://e.org)'), ['[ ', a('a]')]);
  assert.deepEqual(inline('see http://[x and *this*'), ['see http://[x and ', { t: 'i', c: ['this'] }]);
  assert.deepEqual(inline('a\nb  \n` c ` `  ` d\ne'), ['a\nb', { t: 'br' }, { t: 'code', text: 'c' }, ' ', { t: 'code', text: '  ' }, ' d\ne']);
  assert.deepEqual(parse('a|b\n - | :-:\n1|2').map((n) => n.t), ['table']);
  assert.deepEqual(parse('a|b\n-|:').map((n) => n.t), ['p']);
});

test('only addresses that a click may follow', () => {
  for (const ok of ['https://e.org', 'http://127.0.0.1:8080/x', 'mailto:a@e.org']) assert.ok(safeHref(ok), ok);
  for (const bad of ['javascript:x', ' javascript:x', 'JAVASCRIPT:x', 'java\nscript:x', '\u0001javascript:x', 'data:text/html,x', 'vbscript:x',
    'file:///etc/passwd', 'blob:https://e.org/1', '//e.org', '/x', 'x', '', 'about:blank', 'filesystem:x'])
    assert.equal(safeHref(bad), null, JSON.stringify(bad));
});

test('blocks', () => {
  assert.deepEqual(blocks('# A #\n\nb\nc\n\n---\n'), [{ t: 'h', n: 1, c: ['A'] }, p('b\nc'), { t: 'hr' }]);
  assert.deepEqual(blocks('#no heading'), [p('#no heading')]);
  assert.deepEqual(blocks('```js title\na\n\n```\nb'), [{ t: 'pre', lang: 'js', text: 'a\n' }, p('b')]);
  assert.deepEqual(blocks('~~~\n```\n~~~'), [{ t: 'pre', lang: '', text: '```' }]);
  assert.deepEqual(blocks('```\nnever closed'), [{ t: 'pre', lang: '', text: 'never closed' }]);
  assert.deepEqual(blocks('> a\n> > b\nc'), [{ t: 'quote', b: [p('a'), { t: 'quote', b: [p('b\nc')] }] }]);
  assert.deepEqual(blocks('- a\n- b\n  - c\n\nd'), [
    { t: 'ul', start: 1, loose: false, items: [[p('a')], [p('b'), { t: 'ul', start: 1, loose: false, items: [[p('c')]] }]] }, p('d')]);
  assert.deepEqual(blocks('3. a\n4. b')[0].start, 3);
  assert.deepEqual(blocks('- a\n\n- b')[0].loose, true);
  assert.deepEqual(blocks('1. a\n\n   ```\n   x\n   ```\n2. b')[0].items.map((i) => i.map((b) => b.t)), [['p', 'pre'], ['p']]);
  assert.deepEqual(blocks('|a|b|\n|:-:|--:|\n|1|2|3|\n|4|\n\nx'), [
    { t: 'table', align: ['c', 'r'], head: [['a'], ['b']], rows: [[['1'], ['2']], [['4'], []]] }, p('x')]);
  assert.deepEqual(blocks('a | b'), [p('a | b')]);
  assert.deepEqual(blocks('|a\\|b|c|\n|-|-|')[0].head, [['a|b'], ['c']]);
  assert.deepEqual(blocks(''), []);
  assert.deepEqual(blocks('a\r\nb\u0000'), [p('a\nb\ufffd')]);
});

test('top blocks carry their source, all of it that is not blank', () => {
  const text = '# A\n\nb\n\n- c\n- d\n\n```\ne\n';
  assert.deepEqual(parse(text).map((b) => b.raw), ['# A\n', 'b\n', '- c\n- d\n\n', '```\ne\n']);
});

// Every part of an answer is shown while it grows, and none may hang the page.
test('reads any beginning of a text', () => {
  const text = '# A\n\n- **b** `c`\n  1. [d](https://e.org)\n\n| a | b |\n|---|---|\n| *c* | d |\n\n> e\n\n```py\nf\n```\n***g***';
  for (let i = 0; i <= text.length; i++) parse(text.slice(0, i));
});

// Work that grew with the square of the length would take minutes here.
test('takes no more than time in proportion', () => {
  const n = 100000;
  const hard = ['*', '**', '_', '~~', '`', '[', '![', '](', '[](', '<', '<http', 'http', '\\', '*a ', '**a ', '_a_', '*_', '`` ` ', '> ', '- ', '1. ', '#', '# ', ' ',
    '\n', '\n\n', '- a\n', '- a\n\n', '  - a\n', '> a\n', '|', '|-', '|a|\n|-|\n', '```\n', '~~~', '\t', '- \n', '[a](', 'https://e.org/(', '*a*b', '**a*b'];
  const many = (unit) => unit.repeat(Math.ceil(n / unit.length));
  const texts = [...hard.flatMap((u) => [many(u), `# ${many(u)}x`, `- a\n${many(u)}\n  b`]), `\` ${many('x')}\``, `\`${many(' ')}x\``, `a|\n-${many(' ')}x`, `a|\n-${many('|-')}x`,
    many('a\n'), `${many('> ').slice(0, 100)}${many('a\n')}`, `${many('[')}](`, `${many('![')}](`, many('http://[!'), many('a  \n'), `a${many(' ')}b\n`, `- a\n${many('b\n')}`,
    Array.from({ length: 450 }, (_, i) => '`'.repeat(i + 1)).join('x')];
  for (const text of texts) {
    const start = process.cpuUsage().user; // whatever else this machine does
    parse(text);
    assert.ok(process.cpuUsage().user - start < 5e6, JSON.stringify(text.slice(0, 100)));
  }
});
