// The official Anthropic client against the real binary: messages, streams, structured output, errors, abort.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { missing, patience, Server } from './server.mjs';

const { default: Anthropic } = await import('@anthropic-ai/sdk').catch(() => ({}));
const skip = missing || (Anthropic ? false : 'the @anthropic-ai/sdk package is not installed: run npm ci in tests/http');
const it = (name, run) => test(name, { skip }, run);
const server = skip ? null : await Server.start(['--api-key', 'sk-test', '--max-body-mib', '1']);
const options = { baseURL: server?.url, apiKey: 'sk-test', maxRetries: 0, timeout: 60000 * patience };
const client = skip ? null : new Anthropic(options);
const user = (content) => [{ role: 'user', content }];
const ask = { model: 'test', max_tokens: 40, messages: user('What is 2 + 3?'), temperature: 0 };

it('lists and retrieves the model', async () => {
  const all = [];
  for await (const m of client.models.list()) all.push(m);
  assert.deepEqual(all.map((m) => [m.type, m.id, m.display_name]), [['model', 'test', 'test']]);
  assert.ok(Date.parse(all[0].created_at) > 0);
  assert.equal((await client.models.retrieve('test')).id, 'test');
});

it('answers', async () => {
  const r = await client.messages.create(ask);
  assert.match(r.id, /^msg_/);
  assert.equal(r.type, 'message');
  assert.equal(r.role, 'assistant');
  assert.equal(r.model, 'test');
  assert.equal(r.content.length, 1);
  assert.equal(r.content[0].type, 'text');
  assert.match(r.content[0].text, /5/);
  assert.equal(r.stop_reason, 'end_turn');
  assert.equal(r.stop_sequence, null);
  assert.ok(r.usage.input_tokens > 0 && r.usage.output_tokens > 0);
});

it('streams the same, event by event', async () => {
  const whole = await client.messages.create(ask);
  const events = [];
  for await (const e of await client.messages.create({ ...ask, stream: true })) events.push(e);
  const types = events.map((e) => e.type).filter((t) => t !== 'ping');
  assert.equal(types[0], 'message_start');
  assert.deepEqual(types.filter((t) => t !== 'content_block_delta'),
                   ['message_start', 'content_block_start', 'content_block_stop', 'message_delta', 'message_stop']);
  assert.equal(events.filter((e) => e.type === 'content_block_delta').map((e) => e.delta.text).join(''), whole.content[0].text);
  const delta = events.find((e) => e.type === 'message_delta');
  assert.equal(delta.delta.stop_reason, 'end_turn');
  assert.equal(delta.usage.output_tokens, whole.usage.output_tokens);
});

it('runs the stream helper of the client', async () => {
  const stream = client.messages.stream({ ...ask, system: [{ type: 'text', text: 'Be brief.', cache_control: { type: 'ephemeral' } }] });
  let text = '';
  stream.on('text', (t) => { text += t; });
  const final = await stream.finalMessage();
  assert.equal(final.content[0].text, text);
  assert.equal(await stream.finalText(), text);
  assert.ok(final.usage.input_tokens > 0 && final.usage.output_tokens > 0);
});

it('says why it stopped', async () => {
  const whole = (await client.messages.create(ask)).content[0].text;
  const cut = await client.messages.create({ ...ask, max_tokens: 2 });
  assert.equal(cut.stop_reason, 'max_tokens');
  assert.equal(cut.usage.output_tokens, 2);
  const stop = whole.slice(2, 4);
  const stopped = await client.messages.create({ ...ask, stop_sequences: ['\u0001never', stop] });
  assert.equal(stopped.stop_reason, 'stop_sequence');
  assert.equal(stopped.stop_sequence, stop);
  assert.equal(stopped.content.map((c) => c.text).join(''), whole.slice(0, whole.indexOf(stop)));
});

