// Small things that several parts of the page make.

export const make = (name, className, text) => {
  const e = document.createElement(name);
  if (className) e.className = className;
  if (text !== undefined) e.textContent = text;
  return e;
};

export function button(text, run, { className = '', label = '' } = {}) {
  const b = make('button', className, text);
  b.type = 'button';
  if (label) { b.setAttribute('aria-label', label); b.title = label; }
  b.addEventListener('click', () => run(b));
  return b;
}

// Pages of other machines get no clipboard without TLS: there the old way is left.
function copyOld(text) {
  const box = make('textarea'), had = document.activeElement;
  box.value = text;
  (had?.closest('dialog') ?? document.body).append(box);
  box.select();
  const ok = document.execCommand('copy');
  box.remove();
  had?.focus();
  if (!ok) throw new Error('not allowed');
}

const copied = new Map(); // buttons that say so, with their own text and the timer that brings it back
export async function copyText(text, b) {
  const now = copied.get(b), own = now?.own ?? b.textContent;
  clearTimeout(now?.timer);
  try {
    if (navigator.clipboard) await navigator.clipboard.writeText(text); else copyOld(text);
    b.textContent = 'Copied';
  } catch { b.textContent = 'Not allowed'; }
  document.getElementById('announce').textContent = b.textContent;
  copied.set(b, { own, timer: setTimeout(() => { b.textContent = own; copied.delete(b); }, 1500) });
}

// A field with a label that only screen readers get.
export function labelled(field, text) {
  const l = make('label', 'labelled');
  l.append(make('span', 'hidden', text), field);
  return l;
}

// A file of the user's own, made here.
export function download(name, type, text) {
  const a = make('a');
  a.href = URL.createObjectURL(new Blob([text], { type }));
  a.download = name;
  a.click();
  setTimeout(() => URL.revokeObjectURL(a.href), 60000);
}

// One line above the message box, until it is closed or replaced.
export function notice(text) {
  const e = document.getElementById('notice');
  e.hidden = !text;
  e.replaceChildren(make('span', '', text), button('×', () => { e.hidden = true; }, { label: 'Close this note' }));
}

export const number = (v, digits = 1) => v.toLocaleString('en', { maximumFractionDigits: digits });
