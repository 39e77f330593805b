// Markdown as models write it, in two steps: parse() makes a tree of plain objects, build() makes
// DOM nodes of it, with createElement and text nodes alone. HTML in the text is text. Nothing is
// ever loaded; links are http, https or mailto. Every search is bounded, so that no text takes more
// than time in proportion to its length.

import { highlight } from './highlight.js';
import { copyText } from './ui.js';

const MAX_DEPTH = 8;
const MAX_LINK = 1000;
const SHOWN = 1200000; // characters; what follows is shown as it is

// ---------------------------------------------------------------- inline

const PUNCTUATION = /[!-/:-@[-`{-~]/;
const SPACE = /\s/;
const WORD = /[\p{L}\p{N}_]/u;

// Only what a click may follow.
export function safeHref(text) {
  let url;
  try { url = new URL(text); } catch { return null; }
  return url.protocol === 'http:' || url.protocol === 'https:' || url.protocol === 'mailto:' ? url.href : null;
}

// Of every [ that has one, its ].
function brackets(text) {
  const open = [], closes = new Map();
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    if (c === '\\') i++;
    else if (c === '[') open.push(i);
    else if (c === ']' && open.length) closes.set(open.pop(), i);
  }
  return closes;
}

// [text](target "title") at text[at] = '['. Returns { label, href, end } or null.
function link(text, at, closes) {
  const limit = Math.min(text.length, at + MAX_LINK), i = closes.get(at);
  if (!(i < limit) || text[i + 1] !== '(') return null;
  const label = text.slice(at + 1, i);
  let j = i + 2, round = 0;
  for (; j < limit; j++) {
    const c = text[j];
    if (c === '\\') j++;
    else if (c === '(') round++;
    else if (c === ')' && round-- === 0) break;
    else if (c === '\n') return null;
  }
  if (j >= limit) return null;
  const target = text.slice(i + 2, j).trim().replace(/\s+["'(].*$/, '').replace(/^<|>$/g, '');
  return { label, href: target, end: j + 1 };
}

const KINDS = [['***', 'bi'], ['___', 'bi'], ['**', 'b'], ['__', 'b'], ['~~', 's'], ['*', 'i'], ['_', 'i']];

// The end of an emphasis that begins with mark at text[at], or -1. failed remembers marks that have
// no end any more.
function emphasisEnd(text, at, mark, failed) {
  const word = mark[0] === '_';
  const from = at + mark.length;
  if (failed.has(mark) || from >= text.length || SPACE.test(text[from])) return -1;
  if (word && at > 0 && WORD.test(text[at - 1])) return -1;
  for (let i = text.indexOf(mark, from + 1); i !== -1; i = text.indexOf(mark, i + 1)) {
    if (SPACE.test(text[i - 1]) || text[i - 1] === '\\') continue;
    if (word && i + mark.length < text.length && WORD.test(text[i + mark.length])) continue;
    if (mark.length === 1 && (text[i + 1] === mark || text[i - 1] === mark)) continue;
    return i;
  }
  failed.add(mark);
  return -1;
}

export function inline(text, depth = 0, links = true) {
  const out = [];
  const failed = new Set();
  let lines = '', plain = '', closes = null; // plain: of the line that is read; lines: before it
  let bad = 0; // addresses that are none: each costs as much as the longest
  const flush = () => { if (lines || plain) out.push(lines + plain); lines = plain = ''; };
  const push = (node, end) => { flush(); out.push(node); return end; };
  let i = 0;
  outer: while (i < text.length) {
    const c = text[i];
    if (c === '\\' && i + 1 < text.length) {
      if (text[i + 1] === '\n') { i = push({ t: 'br' }, i + 2); continue; }
      if (PUNCTUATION.test(text[i + 1])) { plain += text[i + 1]; i += 2; continue; }
    } else if (c === '\n') {
      const hard = plain.endsWith('  ');
      plain = plain.trimEnd();
      if (hard) { i = push({ t: 'br' }, i + 1); continue; }
      lines += `${plain}\n`;
      plain = '';
      i++;
      continue;
    } else if (c === '`') {
      let n = 1;
      while (text[i + n] === '`') n++;
      const fence = '`'.repeat(n);
      let end = failed.has(fence) ? -1 : text.indexOf(fence, i + n);
      while (end !== -1 && (text[end + n] === '`' || text[end - 1] === '`')) {
        let past = end + n;
        while (text[past] === '`') past++;
        end = text.indexOf(fence, past);
      }
      if (end !== -1) {
        const code = text.slice(i + n, end).replace(/\n/g, ' ');
        i = push({ t: 'code', text: code.startsWith(' ') && code.endsWith(' ') && /[^ ]/.test(code) ? code.slice(1, -1) : code }, end + n);
      } else {
        failed.add(fence);
        plain += fence;
        i += n;
      }
      continue;
    } else if (c === '[' || (c === '!' && text[i + 1] === '[')) {
      const image = c === '!';
      if (links) closes ??= brackets(text);
      const l = links ? link(text, i + (image ? 1 : 0), closes) : null;
      const href = l && safeHref(l.href);
      if (href) {
        const label = image ? [l.label || 'image'] : inline(l.label, depth + 1, false); // no links in links
        i = push({ t: 'a', href, c: label }, l.end);
        continue;
      }
    } else if (c === '<' || (c === 'h' && text.startsWith('http', i) && !(i && WORD.test(text[i - 1])))) {
      const m = links && bad < 100 && /^<?(https?:\/\/[^\s<>"'`]{1,2000})/.exec(text.slice(i, i + 2010));
      if (m) {
        const angle = c === '<' && text[i + m[0].length] === '>';
        const address = angle ? m[1] : m[1].replace(/[.,;:!?*_~]+$/, '').replace(/\)+$/, (p) => (m[1].includes('(') ? p : ''));
        const href = (angle || c !== '<') && safeHref(address);
        if (href) {
          i = push({ t: 'a', href, c: [address] }, i + address.length + (angle ? 2 : 0));
          continue;
        }
        bad++;
      }
    } else if ((c === '*' || c === '_' || c === '~') && depth < MAX_DEPTH) {
      for (const [mark, t] of KINDS) {
        if (!text.startsWith(mark, i)) continue;
        const end = emphasisEnd(text, i, mark, failed);
        if (end === -1) continue;
        const inner = inline(text.slice(i + mark.length, end), depth + 1, links);
        i = push(t === 'bi' ? { t: 'b', c: [{ t: 'i', c: inner }] } : { t, c: inner }, end + mark.length);
        continue outer;
      }
      let n = 1;
      while (text[i + n] === c) n++;
      plain += text.slice(i, i + n);
      i += n;
      continue;
    }
    plain += c;
    i++;
  }
  flush();
  return out;
}

