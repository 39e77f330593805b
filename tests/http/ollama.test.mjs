// The official ollama client against the real binary: whole, streamed, structured, tools, errors, abort.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { missing, patience, Server } from './server.mjs';

const { Ollama } = await import('ollama').catch(() => ({}));
const skip = missing || (Ollama ? false : 'the ollama package is not installed: run npm ci in tests/http');
const it = (name, run) => test(name, { skip }, run);
const server = skip ? null : await Server.start(['--alias', 'other']);
const client = skip ? null : new Ollama({ host: server.url });
const messages = [{ role: 'user', content: 'What is 2 + 3?' }];
const options = { temperature: 0, num_predict: 40 };

it('tells what is served', async () => {
  assert.match((await client.version()).version, /^\d+\.\d+\.\d+$/);
  const { models } = await client.list();
  assert.deepEqual(models.map((m) => m.name), ['test', 'other']);
  assert.equal(models[0].details.format, 'gguf');
  assert.ok(models[0].size > 0 && !Number.isNaN(Date.parse(models[0].modified_at)));
  const show = await client.show({ model: 'test:latest' });
  assert.ok(show.capabilities.includes('completion'));
  assert.equal(show.model_info[`${show.model_info['general.architecture']}.context_length`], 1024);
  assert.equal((await client.ps()).models[0].name, 'test');
});

it('chats, whole and streamed', async () => {
  const whole = await client.chat({ model: 'test', messages, options });
  assert.match(whole.message.content, /5/);
  assert.equal(whole.done_reason, 'stop');
  assert.ok(whole.total_duration >= whole.eval_duration && whole.eval_count > 0 && whole.prompt_eval_count > 0);
  let text = '', last;
  for await (const part of await client.chat({ model: 'test:latest', messages, options, stream: true })) {
    assert.equal(part.model, 'test:latest');
    text += part.message.content;
    last = part;
  }
  assert.equal(text, whole.message.content);
  assert.equal(last.done, true);
  assert.equal(last.eval_count, whole.eval_count);
});

it('generates, whole and streamed', async () => {
  const whole = await client.generate({ model: 'test', prompt: messages[0].content, options });
  assert.match(whole.response, /5/);
  let text = '';
  for await (const part of await client.generate({ model: 'test', prompt: messages[0].content, options, stream: true })) text += part.response;
  assert.equal(text, whole.response);
  assert.equal((await client.generate({ model: 'test', prompt: 'x', raw: true, options: { num_predict: 2 } })).done_reason, 'length');
  assert.equal((await client.generate({ model: 'test', prompt: '' })).done_reason, 'load');
});

it('keeps to a schema, and to JSON', async () => {
  const format = { type: 'object', properties: { sum: { type: 'integer', minimum: 0, maximum: 99 } }, required: ['sum'], additionalProperties: false };
  const r = await client.chat({ model: 'test', messages, options, format });
  assert.deepEqual(Object.keys(JSON.parse(r.message.content)), ['sum']);
  for await (const part of await client.generate({ model: 'test', prompt: 'x', options, format: 'json', stream: true })) assert.equal(typeof part.response, 'string');
});

it('takes a conversation with tools', async () => {
  const tools = [{ type: 'function', function: { name: 'add', description: 'Adds.', parameters: { type: 'object', properties: { a: { type: 'integer' } } } } }];
  const r = await client.chat({
    model: 'test', options, tools, keep_alive: '5m', think: false,
    messages: [...messages, { role: 'assistant', content: '', tool_calls: [{ function: { name: 'add', arguments: { a: 2 } } }] },
               { role: 'tool', content: '5', tool_name: 'add' }],
  });
  assert.equal(r.message.role, 'assistant');
});

it('refuses in the form of the API', async () => {
  const is = (status, text) => (e) => { assert.equal(e.status_code, status); assert.match(e.message, text); return true; };
  await assert.rejects(client.chat({ model: 'gpt-5', messages }), is(404, /does not exist/));
  await assert.rejects(client.chat({ model: 'test', messages: [{ role: 'user', content: 'x', images: [new Uint8Array([1])] }] }), is(400, /text only/));
  await assert.rejects(client.chat({ model: 'test', messages, options: { num_ctx: 4096 } }), is(400, /1024 tokens/));
  await assert.rejects(client.chat({ model: 'test', messages, options: { temperature: 9 } }), is(400, /options\.temperature/));
  await assert.rejects(client.generate({ model: 'test', prompt: 'a', suffix: 'b' }), is(400, /filling in the middle/));
  await assert.rejects(client.pull({ model: 'test' }), is(404, /no endpoint/));
});

it('ends the work of a client that leaves', async () => {
  const long = { model: 'test', prompt: 'Tell me a story.', raw: true, options: { num_predict: 900 }, ignore_eos: true, stream: true };
  const stream = await client.generate(long);
  await assert.rejects(async () => {
    let n = 0;
    for await (const _ of stream) if (++n === 2) stream.abort();
  });
  await server.until('no request runs', 10000 * patience, async () => (await (await fetch(`${server.url}/slots`)).json()).every((s) => !s.is_processing));
});

test('ends cleanly', { skip }, () => server.stop());
