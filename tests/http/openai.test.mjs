// The official openai client against the real binary: chat, stream, errors, cancel.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { missing, patience, Server, sleep, threads } from './server.mjs';

const { default: OpenAI } = await import('openai').catch(() => ({}));
const skip = missing || (OpenAI ? false : 'the openai package is not installed: run npm ci in tests/http');
const user = (content) => [{ role: 'user', content }];

// Flat tests, one after the other, so that every runner counts each of them.
const it = (name, run) => test(name, { skip }, run);
const server = skip ? null : await Server.start(threads);
const client = skip ? null : new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0, timeout: 60000 * patience });

it('lists and retrieves the model', async () => {
  const models = await client.models.list();
  assert.deepEqual(models.data.map((m) => m.id), ['test']);
  assert.equal((await client.models.retrieve('test')).owned_by, 'sluice');
});

it('chats', async () => {
  const r = await client.chat.completions.create({ model: 'test', messages: user('What is 2 + 3?'), temperature: 0, max_completion_tokens: 20 });
  assert.equal(r.object, 'chat.completion');
  assert.match(r.id, /^chatcmpl-/);
  assert.equal(r.choices.length, 1);
  assert.equal(r.choices[0].message.role, 'assistant');
  assert.ok(['stop', 'length'].includes(r.choices[0].finish_reason));
  assert.ok(r.usage.prompt_tokens > 0 && r.usage.completion_tokens > 0);
  assert.equal(r.usage.total_tokens, r.usage.prompt_tokens + r.usage.completion_tokens);
});

it('streams the same text as it answers whole', async () => {
  const ask = { model: 'test', messages: user('Tell me a story.'), seed: 5, temperature: 0.8, max_tokens: 40 };
  const whole = await client.chat.completions.create(ask);
  const stream = await client.chat.completions.create({ ...ask, stream: true, stream_options: { include_usage: true } });
  let text = '', reason, usage, chunks = 0, ids = new Set();
  for await (const chunk of stream) {
    chunks++;
    ids.add(chunk.id);
    if (chunk.usage) usage = chunk.usage;
    text += chunk.choices[0]?.delta?.content ?? '';
    reason ??= chunk.choices[0]?.finish_reason ?? undefined;
  }
  assert.equal(text, whole.choices[0].message.content);
  assert.equal(reason, whole.choices[0].finish_reason);
  assert.deepEqual(usage, whole.usage);
  assert.equal(ids.size, 1);
  assert.ok(chunks > 10);
});

it('reproduces an answer from its seed, and n answers from n seeds', async () => {
  const ask = { model: 'test', messages: user('Tell me a story.'), temperature: 1, max_tokens: 20 };
  const several = await client.chat.completions.create({ ...ask, seed: 40, n: 3 });
  assert.deepEqual(several.choices.map((c) => c.index), [0, 1, 2]);
  for (const i of [0, 1, 2]) {
    const one = await client.chat.completions.create({ ...ask, seed: 40 + i });
    assert.equal(one.choices[0].message.content, several.choices[i].message.content);
  }
});

it('runs the stream helper of the client', async () => {
  const runner = client.chat.completions.stream({ model: 'test', messages: user('Hello'), max_tokens: 10, temperature: 0 });
  const final = await runner.finalChatCompletion();
  assert.equal(final.choices[0].message.role, 'assistant');
});

it('gives log-probabilities', async () => {
  const r = await client.chat.completions.create({ model: 'test', messages: user('Hi'), temperature: 0, max_tokens: 5, logprobs: true, top_logprobs: 3 });
  const content = r.choices[0].logprobs.content;
  assert.ok(content.length > 0);
  for (const t of content) {
    assert.equal(t.top_logprobs.length, 3);
    assert.ok(t.logprob <= 0);
    assert.equal(t.token, t.top_logprobs[0].token); // greedy
    assert.ok(t.top_logprobs[0].logprob >= t.top_logprobs[1].logprob);
  }
  assert.equal(content.map((t) => Buffer.from(t.bytes).toString('latin1')).join(''), Buffer.from(r.choices[0].message.content).toString('latin1'));
});

it('stops before a stop string, whatever the tokens', async () => {
  const ask = { model: 'test', prompt: 'Once upon a time', temperature: 0, max_tokens: 60 };
  const full = (await client.completions.create(ask)).choices[0].text;
  assert.ok(full.length > 20);
  for (let at = 4; at + 5 < full.length; at += 7) {
    const stop = full.slice(at, at + 5);
    const cut = full.slice(0, full.indexOf(stop));
    const r = await client.completions.create({ ...ask, stop });
    assert.equal(r.choices[0].text, cut);
    assert.equal(r.choices[0].finish_reason, 'stop');
    let text = '';
    for await (const c of await client.completions.create({ ...ask, stop: ['\u0000never', stop].slice(1), stream: true })) text += c.choices[0]?.text ?? '';
    assert.equal(text, cut);
  }
});

it('completes several prompts, as text and as ids', async () => {
  const r = await client.completions.create({ model: 'test', prompt: ['Once upon', 'The fox'], temperature: 0, max_tokens: 6, echo: true });
  assert.ok(r.choices[0].text.startsWith('Once upon') && r.choices[1].text.startsWith('The fox'));
  const { tokens } = await (await server.post('/tokenize', { content: 'Once upon' })).json();
  const byId = await client.completions.create({ model: 'test', prompt: tokens, temperature: 0, max_tokens: 6 });
  assert.equal('Once upon' + byId.choices[0].text, r.choices[0].text);
});

