// The conversations that this browser keeps: in IndexedDB where the page may use it, else in memory,
// until the page is closed. Bounded in number and size: the oldest are dropped, and the caller is
// told. API keys never come here.

import { checkChat } from './conversation.js';

export const KEEP = { chats: 200, bytes: 64 << 20 };

// What a conversation takes, as an upper bound that needs no copy of it.
export const sizeOf = (chat) => 200 + chat.nodes.reduce((n, m) => n + 300 + 2 * (m.content.length + m.reasoning.length), 0);

export class MemoryBackend {
  constructor() { this.all = new Map(); }
  async list() { return [...this.all.values()].map((v) => structuredClone(v)); }
  async put(chat) { this.all.set(chat.id, structuredClone(chat)); }
  async remove(id) { this.all.delete(id); }
  async clear() { this.all.clear(); }
}

// What another tab has added to the same conversation since it was read here stays in it.
export function merge(chat, stored) {
  const known = new Set(chat.nodes.map((n) => n.id));
  const more = (stored?.nodes ?? []).filter((n) => !known.has(n.id));
  return more.length ? { ...chat, nodes: [...chat.nodes, ...more] } : chat;
}

const asked = (request) => new Promise((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});

export class DiskBackend {
  static async open() {
    const b = new DiskBackend();
    const request = indexedDB.open('sluice', 1);
    request.onupgradeneeded = () => request.result.createObjectStore('chats', { keyPath: 'id' });
    b.db = await asked(request);
    b.db.onversionchange = () => b.db.close();
    return b;
  }

  // Resolves when what was asked for is on its way to the disk, not before.
  async change(act) {
    const t = this.db.transaction('chats', 'readwrite');
    const done = new Promise((resolve, reject) => {
      t.oncomplete = resolve;
      t.onabort = t.onerror = () => reject(t.error ?? new Error('the browser gave up'));
    });
    act(t.objectStore('chats'));
    await done;
  }

  list() { return asked(this.db.transaction('chats').objectStore('chats').getAll()); }
  put(chat) {
    return this.change((s) => {
      const there = s.get(chat.id);
      there.onsuccess = () => s.put(merge(chat, there.result));
    });
  }
  remove(id) { return this.change((s) => s.delete(id)); }
  clear() { return this.change((s) => s.clear()); }
}

export class History {
  // tell: called with a sentence when something is lost or cannot be kept.
  constructor(backend, tell = () => {}, keep = KEEP) {
    Object.assign(this, { backend, tell, keep });
    this.chats = new Map();
    this.kept = !(backend instanceof MemoryBackend);
    this.queue = Promise.resolve(); // one change after the other
  }

  // Falls back to memory, with a word, where the browser keeps nothing for the page.
  static async open(tell, open = DiskBackend.open) {
    let h;
    try {
      h = new History(await open(), tell);
      await h.read();
    } catch (e) {
      h = new History(new MemoryBackend(), tell);
      tell(`This browser keeps nothing for this page (${e?.name || 'no storage'}): conversations end with it.`);
    }
    return h;
  }

  // What is stored is checked like a file from elsewhere: it may be of another version.
  async read() {
    let bad = 0;
    for (const c of await this.backend.list())
      try { this.chats.set(c.id, checkChat(c)); } catch { bad++; } // it stays where it is
    if (bad) this.tell(`${bad === 1 ? 'A conversation that is' : `${bad} conversations that are`} stored here could not be read: another version of this page may have written ${bad === 1 ? 'it' : 'them'}.`);
  }

  list() { return [...this.chats.values()].sort((a, b) => b.updated - a.updated); }
  get(id) { return this.chats.get(id) ?? null; }

  search(text) {
    const want = text.trim().toLowerCase();
    if (!want) return this.list();
    return this.list().filter((c) => c.title.toLowerCase().includes(want) || c.nodes.some((n) => n.content.toLowerCase().includes(want)));
  }

  // The oldest conversations that must go for this one to stay.
  overflow(but) {
    const all = this.list();
    let bytes = all.reduce((n, c) => n + sizeOf(c), 0);
    const out = [];
    for (let i = all.length - 1; i >= 0 && (all.length - out.length > this.keep.chats || bytes > this.keep.bytes); i--) {
      if (all[i].id === but) continue;
      out.push(all[i]);
      bytes -= sizeOf(all[i]);
    }
    return out;
  }

  save(chat) {
    this.chats.set(chat.id, chat);
    return this.run(async () => {
      if (this.chats.get(chat.id) !== chat) return; // deleted meanwhile
      let dropped = 0;
      const drop = async (c) => { this.chats.delete(c.id); await this.backend.remove(c.id); dropped++; };
      for (const c of this.overflow(chat.id)) await drop(c);
      for (;;) {
        try { await this.backend.put(chat); break; } catch (e) {
          const oldest = this.list().filter((c) => c !== chat).at(-1);
          if (e?.name !== 'QuotaExceededError' || !oldest) throw e;
          await drop(oldest);
        }
      }
      if (dropped) this.tell(`The ${dropped === 1 ? 'oldest conversation was' : `${dropped} oldest conversations were`} dropped: this browser keeps ${this.keep.chats}, and ${this.keep.bytes >> 20} MiB at most.`);
    });
  }

  remove(id) {
    this.chats.delete(id);
    return this.run(() => this.backend.remove(id));
  }

  clear() {
    this.chats.clear();
    return this.run(() => this.backend.clear());
  }

  // Adds what a file had, under new ids where theirs are taken. Returns how many were new.
  async add(list, newId) {
    const same = (a, b) => JSON.stringify(a.nodes) === JSON.stringify(b.nodes);
    let n = 0;
    for (const c of list) {
      const there = this.get(c.id);
      if (there && same(there, c)) continue;
      if (there) c.id = newId();
      await this.save(c);
      n++;
    }
    return n;
  }

  run(change) {
    this.queue = this.queue.then(change).catch((e) => this.tell(`The conversation could not be saved (${e?.name || e}): it ends with this page. Export it to keep it.`));
    return this.queue;
  }
}
