// Forms of tool calls that have no JSON around them, or other JSON than most: the binary with the demo model under
// small templates of those forms. Calls that must be made are made and valid, a stream has what a whole answer has,
// and a call goes back into the next prompt in the same form.
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { missing, model, patience, Server } from './server.mjs';

const { default: Ajv } = await import('ajv/dist/2020.js').catch(() => ({ default: {} }));
const { default: OpenAI } = await import('openai').catch(() => ({}));
const skip = missing || (OpenAI && Ajv.default ? false : 'ajv or openai is not installed: run npm ci in tests/http');
const folder = skip ? null : mkdtempSync(join(tmpdir(), 'sluice-forms-'));
process.on('exit', () => folder && rmSync(folder, { recursive: true }));
const forms = fileURLToPath(new URL('../templates/forms/', import.meta.url));
const ALIGNMENT = 32;

// The model with another template. The text grows by whole alignments, so that the tensors behind it stay aligned.
function with_template(name) {
  const file = readFileSync(model), key = Buffer.from('tokenizer.chat_template');
  const at = file.indexOf(key) + key.length;
  assert.equal(file.readUInt32LE(at), 8); // a string
  const length = Number(file.readBigUInt64LE(at + 4));
  const text = readFileSync(join(forms, `${name}.jinja`));
  const more = Math.max(0, Math.ceil((text.length - length) / ALIGNMENT)) * ALIGNMENT;
  const head = Buffer.from(file.subarray(0, at + 12)), room = Buffer.alloc(length + more, ' ');
  head.writeBigUInt64LE(BigInt(length + more), at + 4);
  text.copy(room);
  const path = join(folder, `${name}.gguf`);
  writeFileSync(path, Buffer.concat([head, room, file.subarray(at + 12 + length)]));
  return path;
}

const weather = {
  type: 'object',
  properties: {
    city: { type: 'string', enum: ['Rome', 'Paris', 'Zürich'] },
    days: { type: 'integer', minimum: 1, maximum: 9 },
    metric: { type: 'boolean' },
    parts: { type: 'array', items: { enum: ['day', 'night'] }, minItems: 1, maxItems: 2 },
  },
  required: ['city', 'days'],
  additionalProperties: false,
};
const schemas = { get_weather: weather, now: { type: 'object', maxProperties: 0 } };
const tools = [
  { type: 'function', function: { name: 'get_weather', description: 'The weather of some days', parameters: weather, strict: true } },
  { type: 'function', function: { name: 'now', description: 'The time' } },
];
const ajv = skip ? null : new Ajv.default({ strict: false, allErrors: true });
const validate = Object.fromEntries(Object.entries(skip ? {} : schemas).map(([k, v]) => [k, ajv.compile(v)]));
const question = [{ role: 'user', content: 'What will the weather be in Rome?' }];
const named = (name) => ({ type: 'function', function: { name } });
const ask = (extra) => ({ model: 'test', messages: question, tools, max_tokens: 1000, ...extra });

function check(call) {
  const v = validate[call.function.name];
  assert.ok(v, `no such function: ${call.function.name}`);
  assert.ok(v(JSON.parse(call.function.arguments)), `${ajv.errorsText(v.errors)}\n${call.function.arguments}`);
}

async function gather(client, body) {
  const out = { content: '', reasoning: '', calls: [] };
  for await (const chunk of await client.chat.completions.create({ ...body, stream: true })) {
    const delta = chunk.choices[0]?.delta ?? {};
    out.content += delta.content ?? '';
    out.reasoning += delta.reasoning_content ?? '';
    for (const d of delta.tool_calls ?? []) {
      if (d.id) out.calls.push({ name: d.function.name, arguments: '' });
      out.calls[d.index].arguments += d.function.arguments ?? '';
    }
  }
  return out;
}

// What the next prompt shows of get_weather({city: 'Rome', days: 2}).
const shown = {
  'functionary-v3.1': '<function=get_weather>{"city": "Rome", "days": 2}</function>',
  'minimax-m3': ']<]minimax[>[<city>Rome]<]minimax[>[</city>]<]minimax[>[<days>2]<]minimax[>[</days>',
  'hy3': '<arg_value:opensource>Rome</arg_value:opensource>',
  'ling3': '<arg_key>days</arg_key>\n<arg_value>2</arg_value>',
  'kimi-k3': '<|open|>argument key="days" type="number"<|sep|>2<|close|>argument<|sep|>',
  'gemma4': '<|tool_call>call:get_weather{city:<|"|>Rome<|"|>,days:2}<tool_call|>',
  'command-r7b': '"tool_name": "get_weather", "parameters": {"city": "Rome", "days": 2}}',
  'pythonic': '[get_weather(city="Rome", days=2)]',
  'xlam': '[{"name": "get_weather", "arguments": {"city": "Rome", "days": 2}}]',
};