// ---------------------------------------------------------------- blocks

const FENCE = /^ {0,3}(?:(`{3,})([^`]*)|(~{3,})(.*))$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]|$)/;
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])([ \t]+|$)/;
const QUOTE = /^ {0,3}> ?/;
const BLANK = /^[ \t]*$/;
const DELIMITERS = /^[|: \t-]+$/;

function cells(line) {
  const out = [];
  let cell = '';
  const text = line.trim().replace(/^\|/, '').replace(/\|$/, '');
  for (let i = 0; i < text.length; i++) {
    if (text[i] === '\\' && text[i + 1] === '|') { cell += '|'; i++; }
    else if (text[i] === '|') { out.push(cell.trim()); cell = ''; }
    else cell += text[i];
  }
  out.push(cell.trim());
  return out.slice(0, 64);
}

const isTable = (lines, i) => i + 1 < lines.length && lines[i].includes('|') && lines[i + 1].includes('-') &&
  DELIMITERS.test(lines[i + 1]) && cells(lines[i + 1]).every((c) => /^:?-+:?$/.test(c)) && cells(lines[i]).length === cells(lines[i + 1]).length;

const interrupts = (lines, i) => FENCE.test(lines[i]) || HEADING.test(lines[i]) || RULE.test(lines[i]) || QUOTE.test(lines[i]) ||
  isTable(lines, i);

