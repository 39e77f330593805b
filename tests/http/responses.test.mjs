// The official openai client's Responses against the real binary: whole, streamed, structured, errors, abort.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { missing, patience, Server } from './server.mjs';

const { default: OpenAI } = await import('openai').catch(() => ({}));
const skip = missing || (OpenAI ? false : 'the openai package is not installed: run npm ci in tests/http');
const it = (name, run) => test(name, { skip }, run);
const server = skip ? null : await Server.start();
const client = skip ? null : new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0, timeout: 60000 * patience });
const ask = { model: 'test', input: 'What is 2 + 3?', temperature: 0, max_output_tokens: 40 };

it('answers', async () => {
  const r = await client.responses.create({ ...ask, instructions: 'Be brief.', metadata: { a: 'b' }, user: 'me', store: true, truncation: 'auto' });
  assert.match(r.id, /^resp_/);
  assert.equal(r.object, 'response');
  assert.equal(r.status, 'completed');
  assert.equal(r.output.length, 1);
  assert.equal(r.output[0].type, 'message');
  assert.equal(r.output[0].content[0].type, 'output_text');
  assert.match(r.output_text, /5/);
  assert.deepEqual(r.metadata, { a: 'b' });
  assert.equal(r.instructions, 'Be brief.');
  assert.equal(r.truncation, 'auto');
  assert.equal(r.store, true);
  assert.equal((await client.responses.create({ ...ask, store: false })).store, false);
  assert.equal(r.previous_response_id, null);
  assert.equal(r.error, null);
  assert.equal(r.usage.total_tokens, r.usage.input_tokens + r.usage.output_tokens);
  assert.ok(r.usage.input_tokens_details.cached_tokens >= 0);
  assert.equal(r.usage.output_tokens_details.reasoning_tokens, 0);
});

it('streams every event in order', async () => {
  const whole = await client.responses.create(ask);
  const events = [];
  for await (const e of await client.responses.create({ ...ask, stream: true })) events.push(e);
  assert.deepEqual(events.map((e) => e.sequence_number), events.map((_, i) => i));
  assert.deepEqual(events.map((e) => e.type).filter((t) => t !== 'response.output_text.delta'), [
    'response.created', 'response.in_progress', 'response.output_item.added', 'response.content_part.added',
    'response.output_text.done', 'response.content_part.done', 'response.output_item.done', 'response.completed']);
  const [added, done] = ['added', 'done'].map((x) => events.find((e) => e.type === `response.output_item.${x}`));
  assert.equal(added.item.status, 'in_progress');
  assert.deepEqual(added.item.content, []);
  assert.equal(done.item.id, added.item.id);
  const text = events.filter((e) => e.type === 'response.output_text.delta').map((e) => e.delta).join('');
  assert.equal(text, whole.output_text);
  assert.equal(events.find((e) => e.type === 'response.output_text.done').text, text);
  const last = events.at(-1).response;
  assert.equal(last.status, 'completed');
  assert.deepEqual(last.output[0], done.item);
  assert.equal(last.output[0].content[0].text, text);
  assert.equal(last.usage.output_tokens, whole.usage.output_tokens);
  assert.ok(events.slice(0, -1).every((e) => !e.response || (e.response.status === 'in_progress' && e.response.id === last.id)));
});

it('runs the stream helper of the client', async () => {
  const stream = client.responses.stream(ask);
  let text = '';
  stream.on('response.output_text.delta', (e) => { text += e.delta; assert.equal(e.snapshot, text); });
  const final = await stream.finalResponse();
  assert.equal(final.output_text, text);
});

it('says that it was cut off', async () => {
  const r = await client.responses.create({ ...ask, max_output_tokens: 2 });
  assert.equal(r.status, 'incomplete');
  assert.deepEqual(r.incomplete_details, { reason: 'max_output_tokens' });
  assert.equal(r.output[0].status, 'incomplete');
  const events = [];
  for await (const e of await client.responses.create({ ...ask, max_output_tokens: 2, stream: true })) events.push(e);
  assert.equal(events.at(-1).type, 'response.incomplete');
});

