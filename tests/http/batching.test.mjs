// Many at once: who comes joins those that run, a short request does not wait for long ones, answers go on beside
// prompts, and a full queue says when to come again.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { missing, patience, Server, threads } from './server.mjs';

const { default: OpenAI } = await import('openai').catch(() => ({}));
const it = (name, run, skip = missing) => test(name, { skip }, run);
const server = missing ? null : await Server.start([...threads, '--ctx', '4096', '--parallel', '6', '--batch', '32']);
const COMP = '/v1/completions';
const less = patience > 1 ? 4 : 1; // sanitizers: shorter answers and prompts
const words = (n, of) => Array.from({ length: n }, (_, i) => `${of}${i % 7}`).join(' ');

// Streams; calls seen at each token with how many there were; gives their number.
const stream = async (body, seen = () => {}) => {
  const r = await server.post(COMP, { stream: true, ignore_eos: true, temperature: 0, cache_prompt: false, ...body });
  assert.equal(r.status, 200);
  let text = '', n = 0;
  const decoder = new TextDecoder();
  for await (const part of r.body) {
    text += decoder.decode(part, { stream: true });
    for (let end; (end = text.indexOf('\n\n')) >= 0; text = text.slice(end + 2))
      if (text.startsWith('data: {') && JSON.parse(text.slice(6, end)).choices[0]?.text) seen(++n);
  }
  return n;
};

it('lets a newcomer join at the next step', async () => {
  let first = 0, when;
  const long = stream({ prompt: 'Once', max_tokens: 600 / less }, (n) => { first = n; });
  await server.until('it runs', 10000 * patience, () => first > 5);
  await stream({ prompt: 'There', max_tokens: 8 }, (n) => { when ??= first; });
  const after = first;
  assert.ok(when < 600 / less && after < 600 / less, `the second had its tokens after ${when} to ${after} of the first's`);
  assert.ok(await long > 500 / less);
});

it('does not let a short request wait for long prompts', async () => {
  const order = [];
  const longs = [0, 1, 2].map((i) => stream({ prompt: words(500 / less, `long${i}`), max_tokens: 2 }, (n) => { if (n === 1) order.push('long'); }));
  await server.until('long prompts are read', 10000 * patience, async () => (await (await fetch(`${server.url}/slots`)).json()).filter((s) => s.state === 'prefill').length > 0);
  await stream({ prompt: 'Hi', max_tokens: 4 }, (n) => { if (n === 4) order.push('short'); });
  await Promise.all(longs);
  assert.equal(order[0], 'short', order.join());
});

it('goes on with an answer while a long prompt is read', async () => {
  // Of its tokens some come between the prompt's first slice and its last: a prompt in one piece would let none.
  let tokens = 0, prefilled;
  const answer = stream({ prompt: 'Once', max_tokens: 1200 / less }, (n) => { tokens = n; });
  await server.until('it runs', 10000 * patience, () => tokens > 5);
  const before = tokens;
  await stream({ prompt: words(500 / less, 'other'), max_tokens: 1 }, () => { prefilled = tokens; });
  assert.ok(prefilled - before > 8 / less, `${prefilled - before} tokens beside a long prompt`);
  await answer;
});

it('refuses what a full queue cannot take, and says when to come again', async () => {
  const small = await Server.start(['--parallel', '1', '--queue', '1']);
  const client = new OpenAI({ baseURL: `${small.url}/v1`, apiKey: 'none', maxRetries: 0, timeout: 60000 * patience });
  const all = await Promise.allSettled(Array.from({ length: 24 }, () => client.completions.create({ model: 'test', prompt: 'Once', max_tokens: 60 })));
  const refused = all.filter((r) => r.status === 'rejected').map((r) => r.reason);
  assert.ok(refused.length > 0 && refused.length < 24);
  for (const e of refused) {
    assert.ok(e instanceof OpenAI.RateLimitError, e);
    assert.equal(e.type, 'rate_limit_error');
    assert.equal(e.code, 'queue_full');
    assert.ok(Number(e.headers.get('retry-after')) > 0);
  }
  const patient = new OpenAI({ baseURL: `${small.url}/v1`, apiKey: 'none', maxRetries: 20, timeout: 60000 * patience });
  const some = await Promise.all(Array.from({ length: 4 }, () => patient.completions.create({ model: 'test', prompt: 'Once', max_tokens: 5 })));
  assert.equal(some.length, 4); // who heeds Retry-After is served
  await small.stop();
}, missing || (OpenAI ? false : 'the openai package is not installed: run npm ci in tests/http'));

it('ends cleanly', () => server.stop());
