// What no well-behaved client sends, and how the process starts and ends.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import net from 'node:net';
import { test } from 'node:test';
import { binary, deadline, missing, model, NEVER_MS, patience, request, Server } from './server.mjs';

const chat = (extra = {}) => JSON.stringify({ messages: [{ role: 'user', content: 'Tell me a story.' }], max_tokens: 10, ...extra });
const CHAT = '/v1/chat/completions';

// Flat tests, one after the other, so that every runner counts each of them.
const it = (name, run) => test(name, { skip: missing }, run);
const server = missing ? null : await Server.start(['--max-body-mib', '1', '--buffer-tokens', '16']);

const error = async (response, status, type) => {
  assert.equal(response.status, status);
  const body = await response.json();
  assert.deepEqual(Object.keys(body.error).sort(), ['code', 'message', 'param', 'type']);
  assert.equal(body.error.type, type);
  return body.error;
};

it('refuses broken, deep and huge bodies', async () => {
  await error(await server.post(CHAT, '{"messages":'), 400, 'invalid_request_error');
  await error(await server.post(CHAT, '[]'), 400, 'invalid_request_error');
  await error(await server.post(CHAT, '['.repeat(500000)), 400, 'invalid_request_error');
  await error(await server.post(CHAT, `{"a":"${'\u00e9'.repeat(1000000)}"}`), 413, 'invalid_request_error');
  await error(await server.post(CHAT, `{"messages":[${'{},'.repeat(100000)}{}]}`), 400, 'invalid_request_error');
});

it('answers unknown paths and methods', async () => {
  await error(await fetch(`${server.url}/v2/none`), 404, 'not_found_error');
  const r = await fetch(`${server.url}${CHAT}`);
  assert.equal(r.headers.get('allow'), 'POST, OPTIONS');
  await error(r, 405, 'invalid_request_error');
  assert.equal((await fetch(`${server.url}/health`, { method: 'HEAD' })).status, 200);
  assert.equal((await fetch(`${server.url}${CHAT}`, { method: 'OPTIONS' })).status, 204);
});

it('takes chunked bodies and pipelined requests', async () => {
  const body = chat();
  const c = server.connect();
  c.socket.write(`POST ${CHAT} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n` +
                 `a\r\n${body.slice(0, 10)}\r\n${(body.length - 10).toString(16)}\r\n${body.slice(10)}\r\n0\r\n\r\n`);
  c.socket.write(request('/tokenize', '{"content":"a"}'));
  const text = await c.all;
  assert.equal(text.match(/HTTP\/1\.1 200 OK/g)?.length, 2, text);
  assert.ok(text.indexOf('chat.completion') < text.indexOf('"tokens"'));
});

it('keeps special tokens in a message as text', async () => {
  const count = async (content) => {
    const r = await server.post(CHAT, { messages: [{ role: 'user', content }], max_tokens: 1 });
    return (await r.json()).usage.prompt_tokens;
  };
  const base = await count('x');
  assert.ok((await count('x<|im_end|>')) > base + 1); // several tokens of text, not one
  const r = await server.post('/apply-template', { messages: [{ role: 'user', content: 'x<|im_end|>y' }] });
  assert.ok((await r.json()).prompt.includes('x<|im_end|>y'));
});

it('survives floods of headers and garbage', async () => {
  const flood = server.connect();
  flood.socket.write('GET /health HTTP/1.1\r\nHost: localhost\r\n' + 'X-A: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n'.repeat(10000));
  assert.match(await flood.all, /^$|^HTTP\/1\.1 4\d\d/);
  const garbage = server.connect();
  garbage.socket.write(Buffer.from(Array.from({ length: 4096 }, (_, i) => (i * 131) & 255)));
  garbage.socket.end();
  await garbage.all;
  assert.equal((await fetch(`${server.url}/health`)).status, 200);
});

it('closes a connection that stays silent', async () => {
  // A server of its own: fetch keeps connections open, and one that is closed while it is used again fails.
  const server = await Server.start(['--timeout-s', '2']);
  const c = server.connect();
  c.socket.write('POST /v1/completions HTTP/1.1\r\nContent-Le');
  assert.notEqual(await Promise.race([c.all, deadline(NEVER_MS).then(() => 'still open')]), 'still open');
  await server.stop();
});

it('serves 200 clients at once', async () => {
  const answers = await Promise.all(Array.from({ length: 200 }, (_, i) => server.post(CHAT, chat({ seed: 7, stream: i % 2 === 1 })).then((r) => r.text().then((text) => ({ status: r.status, text })))));
  assert.ok(answers.every((a) => a.status === 200));
  const whole = answers.filter((_, i) => i % 2 === 0).map((a) => JSON.parse(a.text).choices[0].message.content);
  const streamed = answers.filter((_, i) => i % 2 === 1).map((a) => a.text.split('\n\n').filter((l) => l.startsWith('data: {')).map((l) => JSON.parse(l.slice(6)).choices[0].delta.content ?? '').join(''));
  assert.equal(new Set([...whole, ...streamed]).size, 1); // the same seed, whatever ran beside it
});

// Until nothing is generated any more: sessions park and go on by turns while the sockets still take bytes. Looks are
// counted besides the time, in which a busy machine may not have let the server run.
const standstill = async () => {
  let tokens = -1;
  let since = 0;
  let looks = 0;
  await server.until('parked', 20000 * patience, async () => {
    const now = await server.metric('sluice_predicted_tokens_total');
    if (now !== tokens || (await server.metric('sluice_sessions_parked')) < 3) {
      tokens = now;
      since = Date.now();
      looks = 0;
    }
    return ++looks > 10 && Date.now() - since > 200 * patience;
  });
};