function heading(line, m) {
  let text = line.slice(m[0].length).trim(), n = text.length;
  while (n && text[n - 1] === '#') n--;
  if (n < text.length && (n === 0 || SPACE.test(text[n - 1]))) text = text.slice(0, n).trimEnd();
  return { t: 'h', n: m[1].length, c: inline(text) };
}

function fenced(lines, i, m) {
  const mark = m[1] || m[3], lang = (m[2] || m[4] || '').trim().slice(0, 40).split(/\s/)[0];
  const close = new RegExp(`^ {0,3}\\${mark[0]}{${mark.length},}[ \\t]*$`);
  const text = [];
  let j = i + 1;
  while (j < lines.length && !close.test(lines[j])) text.push(lines[j++]);
  return [{ t: 'pre', lang, text: text.join('\n') }, Math.min(j + 1, lines.length)];
}

function quote(lines, i, depth) {
  const inner = [];
  let j = i;
  while (j < lines.length && (QUOTE.test(lines[j]) || (!BLANK.test(lines[j]) && !interrupts(lines, j) && !ITEM.test(lines[j]))))
    inner.push(lines[j++].replace(QUOTE, ''));
  return [{ t: 'quote', b: blocks(inner, depth + 1) }, j];
}

function list(lines, i, depth) {
  const first = ITEM.exec(lines[i]);
  const kind = /\d/.test(first[2]) ? 'ol' : 'ul';
  const mark = first[2][first[2].length - 1];
  const items = [];
  let j = i, loose = false;
  while (j < lines.length) {
    const m = ITEM.exec(lines[j]);
    if (!m || m[2][m[2].length - 1] !== mark || RULE.test(lines[j])) break;
    const indent = m[1].length + m[2].length + Math.min(m[3].length || 1, 4);
    const inner = [lines[j].slice(Math.min(indent, lines[j].length))];
    const continued = new RegExp(`^(?: {${Math.min(indent, 2)},}|\\t)`);
    for (j++; j < lines.length; j++) {
      if (BLANK.test(lines[j])) {
        let next = j;
        while (next < lines.length && BLANK.test(lines[next])) next++;
        const sibling = next < lines.length && ITEM.test(lines[next]) && !continued.test(lines[next]);
        if (next === lines.length || !(sibling || continued.test(lines[next]))) { j = next; break; }
        loose = true;
        if (sibling) { j = next; break; }
        for (; j < next; j++) inner.push('');
        j--;
      } else if (continued.test(lines[j])) {
        inner.push(lines[j].replace(new RegExp(`^(?: {1,${indent}}|\\t)`), ''));
      } else if (ITEM.test(lines[j]) || interrupts(lines, j)) {
        break;
      } else {
        inner.push(lines[j]); // a lazy continuation
      }
    }
    items.push(blocks(inner, depth + 1));
  }
  return [{ t: kind, start: parseInt(first[2], 10) || (first[2][0] === '0' ? 0 : 1), items, loose }, j];
}

function table(lines, i) {
  const head = cells(lines[i]);
  const align = cells(lines[i + 1]).map((c) => (/^:-+:$/.test(c) ? 'c' : /-:$/.test(c) ? 'r' : ''));
  const rows = [];
  let j = i + 2;
  while (j < lines.length && lines[j].includes('|') && !BLANK.test(lines[j])) {
    const row = cells(lines[j++]).slice(0, head.length);
    while (row.length < head.length) row.push('');
    rows.push(row.map((c) => inline(c)));
  }
  return [{ t: 'table', align, head: head.map((c) => inline(c)), rows }, j];
}