it('keeps to a schema', async () => {
  const schema = { type: 'object', properties: { sum: { type: 'integer', minimum: 0, maximum: 99 } }, required: ['sum'], additionalProperties: false };
  const r = await client.messages.create({ ...ask, output_config: { format: { type: 'json_schema', schema } } });
  assert.equal(r.stop_reason, 'end_turn');
  assert.deepEqual(Object.keys(JSON.parse(r.content[0].text)), ['sum']);
});

it('counts tokens as it uses them', async () => {
  const { input_tokens } = await client.messages.countTokens({ model: 'test', system: 'Be brief.', messages: ask.messages });
  const r = await client.messages.create({ ...ask, system: 'Be brief.' });
  assert.equal(r.usage.input_tokens + (r.usage.cache_read_input_tokens ?? 0), input_tokens);
});

it('takes a conversation with thinking', async () => {
  const messages = [
    ...user([{ type: 'text', text: 'What is 2 + 3?', cache_control: { type: 'ephemeral' } }]),
    { role: 'assistant', content: [{ type: 'thinking', thinking: 'I should add.', signature: 'x' }, { type: 'redacted_thinking', data: 'x' }, { type: 'text', text: '5' }] },
    ...user('What is 3 + 4?'),
  ];
  const r = await client.messages.create({ ...ask, max_tokens: 2048, messages, thinking: { type: 'enabled', budget_tokens: 1024 }, temperature: 1 });
  assert.equal(r.role, 'assistant');
});

const weather = { name: 'weather', description: 'Gives the weather.', input_schema: { type: 'object', properties: { city: { type: 'string', maxLength: 12 }, days: { type: 'integer', minimum: 1, maximum: 9 } },
                                                                                     required: ['city', 'days'], additionalProperties: false } };
const time = { name: 'time', input_schema: { type: 'object', properties: { zone: { enum: ['UTC', 'CET'] } }, required: ['zone'], additionalProperties: false } };
const fits = (input) => {
  assert.deepEqual(Object.keys(input), ['city', 'days']);
  assert.ok(typeof input.city === 'string' && input.city.length <= 12 && Number.isInteger(input.days) && input.days >= 1 && input.days <= 9, JSON.stringify(input));
};
const tooled = { ...ask, max_tokens: 300, messages: user('What is the weather in Paris?'), tools: [weather, time] };

it('calls the tool that it must call, and goes on with its result', async () => {
  const r = await client.messages.create({ ...tooled, tool_choice: { type: 'tool', name: 'weather', disable_parallel_tool_use: true } });
  assert.equal(r.stop_reason, 'tool_use');
  const calls = r.content.filter((c) => c.type === 'tool_use');
  assert.equal(calls.length, 1);
  assert.match(calls[0].id, /^toolu_/);
  assert.equal(calls[0].name, 'weather');
  fits(calls[0].input);
  const messages = [...tooled.messages, { role: 'assistant', content: r.content },
                    ...user([{ type: 'tool_result', tool_use_id: calls[0].id, content: 'sunny' }])];
  const next = await client.messages.create({ ...tooled, messages, max_tokens: 20, tool_choice: { type: 'none' } });
  assert.ok(next.content.every((c) => c.type === 'text'));
  const open = await client.messages.create({ ...tooled, messages, max_tokens: 5, tool_choice: { type: 'auto' } });
  assert.ok(open.usage.input_tokens + open.usage.cache_read_input_tokens > r.usage.input_tokens);
  assert.ok(open.usage.cache_read_input_tokens >= 64); // of the first question
});

it('streams a call as it is made', async () => {
  const stream = client.messages.stream({ ...tooled, tool_choice: { type: 'any' }, temperature: 1 });
  let json = '', n = 0;
  stream.on('inputJson', (part) => { json += part; n++; });
  const final = await stream.finalMessage();
  const calls = final.content.filter((c) => c.type === 'tool_use');
  assert.ok(calls.length >= 1 && n > 1);
  assert.equal(final.stop_reason, 'tool_use');
  if (calls.length === 1) assert.deepEqual(JSON.parse(json), calls[0].input);
  for (const c of calls) {
    if (c.name === 'weather') fits(c.input);
    else assert.ok(['UTC', 'CET'].includes(c.input.zone));
  }
});

