// The server's own API, and the key for it, which lives as long as the tab.

const KEY = 'sluice.key';
let key = null;
let refused = false; // the server wants another key, or one at all: nothing is asked until there is one
try { key = sessionStorage.getItem(KEY); } catch { /* no storage here: the key lives as long as the page */ }

export const hasKey = () => !!key;
export const goodKey = (text) => /^[\x21-\x7e]+$/.test(text); // what a header may carry
export function setKey(value) {
  key = value;
  refused = false;
  try { if (value) sessionStorage.setItem(KEY, value); else sessionStorage.removeItem(KEY); } catch { /* as above */ }
}

export class ApiError extends Error {
  constructor(status, message) { super(message); this.status = status; }
}

// Called when the server refuses the key, or wants one.
export const onKeyWanted = { run() {} };

async function failure(response, sent) {
  let message = `the server answered ${response.status}`;
  try { message = (await response.json()).error.message || message; } catch { /* not its JSON */ }
  if (response.status === 401 && sent === key && !refused) { // not of an answer that comes late, after the key was changed
    refused = true;
    onKeyWanted.run();
  }
  return new ApiError(response.status, message);
}

async function request(path, options = {}) {
  if (refused) throw new ApiError(401, 'this server requires an API key');
  const headers = { ...options.headers }, sent = key;
  if (key) headers.Authorization = `Bearer ${key}`;
  let response;
  try {
    response = await fetch(path, { ...options, headers, cache: 'no-store', credentials: 'omit' });
  } catch (e) {
    if (e.name === 'AbortError') throw e;
    throw new ApiError(0, 'the server cannot be reached');
  }
  return { response, sent };
}

async function answered(path, options) {
  const { response, sent } = await request(path, options);
  if (!response.ok) throw await failure(response, sent);
  return response;
}

export async function get(path) {
  return (await answered(path)).json();
}

export async function getText(path) {
  return (await answered(path)).text();
}

// /health answers with a body whatever its status.
export async function health() {
  return (await fetch('health', { cache: 'no-store', credentials: 'omit' })).json();
}

const MAX_LINE = 16 << 20; // characters that are waited for at most

// Posts and reads server-sent events: onData(object), onComment(text). Ends after [DONE].
export async function stream(path, body, { signal, onData, onComment }) {
  const r = await answered(path, { method: 'POST', body: JSON.stringify(body), signal, headers: { 'Content-Type': 'application/json' } });
  const reader = r.body.getReader();
  const decoder = new TextDecoder();
  let rest = '', ended = false;
  const line = (text) => {
    if (text.startsWith(':')) return onComment(text.slice(1).trim());
    if (!text.startsWith('data:')) return undefined;
    const data = text.slice(5).trim();
    if (data === '[DONE]') { ended = true; return undefined; }
    const value = JSON.parse(data);
    if (value.error) throw new ApiError(value.error.code | 0, String(value.error.message || 'the server gave up'));
    return onData(value);
  };
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      rest += decoder.decode(value, { stream: true });
      const lines = rest.split(/\r?\n/);
      rest = lines.pop();
      lines.forEach(line);
      if (rest.length > MAX_LINE) throw new ApiError(0, 'the server sent a line without an end');
    }
  } catch (e) {
    reader.cancel().catch(() => { /* it has ended */ }); // or the server would go on
    throw e;
  }
  if (!ended) throw new ApiError(0, 'the connection ended before the answer did');
}
