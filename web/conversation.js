// A conversation is a tree: editing a message or asking for another answer adds a branch beside the
// one that was there. Plain objects, as they are stored and exported:
//   { id, title, created, updated, current, nodes: [{ id, parent, role, content, reasoning, ... }] }
// A node comes after its parent. current is the leaf that is shown, or null.

export const LIMITS = { fileBytes: 128 << 20, chats: 200, nodes: 5000, depth: 2000, text: 4 << 20, title: 120 };
const FORMAT = 'sluice.conversations';

export const newId = () => Array.from(crypto.getRandomValues(new Uint8Array(9)), (b) => b.toString(36).padStart(2, '0')).join('');

export function newChat(now = Date.now()) {
  return { id: newId(), title: '', created: now, updated: now, current: null, nodes: [] };
}

export function titleOf(text) {
  const line = text.trim().split('\n', 1)[0].replace(/\s+/g, ' ').trim();
  return line.length > 60 ? `${line.slice(0, 59).trimEnd()}…` : line;
}

// Adds a message below parent (null: a first one) and shows it.
export function addNode(chat, parent, role, content, now = Date.now()) {
  const node = { id: newId(), parent, role, content, reasoning: '', created: now };
  chat.nodes.push(node);
  chat.current = node.id;
  chat.updated = now;
  if (!chat.title && role === 'user') chat.title = titleOf(content);
  return node;
}

// Why a text cannot be added below parent, as a sentence, or ''. What is beyond these bounds could not be read again.
export function noRoom(chat, parent, text) {
  if (text.length > LIMITS.text) return `A message can have at most ${LIMITS.text} characters; this one has ${text.length}.`;
  if (chat.nodes.length + 2 > LIMITS.nodes || path(chat, parent).length + 2 > LIMITS.depth) return 'This conversation has reached its maximum length: start a new chat.';
  return '';
}

// From the first message to the one that is shown last.
export function path(chat, to = chat.current) {
  const byId = new Map(chat.nodes.map((n) => [n.id, n]));
  const out = [];
  for (let n = byId.get(to); n; n = byId.get(n.parent)) out.push(n);
  return out.reverse();
}

export const siblings = (chat, node) => chat.nodes.filter((n) => n.parent === node.parent);

// Shows the sibling that is `by` places on, down to its newest leaf. False: there is none.
export function walk(chat, node, by) {
  const all = siblings(chat, node), to = all[all.indexOf(node) + by];
  if (!to) return false;
  const newest = new Map(chat.nodes.map((n) => [n.parent, n.id]));
  chat.current = to.id;
  while (newest.has(chat.current)) chat.current = newest.get(chat.current);
  return true;
}

// What the chat endpoint is sent for the branch that ends at node.
export function messages(chat, to, system) {
  const out = path(chat, to).filter((n) => n.content || n.role === 'user').map(({ role, content }) => ({ role, content }));
  if (system) out.unshift({ role: 'system', content: system });
  return out;
}

// The tokens of the branch, as of its last answer that told them.
export function tokensOf(chat) {
  return path(chat).reverse().find((n) => n.tokens)?.tokens ?? 0;
}

// ---------------------------------------------------------------- export

export function toMarkdown(chat) {
  const parts = [`# ${chat.title || 'Conversation'}`];
  for (const n of path(chat)) {
    parts.push(n.role === 'user' ? '## You' : '## Model');
    if (n.reasoning) parts.push(`> Reasoning:\n>\n${n.reasoning.trim().split('\n').map((l) => `> ${l}`.trimEnd()).join('\n')}`);
    parts.push(n.content.trim());
  }
  return `${parts.join('\n\n')}\n`;
}

export function toJson(chats) {
  return `${JSON.stringify({ format: FORMAT, version: 1, conversations: chats }, null, 1)}\n`;
}

