// Conversations: branches, what is kept, what a file may bring, and settings. No browser is needed.
import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { test } from 'node:test';
import { addNode, checkChat, fileName, fromJson, LIMITS, messages, newChat, newId, path, siblings, titleOf, toJson, tokensOf, toMarkdown, walk } from '../../web/conversation.js';
import { History, MemoryBackend, merge } from '../../web/history.js';
import { checkStored, fieldsOf, problemOf } from '../../web/settings.js';

const texts = (chat) => path(chat).map((n) => n.content);

function talk(...list) {
  const c = newChat(1000);
  list.forEach((t, i) => addNode(c, c.current, i % 2 ? 'assistant' : 'user', t, 1000 + i));
  return c;
}

test('editing and asking again make branches, and both can be walked', () => {
  const c = talk('one', 'two', 'three', 'four');
  const [one, two] = path(c);
  addNode(c, two.id, 'user', 'three b');
  addNode(c, c.current, 'assistant', 'four b');
  assert.deepEqual(texts(c), ['one', 'two', 'three b', 'four b']);
  assert.equal(siblings(c, path(c)[2]).length, 2);
  assert.ok(walk(c, path(c)[2], -1));
  assert.deepEqual(texts(c), ['one', 'two', 'three', 'four']);
  assert.ok(!walk(c, path(c)[2], -1));
  addNode(c, one.id, 'assistant', 'two b');
  assert.deepEqual(texts(c), ['one', 'two b']);
  assert.ok(walk(c, path(c)[1], -1)); // down to the newest leaf
  assert.deepEqual(texts(c), ['one', 'two', 'three b', 'four b']);
  addNode(c, null, 'user', 'another beginning');
  assert.equal(siblings(c, path(c)[0]).length, 2);
  assert.equal(c.title, 'one');
  assert.deepEqual(messages(c, c.current, 'Be brief.'), [{ role: 'system', content: 'Be brief.' }, { role: 'user', content: 'another beginning' }]);
});

test('titles, tokens, Markdown', () => {
  assert.equal(titleOf('  a\tb \nc'), 'a b');
  assert.equal(titleOf('x'.repeat(100)).length, 60);
  const c = talk('Q?', 'A.');
  c.nodes[1].reasoning = 'why\n\nnot';
  c.nodes[1].tokens = 12;
  assert.equal(tokensOf(c), 12);
  addNode(c, c.current, 'user', 'again');
  assert.equal(tokensOf(c), 12);
  assert.equal(toMarkdown(c), '# Q?\n\n## You\n\nQ?\n\n## Model\n\n> Reasoning:\n>\n> why\n>\n> not\n\nA.\n\n## You\n\nagain\n');
  assert.equal(fileName({ title: '../../etc/passwd <b>' }, 'md'), 'etc-passwd-b.md');
  assert.equal(fileName({ title: '/' }, 'json'), 'conversation.json');
});

test('what was exported is imported as it was', () => {
  const c = talk('Q', 'A', 'Q2', 'A2');
  addNode(c, c.nodes[1].id, 'user', 'Q3');
  Object.assign(c.nodes[1], { note: '3 tokens', tokens: 9, reasoning: 'r' });
  assert.deepEqual(fromJson(toJson([c])), [c]);
});