// The same of those that are other rows of data for the code that reads the ones above: under sanitizers these are enough.
const alike = {
  'apriel': '<tool_calls>[{"name": "get_weather", "arguments": {"city": "Rome", "days": 2}, "id": "call_1"}]</tool_calls>',
  'minimax-m1': '<tool_calls>\n{"name": "get_weather", "arguments": {"city": "Rome", "days": 2}}\n</tool_calls>',
  'hunyuan': '<tool_calls>[{"name": "get_weather", "arguments": {"city": "Rome", "days": 2}}]</tool_calls>',
  'cohere2moe': '"tool_name": "get_weather", "parameters": {"city": "Rome", "days": 2}}',
  'llama4': '{"name": "get_weather", "parameters": {"city": "Rome", "days": 2}}<|eom|>',
  'lfm2': "<|tool_call_start|>[get_weather(city='Rome', days=2)]<|tool_call_end|>",
  'nemotron-nano-v2': '<TOOLCALL>[{"name": "get_weather", "arguments": {"city": "Rome", "days": 2}}]</TOOLCALL>',
  'phi4-mini': 'functools[{"name": "get_weather", "arguments": {"city": "Rome", "days": 2}}]',
  'internlm2': '<|action_start|><|plugin|>\n{"name": "get_weather", "parameters": {"city": "Rome", "days": 2}}<|action_end|>',
  'granite-20b-fc': '<function_call> {"name": "get_weather", "arguments": {"city": "Rome", "days": 2}}',
  'toolace': '[get_weather(city=',
  'solar-open': '<|tool_call:begin|>call_1<|tool_call:name|>get_weather<|tool_call:args|>{"city": "Rome", "days": 2}<|tool_call:end|>',
};
// Templates whose prompts begin the reasoning.
const begun = ['apriel', 'nemotron-nano-v2'];

// Templates that show the reasoning before earlier calls, some under names of their own.
const recall = ['minimax-m3', 'hy3', 'ling3', 'kimi-k3', 'gemma4', 'command-r7b', 'cohere2moe', 'lfm2', 'solar-open'];

async function calls(server, text, thinks, recalls) {
  const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0, timeout: 60000 * patience });
  // Reasoning is free and may take all the room: the template closes it where it can, the server after some tokens.
  const bare = { chat_template_kwargs: { enable_thinking: false }, reasoning_budget: 12, temperature: 1 };
  const one = ask({ tool_choice: named('get_weather'), seed: 5, ...bare });
  const whole = (await client.chat.completions.create(one)).choices[0];
  assert.equal(whole.finish_reason, 'tool_calls');
  assert.equal(whole.message.content, null);
  assert.deepEqual(whole.message.tool_calls.map((c) => c.function.name), ['get_weather']);
  check(whole.message.tool_calls[0]);
  const stream = await gather(client, one);
  assert.equal(stream.content, '');
  assert.equal(stream.reasoning, whole.message.reasoning_content ?? '');
  assert.ok(!thinks || stream.reasoning.length > 0, 'it goes on with the reasoning that the prompt began');
  assert.deepEqual(stream.calls, [whole.message.tool_calls[0].function]);
  let made = 0;
  for (const seed of [1, 2]) {
    const r = await client.chat.completions.create(ask({ tool_choice: 'required', seed, ...bare, parallel_tool_calls: seed < 2 }));
    if (r.choices[0].finish_reason === 'length') continue; // many calls
    assert.ok(r.choices[0].message.tool_calls.length >= 1);
    r.choices[0].message.tool_calls.forEach(check);
    made++;
  }
  assert.ok(made > 0, 'some answer with its calls came to an end');
  const messages = [...question,
    { role: 'assistant', content: null, reasoning_content: 'Rome, then.', tool_calls: [{ id: 'call_1', type: 'function', function: { name: 'get_weather', arguments: '{"city": "Rome", "days": 2}' } }] },
    { role: 'tool', tool_call_id: 'call_1', name: 'get_weather', content: 'sunny' }];
  const { prompt } = await (await server.post('/apply-template', { messages, tools })).json();
  assert.ok(prompt.includes(text) && prompt.includes('sunny'), prompt);
  assert.equal(prompt.includes('Rome, then.'), recalls, prompt);
}

for (const [form, text] of Object.entries(patience > 1 ? shown : { ...shown, ...alike }))
  test(`calls in the form of ${form}`, { skip, timeout: 120000 * patience }, async () => {
    const server = await Server.start(['--ctx', '2048'], with_template(form)); // markers are many tokens of this vocabulary
    try {
      await calls(server, text, begun.includes(form), recall.includes(form));
    } finally {
      await server.stop();
    }
  });
