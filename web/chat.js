// The conversation: what was said, the answer that comes, and what can go wrong with it.

import { stream, ApiError } from './api.js';
import { render } from './markdown.js';

const $ = (id) => document.getElementById(id);
const log = $('log'), hello = $('hello'), input = $('prompt'), send = $('send');

const turns = []; // { role, content, reasoning }
let running = null; // AbortController of the answer that comes

const make = (name, className, text) => {
  const e = document.createElement(name);
  if (className) e.className = className;
  if (text !== undefined) e.textContent = text;
  return e;
};

// ---------------------------------------------------------------- settings

const SETTINGS = 'sluice.settings';
const fields = { system: $('set-system'), temperature: $('set-temperature'), max: $('set-max') };

function loadSettings() {
  let saved = {};
  try { saved = JSON.parse(localStorage.getItem(SETTINGS)) || {}; } catch { /* none, or none that can be read */ }
  for (const [name, field] of Object.entries(fields)) {
    field.value = typeof saved[name] === 'string' ? saved[name] : '';
    field.addEventListener('change', () => {
      const all = Object.fromEntries(Object.entries(fields).map(([n, f]) => [n, f.value]));
      try { localStorage.setItem(SETTINGS, JSON.stringify(all)); } catch { /* for this page only, then */ }
    });
  }
}

function body() {
  const messages = turns.filter((t) => t.content || t.role === 'user').map(({ role, content }) => ({ role, content }));
  const system = fields.system.value.trim();
  if (system) messages.unshift({ role: 'system', content: system });
  const b = { messages, stream: true, stream_options: { include_usage: true } };
  if (fields.temperature.value !== '' && fields.temperature.checkValidity()) b.temperature = Number(fields.temperature.value);
  if (fields.max.value !== '' && fields.max.checkValidity()) b.max_tokens = Number(fields.max.value);
  return b;
}

// ---------------------------------------------------------------- what is shown

const nearEnd = () => log.scrollHeight - log.scrollTop - log.clientHeight < 60;
const toEnd = () => { log.scrollTop = log.scrollHeight; };

function showUser(text) {
  hello.hidden = true;
  const e = make('div', 'turn user', text);
  e.prepend(make('span', 'hidden', 'You: '));
  log.append(e);
}

// An answer on the screen: draws at most once a frame.
class Answer {
  constructor() {
    this.text = '';
    this.reasoning = '';
    this.element = make('div', 'turn assistant busy');
    this.element.setAttribute('aria-busy', 'true');
    this.element.append(make('span', 'hidden', 'The model: '));
    this.bodyElement = make('div', 'body');
    this.waiting = make('p', 'waiting', 'Waiting…');
    this.bodyElement.append(this.waiting);
    this.foot = make('div', 'foot');
    this.element.append(this.bodyElement, this.foot);
    log.append(this.element);
    this.drawing = 0;
  }

  wait(text) { if (this.waiting) this.waiting.textContent = text; }

  add(kind, text) {
    if (!text) return;
    this[kind] += text;
    if (!this.drawing) this.drawing = requestAnimationFrame(() => this.draw());
  }

  showReasoning() {
    if (!this.details) {
      this.details = make('details', 'reasoning');
      this.details.append(make('summary', '', 'Reasoning'), make('div', 'thoughts'));
      this.element.insertBefore(this.details, this.bodyElement);
    }
    this.details.lastChild.textContent = this.reasoning;
  }

  draw() {
    cancelAnimationFrame(this.drawing);
    this.drawing = 0;
    const follow = nearEnd();
    if (this.reasoning) this.showReasoning();
    if (this.text) {
      if (this.waiting) this.bodyElement.replaceChildren();
      this.waiting = null;
      render(this.bodyElement, this.text);
    } else if (this.reasoning) {
      this.wait('Thinking…');
    }
    if (follow) toEnd();
  }

  live(text) { this.foot.textContent = text; }

  end(note, problem, actions) {
    const follow = nearEnd();
    this.draw();
    if (this.waiting) this.waiting.remove();
    this.waiting = null;
    this.element.classList.remove('busy');
    this.element.removeAttribute('aria-busy');
    if (problem) this.element.insertBefore(make('p', 'problem', problem), this.foot);
    this.foot.replaceChildren(...(note ? [make('span', 'note', note)] : []));
    for (const [name, run] of actions) {
      const b = make('button', '', name);
      b.type = 'button';
      b.addEventListener('click', () => run(b));
      this.foot.append(b);
    }
    if (follow) toEnd();
  }
}

const number = (v, digits = 1) => v.toLocaleString('en', { maximumFractionDigits: digits });
const seconds = (ms) => (ms < 995 ? `${Math.round(ms)} ms` : `${number(ms / 1000)} s`);