function blocks(lines, depth) {
  const out = [];
  let i = 0;
  while (i < lines.length) {
    if (BLANK.test(lines[i])) { i++; continue; }
    const from = i;
    let node, m;
    if ((m = FENCE.exec(lines[i]))) [node, i] = fenced(lines, i, m);
    else if ((m = HEADING.exec(lines[i]))) { node = heading(lines[i], m); i++; }
    else if (RULE.test(lines[i])) { node = { t: 'hr' }; i++; }
    else if (depth < MAX_DEPTH && QUOTE.test(lines[i])) [node, i] = quote(lines, i, depth);
    else if (depth < MAX_DEPTH && ITEM.test(lines[i])) [node, i] = list(lines, i, depth);
    else if (isTable(lines, i)) [node, i] = table(lines, i);
    else {
      i++;
      while (i < lines.length && !BLANK.test(lines[i]) && !interrupts(lines, i) && !(ITEM.test(lines[i]) && depth < MAX_DEPTH)) i++;
      node = { t: 'p', c: inline(lines.slice(from, i).map((l) => l.replace(/^[ \t]+/, '')).join('\n')) };
    }
    if (depth === 0) node.raw = lines.slice(from, i).join('\n') + (i === lines.length ? '' : '\n');
    out.push(node);
  }
  return out;
}

// The top blocks carry their source as raw, by which a renderer sees what has changed.
export function parse(text) {
  return blocks(text.replace(/\r\n?/g, '\n').replace(/\0/g, '\ufffd').split('\n'), 0);
}

// ---------------------------------------------------------------- DOM

const el = (name, className) => {
  const e = document.createElement(name);
  if (className) e.className = className;
  return e;
};

function fill(parent, nodes) {
  for (const n of nodes) {
    if (typeof n === 'string') parent.append(n);
    else if (n.t === 'br') parent.append(el('br'));
    else if (n.t === 'code') { const e = el('code'); e.textContent = n.text; parent.append(e); }
    else if (n.t === 'a') {
      const a = el('a');
      a.href = n.href;
      a.target = '_blank';
      a.rel = 'noopener noreferrer nofollow';
      fill(a, n.c);
      parent.append(a);
    } else {
      const e = el({ b: 'strong', i: 'em', s: 'del' }[n.t]);
      fill(e, n.c);
      parent.append(e);
    }
  }
  return parent;
}

function codeBlock(n) {
  const box = el('div', 'code'), head = el('div', 'head'), name = el('span'), copy = el('button'), pre = el('pre'), code = el('code');
  name.textContent = n.lang || 'text';
  copy.type = 'button';
  copy.textContent = 'Copy';
  copy.setAttribute('aria-label', 'Copy the code');
  copy.addEventListener('click', () => copyText(n.text, copy));
  highlight(code, n.text, n.lang);
  pre.tabIndex = 0; // it scrolls: the keyboard must reach it
  pre.setAttribute('aria-label', `Code: ${n.lang || 'text'}`);
  pre.setAttribute('role', 'region');
  head.append(name, copy);
  pre.append(code);
  box.append(head, pre);
  return box;
}

const row = (list, name, align) => {
  const tr = el('tr');
  list.forEach((c, i) => tr.append(fill(el(name, align[i]), c)));
  return tr;
};

function tableBlock(n) {
  const wrap = el('div', 'wrap'), t = el('table'), head = el('thead'), body = el('tbody');
  wrap.tabIndex = 0; // as code
  wrap.setAttribute('aria-label', 'Table');
  wrap.setAttribute('role', 'region');
  head.append(row(n.head, 'th', n.align));
  n.rows.forEach((r) => body.append(row(r, 'td', n.align)));
  t.append(head, body);
  wrap.append(t);
  return wrap;
}

function itemOf(list, item) {
  const li = el('li');
  for (const b of item) {
    if (b.t === 'p' && !list.loose) fill(li, b.c);
    else li.append(build(b));
  }
  return li;
}

