// The conversation: what was said, the answer that comes, and what can go wrong with it.

import { Answer, noteOf, toEnd } from './answer.js';
import { stream, ApiError } from './api.js';
import { addNode, LIMITS, messages, newChat, noRoom, path, siblings, tokensOf, walk } from './conversation.js';
import { contextTokens, show as showContext } from './gauge.js';
import { Journal } from './journal.js';
import { settings, startSettings } from './settings.js';
import { button, copyText, labelled, make, notice, number } from './ui.js';

const $ = (id) => document.getElementById(id);
const log = $('log'), hello = $('hello'), input = $('prompt'), send = $('send');
const OPEN = 'sluice.open'; // the conversation of this tab

let chat = newChat();
let history = null; // null until it is open
let running = null; // AbortController of the answer that comes
let leave = () => {}; // keeps what has come of it

export const journal = Journal.open();
export const currentChat = () => chat;

function remember() {
  try { sessionStorage.setItem(OPEN, chat.nodes.length ? chat.id : ''); } catch { /* a reload forgets it, then */ }
}

function store(c) {
  c.updated = Date.now();
  if (history) history.save(c); else journal.put(c.id, c);
}

function save() {
  remember();
  store(chat);
}

// ---------------------------------------------------------------- what is shown

// Arrows between a message and those beside it.
function branches(node) {
  const all = siblings(chat, node);
  if (all.length < 2) return [];
  const at = all.indexOf(node), box = make('span', 'branches');
  const go = (by) => {
    if (running || !walk(chat, node, by)) return;
    save();
    draw(node.parent);
    const arrows = log.querySelectorAll('.branches');
    const mine = [...arrows].find((e) => e.dataset.parent === String(node.parent));
    const both = [...mine?.querySelectorAll('button') ?? []], there = both.at(by < 0 ? 0 : -1);
    (there?.hasAttribute('aria-disabled') ? both.at(by < 0 ? -1 : 0) : there)?.focus(); // at the end only the way back is left
  };
  box.dataset.parent = String(node.parent);
  box.setAttribute('role', 'group');
  box.setAttribute('aria-label', `Version ${at + 1} of ${all.length}`);
  const arrow = (text, by, label) => {
    const b = button(text, () => go(by), { label });
    if (!all[at + by]) b.setAttribute('aria-disabled', 'true');
    return b;
  };
  box.append(arrow('‹', -1, 'Earlier version'), make('span', '', `${at + 1}/${all.length}`), arrow('›', 1, 'Later version'));
  return [box];
}

// Of a key that ends the input of a composed character some browsers say only 229.
const isEnter = (e) => e.key === 'Enter' && !e.shiftKey && !e.isComposing && e.keyCode !== 229;

function full(parent, text) {
  const why = noRoom(chat, parent, text);
  if (why) notice(why);
  return !!why;
}

function edit(node, element) {
  if (running) return;
  const form = make('form', 'edit'), box = make('textarea'), ok = make('button', 'main', 'Send');
  box.value = node.content;
  box.rows = Math.min(12, node.content.split('\n').length + 1);
  ok.type = 'submit';
  const close = () => { form.replaceWith(element); element.querySelector('.edit-open')?.focus(); };
  form.append(labelled(box, 'Edit the message'), make('p', 'hint', 'The answer to the old text is kept: the arrows lead back to it.'), button('Cancel', close, { className: 'quiet' }), ok);
  form.addEventListener('submit', (e) => {
    e.preventDefault();
    if (running || !box.value.trim() || full(node.parent, box.value) || !settings()) return;
    addNode(chat, node.parent, 'user', box.value);
    save();
    draw();
    answer();
    input.focus();
  });
  box.addEventListener('keydown', (e) => {
    if (e.key === 'Escape' && !e.isComposing) { e.stopPropagation(); close(); }
    if (isEnter(e)) { e.preventDefault(); form.requestSubmit(); }
  });
  element.replaceWith(form);
  box.focus();
}

function showUser(node) {
  const box = make('div', 'mine'), e = make('div', 'turn user', node.content), foot = make('div', 'foot');
  e.prepend(make('span', 'hidden', 'You: '));
  foot.append(...branches(node), button('Edit', () => edit(node, box), { className: 'edit-open' }), button('Copy', (b) => copyText(node.content, b)));
  box.append(e, foot);
  log.append(box);
}

function finish(a, node) {
  const parts = branches(node);
  if (node.content) parts.push(button('Copy', (b) => copyText(node.content, b)));
  parts.push(button(node.problem ? 'Try again' : 'Another answer', () => {
    if (running || full(node.parent, '') || !settings()) return;
    chat.current = node.parent;
    draw();
    answer();
    input.focus();
  }, { className: 'retry' }));
  a.end(node.note ?? '', node.problem ?? '', parts);
}

function draw(keep) {
  const top = log.scrollTop;
  const nodes = path(chat);
  log.replaceChildren(hello);
  hello.hidden = nodes.length > 0;
  for (const node of nodes) {
    if (node.role === 'user') { showUser(node); continue; }
    const a = new Answer();
    Object.assign(a, { text: node.content, reasoning: node.reasoning });
    log.append(a.element);
    finish(a, node);
  }
  showContext(tokensOf(chat));
  if (keep === undefined) toEnd(); else log.scrollTop = top;
}

// ---------------------------------------------------------------- asking

function setRunning(controller) {
  running = controller;
  send.textContent = controller ? 'Stop' : 'Send';
  send.classList.toggle('stop', !!controller);
  log.classList.toggle('running', !!controller);
}

