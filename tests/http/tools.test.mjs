// Tools: whatever the model would like to say, a call that must be made is made, and its arguments are valid.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { missing, patience, Server } from './server.mjs';

const { default: Ajv } = await import('ajv/dist/2020.js').catch(() => ({ default: {} }));
const { default: OpenAI } = await import('openai').catch(() => ({}));
const skip = missing || (OpenAI && Ajv.default ? false : 'ajv or openai is not installed: run npm ci in tests/http');

const it = (name, run) => test(name, { skip }, run);
const server = skip ? null : await Server.start();
const client = skip ? null : new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0, timeout: 60000 * patience });
const ajv = skip ? null : new Ajv.default({ strict: false, allErrors: true });

const weather = {
  type: 'object',
  properties: {
    city: { enum: ['Rome', 'Paris', 'Zürich'] },
    days: { type: 'integer', minimum: 1, maximum: 9 },
    parts: { type: 'array', items: { enum: ['day', 'night'] }, minItems: 1, maxItems: 2 },
  },
  required: ['city', 'days'],
  additionalProperties: false,
};
const place = {
  type: 'object',
  properties: { at: { $ref: '#/$defs/point' }, note: { type: 'string', maxLength: 12 } },
  required: ['at', 'note'],
  $defs: { point: { type: 'object', properties: { x: { type: 'integer' }, y: { type: 'integer' } }, required: ['x', 'y'] } },
};
const schemas = { get_weather: weather, put_mark: place, now: { type: 'object', maxProperties: 0 } };
const tools = [
  { type: 'function', function: { name: 'get_weather', description: 'The weather of some days', parameters: weather, strict: true } },
  { type: 'function', function: { name: 'put_mark', parameters: place } },
  { type: 'function', function: { name: 'now' } },
];
const validate = Object.fromEntries(Object.entries(skip ? {} : schemas).map(([k, v]) => [k, ajv.compile(v)]));
const question = [{ role: 'user', content: 'What will the weather be in Rome?' }];
const ask = (extra) => ({ model: 'test', messages: question, tools, max_tokens: 250, ...extra });
const named = (name) => ({ type: 'function', function: { name } });

function check(call) {
  assert.equal(call.type, 'function');
  assert.match(call.id, /^\S+$/);
  const v = validate[call.function.name];
  assert.ok(v, `no such function: ${call.function.name}`);
  const value = JSON.parse(call.function.arguments);
  assert.ok(v(value), `${ajv.errorsText(v.errors)}\n${call.function.arguments}`);
  return value;
}

// A stream put together as the API's documentation says.
async function gather(body) {
  const out = { content: '', calls: [], fragments: 0 };
  for await (const chunk of await client.chat.completions.create({ ...body, stream: true })) {
    const choice = chunk.choices[0];
    if (!choice) continue;
    out.content += choice.delta.content ?? '';
    for (const d of choice.delta.tool_calls ?? []) {
      if (d.id) {
        assert.equal(d.index, out.calls.length, 'calls begin one after the other');
        assert.equal(d.type, 'function');
        assert.ok(d.function.name);
        out.calls.push({ id: d.id, type: d.type, function: { name: d.function.name, arguments: '' } });
      }
      if (d.function.arguments) out.fragments++;
      out.calls[d.index].function.arguments += d.function.arguments ?? '';
    }
    out.reason ??= choice.finish_reason ?? undefined;
  }
  return out;
}

for (const seed of [1, 2])
  it(`calls some function when it must, seed ${seed}`, async () => {
    const r = await client.chat.completions.create(ask({ tool_choice: 'required', temperature: 1, seed, parallel_tool_calls: seed % 2 === 0 }));
    const { message, finish_reason } = r.choices[0];
    if (finish_reason === 'length') return; // many calls
    assert.equal(finish_reason, 'tool_calls');
    assert.equal(message.content, null);
    assert.ok(message.tool_calls.length >= 1 && (seed % 2 === 0 || message.tool_calls.length === 1));
    message.tool_calls.forEach(check);
    assert.equal(new Set(message.tool_calls.map((c) => c.id)).size, message.tool_calls.length);
  });

for (const name of Object.keys(schemas))
  it(`calls ${name} when told to`, async () => {
    const r = await client.chat.completions.create(ask({ tool_choice: named(name), temperature: 0 }));
    assert.equal(r.choices[0].finish_reason, 'tool_calls');
    assert.deepEqual(r.choices[0].message.tool_calls.map((c) => c.function.name), [name]);
    check(r.choices[0].message.tool_calls[0]);
  });

it('streams a call as it answers it whole', async () => {
  const body = ask({ tool_choice: named('get_weather'), temperature: 1, seed: 5 });
  const whole = (await client.chat.completions.create(body)).choices[0];
  const stream = await gather(body);
  assert.equal(stream.reason, 'tool_calls');
  assert.equal(stream.content, '');
  assert.equal(stream.calls.length, 1);
  assert.equal(stream.calls[0].function.arguments, whole.message.tool_calls[0].function.arguments);
  assert.ok(stream.fragments > 3, 'arguments come in fragments');
  check(stream.calls[0]);
});

it('runs the stream helper of the client', async () => {
  const runner = client.chat.completions.stream(ask({ tool_choice: named('put_mark'), temperature: 0 }));
  const done = [];
  runner.on('tool_calls.function.arguments.done', (e) => done.push(e.name));
  const final = await runner.finalChatCompletion();
  assert.deepEqual(done, ['put_mark']);
  check(final.choices[0].message.tool_calls[0]);
});

