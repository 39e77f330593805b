// Conversations: branches, what is kept, what a file may bring, and settings. No browser is needed.
import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { test } from 'node:test';
import { addNode, checkChat, fileName, fromJson, LIMITS, messages, newChat, newId, noRoom, path, siblings, titleOf, toJson, tokensOf, toMarkdown, walk } from '../../web/conversation.js';
import { History, MemoryBackend, merge } from '../../web/history.js';
import { Journal, KEEP as JOURNAL } from '../../web/journal.js';
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

test('a conversation has an end', () => {
  const c = talk('one', 'two');
  assert.equal(noRoom(c, c.current, 'x'), '');
  assert.match(noRoom(c, c.current, 'x'.repeat(LIMITS.text + 1)), /at most .* characters/);
  for (let i = 2; i < LIMITS.depth; i++) addNode(c, c.current, i % 2 ? 'assistant' : 'user', 'x');
  assert.match(noRoom(c, c.current, 'x'), /start a new chat/);
  assert.equal(noRoom(c, c.nodes[1].id, 'x'), ''); // an earlier branch has room still
  assert.deepEqual(checkChat(c), c);
  while (c.nodes.length < LIMITS.nodes - 1) addNode(c, null, 'user', 'x');
  assert.match(noRoom(c, null, 'x'), /start a new chat/);
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
    [' '.repeat(LIMITS.fileBytes + 1), /larger than 128 MiB/],
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
  const none = await History.open((t) => told.push(t), undefined, async () => { throw Object.assign(new Error(), { name: 'SecurityError' }); });
  assert.match(told[2], /stores nothing for this page \(SecurityError\)/);
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

test('an answer that was read while it came does not take the place of all of it', () => {
  const part = talk('Q', 'Half an'), whole = structuredClone(part);
  Object.assign(whole.nodes[1], { content: 'Half an answer', tokens: 3 });
  addNode(part, part.current, 'user', 'and?');
  assert.deepEqual(texts(merge(part, whole)), ['Q', 'Half an answer', 'and?']);
  assert.deepEqual(texts(merge(whole, part)), ['Q', 'Half an answer']);
  whole.nodes[1].content = 'Half an';
  assert.equal(merge(part, whole).nodes[1].tokens, 3);
  assert.equal(merge(whole, part).nodes[1].tokens, 3);
});

// ---------------------------------------------------------------- the journal

// What localStorage does, with as many characters.
class Storage {
  constructor(chars = 5 << 20) { Object.assign(this, { all: new Map(), chars }); }
  get length() { return this.all.size; }
  key(i) { return [...this.all.keys()][i] ?? null; }
  getItem(k) { return this.all.get(k) ?? null; }
  removeItem(k) { this.all.delete(k); }
  setItem(k, v) {
    const used = [...this.all].reduce((n, [a, b]) => n + (a === k ? 0 : a.length + b.length), 0);
    if (used + k.length + v.length > this.chars) throw Object.assign(new Error('full'), { name: 'QuotaExceededError' });
    this.all.set(k, v);
  }
}

// A disk on which nothing arrives until it is let through, as if the page ended before.
class Slow extends MemoryBackend {
  constructor() { super(); this.open = new Promise((resolve) => { this.go = resolve; }); }
  async put(c) { await this.open; return super.put(c); }
  async remove(id) { await this.open; return super.remove(id); }
  async clear() { await this.open; return super.clear(); }
}
const page = async (storage, backend, told = []) => {
  const h = new History(backend, (t) => told.push(t), undefined, new Journal(storage));
  await h.read();
  return h;
};
const stored = async (backend) => (await backend.list()).map((c) => texts(c).join('|')).sort();

test('what the disk does not have yet is in the journal at once, and no longer than that', async () => {
  const s = new Storage(), disk = new Slow(), h = await page(s, disk), c = talk('Q', 'A');
  const first = h.save(c);
  assert.equal(s.length, 1);
  assert.match(s.key(0), /^sluice\.unsaved\.[0-9a-z]+\.[0-9a-z]+$/);
  addNode(c, c.current, 'user', 'more');
  const second = h.save(c);
  assert.equal(s.length, 1);
  disk.go();
  await first;
  assert.equal(s.length, 1); // the second is still on its way
  await second;
  assert.equal(s.length, 0);
  assert.deepEqual(await stored(disk), ['Q|A|more']);
});

test('the next page takes back what the last could not bring to the disk', async () => {
  const s = new Storage(), disk = new MemoryBackend(), lost = new Slow();
  const c = talk('Q', 'A'), old = structuredClone(c);
  await disk.put(old);
  lost.all = disk.all; // the same disk, but nothing of the first page arrives
  const one = await page(s, lost);
  addNode(c, c.current, 'user', 'more');
  c.title = 'renamed';
  c.updated = old.updated + 1;
  one.save(c);
  one.save(talk('new'));
  assert.deepEqual(await stored(disk), ['Q|A']);
  const two = await page(s, disk);
  assert.deepEqual(two.list().map((x) => texts(x).join('|')).sort(), ['Q|A|more', 'new']);
  assert.equal(two.get(c.id).title, 'renamed');
  await two.queue;
  assert.deepEqual(await stored(disk), ['Q|A|more', 'new']);
  assert.equal(s.length, 0);
});

test('of two copies the newer one counts, and neither loses a message', async () => {
  const s = new Storage(), disk = new MemoryBackend();
  const mine = talk('Q', 'Half'), other = structuredClone(mine);
  addNode(mine, mine.current, 'user', 'mine', 5000);
  Object.assign(other.nodes[1], { content: 'Half an answer', tokens: 4 });
  addNode(other, other.current, 'user', 'theirs', 6000);
  other.title = 'theirs';
  new Journal(s).put(mine.id, mine);
  await disk.put(other);
  const h = await page(s, disk), c = h.get(mine.id);
  assert.deepEqual([c.title, texts(c), c.nodes.length], ['theirs', ['Q', 'Half an answer', 'theirs'], 4]);
  await h.queue;
  assert.equal((await disk.list())[0].nodes.length, 4);
  // The other way round, and where the two cannot be of one conversation what is stored stays.
  new Journal(s).put(other.id, { ...structuredClone(other), updated: 7000, title: 'newer' });
  assert.equal((await page(s, disk)).get(other.id).title, 'newer');
  const odd = structuredClone(mine);
  odd.nodes[0] = { ...odd.nodes[0], role: 'assistant' };
  odd.nodes = [{ ...odd.nodes[1], role: 'user', parent: null }];
  new Journal(s).put(odd.id, odd);
  const after = await page(s, disk);
  assert.equal(after.get(mine.id).nodes.length, 4);
  await after.queue;
  assert.equal(s.length, 0);
});

test('what has been deleted does not come back, even if the disk has it still', async () => {
  const s = new Storage(), disk = new MemoryBackend(), lost = new Slow(), c = talk('Q', 'A'), kept = talk('kept');
  lost.all = disk.all;
  const one = await page(s, lost), two = await page(s, lost);
  one.save(c);
  two.save(structuredClone(c)); // of another tab
  assert.equal(s.length, 2);
  one.remove(c.id);
  assert.equal(s.length, 1);
  assert.ok(![...s.all.values()].join('').includes('Q')); // the mark has no text
  await disk.put(c);
  await disk.put(kept);
  const three = await page(s, disk);
  assert.deepEqual(three.list().map((x) => x.id), [kept.id]);
  await three.queue;
  assert.deepEqual(await stored(disk), ['kept']);
  assert.equal(s.length, 0);
  // All of them; and what was said, or brought back, after that stays.
  const four = await page(s, lost);
  four.save(talk('a'));
  four.clear();
  const later = talk('later');
  four.save(later);
  assert.equal(s.length, 2);
  await disk.put(c);
  const five = await page(s, disk);
  assert.deepEqual(five.list().map((x) => x.title), ['later']);
  await five.queue;
  assert.deepEqual(await stored(disk), ['later']);
  assert.equal(s.length, 0);
  const six = await page(s, lost);
  six.remove(later.id);
  six.save(later); // undone
  assert.deepEqual((await page(s, disk)).list().map((x) => x.title), ['later']);
});

test('garbage in the journal costs nothing but itself', async () => {
  const s = new Storage(), disk = new MemoryBackend(), good = talk('good'), told = [];
  new Journal(s).put(good.id, good);
  const [key, text] = [s.key(0), s.getItem(s.key(0))];
  const evil = { ...good, nodes: [{ ...good.nodes[0], onclick: 'x', role: 'system' }] };
  const garbage = ['', 'x', '1', '{"at":1}', '12 {', '12 null', '12 []', '-5 {}', '9e9 {}', `1 ${JSON.stringify(evil)}`, `1${'0'.repeat(20)} `, `5 ${JSON.stringify({ ...good, id: 'other' })}`, `5 ${' '.repeat(JOURNAL.chars)}{}`];
  for (const [i, g] of garbage.entries()) { s.chars += g.length + 99; s.setItem(`sluice.unsaved.t${i}.${good.id}`, g); }
  for (const k of ['sluice.unsaved.', 'sluice.unsaved.x', 'sluice.unsaved..']) s.setItem(k, 'x');
  s.setItem('sluice.settings', '{}');
  s.setItem('other', text);
  const h = await page(s, disk, told);
  assert.deepEqual(h.list(), [good]);
  await h.queue;
  assert.deepEqual([...s.all.keys()].sort(), ['other', 'sluice.settings']);
  assert.deepEqual(told, []);
  assert.ok(key.endsWith(good.id));
  // Fields that are not known here do not come back; a time to come is now.
  s.setItem(`sluice.unsaved.t.${good.id}`, `999999999999999 ${JSON.stringify({ ...good, evil: 1, title: 'x'.repeat(500) })}`);
  const [e] = new Journal(s).entries();
  assert.deepEqual(Object.keys(e.chat).sort(), ['created', 'current', 'id', 'nodes', 'title', 'updated']);
  assert.equal(e.chat.title.length, LIMITS.title);
  assert.ok(e.at <= Date.now());
});

test('the journal is bounded, in each entry, in number and in all', async () => {
  const s = new Storage(), j = new Journal(s), big = talk('x'.repeat(JOURNAL.chars));
  j.put(big.id, talk('small'));
  assert.equal(s.length, 1);
  j.put(big.id, big); // it has no entry, and no older one either
  assert.equal(s.length, 0);
  const quotes = talk('"'.repeat(JOURNAL.chars / 2 + 1)); // twice as long as JSON
  j.put(quotes.id, quotes);
  assert.equal(s.length, 0);
  const disk = new MemoryBackend(), h = new History(disk, () => {}, undefined, j);
  await h.save(big); // the disk takes it as before
  assert.equal((await disk.list()).length, 1);
  for (let i = 0; i < 3 * JOURNAL.entries; i++) j.put(`id${i}`, { ...talk('t'), id: `id${i}` });
  assert.equal(s.length, JOURNAL.entries);
  assert.ok(s.getItem(`${j.own}id${3 * JOURNAL.entries - 1}`));
  for (let i = 0; i < 9; i++) j.put(`big${i}`, { ...talk('x'.repeat(900000)), id: `big${i}` });
  assert.deepEqual([...s.all.keys()].map((k) => k.slice(j.own.length)).sort(), ['big6', 'big7', 'big8']);
});

test('where nothing can be kept synchronously the disk goes on as before', async () => {
  const no = () => { throw Object.assign(new Error('no'), { name: 'SecurityError' }); };
  const broken = [null, new Storage(10), { get length() { return no(); }, key: no, getItem: no, setItem: no, removeItem: no },
    { length: 3, key: () => null, getItem: no, setItem: no, removeItem: no }, { length: 2, key: () => 'sluice.unsaved.a.b', getItem: no, setItem: no, removeItem: no }];
  for (const s of broken) {
    const told = [], disk = new MemoryBackend(), h = await page(s, disk, told), c = talk('Q', 'A');
    await h.save(c);
    assert.deepEqual(await stored(disk), ['Q|A']);
    await h.remove(c.id);
    await h.save(c);
    await h.clear();
    assert.deepEqual(await stored(disk), []);
    assert.deepEqual(told, []);
  }
  Object.defineProperty(globalThis, 'localStorage', { configurable: true, get: no });
  try { assert.equal(Journal.open().storage, null); } finally { delete globalThis.localStorage; }
});

test('what the disk refused stays in the journal, and what it took does not', async () => {
  const s = new Storage(), c = talk('Q'), told = [];
  class Broken extends MemoryBackend { async put() { throw Object.assign(new Error(), { name: 'InvalidStateError' }); } }
  await (await page(s, new Broken(), told)).save(c);
  assert.equal(told.length, 1);
  assert.equal(s.length, 1);
  const disk = new MemoryBackend(), h = await page(s, disk);
  await h.queue;
  assert.deepEqual(await stored(disk), ['Q']);
  assert.equal(s.length, 0);
  // A browser without a disk keeps nothing of this page.
  const j = new Journal(s);
  j.put(c.id, c);
  await History.open(() => {}, j, async () => { throw new Error('no'); });
  assert.equal(s.length, 0);
});

test('two tabs with one conversation keep an entry each', async () => {
  const s = new Storage(), disk = new Slow(), c = talk('Q', 'A');
  disk.all.set(c.id, structuredClone(c));
  const one = await page(s, disk), two = await page(s, disk);
  const [a, b] = [one.get(c.id), two.get(c.id)];
  addNode(a, a.current, 'user', 'one', 5000);
  addNode(b, b.current, 'user', 'two', 6000);
  one.save(a);
  two.save(b);
  assert.equal(s.length, 2);
  const next = await page(s, Object.assign(new MemoryBackend(), { all: disk.all }));
  assert.deepEqual(next.get(c.id).nodes.map((n) => n.content).sort(), ['A', 'Q', 'one', 'two']);
  // An entry that its tab has written again in the meantime stays.
  const j = new Journal(s);
  j.put(c.id, c);
  const [e] = j.entries().filter((x) => x.key.startsWith(j.own));
  s.setItem(e.key, `${e.text} `);
  j.taken(e);
  assert.ok(s.getItem(e.key));
  j.taken({ ...e, text: `${e.text} ` });
  assert.equal(s.getItem(e.key), null);
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
  assert.ok(served.reduce((n, f) => n + readFileSync(new URL(f, web)).length, 0) < 155000); // 150,829 with a card for tables that are read by row
});