export function fileName(chat, ending) {
  const name = (chat.title || 'conversation').toLowerCase().replace(/[^\p{L}\p{N}]+/gu, '-').replace(/^-+|-+$/g, '').slice(0, 50);
  return `${name || 'conversation'}.${ending}`;
}

// ---------------------------------------------------------------- import

const isText = (v, max) => typeof v === 'string' && v.length <= max;
const isTime = (v) => Number.isFinite(v) && v >= 0 && v < 1e14;

// One conversation from elsewhere, rebuilt of what is known here alone. Throws a sentence.
export function checkChat(c, where = 'the conversation') {
  const bad = (what) => { throw new Error(`${where}: ${what}`); };
  if (!c || typeof c !== 'object' || Array.isArray(c)) bad('is not an object');
  if (!isText(c.id, 64) || !c.id) bad('has no id of 1 to 64 characters');
  if (!Array.isArray(c.nodes)) bad('has no list of nodes');
  if (c.nodes.length > LIMITS.nodes) bad(`has ${c.nodes.length} messages; ${LIMITS.nodes} is the most`);
  const seen = new Map();
  const nodes = c.nodes.map((n, i) => {
    const wrong = (what) => bad(`message ${i + 1} ${what}`);
    if (!n || typeof n !== 'object') wrong('is not an object');
    if (!isText(n.id, 64) || !n.id || seen.has(n.id)) wrong('has no id of its own');
    if (n.role !== 'user' && n.role !== 'assistant') wrong('has a role other than user and assistant');
    if (!isText(n.content, LIMITS.text)) wrong(`has no text of at most ${LIMITS.text} characters`);
    if (n.reasoning !== undefined && !isText(n.reasoning, LIMITS.text)) wrong('has reasoning that is no text, or too long');
    const parent = n.parent ?? null;
    if (parent !== null && !seen.has(parent)) wrong('follows a message that does not come before it');
    const above = parent === null ? null : seen.get(parent);
    if ((above?.role ?? 'assistant') === n.role) wrong('has the same role as the message before it');
    const depth = (above?.depth ?? 0) + 1;
    if (depth > LIMITS.depth) wrong(`is deeper than ${LIMITS.depth} messages`);
    seen.set(n.id, { role: n.role, depth });
    const node = { id: n.id, parent, role: n.role, content: n.content, reasoning: n.reasoning ?? '', created: isTime(n.created) ? n.created : 0 };
    if (isText(n.note, 300)) node.note = n.note;
    if (isText(n.problem, 2000)) node.problem = n.problem;
    if (Number.isInteger(n.tokens) && n.tokens > 0 && n.tokens < 1e9) node.tokens = n.tokens;
    return node;
  });
  const current = seen.has(c.current) ? c.current : nodes.at(-1)?.id ?? null;
  const created = isTime(c.created) ? c.created : Date.now();
  return { id: c.id, title: isText(c.title, 10000) ? c.title.trim().slice(0, LIMITS.title) : '', created,
    updated: isTime(c.updated) ? Math.min(c.updated, Date.now()) : created, current, nodes };
}

// The conversations of a file. Throws a sentence that says what is wrong with it.
export function fromJson(text) {
  if (text.length > LIMITS.fileBytes) throw new Error(`the file is larger than ${LIMITS.fileBytes >> 20} MiB`);
  let all;
  try { all = JSON.parse(text); } catch { throw new Error('the file is not JSON'); }
  if (all?.format !== FORMAT) throw new Error(`the file is not an export of this page: its "format" is not "${FORMAT}"`);
  if (all.version !== 1) throw new Error(`the file is of version ${String(all.version).slice(0, 20)}, and this page reads version 1`);
  if (!Array.isArray(all.conversations)) throw new Error('the file has no list of conversations');
  if (all.conversations.length > LIMITS.chats) throw new Error(`the file has ${all.conversations.length} conversations; ${LIMITS.chats} is the most`);
  return all.conversations.map((c, i) => checkChat(c, `conversation ${i + 1}`));
}