it('makes several calls in one answer', async () => {
  // The model would stop after one, or go on: a bias leads it to a second.
  let most = 0;
  for (const seed of [11, 12, 13, 14, 15, 16]) {
    const r = await client.chat.completions.create(ask({ tools: [tools[2]], tool_choice: 'required', temperature: 2, seed, max_tokens: 200 }));
    const calls = r.choices[0].message.tool_calls ?? [];
    if (r.choices[0].finish_reason === 'tool_calls') calls.forEach(check);
    most = Math.max(most, calls.length);
    if (most > 1) break;
  }
  assert.ok(most > 1, `at most ${most} calls`);
});

it('may say something instead, and is held to strict functions if it calls', async () => {
  for (const seed of [1, 2, 3]) {
    const { choices: [{ message, finish_reason }] } = await client.chat.completions.create(ask({ tool_choice: 'auto', temperature: 1, seed, max_tokens: 60 }));
    assert.ok(['stop', 'length', 'tool_calls'].includes(finish_reason));
    assert.ok(!(message.content ?? '').includes('<tool_call>') || finish_reason === 'length');
    if (finish_reason === 'tool_calls') message.tool_calls.forEach(check);
  }
});

it('calls only what is allowed', async () => {
  for (const seed of [1, 2]) {
    const tool_choice = { type: 'allowed_tools', allowed_tools: { mode: 'required', tools: [named('now')] } };
    const r = await client.chat.completions.create(ask({ tool_choice, temperature: 1, seed, parallel_tool_calls: false }));
    assert.deepEqual(r.choices[0].message.tool_calls.map((c) => c.function.name), ['now']);
  }
});

it('calls nothing when told not to', async () => {
  const none = await client.chat.completions.create(ask({ tool_choice: 'none', temperature: 0, max_tokens: 20 }));
  const without = await client.chat.completions.create(ask({ tools: undefined, temperature: 0, max_tokens: 20 }));
  assert.equal(none.choices[0].message.tool_calls, undefined);
  assert.equal(none.choices[0].message.content, without.choices[0].message.content);
  assert.equal(none.usage.prompt_tokens, without.usage.prompt_tokens);
});

it('goes the whole round: call, result, answer', async () => {
  const first = await client.chat.completions.create(ask({ tool_choice: named('get_weather'), temperature: 0 }));
  const message = first.choices[0].message;
  const messages = [...question, message, { role: 'tool', tool_call_id: message.tool_calls[0].id, content: '{"sky": "clear"}' }];
  const second = await client.chat.completions.create(ask({ messages, temperature: 0, max_tokens: 40, tool_choice: 'none' }));
  assert.ok(second.choices[0].message.content.length > 0);
  const { prompt } = await (await server.post('/apply-template', { messages, tools })).json();
  assert.ok(prompt.includes('"sky": "clear"') && prompt.includes(message.tool_calls[0].function.arguments), prompt);
});

it('holds content to a response_format beside tools', async () => {
  const schema = { type: 'object', properties: { a: { enum: [1, 2] } }, required: ['a'] };
  const response_format = { type: 'json_schema', json_schema: { name: 'x', schema } };
  for (const seed of [1, 2]) {
    const { choices: [{ message, finish_reason }] } = await client.chat.completions.create(ask({ tools: [tools[2]], response_format, temperature: 1, seed }));
    if (finish_reason === 'stop') assert.ok([1, 2].includes(JSON.parse(message.content).a));
    else if (finish_reason === 'tool_calls') message.tool_calls.forEach(check);
    else assert.equal(finish_reason, 'length');
  }
  const must = await client.chat.completions.create(ask({ tools: [tools[2]], response_format, tool_choice: named('now'), temperature: 0 }));
  check(must.choices[0].message.tool_calls[0]);
});

it('gives log-probabilities of content alone', async () => {
  const r = await client.chat.completions.create(ask({ tool_choice: named('now'), temperature: 0, logprobs: true }));
  assert.deepEqual(r.choices[0].logprobs?.content ?? [], []);
});

const refused = [
  ['tools', { tools: {} }, 'array'],
  ['tools[0]', { tools: [{ type: 'web_search' }] }, 'function'],
  ['tools[1]', { tools: [tools[2], tools[2]] }, 'twice'],
  ['tools[0]', { tools: [{ type: 'function', function: { name: 'a b' } }] }, 'name'],
  ['tools[0]', { tools: [{ type: 'function', function: { name: 'a', parameters: { type: 'string' } } }] }, 'parameters'],
  ['tool_choice', { tool_choice: 'always' }, 'required'],
  ['tool_choice', { tool_choice: named('other') }, "'other'"],
  ['tool_choice', { tool_choice: 'required', tools: undefined }, 'tools'],
  ['tool_choice', { tool_choice: { type: 'function' } }, 'function'],
  ['tool_choice.allowed_tools', { tool_choice: { type: 'allowed_tools', allowed_tools: { mode: 'all', tools: [named('now')] } } }, 'mode'],
  ['tool_choice', { tool_choice: { type: 'allowed_tools', allowed_tools: { mode: 'auto', tools: [named('other')] } } }, "'other'"],
  ['parallel_tool_calls', { parallel_tool_calls: 'no' }, 'true or false'],
  ['grammar', { grammar: 'root ::= "a"' }, 'tools'],
  ['tools', { tools: [{ type: 'function', function: { name: 'f', strict: true, parameters: { type: 'object', $dynamicRef: '#a' } } }] }, "'f': $dynamicRef"],
  ['ignore_eos', { tool_choice: 'required', ignore_eos: true }, 'tools'],
];
for (const [param, extra, says] of refused)
  it(`refuses ${JSON.stringify(extra).slice(0, 70)} and names ${param}`, async () => {
    await assert.rejects(client.chat.completions.create(ask(extra)), (e) => {
      assert.equal(e.status, 400);
      assert.equal(e.param, param);
      assert.ok(e.message.includes(says), e.message);
      return true;
    });
  });

it('ends cleanly', async () => server.stop());
