// llama.cpp's own endpoints against the real binary.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { missing, patience, Server } from './server.mjs';

const it = (name, run) => test(name, { skip: missing }, run);
const server = missing ? null : await Server.start();
const post = async (path, body) => { const r = await server.post(path, body); return { status: r.status, body: await r.json() }; };
const events = async (body) => {
  const r = await server.post('/completion', { ...body, stream: true });
  assert.equal(r.headers.get('content-type'), 'text/event-stream');
  return (await r.text()).split('\n\n').filter((e) => e.startsWith('data: ')).map((e) => JSON.parse(e.slice(6)));
};
const ask = { prompt: 'Once upon a time', n_predict: 12, temperature: 0 };

it('completes, whole and streamed', async () => {
  const { body } = await post('/completion', { ...ask, return_tokens: true, n_probs: 2 });
  assert.equal(body.tokens.length, body.tokens_predicted);
  assert.equal(body.prompt, ask.prompt);
  assert.equal(body.generation_settings.n_predict, 12);
  assert.equal(body.completion_probabilities[0].top_logprobs.length, 2);
  assert.equal(body.timings.predicted_n, body.tokens_predicted);
  const parts = await events(ask);
  assert.equal(parts.map((p) => p.content).join(''), body.content);
  assert.deepEqual(parts.map((p) => p.stop), parts.map((_, i) => i === parts.length - 1));
  assert.deepEqual(parts.flatMap((p) => p.tokens), body.tokens.slice(0, parts.flatMap((p) => p.tokens).length));
  assert.equal(parts.at(-1).stop_type, body.stop_type);
});

it('takes ids, texts and both in one prompt', async () => {
  const { body: { tokens } } = await post('/tokenize', { content: ask.prompt, add_special: true });
  const { body: one } = await post('/completion', ask);
  const { body: all } = await post('/completion', { ...ask, prompt: [tokens, ask.prompt, { prompt_string: ask.prompt }, [tokens[0], ...tokens.slice(1)]] });
  assert.equal(all.length, 4);
  for (const [i, r] of all.entries()) { assert.equal(r.index, i); assert.equal(r.content, one.content); }
  assert.equal((await post('/completion', { ...ask, prompt: [...tokens, ' there'] })).status, 200);
});

it('stops, and keeps to grammars and schemas', async () => {
  const { body: free } = await post('/completion', ask);
  const word = free.content.trim().slice(2, 5);
  const { body: cut } = await post('/completion', { ...ask, stop: [word] });
  assert.equal(cut.stop_type, 'word');
  assert.equal(cut.stopping_word, word);
  assert.ok(!cut.content.includes(word));
  assert.match((await post('/completion', { ...ask, grammar: 'root ::= [0-9] [0-9]' })).body.content, /^\d\d$/);
  assert.equal(typeof JSON.parse((await post('/completion', { ...ask, json_schema: { type: 'boolean' } })).body.content), 'boolean');
});

it('refuses', async () => {
  const refused = async (path, body, text) => {
    const r = await post(path, body);
    assert.equal(r.status, 400);
    assert.match(r.body.error.message, text);
  };
  await refused('/completion', {}, /'prompt' is missing/);
  await refused('/completion', { ...ask, n_predict: -7 }, /'n_predict'/);
  await refused('/completion', { ...ask, lora: [{ id: 0, scale: 1 }] }, /'lora' is not supported/);
  await refused('/infill', { input_prefix: 'a', input_suffix: 'b' }, /cannot fill a gap/);
});

it('ends the work of a client that leaves', async () => {
  const gone = new AbortController();
  const r = await server.post('/completion', { ...ask, n_predict: -1, ignore_eos: true, stream: true }, { signal: gone.signal });
  await r.body.getReader().read();
  gone.abort();
  await server.until('no request runs', 10000 * patience, async () => (await (await fetch(`${server.url}/slots`)).json()).every((s) => !s.is_processing));
});

test('ends cleanly', { skip: missing }, () => server.stop());
