// Embeddings with the official openai and ollama clients against the real binary: the same bits whatever runs beside.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { missing, Server } from './server.mjs';

const { default: OpenAI } = await import('openai').catch(() => ({}));
const { Ollama } = await import('ollama').catch(() => ({}));
const skip = missing || (OpenAI && Ollama ? false : 'the packages are not installed: run npm ci in tests/http');
const it = (name, run) => test(name, { skip }, run);
const server = skip ? null : await Server.start(['--batch', '32']);
const client = skip ? null : new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none' });
const texts = ['The fox sleeps in the forest.', 'A fox is asleep among the trees.', 'What is 2 + 3?'];
const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);

it('makes vectors of texts, which the client asks for as base64', async () => {
  const r = await client.embeddings.create({ model: 'test', input: texts });
  assert.equal(r.data.length, 3);
  assert.equal(r.model, 'test');
  for (const [i, d] of r.data.entries()) {
    assert.equal(d.index, i);
    assert.ok(Math.abs(dot(d.embedding, d.embedding) - 1) < 1e-5);
  }
  const [a, b, c] = r.data.map((d) => d.embedding);
  assert.ok(dot(a, b) > dot(a, c), `${dot(a, b)} ${dot(a, c)}`);
  const plain = await client.embeddings.create({ model: 'test', input: texts, encoding_format: 'float' });
  assert.deepEqual(plain.data.map((d) => d.embedding.map(Math.fround)), r.data.map((d) => [...d.embedding]));
  assert.equal(plain.usage.prompt_tokens, r.usage.prompt_tokens);
});

it('gives the same numbers alone, in a batch, as ids and beside chats', async () => {
  const long = texts.join(' ').repeat(8);
  const one = async (input, more) => (await client.embeddings.create({ model: 'test', input, encoding_format: 'float', ...more })).data[0].embedding;
  const alone = await one(long);
  const { tokens } = await (await server.post('/tokenize', { content: long, add_special: true })).json();
  assert.deepEqual(await one(tokens), alone);
  const chat = () => client.chat.completions.create({ model: 'test', messages: [{ role: 'user', content: 'Tell me a story.' }], max_tokens: 60 });
  const overlapped = await Promise.all([chat(), one(long), one([long, ...texts]), chat(), one(long)]);
  for (const i of [1, 2, 4]) assert.deepEqual(overlapped[i], alone);
  assert.notDeepEqual(await one(long, { pooling: 'last' }), alone);
});

it('serves Ollama\'s clients', async () => {
  const ollama = new Ollama({ host: server.url });
  const { embeddings, prompt_eval_count: n } = await ollama.embed({ model: 'test', input: texts });
  const plain = await client.embeddings.create({ model: 'test', input: texts, encoding_format: 'float' });
  assert.deepEqual(embeddings, plain.data.map((d) => d.embedding));
  assert.equal(n, plain.usage.prompt_tokens);
  assert.deepEqual((await ollama.embeddings({ model: 'test', prompt: texts[0] })).embedding, embeddings[0]);
  assert.equal((await ollama.embed({ model: 'test', input: 'fox '.repeat(5000) })).prompt_eval_count, 1023);
  await assert.rejects(ollama.embed({ model: 'test', input: 'fox '.repeat(5000), truncate: false }), /context/);
});

it('ends cleanly', () => server.stop());
