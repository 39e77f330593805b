// What the user may set for an answer: checked here, kept in the browser, sent as the API's fields.
// An empty field is not sent, so that the server's default holds.

import { make } from './ui.js';

export const NUMBERS = {
  temperature: { label: 'Temperature', min: 0, max: 2 },
  top_p: { label: 'Top p', min: 0, max: 1 },
  top_k: { label: 'Top k', min: 0, max: 2147483647, whole: true },
  min_p: { label: 'Min p', min: 0, max: 1 },
  seed: { label: 'Seed', none: 'random', min: 0, max: Number.MAX_SAFE_INTEGER, whole: true },
  max_tokens: { label: 'Maximum tokens', none: 'no limit', min: 1, max: 2147483647, whole: true },
  reasoning_budget: { label: 'Thinking tokens', none: 'no limit', min: 0, max: 2147483647, whole: true },
};
export const THINKING = ['', 'on', 'off', 'low', 'medium', 'high'];
const MAX_SYSTEM = 100000;

// A sentence that says what is wrong with a field's text, or ''.
export function problemOf(name, text) {
  const spec = NUMBERS[name], value = text.trim();
  if (!spec || value === '') return '';
  const n = Number(value);
  if (!/^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(value)) return `${spec.label} must be a number.`;
  if (spec.whole && !Number.isInteger(n)) return `${spec.label} must be a whole number.`;
  if (n < spec.min || n > spec.max)
    return spec.max > 1e6 ? `${spec.label} must be ${spec.min} or more${n > spec.max ? `, and at most ${spec.max}` : ''}.` : `${spec.label} must be from ${spec.min} to ${spec.max}.`;
  return '';
}

// The fields of a request. Values that problemOf() refuses must not come here.
export function fieldsOf(values) {
  const out = {};
  for (const name of Object.keys(NUMBERS)) {
    const text = (values[name] ?? '').trim();
    if (text !== '') out[name] = Number(text);
  }
  const thinking = values.thinking ?? '';
  // The variables that templates look at, as `run --think` sets them.
  if (thinking === 'on' || thinking === 'off') out.chat_template_kwargs = { enable_thinking: thinking === 'on', thinking: thinking === 'on' };
  else if (THINKING.includes(thinking) && thinking) out.reasoning_effort = thinking;
  return out;
}

// What was stored, or anything else: texts of known fields.
export function checkStored(saved) {
  const out = {};
  if (!saved || typeof saved !== 'object') return out;
  for (const name of Object.keys(NUMBERS)) if (typeof saved[name] === 'string' && saved[name].length < 40) out[name] = saved[name];
  if (THINKING.includes(saved.thinking)) out.thinking = saved.thinking;
  if (typeof saved.system === 'string') out.system = saved.system.slice(0, MAX_SYSTEM);
  if (typeof saved.max === 'string' && out.max_tokens === undefined) out.max_tokens = saved.max.slice(0, 40); // its name until 0.1
  return out;
}

const STORED = 'sluice.settings';
const $ = (id) => document.getElementById(id);
const NAMES = [...Object.keys(NUMBERS), 'thinking', 'system'];
const field = (name) => $(`set-${name}`);
const values = () => Object.fromEntries(NAMES.map((n) => [n, field(n).value]));

// A field of a number stands before that of thinking, or, if it is about thinking, after it.
function makeField(name) {
  const { label, whole, none = 'the server\u2019s' } = NUMBERS[name], box = make('label', '', label), input = make('input'), bad = make('span', 'error bad');
  Object.assign(input, { id: `set-${name}`, inputMode: whole ? 'numeric' : 'decimal', autocomplete: 'off', spellcheck: false, placeholder: none });
  Object.assign(bad, { id: `bad-${name}`, hidden: true });
  bad.setAttribute('role', 'alert');
  input.setAttribute('aria-describedby', bad.id);
  box.append(input, bad);
  $('label-thinking')[name === 'reasoning_budget' ? 'after' : 'before'](box);
}

function check(name) {
  const problem = problemOf(name, field(name).value), text = $(`bad-${name}`);
  if (!text) return true;
  text.textContent = problem;
  text.hidden = !problem;
  if (problem) field(name).setAttribute('aria-invalid', 'true');
  else field(name).removeAttribute('aria-invalid');
  return !problem;
}

function store() {
  try { localStorage.setItem(STORED, JSON.stringify(values())); } catch { /* for this page only, then */ }
}

// { fields, system }, or null after showing what must be mended.
export function settings() {
  const bad = Object.keys(NUMBERS).filter((n) => !check(n));
  if (bad.length) {
    openSettings(true);
    field(bad[0]).focus();
    return null;
  }
  return { fields: fieldsOf(values()), system: field('system').value.trim() };
}

export function openSettings(open) {
  $('settings').hidden = !open;
  $('settings-toggle').setAttribute('aria-expanded', String(open));
}

// What the server takes where a field is empty.
export function showDefaults(params) {
  for (const name of Object.keys(NUMBERS)) if (Number.isFinite(params?.[name])) field(name).placeholder = `${params[name]}`;
}

export function startSettings() {
  Object.keys(NUMBERS).forEach(makeField);
  let saved = {};
  try { saved = checkStored(JSON.parse(localStorage.getItem(STORED))); } catch { /* none, or none that can be read */ }
  for (const name of NAMES) {
    field(name).value = saved[name] ?? '';
    field(name).addEventListener('change', () => { check(name); store(); });
    field(name).addEventListener('input', () => { if (field(name).hasAttribute('aria-invalid')) check(name); });
    check(name);
  }
  $('settings').addEventListener('submit', (e) => e.preventDefault());
  $('settings-toggle').addEventListener('click', () => {
    openSettings($('settings').hidden);
    if (!$('settings').hidden) field('system').focus();
  });
  $('settings-reset').addEventListener('click', () => {
    for (const name of NAMES) { field(name).value = ''; check(name); }
    store();
    $('announce').textContent = 'All settings are back to the server’s defaults.';
  });
}