it('raises the client\'s error classes', async () => {
  const is = (kind, type, message) => (e) => e instanceof kind && e.error.type === 'error' && e.error.error.type === type && message.test(e.error.error.message);
  await assert.rejects(client.messages.create({ ...ask, model: 'claude' }), is(Anthropic.NotFoundError, 'not_found_error', /'test'/));
  await assert.rejects(client.messages.create({ ...ask, temperature: 3 }), is(Anthropic.BadRequestError, 'invalid_request_error', /'temperature'/));
  await assert.rejects(client.messages.create({ ...ask, max_tokens: undefined }), is(Anthropic.BadRequestError, 'invalid_request_error', /'max_tokens'/));
  await assert.rejects(client.messages.create({ ...ask, messages: [] }), is(Anthropic.BadRequestError, 'invalid_request_error', /'messages'/));
  await assert.rejects(client.messages.create({ ...ask, messages: user([{ type: 'image', source: { type: 'url', url: 'x' } }]) }),
                       is(Anthropic.BadRequestError, 'invalid_request_error', /text only/));
  await assert.rejects(client.messages.create({ ...ask, messages: user('word '.repeat(5000)) }), is(Anthropic.BadRequestError, 'invalid_request_error', /^prompt is too long/));
  await assert.rejects(client.messages.create({ ...ask, messages: user('x'.repeat(1200000)) }), (e) => e.status === 413 && e.error.error.type === 'request_too_large');
  const stranger = new Anthropic({ ...options, apiKey: 'wrong' });
  await assert.rejects(stranger.messages.create(ask), is(Anthropic.AuthenticationError, 'authentication_error', /API key/));
  await assert.rejects(stranger.messages.countTokens({ model: 'test', messages: ask.messages }), is(Anthropic.AuthenticationError, 'authentication_error', /API key/));
  await assert.rejects(client.models.retrieve('claude'), is(Anthropic.NotFoundError, 'not_found_error', /'test'/));
  await assert.rejects(stranger.models.list(), is(Anthropic.AuthenticationError, 'authentication_error', /API key/));
  const openai = await fetch(`${server.url}/v1/models/claude`, { headers: { Authorization: 'Bearer sk-test' } });
  assert.equal((await openai.json()).error.code, 'model_not_found'); // OpenAI's shape for OpenAI's clients
  const r = await fetch(`${server.url}/v1/messages`, { headers: { 'x-api-key': 'sk-test', 'anthropic-version': '2023-06-01' } });
  assert.equal(r.status, 405);
  assert.equal((await r.json()).type, 'error');
});

it('says in its own words that the queue is full', async () => {
  const small = await Server.start(['--parallel', '1', '--queue', '1']);
  const client = new Anthropic({ ...options, baseURL: small.url });
  const long = { ...ask, max_tokens: 900, messages: user('Tell me a story.') };
  const all = await Promise.allSettled(Array.from({ length: 24 }, () => client.messages.create(long)));
  const refused = all.filter((r) => r.status === 'rejected').map((r) => r.reason);
  assert.ok(refused.length > 0);
  for (const e of refused) {
    assert.ok(e instanceof Anthropic.RateLimitError, e);
    assert.equal(e.error.error.type, 'rate_limit_error');
    assert.ok(Number(e.headers.get('retry-after')) > 0);
  }
  await small.stop();
});

it('frees the work of a stream that its client breaks off', async () => {
  const headers = { headers: { Authorization: 'Bearer sk-test' } };
  const running = async () => Number(/^sluice_sessions_running (\d+)$/m.exec(await (await fetch(`${server.url}/metrics`, headers)).text())[1]);
  const stream = client.messages.stream({ ...ask, messages: user('Tell me a story.'), max_tokens: 900 });
  let n = 0;
  for await (const e of stream) if (e.type === 'content_block_delta' && ++n === 3) break;
  await server.until('idle', 1000 * patience, async () => (await running()) === 0);
});

it('ends cleanly', () => server.stop());
