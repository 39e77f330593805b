// The names of endpoints and of the model, with the official clients.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { missing, patience, Server } from './server.mjs';

const { default: OpenAI } = await import('openai').catch(() => ({}));
const { default: Anthropic } = await import('@anthropic-ai/sdk').catch(() => ({}));
const skip = missing || (OpenAI && Anthropic ? false : 'the client packages are not installed: run npm ci in tests/http');
const it = (name, run) => test(name, { skip }, run);
const server = skip ? null : await Server.start(['--alias', 'gpt-4o,claude-x']);
const messages = [{ role: 'user', content: 'What is 2 + 3?' }];

it('answers under base URLs with and without /v1, with doubled and trailing slashes', async () => {
  for (const base of ['', '/', '/v1', '/v1/', '//v1//']) {
    const client = new OpenAI({ baseURL: server.url + base, apiKey: 'none', maxRetries: 0, timeout: 60000 * patience });
    const ask = { model: 'test', max_tokens: 2, temperature: 0 };
    assert.equal((await client.chat.completions.create({ ...ask, messages })).object, 'chat.completion');
    assert.equal((await client.completions.create({ ...ask, prompt: 'x' })).object, 'text_completion');
    assert.equal((await client.responses.create({ model: 'test', input: 'x', max_output_tokens: 2 })).object, 'response');
    assert.ok((await client.models.list()).data.length > 0);
  }
  const status = async (path, options) => (await fetch(server.url + path, options)).status;
  assert.equal(await status('/health/'), 200);
  assert.equal(await status('//'), 200);
  assert.equal(await status('/v2/models'), 404);
  assert.equal(await status('/chat/completions', { method: 'GET' }), 405);
});

it('lists each name, and answers under the one that was asked for', async () => {
  const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0, timeout: 60000 * patience });
  assert.deepEqual((await client.models.list()).data.map((m) => m.id), ['test', 'gpt-4o', 'claude-x']);
  for (const model of ['test', 'gpt-4o']) {
    assert.equal((await client.models.retrieve(model)).id, model);
    assert.equal((await client.chat.completions.create({ model, messages, max_tokens: 2 })).model, model);
    for await (const c of await client.chat.completions.create({ model, messages, max_tokens: 2, stream: true })) assert.equal(c.model, model);
  }
  await assert.rejects(client.chat.completions.create({ model: 'gpt-5', messages }), (e) => e.status === 404 && e.code === 'model_not_found');
  const other = new Anthropic({ baseURL: server.url, apiKey: 'none', maxRetries: 0, timeout: 60000 * patience });
  assert.equal((await other.messages.create({ model: 'claude-x', messages, max_tokens: 2 })).model, 'claude-x');
  assert.equal((await other.models.list()).data.length, 3);
});

it('accepts every name where it is told to', async () => {
  const any = await Server.start(['--any-model-name']);
  const r = await any.post('/v1/chat/completions', { model: 'whatever/it-is', messages, max_tokens: 2 });
  assert.equal(r.status, 200);
  assert.equal((await r.json()).model, 'whatever/it-is');
  assert.equal((await fetch(`${any.url}/v1/models/whatever`)).status, 200);
  await any.stop();
});

test('ends cleanly', { skip }, () => server.stop());