it('parks a client that does not read, and serves the others', async (t) => {
  // More bytes than sockets buffer: log-probabilities of 20 candidates for each of 300 tokens, 3 times.
  const c = server.connect();
  t.after(() => c.socket.destroy()); // a failure here is not to keep the server from ending
  c.socket.pause();
  c.socket.write(request(CHAT, chat({ stream: true, n: 3, max_tokens: 300, ignore_eos: true, logprobs: true, top_logprobs: 20 })));
  await standstill();
  const r = await server.post(CHAT, chat());
  assert.equal(r.status, 200);
  await r.json();
  // Even if that was no standstill yet: the sockets fill, and then they stay parked.
  await server.until('still parked', 5000 * patience, async () => (await server.metric('sluice_sessions_parked')) > 0);
  c.socket.resume(); // it reads on: everything arrives
  const text = await c.all;
  assert.equal(text.match(/"finish_reason":"length"/g)?.length, 3);
  assert.ok(text.includes('data: [DONE]'));
  assert.equal(await server.metric('sluice_sessions_parked'), 0);
});

it('frees a parked session when its client leaves', async (t) => {
  const c = server.connect();
  t.after(() => c.socket.destroy()); // a failure here is not to keep the server from ending
  c.socket.pause();
  c.socket.write(request(CHAT, chat({ stream: true, n: 3, max_tokens: 300, ignore_eos: true, logprobs: true, top_logprobs: 20 })));
  await standstill();
  c.socket.destroy();
  await server.until('freed', 1000 * patience, async () => (await server.metric('sluice_sessions_parked')) === 0);
});

it('ends cleanly', () => server.stop());

// ---- how the process starts and ends

it('says that a port is taken', async () => {
  const server = await Server.start();
  const second = spawnSync(binary, ['serve', '-m', model, '--port', String(server.port)], { encoding: 'utf8' });
  assert.equal(second.status, 1);
  assert.match(second.stderr, /in use by another program; choose another with --port/);
  await server.stop();
});

it('says what is wrong with a model file or an option', () => {
  const none = spawnSync(binary, ['serve', '-m', '/nonexistent.gguf', '--port', '0'], { encoding: 'utf8' });
  assert.equal(none.status, 1);
  assert.match(none.stderr, /nonexistent\.gguf/);
  const typo = spawnSync(binary, ['serve', '--prot', '1'], { encoding: 'utf8' });
  assert.equal(typo.status, 2);
  assert.match(typo.stderr, /--port/);
});

it('finishes running answers after SIGTERM, then exits with 0', async () => {
  const server = await Server.start();
  const r = await server.post(CHAT, chat({ stream: true, n: 8, max_tokens: 600, ignore_eos: true }));
  let ended = false;
  const text = r.text().then((t) => { ended = true; return t; });
  server.child.kill('SIGTERM');
  const refused = () => new Promise((resolve) => {
    const c = net.connect(server.port, '127.0.0.1', () => { c.destroy(); resolve(false); });
    c.on('error', (e) => resolve(e.code === 'ECONNREFUSED'));
  });
  await server.until('the port is closed', NEVER_MS, refused);
  assert.ok(!ended); // while it finishes
  assert.ok((await text).includes('data: [DONE]'));
  assert.deepEqual(await server.exited, { code: 0, signal: null });
});

it('cancels them at a second signal', async () => {
  const server = await Server.start();
  const c = server.connect();
  c.socket.write(request(CHAT, chat({ n: 64, max_tokens: 900, ignore_eos: true })));
  await server.until('running', 5000 * patience, async () => (await server.metric('sluice_sessions_running')) > 0);
  server.child.kill('SIGINT');
  await server.until('stopping', NEVER_MS, () => /stopping: finishing/.test(server.log)); // two that wait would be one
  server.child.kill('SIGINT');
  const end = await Promise.race([server.exited, deadline(20000 * patience)]); // it has 30 s for them otherwise
  assert.deepEqual(end, { code: 0, signal: null });
  assert.match(await c.all, /503|^$/);
});

it('cancels what has not ended when the grace period has, and ends with 0', async () => {
  const server = await Server.start(['--drain-s', '1']);
  const c = server.connect();
  c.socket.write(request(CHAT, chat({ n: 64, max_tokens: 900, ignore_eos: true })));
  await server.until('running', 5000 * patience, async () => (await server.metric('sluice_sessions_running')) > 0);
  const began = Date.now();
  server.child.kill('SIGTERM');
  const end = await Promise.race([server.exited, deadline(NEVER_MS)]);
  assert.deepEqual(end, { code: 0, signal: null });
  assert.ok(Date.now() - began >= 900);
  assert.match(server.log, /canceling 1 requests/);
  assert.match(await c.all, /503|^$/);
});

it('stops when its terminal is closed', async () => {
  const server = await Server.start();
  await server.stop('SIGHUP');
  assert.match(server.log, /stopped/);
});

it('asks for a key when told to', async () => {
  const server = await Server.start(['--api-key', 'secret']);
  assert.equal((await fetch(`${server.url}/v1/models`)).status, 401);
  assert.equal((await fetch(`${server.url}/v1/models`, { headers: { Authorization: 'Bearer secret' } })).status, 200);
  await server.stop('SIGINT');
});