it('keeps to a schema', async () => {
  const schema = { type: 'object', properties: { sum: { type: 'integer', minimum: 0, maximum: 99 } }, required: ['sum'], additionalProperties: false };
  const r = await client.responses.parse({ ...ask, text: { format: { type: 'json_schema', name: 'sum', strict: true, schema } } });
  assert.deepEqual(Object.keys(r.output_parsed), ['sum']);
  assert.deepEqual(r.text.format.schema, schema);
});

it('takes its own output back as input', async () => {
  const first = await client.responses.create(ask);
  const r = await client.responses.create({ ...ask, input: [{ role: 'user', content: ask.input }, ...first.output, { role: 'user', content: 'What is 3 + 4?' }] });
  assert.equal(r.status, 'completed');
  assert.ok(r.usage.input_tokens > first.usage.input_tokens);
});

const parameters = { type: 'object', properties: { city: { type: 'string', maxLength: 12 }, days: { type: 'integer', minimum: 1, maximum: 9 } }, required: ['city', 'days'], additionalProperties: false };
const tooled = { ...ask, input: 'What is the weather in Paris?', max_output_tokens: 300, parallel_tool_calls: false,
                 tools: [{ type: 'web_search' }, { type: 'function', name: 'weather', description: 'Gives the weather.', strict: true, parameters }] };
const fits = (text) => {
  const v = JSON.parse(text);
  assert.deepEqual(Object.keys(v), ['city', 'days']);
  assert.ok(typeof v.city === 'string' && v.city.length <= 12 && Number.isInteger(v.days) && v.days >= 1 && v.days <= 9, text);
};

it('calls the function that it must call, and goes on with its output', async () => {
  const r = await client.responses.create({ ...tooled, tool_choice: { type: 'function', name: 'weather' } });
  assert.equal(r.status, 'completed');
  const calls = r.output.filter((o) => o.type === 'function_call');
  assert.equal(calls.length, 1);
  assert.match(calls[0].call_id, /^call_/);
  assert.equal(calls[0].name, 'weather');
  fits(calls[0].arguments);
  const input = [{ role: 'user', content: tooled.input }, ...r.output, { type: 'function_call_output', call_id: calls[0].call_id, output: 'sunny' }];
  const next = await client.responses.create({ ...tooled, input, max_output_tokens: 20, tool_choice: 'none' });
  assert.ok(next.output.every((o) => o.type === 'message'));
});

it('streams a call as it is made', async () => {
  const events = [];
  const stream = client.responses.stream({ ...tooled, tool_choice: 'required', temperature: 1 });
  stream.on('event', (e) => events.push(e));
  const final = await stream.finalResponse();
  const call = final.output.find((o) => o.type === 'function_call');
  fits(call.arguments);
  const deltas = events.filter((e) => e.type === 'response.function_call_arguments.delta' && e.item_id === call.id);
  assert.ok(deltas.length > 1);
  assert.equal(deltas.map((e) => e.delta).join(''), call.arguments);
  const done = events.find((e) => e.type === 'response.function_call_arguments.done');
  assert.equal(done.arguments, call.arguments);
  assert.equal(done.name, 'weather');
});

it('raises the client\'s error classes', async () => {
  const bad = (param, message) => (e) => e instanceof OpenAI.BadRequestError && e.param === param && message.test(e.message);
  await assert.rejects(client.responses.create({ ...ask, model: 'gpt-9' }), (e) => e instanceof OpenAI.NotFoundError && e.code === 'model_not_found');
  await assert.rejects(client.responses.create({ ...ask, previous_response_id: 'resp_1' }), (e) => e.status === 400 && e.code === 'previous_response_not_found' && e.param === 'previous_response_id');
  await assert.rejects(client.responses.create({ ...ask, max_output_tokens: 0 }), bad('max_output_tokens', /from 1/));
  await assert.rejects(client.responses.create({ ...ask, stream: true, top_p: 3 }), bad('top_p', /from 0 to 1/));
  await assert.rejects(client.responses.create({ ...ask, input: [{ role: 'user', content: [{ type: 'input_image', image_url: 'data:,' }] }] }), bad('input[0].content[0]', /text only/));
  await assert.rejects(client.responses.create({ ...ask, input: 'word '.repeat(5000) }), (e) => e.code === 'context_length_exceeded' && e.param === 'input');
  await assert.rejects(client.responses.create({ ...ask, text: { format: { type: 'json_schema', name: 'x', schema: { type: 'nothing' } } } }), bad('text.format.schema', /type must be/));
  await assert.rejects(client.responses.retrieve('resp_1'), OpenAI.NotFoundError);
});