test('a file from elsewhere is refused by name, or rebuilt of what is known', () => {
  const file = (c) => JSON.stringify({ format: 'sluice.conversations', version: 1, conversations: [c] });
  const n = (id, parent, role, more = {}) => ({ id, parent, role, content: id, ...more });
  const chat = (...nodes) => ({ id: 'x', title: 't', nodes });
  const refused = [
    ['{', /not JSON/], ['[]', /not an export/], ['null', /not an export/], ['{"format":"sluice.conversations","version":2}', /version 2/],
    ['{"format":"sluice.conversations","version":1}', /no list/],
    [JSON.stringify({ format: 'sluice.conversations', version: 1, conversations: Array(LIMITS.chats + 1).fill({}) }), /the most/],
    [file(null), /conversation 1: is not an object/], [file({ id: 'x' }), /no list of nodes/], [file({ nodes: [] }), /no id/],
    [file(chat(n('a', null, 'system'))), /message 1 has a role/], [file(chat(n('a', 'a', 'user'))), /does not come before/],
    [file(chat(n('a', null, 'user'), n('a', 'a', 'assistant'))), /message 2 has no id of its own/],
    [file(chat(n('a', 'b', 'user'), n('b', 'a', 'assistant'))), /does not come before/],
    [file(chat(n('a', null, 'assistant'))), /same role/], [file(chat(n('a', null, 'user'), n('b', 'a', 'user'))), /same role/],
    [file(chat(n('a', null, 'user', { content: { toString: 1 } }))), /no text/], [file(chat(n('a', null, 'user', { reasoning: 1 }))), /reasoning/],
    [file(chat(...Array.from({ length: LIMITS.nodes + 1 }, (_, i) => n(`${i}`, null, 'user')))), /5001 messages/],
    [file(chat(...Array.from({ length: LIMITS.depth + 1 }, (_, i) => n(`${i}`, i ? `${i - 1}` : null, i % 2 ? 'assistant' : 'user')))), /deeper/],
    [' '.repeat(LIMITS.fileBytes + 1), /larger than 32 MiB/],
  ];
  for (const [text, why] of refused) assert.throws(() => fromJson(text), why, text.slice(0, 100));
  const [c] = fromJson(`{"format":"sluice.conversations","version":1,"conversations":[{"id":"x","title":"${'t'.repeat(500)}","updated":9e13,"current":"none","evil":1,"__proto__":{"a":1},
    "nodes":[{"id":"__proto__","parent":null,"role":"user","content":"<b>","onclick":"x","tokens":-1}]}]}`);
  assert.equal(c.title.length, LIMITS.title);
  assert.equal(c.current, '__proto__');
  assert.ok(c.updated <= Date.now());
  assert.deepEqual(Object.keys(c).sort(), ['created', 'current', 'id', 'nodes', 'title', 'updated']);
  assert.deepEqual(Object.keys(c.nodes[0]).sort(), ['content', 'created', 'id', 'parent', 'reasoning', 'role']);
  assert.equal({}.a, undefined);
});

test('keeps conversations, finds them, and drops the oldest with a word', async () => {
  const told = [], backend = new MemoryBackend();
  const h = new History(backend, (t) => told.push(t), { chats: 3, bytes: 1 << 20 });
  const all = ['alpha', 'beta', 'gamma', 'delta'].map((t, i) => { const c = talk(t, `answer to ${t}`); c.updated = i; return c; });
  for (const c of all.slice(0, 3)) await h.save(c);
  assert.deepEqual(told, []);
  await h.save(all[3]);
  assert.deepEqual(h.list().map((c) => c.title), ['delta', 'gamma', 'beta']);
  assert.match(told[0], /^The oldest conversation was dropped/);
  assert.deepEqual(h.search('ANSWER TO G').map((c) => c.title), ['gamma']);
  const again = new History(backend);
  await again.read();
  assert.deepEqual(again.list(), h.list());
  await h.remove(all[3].id);
  assert.equal((await backend.list()).length, 2);
  const big = talk('x'.repeat(530000));
  await h.save(big);
  assert.deepEqual(h.list().map((c) => c.id), [big.id]); // by size, and never the one that is saved
  await h.clear();
  assert.deepEqual(await backend.list(), []);
});

test('a full disk costs old conversations, no storage costs a word, neither the page', async () => {
  const told = [];
  class Full extends MemoryBackend {
    async put(c) {
      if (this.all.size >= 2 && !this.all.has(c.id)) throw Object.assign(new Error('full'), { name: 'QuotaExceededError' });
      return super.put(c);
    }
  }
  const h = new History(new Full(), (t) => told.push(t));
  for (const t of ['a', 'b', 'c']) { const c = talk(t); c.updated = t.charCodeAt(0); await h.save(c); }
  assert.deepEqual(h.list().map((c) => c.title), ['c', 'b']);
  assert.match(told[0], /dropped/);
  class Broken extends MemoryBackend { async put() { throw Object.assign(new Error(), { name: 'InvalidStateError' }); } }
  const broken = new History(new Broken(), (t) => told.push(t));
  await broken.save(talk('d'));
  assert.match(told[1], /could not be saved \(InvalidStateError\)/);
  assert.equal(broken.list().length, 1); // the page has it still
  const none = await History.open((t) => told.push(t), async () => { throw Object.assign(new Error(), { name: 'SecurityError' }); });
  assert.match(told[2], /keeps nothing for this page \(SecurityError\)/);
  await none.save(talk('e'));
  assert.equal(none.list().length, 1);
  assert.equal(none.kept, false);
});

