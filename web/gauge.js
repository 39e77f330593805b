// How much of the context the conversation takes, and a warning before it is full.

import { number } from './ui.js';

const $ = (id) => document.getElementById(id);
const WARN = 0.8;
let context = 0, used = 0;

export const contextTokens = () => context;
export function setContext(tokens) { context = tokens > 0 ? tokens : 0; show(used); }

// The tokens of the branch that is shown; 0: none, or not known.
export function show(tokens) {
  used = tokens;
  const e = $('gauge');
  e.hidden = !context || !used;
  if (e.hidden) return;
  const share = Math.min(1, used / context), left = Math.max(0, context - used);
  const kind = share >= 1 ? 'full' : share >= WARN ? 'warn' : '';
  e.dataset.kind = kind;
  $('gauge-bar').firstElementChild.style.width = `${100 * share}%`;
  const text = `${number(used)} of ${number(context)} tokens of context`;
  const bar = $('gauge-bar');
  for (const [name, value] of [['role', 'meter'], ['aria-valuemin', '0'], ['aria-valuemax', String(context)], ['aria-valuenow', String(Math.min(used, context))],
    ['aria-valuetext', text], ['aria-label', text]]) bar.setAttribute(name, value);
  $('gauge-text').textContent = text + (kind === 'full' ? ': it is full. Start a new chat, or edit an earlier message.'
    : kind === 'warn' ? `: ${number(left)} are left. A new chat has all of it again.` : '');
}