it('gives log-probabilities', async () => {
  const wants = { ...ask, top_logprobs: 3, include: ['message.output_text.logprobs'] };
  const { content: [{ text, logprobs }] } = (await client.responses.create(wants)).output[0];
  assert.equal(logprobs.map((l) => l.token).join(''), text);
  for (const l of logprobs) assert.ok(l.logprob <= 0 && l.top_logprobs.length === 3 && l.top_logprobs[0].logprob >= l.top_logprobs[1].logprob);
  const deltas = [];
  for await (const e of await client.responses.create({ ...wants, stream: true })) if (e.type === 'response.output_text.delta') deltas.push(...e.logprobs);
  assert.deepEqual(deltas.map((l) => l.token), logprobs.map((l) => l.token));
});

it('keeps responses, and goes on from them', async () => {
  const first = await client.responses.create(ask);
  assert.deepEqual(await client.responses.retrieve(first.id), first);
  const goes = { ...ask, previous_response_id: first.id, input: 'And 4 + 4?' };
  const second = await client.responses.create(goes);
  assert.equal(second.previous_response_id, first.id);
  const whole = await client.responses.create({ ...ask, input: [{ role: 'user', content: ask.input }, ...first.output, { role: 'user', content: goes.input }] });
  assert.equal(second.output_text, whole.output_text);
  assert.equal(second.usage.input_tokens, whole.usage.input_tokens);
  assert.equal((await client.responses.inputTokens.count(goes)).input_tokens, second.usage.input_tokens);
  const by = await client.responses.create({ ...ask, input: [{ role: 'user', content: ask.input }, { type: 'item_reference', id: first.output[0].id }, { role: 'user', content: goes.input }] });
  assert.equal(by.output_text, whole.output_text);
  const items = [];
  for await (const item of client.responses.inputItems.list(second.id, { order: 'asc' })) items.push(item);
  assert.deepEqual(items.map((i) => i.role), ['user', 'assistant', 'user']);
  const stream = client.responses.stream({ ...goes, previous_response_id: second.id });
  const third = await stream.finalResponse();
  assert.equal((await client.responses.retrieve(third.id)).output_text ?? third.output_text, third.output_text);
  await client.responses.delete(first.id);
  await assert.rejects(client.responses.retrieve(first.id), OpenAI.NotFoundError);
  await assert.rejects(client.responses.create(goes), (e) => e.code === 'previous_response_not_found');
});

it('keeps no more than it is told', async () => {
  const small = await Server.start(['--response-store', '16KiB']), none = await Server.start(['--response-store', '0']);
  const ids = [];
  for (let i = 0; i < 12; i++) ids.push((await (await small.post('/v1/responses', { ...ask, max_output_tokens: 1 })).json()).id);
  const status = async (id) => (await fetch(`${small.url}/v1/responses/${id}`)).status;
  assert.equal(await status(ids[0]), 404);
  assert.equal(await status(ids.at(-1)), 200);
  const r = await (await none.post('/v1/responses', { ...ask, max_output_tokens: 1, store: true })).json();
  assert.equal(r.store, false);
  assert.equal((await fetch(`${none.url}/v1/responses/${r.id}`)).status, 404);
  await small.stop();
  await none.stop();
});

it('frees the work of a stream that its client breaks off', async () => {
  const stream = await client.responses.create({ ...ask, input: 'Tell me a story.', max_output_tokens: 900, stream: true });
  let n = 0;
  for await (const e of stream) if (e.type === 'response.output_text.delta' && ++n === 3) break;
  await server.until('idle', 1000 * patience, async () => (await server.metric('sluice_sessions_running')) === 0);
});

it('ends cleanly', () => server.stop());
