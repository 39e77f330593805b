// Prefixes through the whole server: reuse between requests, after a kill, and what clients are told; and deadlines.
import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { missing, patience, Server } from './server.mjs';

const skip = missing;
const server = missing ? null : await Server.start(['--ctx', '2048']);
after(async () => { if (server) await server.stop(); });

const words = (n, seed) => {
  let s = seed, out = '';
  for (let i = 0; i < n; i++) {
    s = (s * 1103515245 + 12345) % 2147483648;
    out += ['river', 'stone', 'lamp', 'seven', 'quiet', 'green', 'door', 'paper'][s >> 16 & 7] + ' ';
  }
  return out;
};
const ask = async (s, body) => {
  const r = await s.post('/v1/chat/completions', { temperature: 0, max_tokens: 16, ...body });
  return { status: r.status, json: await r.json() };
};
const cached = (a) => a.json.usage.prompt_tokens_details.cached_tokens;
const said = (a) => a.json.choices.map((c) => c.message.content);

test('a text is computed once, and the answer says so', { skip }, async () => {
  const messages = [{ role: 'system', content: words(150, 1) }, { role: 'user', content: 'Which word came first?' }];
  const first = await ask(server, { messages });
  assert.equal(first.status, 200);
  assert.equal(cached(first), 0);
  assert.equal(first.json.timings.cached_n, 0);
  assert.equal(first.json.timings.prompt_n, first.json.usage.prompt_tokens);
  const again = await ask(server, { messages });
  assert.deepEqual(said(again), said(first));
  const n = again.json.usage.prompt_tokens;
  assert.equal(cached(again), Math.floor((n - 1) / 64) * 64);
  assert.equal(again.json.timings.cached_n, cached(again));
  assert.equal(again.json.timings.prompt_n, n - cached(again));
  // The next turn brings the answer along, another question shares the system prompt.
  const next = await ask(server, { messages: [...messages, first.json.choices[0].message, { role: 'user', content: 'And then?' }] });
  assert.ok(cached(next) >= cached(again));
  const other = await ask(server, { messages: [messages[0], { role: 'user', content: words(30, 2) }] });
  assert.ok(cached(other) >= 64 && cached(other) <= cached(again));
  const alone = await ask(server, { messages, cache_prompt: false });
  assert.equal(cached(alone), 0);
  assert.deepEqual(said(alone), said(first));
  const wrong = await ask(server, { messages, cache_prompt: 'no' });
  assert.equal(wrong.status, 400);
  assert.equal(wrong.json.error.param, 'cache_prompt');
});

test('choices share their prompt', { skip }, async () => {
  const messages = [{ role: 'user', content: words(130, 3) }];
  const before = await server.metric('sluice_prompt_tokens_total');
  const three = await ask(server, { messages, n: 3, temperature: 1, seed: 5 });
  const n = three.json.usage.prompt_tokens;
  const computed = await server.metric('sluice_prompt_tokens_total') - before;
  assert.equal(computed, n + 2 * (n - Math.floor((n - 1) / 64) * 64));
  assert.equal(cached(three), 0); // the prompt was new
  const alone = await ask(server, { messages, n: 3, temperature: 1, seed: 5, cache_prompt: false });
  assert.deepEqual(said(alone), said(three));
});

test('streams and their usage', { skip }, async () => {
  const body = { messages: [{ role: 'user', content: words(130, 3) }], max_tokens: 8, temperature: 0, stream: true, stream_options: { include_usage: true } };
  const text = await (await server.post('/v1/chat/completions', body)).text();
  const usage = text.split('\n\n').filter((e) => e.startsWith('data: {')).map((e) => JSON.parse(e.slice(6)).usage).filter(Boolean);
  assert.equal(usage.length, 1);
  assert.ok(usage[0].prompt_tokens_details.cached_tokens >= 64);
});

test('a killed server finds its texts again', { skip }, async () => {
  const dir = mkdtempSync(join(tmpdir(), 'sluice-prefix-'));
  const args = ['--ctx', '2048', '--cache-dir', dir, '--cache-disk', '64MiB'];
  const messages = [{ role: 'system', content: words(220, 4) }, { role: 'user', content: 'Go on.' }];
  const plain = await ask(server, { messages, max_tokens: 40, cache_prompt: false });
  try {
    let s = await Server.start(args);
    const r = await s.post('/v1/chat/completions', { messages, temperature: 0, max_tokens: 1500, stream: true, ignore_eos: true });
    const reader = r.body.getReader();
    await reader.read(); // its first tokens
    await s.until('pages on disk', 20000 * patience, async () => await s.metric('sluice_prefix_disk_blocks') >= 4);
    s.child.kill('SIGKILL'); // in mid-stream
    await s.exited;
    await reader.read().catch(() => {});

    s = await Server.start(args);
    assert.match(s.log, /prefix cache: \d+ blocks/);
    const again = await ask(s, { messages, max_tokens: 40 });
    assert.ok(cached(again) >= 128, `cached ${cached(again)}`);
    assert.deepEqual(said(again), said(plain));
    assert.ok(await s.metric('sluice_prefix_disk_hit_tokens_total') >= 128);
    // Another process on the folder says so and serves without.
    const second = await Server.start(args);
    assert.match(second.log, /in use by another process/);
    assert.equal(cached(await ask(second, { messages })), 0);
    await second.stop();
    await s.stop();
    assert.equal(readdirSync(dir).filter((f) => f.endsWith('.tmp')).length, 0);
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
});

test('a request ends when its time is over', { skip }, async () => {
  // No machine makes 1500 tokens in a fiftieth of a second.
  const body = { messages: [{ role: 'user', content: words(100, 6) }], max_tokens: 1500, ignore_eos: true };
  const made = await server.metric('sluice_predicted_tokens_total');
  const late = await ask(server, { ...body, timeout_s: 0.02 });
  assert.equal(late.status, 504);
  assert.equal(late.json.error.code, 'deadline_exceeded');
  assert.ok(await server.metric('sluice_predicted_tokens_total') - made < 1500);
  const text = await (await server.post('/v1/chat/completions', { ...body, timeout_s: 0.02, stream: true })).text();
  assert.match(text, /deadline_exceeded/);
  const bad = await ask(server, { ...body, timeout_s: 0 });
  assert.equal(bad.status, 400);
  assert.equal(bad.json.error.param, 'timeout_s');
  assert.equal((await ask(server, { messages: body.messages, max_tokens: 2, timeout_s: 600 })).status, 200);
  assert.ok(await server.metric('sluice_requests_timed_out_total') >= 2);

  for (const [path, more] of [['/v1/responses', { input: body.messages[0].content, max_output_tokens: 1500 }],
                              ['/v1/messages', { messages: body.messages, max_tokens: 1500, model: 'test' }]])
    assert.equal((await server.post(path, { ...more, timeout_s: 0.001 })).status, 504, path);

  const strict = await Server.start(['--request-timeout-s', '1', '--ctx', '4096']);
  const r = await ask(strict, { ...body, max_tokens: 3900, timeout_s: 600 }); // the shorter of the two holds
  assert.ok(r.status === 504 || r.json.usage.completion_tokens === 3900);
  await strict.stop();
});