function noteOf(s) {
  const parts = [];
  const n = s.usage?.completion_tokens ?? s.timings?.predicted_n;
  if (n !== undefined) parts.push(`${n} ${n === 1 ? 'token' : 'tokens'}`);
  const rate = s.timings?.predicted_per_second;
  if (rate > 0 && n > 1) parts.push(`${number(rate)} tokens/s`);
  if (s.firstMs) parts.push(`first after ${seconds(s.firstMs)}`);
  if (s.timings?.expert_misses > 0 || s.timings?.expert_late > 0) parts.push(`${Math.round(100 * s.timings.expert_hit_share)} % of experts were there`);
  if (s.reason === 'length') parts.push('cut at the most tokens');
  if (s.stopped) parts.push('stopped');
  return parts.join(' · ');
}

// ---------------------------------------------------------------- asking

function setRunning(controller) {
  running = controller;
  send.textContent = controller ? 'Stop' : 'Send';
  send.classList.toggle('stop', !!controller);
  $('new-chat').disabled = false;
}

async function copyText(text, button) {
  try { await navigator.clipboard.writeText(text); button.textContent = 'Copied'; } catch { button.textContent = 'Not allowed'; }
  setTimeout(() => { button.textContent = 'Copy'; }, 1500);
}

async function answer() {
  const controller = new AbortController();
  setRunning(controller);
  for (const b of log.querySelectorAll('.retry')) b.remove();
  const a = new Answer();
  const s = { chunks: 0 };
  const start = performance.now();
  toEnd();
  let problem = '';
  try {
    await stream('v1/chat/completions', body(), {
      signal: controller.signal,
      onComment(text) {
        const m = /^prompt (\d+)\/(\d+)$/.exec(text);
        if (m) a.wait(`Reading the prompt: ${m[1]} of ${m[2]} tokens`);
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
      },
    });
  } catch (e) {
    if (e.name === 'AbortError') s.stopped = true;
    else if (e instanceof ApiError) problem = e.status ? `${e.message} (${e.status})` : e.message;
    else problem = `this page failed: ${e.message}`;
  }
  const discarded = controller.signal.reason === 'new';
  if (running === controller) setRunning(null);
  if (discarded) return;
  const turn = { role: 'assistant', content: a.text, reasoning: a.reasoning };
  turns.push(turn);
  const actions = [];
  if (a.text) actions.push(['Copy', (b) => copyText(a.text, b)]);
  actions.push([problem ? 'Try again' : 'Another answer', () => {
    if (running || turns[turns.length - 1] !== turn) return;
    turns.pop();
    a.element.remove();
    answer();
    input.focus();
  }]);
  a.end(noteOf(s), problem, actions);
  a.foot.lastChild.classList.add('retry');
  $('announce').textContent = problem ? `No answer: ${problem}` : (a.text.slice(0, 4000) || 'The answer is empty.');
}

function ask(text) {
  if (running || !text.trim()) return;
  turns.push({ role: 'user', content: text });
  showUser(text);
  answer();
}

const grow = () => {
  input.style.height = 'auto';
  input.style.height = `${input.scrollHeight + 2}px`;
};

export function stop() { if (running) running.abort(); }

export function startChat() {
  loadSettings();
  $('compose').addEventListener('submit', (e) => {
    e.preventDefault();
    if (running) { stop(); return; }
    const text = input.value;
    if (!text.trim()) { input.focus(); return; }
    input.value = '';
    grow();
    ask(text);
  });
  $('settings').addEventListener('submit', (e) => e.preventDefault());
  input.addEventListener('input', grow);
  input.addEventListener('keydown', (e) => {
    if (e.key === 'Enter' && !e.shiftKey && !e.isComposing) {
      e.preventDefault();
      if (!running) $('compose').requestSubmit();
    }
  });
  document.addEventListener('keydown', (e) => { if (e.key === 'Escape' && !document.querySelector('dialog[open]')) stop(); });
  $('settings-toggle').addEventListener('click', (e) => {
    const form = $('settings');
    form.hidden = !form.hidden;
    e.currentTarget.setAttribute('aria-expanded', String(!form.hidden));
    if (!form.hidden) fields.system.focus();
  });
  $('new-chat').addEventListener('click', () => {
    if (running) { running.abort('new'); setRunning(null); }
    turns.length = 0;
    log.replaceChildren(hello);
    hello.hidden = false;
    $('announce').textContent = '';
    input.focus();
  });
  for (const text of ['What is 17 + 25?', 'Tell me a short story.', 'Sort these numbers: 8, 3, 5.']) {
    const b = make('button', '', text);
    b.type = 'button';
    b.addEventListener('click', () => { ask(text); input.focus(); });
    $('examples').append(b);
  }
}