export function build(n) {
  if (n.t === 'p') return fill(el('p'), n.c);
  if (n.t === 'h') return fill(el(`h${Math.min(5, n.n + 2)}`), n.c);
  if (n.t === 'hr') return el('hr');
  if (n.t === 'pre') return codeBlock(n);
  if (n.t === 'table') return tableBlock(n);
  if (n.t === 'rest') { const r = el('div', 'rest'); r.append(n.text); return r; }
  if (n.t === 'quote') { const q = el('blockquote'); q.append(...n.b.map(build)); return q; }
  const l = el(n.t);
  l.dir = 'auto'; // its marks stand where its text begins
  if (n.t === 'ol' && n.start !== 1) l.start = n.start;
  for (const item of n.items) l.append(itemOf(n, item));
  return l;
}

// ---------------------------------------------------------------- growing

function same(a, b) {
  if (typeof a !== 'object' || typeof b !== 'object') return a === b;
  const keys = Object.keys(a);
  return keys.length === Object.keys(b).length && keys.every((k) => same(a[k], b[k]));
}

// Makes the children of e, one for each of was, those of now: what has not changed stays.
function growList(e, was, now, make, change) {
  let i = 0;
  while (i < was.length && i < now.length && same(was[i], now[i])) i++;
  if (i < was.length && i < now.length && change(e.childNodes[i], was[i], now[i])) i++;
  while (e.childNodes.length > i) e.lastChild.remove();
  for (let j = i; j < now.length; j++) e.append(make(now[j]));
  return true;
}

const inlineOf = (n) => fill(document.createDocumentFragment(), [n]);
function growText(e, was, now) {
  if (typeof was !== 'string' || typeof now !== 'string') return false;
  e.nodeValue = now;
  return true;
}

// Only the last block of an item grows, and only a block that has an element of its own.
const growItem = (list) => (li, was, now) => {
  const n = was.length - 1, b = was[n];
  return n >= 0 && now.length === n + 1 && !(b.t === 'p' && !list.loose) && same(was.slice(0, n), now.slice(0, n)) && grow(li.lastChild, b, now[n]);
};

// Makes of e, which shows was, what shows now. False: it must be built.
function grow(e, was, now) {
  if (was.t !== now.t) return false;
  if (now.t === 'p' || (now.t === 'h' && was.n === now.n)) return growList(e, was.c, now.c, inlineOf, growText);
  if (now.t === 'quote') return growList(e, was.b, now.b, build, grow);
  if ((now.t === 'ul' || now.t === 'ol') && was.start === now.start && was.loose === now.loose) return growList(e, was.items, now.items, (i) => itemOf(now, i), growItem(now));
  if (now.t === 'table' && same(was.head, now.head) && same(was.align, now.align))
    return growList(e.firstChild.lastChild, was.rows, now.rows, (r) => row(r, 'td', now.align), () => false);
  if (now.t === 'rest') e.firstChild.nodeValue = now.text;
  return now.t === 'rest';
}

// Shows text in an element that shows an earlier part of it: what is as it was stays, with what the
// reader has selected in it, so that an answer of any form takes no longer to draw as it grows.
export function render(element, text) {
  const cut = text.length > SHOWN ? text.lastIndexOf('\n', SHOWN) + 1 || SHOWN : text.length;
  const before = element.blocks || [], now = parse(text.slice(0, cut));
  if (cut < text.length) now.push({ t: 'rest', text: text.slice(cut) });
  let i = 0;
  while (i < before.length && i < now.length && before[i].t !== 'rest' && before[i].raw === now[i].raw && before[i].loose === now[i].loose) i++;
  if (i < before.length && i < now.length && grow(element.childNodes[i], before[i], now[i])) i++;
  while (element.childNodes.length > i) element.lastChild.remove();
  for (let j = i; j < now.length; j++) element.append(build(now[j]));
  element.blocks = now;
}
