// One answer on the screen: it is drawn at most once a frame, and a long one so seldom that drawing
// takes a fifth of the time at most.

import { render } from './markdown.js';
import { make, number } from './ui.js';

const log = document.getElementById('log');
export const nearEnd = () => log.scrollHeight - log.scrollTop - log.clientHeight < 60;
export const toEnd = () => { log.scrollTop = log.scrollHeight; };

export class Answer {
  constructor() {
    this.text = '';
    this.reasoning = '';
    this.element = make('div', 'turn assistant');
    this.element.append(make('span', 'hidden', 'The model: '));
    this.bodyElement = make('div', 'body');
    this.foot = make('div', 'foot');
    this.element.append(this.bodyElement, this.foot);
    this.drawing = 0;
    this.timer = 0;
    this.notBefore = 0;
  }

  start() {
    this.element.classList.add('busy');
    this.element.setAttribute('aria-busy', 'true');
    this.waiting = make('p', 'waiting', 'Waiting…');
    this.bodyElement.append(this.waiting);
  }

  wait(text) { if (this.waiting) this.waiting.textContent = text; }

  add(kind, text) {
    if (!text) return;
    this[kind] += text;
    if (this.drawing || this.timer) return;
    const frame = () => { this.timer = 0; this.drawing = requestAnimationFrame(() => this.draw()); };
    const left = this.notBefore - performance.now();
    if (left > 16) this.timer = setTimeout(frame, left); else frame();
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
    clearTimeout(this.timer);
    this.drawing = this.timer = 0;
    const start = performance.now(), follow = nearEnd();
    if (this.reasoning) this.showReasoning();
    if (this.text) {
      if (this.waiting) this.bodyElement.replaceChildren();
      this.waiting = null;
      render(this.bodyElement, this.text);
    } else if (this.reasoning) {
      this.wait('Thinking…');
    }
    if (follow) toEnd();
    this.notBefore = performance.now() + 4 * (performance.now() - start);
  }

  live(text) { this.foot.textContent = text; }

  // parts: what stands in the foot, after the note.
  end(note, problem, parts) {
    const follow = nearEnd();
    this.draw();
    if (this.waiting) this.waiting.remove();
    this.waiting = null;
    this.element.classList.remove('busy');
    this.element.removeAttribute('aria-busy');
    if (problem) this.element.insertBefore(make('p', 'problem', problem), this.foot);
    this.foot.replaceChildren(...(note ? [make('span', 'note', note)] : []), ...parts);
    if (follow) toEnd();
  }
}

const seconds = (ms) => (ms < 995 ? `${Math.round(ms)} ms` : `${number(ms / 1000)} s`);

// s: { usage, timings, firstMs, reason, stopped }; context: its tokens, 0 if not known.
export function noteOf(s, context) {
  const parts = [];
  const n = s.usage?.completion_tokens ?? s.timings?.predicted_n;
  if (n !== undefined) parts.push(`${n} ${n === 1 ? 'token' : 'tokens'}`);
  const rate = s.timings?.predicted_per_second;
  if (rate > 0 && n > 1) parts.push(`${number(rate)} tokens/s`);
  if (s.firstMs) parts.push(`first after ${seconds(s.firstMs)}`);
  if (s.timings?.expert_misses > 0 || s.timings?.expert_late > 0) parts.push(`${Math.round(100 * s.timings.expert_hit_share)} % of experts were in memory`);
  if (s.reason === 'length') parts.push(context && s.usage?.total_tokens >= context ? 'cut: the context is full' : 'cut at the token limit');
  if (s.stopped) parts.push('stopped');
  return parts.join(' · ');
}
