// What is not on the disk yet. IndexedDB writes some time after it is asked to, and a page may end
// before: localStorage writes at once, so each change is here until the disk has it. An entry is
//   sluice.unsaved.<tab>.<id>: "<time> <the conversation as JSON>", or "<time> " if it is deleted
// with an empty id for all conversations. Without storage, or with a full one, nothing is kept here.

import { checkChat, newId } from './conversation.js';

const PREFIX = 'sluice.unsaved.';
export const KEEP = { entries: 16, chars: 1000000, allChars: 3000000 };

export class Journal {
  // storage: like localStorage, or null. A tab writes entries of its own, and reads those of all.
  constructor(storage = null, tab = newId()) { Object.assign(this, { storage, own: `${PREFIX}${tab}.` }); }

  static open() {
    let storage = null;
    try { storage = globalThis.localStorage ?? null; } catch { /* not allowed */ }
    return new Journal(storage);
  }

  // The storage may throw whatever is asked of it.
  use(what, otherwise) {
    try { return this.storage ? what(this.storage) : otherwise; } catch { return otherwise; }
  }

  keys() {
    return this.use((s) => Array.from({ length: s.length }, (_, i) => s.key(i)).filter((k) => k?.startsWith(PREFIX)), []);
  }

  drop(key) { this.use((s) => s.removeItem(key)); }

  // chat: null if it is deleted. The oldest entries make room for it.
  put(id, chat) {
    const key = this.own + id;
    this.drop(key);
    if (chat && chat.nodes.reduce((n, m) => n + m.content.length + m.reasoning.length, 0) > KEEP.chars) return;
    const text = `${Date.now()} ${chat ? JSON.stringify(chat) : ''}`;
    if (text.length > KEEP.chars) return;
    this.use((s) => {
      const others = this.keys().map((k) => { const v = s.getItem(k) ?? ''; return { k, at: parseInt(v, 10) || 0, chars: v.length }; }).sort((a, b) => b.at - a.at);
      let chars = others.reduce((n, o) => n + o.chars, text.length);
      while (others.length && (others.length >= KEEP.entries || chars > KEEP.allChars)) {
        const o = others.pop();
        this.drop(o.k);
        chars -= o.chars;
      }
      s.setItem(key, text);
    });
  }

  // The disk has what this tab did.
  done(id) { this.drop(this.own + id); }

  // Of all tabs, as the conversation is deleted. No id: all conversations.
  forget(id) {
    for (const k of this.keys()) if (id === undefined || k.slice(k.indexOf('.', PREFIX.length) + 1) === id) this.drop(k);
  }

  // What this tab has written.
  forgetOwn() { for (const k of this.keys()) if (k.startsWith(this.own)) this.drop(k); }

  // [{ key, text, id, at, chat }], the oldest first. What cannot be read is of no use to anybody.
  entries() {
    const out = [];
    for (const key of this.keys()) {
      try {
        const text = this.storage.getItem(key), id = key.slice(key.indexOf('.', PREFIX.length) + 1);
        const m = /^(\d{1,15}) /.exec(text), rest = text.slice(m[0].length);
        if (text.length > KEEP.chars) throw new Error('too large');
        const chat = rest ? checkChat(JSON.parse(rest)) : null;
        if (chat && chat.id !== id) throw new Error('of another');
        out.push({ key, text, id, at: Math.min(Number(m[1]), Date.now()), chat });
      } catch { this.drop(key); }
    }
    return out.sort((a, b) => a.at - b.at || !!a.chat - !!b.chat); // what was written after a deletion stays
  }

  // Removes an entry that has not been written again since it was read.
  taken({ key, text }) { this.use((s) => { if (s.getItem(key) === text) s.removeItem(key); }); }
}
