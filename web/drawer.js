// The list of conversations: a drawer with search, names, export, import and deletion.

import { currentChat, journal, leaveChat, openChat, useHistory } from './chat.js';
import { fileName, fromJson, LIMITS, newId, toJson, toMarkdown } from './conversation.js';
import { History } from './history.js';
import { button, download, labelled, make, notice } from './ui.js';

const $ = (id) => document.getElementById(id);
const drawer = $('drawer'), list = $('chats'), search = $('chat-search'), said = $('drawer-said');
const SHOWN = 200;
let history = null;

function say(text, ...actions) {
  said.replaceChildren(...(text ? [make('span', '', text), ...actions] : []));
}

const day = (t) => new Date(t).toLocaleDateString(undefined, { day: 'numeric', month: 'short', year: new Date(t).getFullYear() === new Date().getFullYear() ? undefined : 'numeric' });
const nameOf = (c) => c.title || 'Untitled';

// To a conversation's row, or where there is none any more.
const focusRow = (id) => (list.querySelector(`[data-id="${CSS.escape(id)}"] .open`) ?? list.querySelector('.open') ?? search).focus();

function rename(c, li) {
  const back = () => { show(); focusRow(c.id); };
  const form = make('form', 'rename'), box = make('input'), ok = make('button', 'quiet', 'Save');
  box.value = nameOf(c);
  box.maxLength = LIMITS.title;
  ok.type = 'submit';
  form.append(labelled(box, 'Name of the conversation'), ok, button('Cancel', back, { className: 'quiet' }));
  form.addEventListener('submit', async (e) => {
    e.preventDefault();
    c.title = box.value.trim() || c.title;
    await history.save(c);
    back();
  });
  box.addEventListener('keydown', (e) => { if (e.key === 'Escape') { e.preventDefault(); e.stopPropagation(); back(); } });
  li.replaceChildren(form);
  box.select();
}

async function remove(c) {
  const own = c === currentChat();
  const done = history.remove(c.id);
  if (own) leaveChat();
  await done;
  show();
  say(`Deleted “${nameOf(c)}”.`, button('Undo', async () => { await history.save(c); say(''); show(); focusRow(c.id); }, { className: 'link' }));
  focusRow(c.id);
}

function row(c) {
  const li = make('li'), open = button('', () => { openChat(c); drawer.close(); $('prompt').focus(); }, { className: 'open' });
  const tools = make('div', 'tools'), name = nameOf(c), tool = (text, run) => button(text, run, { label: `${text}: ${name}` });
  li.dataset.id = c.id;
  open.append(make('span', 'name', name), make('span', 'dim small', day(c.updated)));
  if (c === currentChat()) open.setAttribute('aria-current', 'true');
  tools.append(tool('Rename', () => rename(c, li)),
    tool('Markdown', () => download(fileName(c, 'md'), 'text/markdown', toMarkdown(c))),
    tool('JSON', () => download(fileName(c, 'json'), 'application/json', toJson([c]))),
    tool('Delete', () => remove(c)));
  li.append(open, tools);
  return li;
}

function show() {
  const all = history.list(), found = history.search(search.value);
  list.replaceChildren(...found.slice(0, SHOWN).map(row));
  $('chats-none').hidden = found.length > 0;
  $('chats-none').textContent = all.length ? 'No conversation contains these words.' : 'Conversations are kept in this browser only.';
  for (const id of ['export-all', 'delete-all']) $(id).disabled = !all.length;
}

async function bring(file) {
  try {
    if (file.size > LIMITS.fileBytes) throw new Error(`the file is larger than ${LIMITS.fileBytes >> 20} MiB`);
    const n = await history.add(fromJson(await file.text()), newId);
    show();
    say(n ? `Imported ${n} ${n === 1 ? 'conversation' : 'conversations'}.` : 'All conversations in the file are already here.');
  } catch (e) {
    say(`Not imported: ${e.message}.`);
  }
}

export async function startDrawer() {
  history = await History.open(notice, journal);
  useHistory(history);
  $('history-open').disabled = false;
  $('history-open').addEventListener('click', () => { say(''); search.value = ''; show(); drawer.showModal(); });
  $('drawer-close').addEventListener('click', () => drawer.close());
  drawer.addEventListener('click', (e) => { if (e.target === drawer) drawer.close(); }); // beside it
  search.addEventListener('input', show);
  $('export-all').addEventListener('click', () => download('conversations.json', 'application/json', toJson(history.list())));
  $('import').addEventListener('click', () => $('import-file').click());
  $('import-file').addEventListener('change', async (e) => {
    const [file] = e.target.files;
    if (file) await bring(file);
    e.target.value = '';
  });
  $('delete-all').addEventListener('click', () => {
    const n = history.list().length;
    const yes = button(`Delete ${n === 1 ? 'the conversation' : `all ${n}`}`, async () => { leaveChat(); await history.clear(); show(); say('All conversations are deleted.'); search.focus(); }, { className: 'link' });
    say('This cannot be undone.', yes, button('Keep them', () => { say(''); $('delete-all').focus(); }, { className: 'link' }));
    yes.focus();
  });
}