test('what is stored is checked when it is read', async () => {
  const b = new MemoryBackend();
  await b.put({ id: 'bad', nodes: 'x' });
  await b.put(talk('good'));
  const told = [], h = new History(b, (t) => told.push(t));
  await h.read();
  assert.deepEqual(h.list().map((c) => c.title), ['good']);
  assert.match(told[0], /^A conversation that is stored here could not be read/);
});

test('what another tab added to a conversation stays in it', () => {
  const mine = talk('Q', 'A'), other = structuredClone(mine);
  addNode(mine, mine.current, 'user', 'mine');
  addNode(other, other.current, 'user', 'theirs');
  addNode(other, other.current, 'assistant', 'yes');
  const both = checkChat(merge(mine, other));
  assert.deepEqual(both.nodes.map((n) => n.content), ['Q', 'A', 'mine', 'theirs', 'yes']);
  assert.deepEqual(texts(both), ['Q', 'A', 'mine']);
  assert.equal(merge(mine, undefined), mine);
});

test('imports never take the place of what is there', async () => {
  const h = new History(new MemoryBackend());
  const c = talk('mine', 'yes');
  await h.save(c);
  assert.equal(await h.add(fromJson(toJson([c])), newId), 0); // the same: once
  const [other] = fromJson(toJson([c]));
  other.nodes[0].content = 'theirs';
  assert.equal(await h.add([other], newId), 1);
  assert.equal(h.list().length, 2);
  assert.equal(h.get(c.id).nodes[0].content, 'mine');
});

test('settings are checked, and sent as the API has them', () => {
  for (const [name, text] of [['temperature', ''], ['temperature', '0'], ['temperature', ' 1.5 '], ['top_p', '.9'], ['seed', '9007199254740991'], ['max_tokens', '1e3'], ['top_k', '40']])
    assert.equal(problemOf(name, text), '', `${name} ${text}`);
  for (const [name, text, why] of [['temperature', '2.1', /from 0 to 2/], ['temperature', 'x', /a number/], ['top_p', '-0.1', /from 0 to 1/], ['top_k', '1.5', /whole/],
    ['seed', '1e99', /at most/], ['max_tokens', '0', /1 or more/], ['min_p', 'Infinity', /a number/], ['reasoning_budget', '-1', /0 or more/], ['seed', '0x10', /a number/]])
    assert.match(problemOf(name, text), why, `${name} ${text}`);
  assert.deepEqual(fieldsOf({ temperature: '0.5', seed: '', max_tokens: ' 8 ' }), { temperature: 0.5, max_tokens: 8 });
  assert.deepEqual(fieldsOf({ thinking: 'off', reasoning_budget: '0' }), { reasoning_budget: 0, chat_template_kwargs: { enable_thinking: false, thinking: false } });
  assert.deepEqual(fieldsOf({ thinking: 'high' }), { reasoning_effort: 'high' });
  assert.deepEqual(checkStored({ thinking: 'evil', seed: 5, top_k: '3', max: '7', other: 'x' }), { top_k: '3', max_tokens: '7' });
  assert.deepEqual(checkStored(null), {});
});

test('the page stays small', () => {
  const web = new URL('../../web/', import.meta.url);
  const served = /^WEB_FILES := (.*)$/m.exec(readFileSync(new URL('../../mk/web.mk', import.meta.url), 'utf8'))[1].split(' ');
  assert.deepEqual(served.toSorted?.() ?? [...served].sort(), readdirSync(web).filter((f) => f !== 'package.json').sort());
  assert.ok(served.reduce((n, f) => n + readFileSync(new URL(f, web)).length, 0) < 150000);
});