it('scores a prompt that is echoed, as evaluation harnesses ask for it', async () => {
  const text = 'Once upon a time there was a fox';
  const { tokens } = await (await server.post('/tokenize', { content: text })).json();
  const whole = (await client.completions.create({ model: 'test', prompt: tokens, echo: true, logprobs: 1, max_tokens: 0 })).choices[0];
  assert.equal(whole.text, text);
  assert.equal(whole.logprobs.tokens.length, tokens.length);
  assert.equal(whole.logprobs.tokens.join(''), text);
  assert.deepEqual([whole.logprobs.token_logprobs[0], whole.logprobs.top_logprobs[0]], [null, null]);
  whole.logprobs.text_offset.forEach((at, i) => assert.ok(text.slice(at).startsWith(whole.logprobs.tokens[i])));
  // The same as a token's probability when it is the only answer.
  const k = tokens.length - 1;
  const last = (await client.completions.create({ model: 'test', prompt: tokens.slice(0, k), temperature: 0, logprobs: 0, max_tokens: 1, logit_bias: { [tokens[k]]: 100 } })).choices[0];
  assert.equal(last.text, whole.logprobs.tokens[k]);
  assert.equal(last.logprobs.token_logprobs[0], whole.logprobs.token_logprobs[k]);
  // A harness asks for one token more and drops it; text gives what its ids give.
  const one = (await client.completions.create({ model: 'test', prompt: text, echo: true, logprobs: 1, max_tokens: 1, temperature: 0 })).choices[0];
  assert.deepEqual(one.logprobs.token_logprobs.slice(0, -1), whole.logprobs.token_logprobs);
  assert.ok(one.text.startsWith(text) && one.text.length > text.length);
  assert.equal(one.logprobs.text_offset[tokens.length], text.length);
  for (let i = 1; i < tokens.length; i++) assert.ok(Math.max(...Object.values(whole.logprobs.top_logprobs[i])) >= whole.logprobs.token_logprobs[i]);
});

it('obeys logit_bias', async () => {
  const { tokens } = await (await server.post('/tokenize', { content: ' a' })).json();
  const r = await client.completions.create({ model: 'test', prompt: 'Once', max_tokens: 5, temperature: 0, logit_bias: { [tokens[0]]: 100 } });
  assert.equal(r.choices[0].text, ' a'.repeat(5));
});

it('raises the client\'s error classes', async () => {
  const ask = { model: 'test', messages: user('x') };
  await assert.rejects(client.chat.completions.create({ ...ask, model: 'gpt-9' }), (e) => e instanceof OpenAI.NotFoundError && e.param === 'model' && e.code === 'model_not_found');
  await assert.rejects(client.chat.completions.create({ ...ask, temperature: 'hot' }), (e) => e instanceof OpenAI.BadRequestError && e.param === 'temperature');
  await assert.rejects(client.chat.completions.create({ ...ask, messages: [] }), (e) => e instanceof OpenAI.BadRequestError && e.param === 'messages');
  await assert.rejects(client.chat.completions.create({ ...ask, messages: user([{ type: 'image_url', image_url: { url: 'data:,' } }]) }), (e) => e instanceof OpenAI.BadRequestError && /text only/.test(e.message));
  await assert.rejects(client.chat.completions.create({ ...ask, response_format: { type: 'xml' } }), (e) => e instanceof OpenAI.BadRequestError && e.param === 'response_format');
  await assert.rejects(client.chat.completions.create({ ...ask, messages: user('word '.repeat(5000)) }), (e) => e instanceof OpenAI.BadRequestError && e.code === 'context_length_exceeded');
  await assert.rejects(client.chat.completions.create({ ...ask, stream: true, top_p: 3 }), (e) => e instanceof OpenAI.BadRequestError && e.param === 'top_p');
  await assert.rejects(client.moderations.create({ model: 'test', input: 'x' }), (e) => e instanceof OpenAI.NotFoundError);
});

// ignore_eos: the model would end by itself otherwise.
const endless = { model: 'test', messages: user('Tell me a story.'), max_tokens: 1000, ignore_eos: true };

it('frees the work of a stream that its client breaks off', async () => {
  const canceled = await server.metric('sluice_requests_canceled_total');
  const stream = await client.chat.completions.create({ ...endless, stream: true });
  let n = 0;
  for await (const _ of stream) if (++n === 3) break; // the client aborts the connection
  // On a fast machine the answer may have ended by itself: then nothing was left to cancel.
  await server.until('canceled', 1000 * patience, async () =>
    (await server.metric('sluice_requests_canceled_total')) > canceled || (await server.metric('sluice_sessions_running')) === 0);
  await server.until('idle', 1000 * patience, async () => (await server.metric('sluice_sessions_running')) === 0);
});

it('frees the work of a whole answer that its client gives up', async () => {
  const canceled = await server.metric('sluice_requests_canceled_total');
  const abort = new AbortController();
  const answer = client.chat.completions.create({ ...endless, n: 16 }, { signal: abort.signal });
  answer.catch(() => {});
  await server.until('running', 5000 * patience, async () => (await server.metric('sluice_sessions_running')) > 0);
  abort.abort();
  await assert.rejects(answer, OpenAI.APIUserAbortError);
  await server.until('canceled', 1000 * patience, async () => (await server.metric('sluice_requests_canceled_total')) > canceled);
  await server.until('idle', 1000 * patience, async () => (await server.metric('sluice_sessions_running')) === 0 && (await server.metric('sluice_sessions_waiting')) === 0);
});

it('still answers', async () => {
  await sleep(10);
  const r = await client.chat.completions.create({ model: 'test', messages: user('Hi'), max_tokens: 3 });
  assert.equal(r.choices.length, 1);
});

it('ends cleanly', () => server.stop());