// Answers the last message of the branch that is shown.
async function answer() {
  const given = settings();
  if (!given) return;
  const controller = new AbortController(), mine = chat, parent = chat.current;
  setRunning(controller);
  const a = new Answer();
  const s = { chunks: 0, prompt: 0 };
  const start = performance.now();
  a.start();
  log.append(a.element);
  toEnd();
  let problem = '', node = null, saved = start;
  // What came is a part of the conversation at once, so that leaving loses nothing of it.
  const keep = () => {
    node ??= addNode(mine, parent, 'assistant', '');
    Object.assign(node, { content: a.text.slice(0, LIMITS.text), reasoning: a.reasoning.slice(0, LIMITS.text) });
  };
  const keepPart = () => {
    keep();
    node.note = 'the page was closed before the end';
    store(mine);
  };
  leave = keepPart;
  try {
    await stream('v1/chat/completions', { messages: messages(mine, parent, given.system), stream: true, stream_options: { include_usage: true }, ...given.fields }, {
      signal: controller.signal,
      onComment(text) {
        const m = /^prompt (\d+)\/(\d+)$/.exec(text);
        if (!m) return;
        s.prompt = Number(m[2]);
        a.wait(`Reading the prompt: ${m[1]} of ${m[2]} tokens`);
      },
      onData(d) {
        if (d.usage) s.usage = d.usage;
        if (d.timings) s.timings = d.timings;
        const c = d.choices?.[0];
        if (!c) return;
        if (c.finish_reason) s.reason = c.finish_reason;
        const { content, reasoning_content: reasoning } = c.delta || {};
        if (!content && !reasoning) return;
        const now = performance.now();
        if (!s.firstMs) s.firstMs = now - start;
        s.chunks++;
        const passed = now - start - s.firstMs;
        if (passed > 500) a.live(`about ${number((s.chunks - 1) * 1000 / passed)} tokens/s`);
        a.add('reasoning', reasoning);
        a.add('text', content);
        if (Math.max(a.text.length, a.reasoning.length) > LIMITS.text) throw new ApiError(0, `the answer is longer than this page keeps: ${LIMITS.text} characters`);
        if (s.prompt && chat === mine) showContext(s.prompt + s.chunks);
        if (now - saved > 5000) { saved = now; keepPart(); }
      },
    });
  } catch (e) {
    if (e.name === 'AbortError') s.stopped = true;
    else if (e instanceof ApiError) problem = e.status ? `${e.message} (${e.status})` : e.message;
    else problem = `this page failed: ${e.message}`;
  }
  const gone = controller.signal.reason === 'gone'; // deleted while it came
  if (running === controller) setRunning(null);
  if (leave === keepPart) leave = () => {};
  if (gone) return;
  keep();
  node.note = noteOf(s, contextTokens());
  if (problem) node.problem = problem.slice(0, 2000);
  if (s.usage?.total_tokens > 0) node.tokens = Math.round(s.usage.total_tokens);
  store(mine);
  if (mine !== chat) return;
  showContext(tokensOf(chat));
  finish(a, node);
  $('announce').textContent = problem ? `No answer: ${problem}` : (a.text.slice(0, 4000) || 'The answer is empty.');
}

function ask(text) {
  if (running || !text.trim() || full(chat.current, text) || !settings()) return false;
  hello.hidden = true;
  showUser(addNode(chat, chat.current, 'user', text));
  save();
  answer();
  return true;
}

// ---------------------------------------------------------------- which conversation

// Shows another one: an answer that comes is stopped, and kept as far as it came.
export function openChat(other) {
  if (other === chat) return;
  if (running) { running.abort(); setRunning(null); }
  chat = other ?? newChat();
  remember();
  $('announce').textContent = '';
  draw();
}

// Leaves a conversation that has been deleted.
export function leaveChat() {
  leave = () => {};
  if (running) { running.abort('gone'); setRunning(null); }
  openChat(null);
}

export function useHistory(h) {
  history = h;
  let id = '';
  try { id = sessionStorage.getItem(OPEN) ?? ''; } catch { /* a new one, then */ }
  if (!chat.nodes.length && h.get(id)) openChat(h.get(id));
  else if (chat.nodes.length) save();
}

const grow = () => {
  input.style.height = 'auto';
  input.style.height = `${input.scrollHeight + 2}px`;
};

export function stop() { if (running) running.abort(); }

const EXAMPLES = ['Tell me a short story.', 'Explain in three sentences why the sky is blue.', 'Write a Python function that reverses a string.', 'What is 17 + 25?'];

export function startChat() {
  startSettings();
  $('compose').addEventListener('submit', (e) => {
    e.preventDefault();
    if (running) { stop(); return; }
    const text = input.value;
    if (!text.trim()) { input.focus(); return; }
    if (!ask(text)) return; // a setting is wrong: nothing typed is lost
    input.value = '';
    grow();
  });
  input.addEventListener('input', grow);
  input.addEventListener('keydown', (e) => {
    if (isEnter(e)) {
      e.preventDefault();
      if (!running) $('compose').requestSubmit();
    }
  });
  document.addEventListener('keydown', (e) => { if (e.key === 'Escape' && !e.isComposing && !document.querySelector('dialog[open]')) stop(); });
  // Some systems end a page that is hidden without another word.
  window.addEventListener('pagehide', () => leave());
  document.addEventListener('visibilitychange', () => { if (document.hidden) leave(); });
  $('new-chat').addEventListener('click', () => { openChat(null); notice(''); input.focus(); });
  for (const text of EXAMPLES) $('examples').append(button(text, () => { ask(text); input.focus(); }));
}
