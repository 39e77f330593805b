// The conversations that this browser keeps: in IndexedDB where the page may use it, else in memory,
// until the page is closed. Bounded in number and size: the oldest are dropped, and the caller is
// told. What is not on the disk yet is in a journal as well. API keys never come here.

import { checkChat } from './conversation.js';
import { Journal } from './journal.js';

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

// What another tab has added to the same conversation since it was read here stays in it, and so does
// the longer text of an answer that was read while it came.
export function merge(chat, stored) {
  const more = new Map((stored?.nodes ?? []).map((n) => [n.id, n]));
  const length = (n) => n.content.length + n.reasoning.length;
  let longer = false;
  const nodes = chat.nodes.map((n) => {
    const other = more.get(n.id);
    more.delete(n.id);
    if (!other || other.role !== n.role || !(length(other) > length(n) || (other.tokens && !n.tokens && length(other) === length(n)))) return n;
    longer = true;
    return other;
  });
  return longer || more.size ? { ...chat, nodes: [...nodes, ...more.values()] } : chat;
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
  constructor(backend, tell = () => {}, keep = KEEP, journal = new Journal()) {
    Object.assign(this, { backend, tell, keep, journal });
    this.chats = new Map();
    this.pending = new Map(); // of each conversation, how many changes are not on the disk yet
    this.kept = !(backend instanceof MemoryBackend);
    this.queue = Promise.resolve(); // one change after the other
  }

  // Falls back to memory, with a word, where the browser keeps nothing for the page.
  static async open(tell, journal, open = DiskBackend.open) {
    let h;
    try {
      h = new History(await open(), tell, KEEP, journal);
      await h.read();
    } catch (e) {
      journal?.forgetOwn();
      h = new History(new MemoryBackend(), tell);
      tell(`This browser stores nothing for this page (${e?.name || 'no storage'}): conversations are lost when it is closed.`);
    }
    return h;
  }

  // What is stored is checked like a file from elsewhere: it may be of another version.
  async read() {
    let bad = 0;
    for (const c of await this.backend.list())
      try { this.chats.set(c.id, checkChat(c)); } catch { bad++; } // it stays where it is
    if (bad) this.tell(`${bad === 1 ? 'A conversation that is' : `${bad} conversations that are`} stored here could not be read: another version of this page may have written ${bad === 1 ? 'it' : 'them'}.`);
    this.takeBack();
  }

  // What a page that has ended could not bring to the disk.
  takeBack() {
    for (const e of this.journal.entries()) {
      if (!e.chat) { // deleted, but for what is newer
        const older = this.list().filter((c) => (!e.id || c.id === e.id) && c.updated <= e.at);
        if (!e.id && older.length === this.chats.size) this.clear();
        else for (const c of older) this.remove(c.id);
        this.journal.taken(e);
        continue;
      }
      const there = this.chats.get(e.id);
      let both = e.chat;
      try { both = !there ? e.chat : checkChat(e.chat.updated >= there.updated ? merge(e.chat, there) : merge(there, e.chat)); } catch { both = there; }
      if (there && JSON.stringify(both) === JSON.stringify(there)) this.journal.taken(e);
      else this.save(both).then((ok) => { if (ok) this.journal.taken(e); });
    }
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
    this.journal.put(chat.id, chat);
    return this.run(chat.id, async () => {
      if (this.chats.get(chat.id) !== chat) return; // deleted meanwhile
      let dropped = 0;
      const drop = async (c) => { this.chats.delete(c.id); this.journal.forget(c.id); await this.backend.remove(c.id); dropped++; };
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
    this.journal.forget(id);
    this.journal.put(id, null);
    return this.run(id, () => this.backend.remove(id));
  }

  clear() {
    this.chats.clear();
    this.journal.forget();
    this.journal.put('', null);
    return this.run('', () => this.backend.clear());
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

  // The journal's entry goes with the last change of its conversation, and stays if that failed.
  run(id, change) {
    this.pending.set(id, (this.pending.get(id) ?? 0) + 1);
    this.queue = this.queue.then(change).then(() => true, (e) => {
      this.tell(`The conversation could not be saved (${e?.name || e}): it may be lost when this page is closed. Export it to keep it.`);
      return false;
    }).then((ok) => {
      const left = this.pending.get(id) - 1;
      if (left) this.pending.set(id, left); else this.pending.delete(id);
      if (ok && !left) this.journal.done(id);
      return ok;
    });
    return this.queue;
  }
}
