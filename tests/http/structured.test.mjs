// Structured output: whatever the model would like to say, the answer parses and ajv finds it valid.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { missing, patience, Server } from './server.mjs';
import { schemas, refused } from './schemas.mjs';

const { default: Ajv } = await import('ajv/dist/2020.js').catch(() => ({ default: {} }));
const { default: addFormats } = await import('ajv-formats').catch(() => ({ default: {} }));
const { default: OpenAI } = await import('openai').catch(() => ({}));
const skip = missing || (OpenAI && Ajv.default ? false : 'ajv, ajv-formats or openai is not installed: run npm ci in tests/http');

const it = (name, run) => test(name, { skip }, run);
const server = skip ? null : await Server.start();
const client = skip ? null : new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0, timeout: 60000 * patience });
const ajv = skip ? null : addFormats.default(new Ajv.default({ strict: false, allErrors: true }));
const quick = patience > 1; // sanitizers: fewer seeds, and answers that need not end are cut off sooner

const format = (schema) => ({ type: 'json_schema', json_schema: { name: 'answer', strict: true, schema } });
const ask = (extra) => ({ model: 'test', messages: [{ role: 'user', content: 'Answer in JSON.' }], max_tokens: quick ? 160 : 700, ...extra });
let complete = 0, cut = 0;

function check(schema, validate, choice) {
  if (choice.finish_reason === 'length') { cut++; return; }
  assert.equal(choice.finish_reason, 'stop');
  const text = choice.message.content;
  let value;
  try { value = JSON.parse(text); } catch (e) { assert.fail(`does not parse: ${e.message}\n${text}`); }
  assert.ok(validate(value), `not valid: ${ajv.errorsText(validate.errors)}\n${text}\n${JSON.stringify(schema)}`);
  complete++;
}

// Under TSan, whose business is threads and not schemas, every fifth: the whole of them takes nine minutes.
const chosen = Object.entries(schemas).filter((_, i) => patience < 10 || i % 5 === 0);
for (const [name, schema] of chosen)
  it(`answers in the form of ${name}`, async () => {
    const validate = ajv.compile(schema);
    const r = await client.chat.completions.create(ask({ response_format: format(schema), temperature: 0 }));
    check(schema, validate, r.choices[0]);
    const many = await client.chat.completions.create(ask({ response_format: format(schema), temperature: 1, seed: 3, n: quick ? 1 : 2 }));
    for (const c of many.choices) check(schema, validate, c);
  });

it('finishes nearly all of them within the tokens it has', () => {
  assert.ok(complete > 4 * cut, `${complete} complete, ${cut} cut off`);
});

it('answers json_object with an object', async () => {
  // The model would write one string for ever: with a bias it comes to its end.
  const logit_bias = {};
  for (const text of ['"', '}', '":', '"}'])
    for (const id of (await (await server.post('/tokenize', { content: text })).json()).tokens) logit_bias[id] = 12;
  let whole = 0;
  for (const seed of [1, 2, 3, 4, 5, 6]) {
    const r = await client.chat.completions.create(ask({ response_format: { type: 'json_object' }, temperature: seed % 2, seed, logit_bias, max_tokens: 200 }));
    if (r.choices[0].finish_reason === 'length') continue;
    const v = JSON.parse(r.choices[0].message.content);
    assert.ok(v && typeof v === 'object' && !Array.isArray(v));
    whole++;
  }
  assert.ok(whole > 0);
});

const person = schemas['a person'];

it('streams what it answers whole, and the same seed gives the same answer', async () => {
  const extra = { response_format: format(person), temperature: 1, seed: 11 };
  const whole = await client.chat.completions.create(ask(extra));
  const again = await client.chat.completions.create(ask(extra));
  assert.equal(again.choices[0].message.content, whole.choices[0].message.content);
  let text = '', reason;
  for await (const chunk of await client.chat.completions.create(ask({ ...extra, stream: true }))) {
    text += chunk.choices[0]?.delta?.content ?? '';
    reason ??= chunk.choices[0]?.finish_reason ?? undefined;
  }
  assert.equal(text, whole.choices[0].message.content);
  assert.equal(reason, whole.choices[0].finish_reason);
});

it('does not depend on what else runs', async () => {
  const extra = { response_format: format(person), temperature: 1, seed: 21 };
  const alone = await client.chat.completions.create(ask(extra));
  const others = Object.values(schemas).slice(0, 6).map((s) => client.chat.completions.create(ask({ response_format: format(s), temperature: 1, max_tokens: 60 })));
  const overlapped = await client.chat.completions.create(ask(extra));
  await Promise.all(others);
  assert.equal(overlapped.choices[0].message.content, alone.choices[0].message.content);
});

it('parses with the helper of the client', async () => {
  const r = await client.chat.completions.parse(ask({ response_format: format({ type: 'object', properties: { ok: { type: 'boolean' } }, required: ['ok'], additionalProperties: false }) }));
  assert.equal(typeof r.choices[0].message.parsed.ok, 'boolean');
});

it('says length when max_tokens cuts it off', async () => {
  const r = await client.chat.completions.create(ask({ response_format: format(person), max_tokens: 3 }));
  assert.equal(r.choices[0].finish_reason, 'length');
  assert.equal(r.usage.completion_tokens, 3);
});

it('stops at a stop string as always', async () => {
  const r = await client.chat.completions.create(ask({ response_format: format(person), stop: ['"age"'], temperature: 0 }));
  assert.equal(r.choices[0].finish_reason, 'stop');
  assert.ok(!r.choices[0].message.content.includes('"age"'));
  assert.ok(r.choices[0].message.content.startsWith('{'));
});

it('gives log-probabilities of the tokens that came', async () => {
  const r = await client.chat.completions.create(ask({ response_format: format({ enum: ['red', 'green'] }), logprobs: true, top_logprobs: 2 }));
  const { content } = r.choices[0].logprobs;
  assert.equal(content.map((t) => t.token).join(''), r.choices[0].message.content);
  for (const t of content) assert.ok(Number.isFinite(t.logprob) && t.logprob <= 0);
});

it('follows a grammar, in text completions too', async () => {
  const grammar = 'root ::= move (" " move){2}\nmove ::= [a-h] [1-8] "-" [a-h] [1-8] # a move\n';
  for (const temperature of [0, 1]) {
    const r = await server.post('/v1/completions', { prompt: 'Moves:', grammar, temperature, seed: 5, max_tokens: 100 });
    const body = await r.json();
    assert.equal(r.status, 200, JSON.stringify(body));
    assert.match(body.choices[0].text, /^[a-h][1-8]-[a-h][1-8]( [a-h][1-8]-[a-h][1-8]){2}$/);
    assert.equal(body.choices[0].finish_reason, 'stop');
  }
  const chat = await (await server.post('/v1/chat/completions', ask({ grammar: 'root ::= "\u00e9\u4e2d\u{1F600}" [\u0430-\u044f]{3}' }))).json();
  assert.match(chat.choices[0].message.content, /^\u00e9\u4e2d\u{1F600}[\u0430-\u044f]{3}$/u);
});

// The same forms under the names of other servers.
const yes = { type: 'object', properties: { yes: { type: 'boolean' } }, required: ['yes'] };
const is_yes = (text) => assert.deepEqual(Object.keys(JSON.parse(text)), ['yes']);
for (const [name, body, test] of [
  ['json_object with a schema', { response_format: { type: 'json_object', schema: yes } }, is_yes],
  ['json_schema without its name', { response_format: { type: 'json_schema', schema: yes } }, is_yes],
  ['response_format of a grammar', { response_format: { type: 'grammar', grammar: 'root ::= "a" [0-9]' } }, /^a[0-9]$/],
  ['json_schema at the top', { json_schema: yes }, is_yes],
  ['grammar of a schema', { grammar: { type: 'json', value: yes } }, is_yes],
  ['grammar of a pattern', { grammar: { type: 'regex', value: '[ab]{3}' } }, /^[ab]{3}$/],
  ['guided_json', { guided_json: yes }, is_yes],
  ['guided_json as a text', { guided_json: JSON.stringify(yes) }, is_yes],
  ['guided_regex', { guided_regex: '(?!a)\\w{2}"\\n[^x]|é' }, /^(?:(?!a)\w{2}"\n[^x]|é)$/u],
  ['guided_choice', { guided_choice: ['one "1"', 'two\n2'] }, /^(?:one "1"|two\n2)$/],
  ['guided_grammar', { guided_grammar: 'root ::= "x"{2,3}' }, /^x{2,3}$/],
  ['structured_outputs.json', { structured_outputs: { json: yes } }, is_yes],
  ['structured_outputs.regex', { structured_outputs: { regex: 'a|b' } }, /^[ab]$/],
  ['structured_outputs.choice', { structured_outputs: { choice: ['p', 'q'] } }, /^[pq]$/],
  ['structured_outputs.grammar', { structured_outputs: { grammar: 'root ::= "z"' } }, /^z$/],
])
  it(`takes ${name}`, async () => {
    for (const [path, extra] of [['/v1/chat/completions', {}], ['/v1/completions', { prompt: 'Say', messages: undefined }]]) {
      const r = await server.post(path, { ...ask({ ...body, temperature: 1, seed: 4, max_tokens: 200 }), ...extra });
      const answer = await r.json();
      assert.equal(r.status, 200, JSON.stringify(answer));
      const text = answer.choices[0].message?.content ?? answer.choices[0].text;
      assert.equal(answer.choices[0].finish_reason, 'stop', text);
      if (test instanceof RegExp) assert.match(text, test);
      else test(text);
    }
  });

it('lets a bias choose among what is allowed', async () => {
  const yes = await (await server.post('/tokenize', { content: 'yes' })).json();
  const extra = { grammar: 'root ::= "yes" | "no"', temperature: 0 };
  const bias = (v) => ({ logit_bias: { [yes.tokens[0]]: v } });
  const with_ = await (await server.post('/v1/chat/completions', ask({ ...extra, ...bias(100) }))).json();
  assert.equal(with_.choices[0].message.content, 'yes');
});

for (const [keyword, schema] of refused)
  it(`refuses ${JSON.stringify(schema).slice(0, 60)} and names ${keyword}`, async () => {
    await assert.rejects(client.chat.completions.create(ask({ response_format: format(schema) })), (e) => {
      assert.equal(e.status, 400);
      assert.equal(e.param, 'response_format.json_schema.schema');
      assert.ok(e.message.includes(keyword), e.message);
      return true;
    });
  });

it('refuses what cannot be followed and names the field', async () => {
  for (const [body, param, word] of [
    [{ grammar: 'root ::= x' }, 'grammar', "'x'"],
    [{ grammar: 7 }, 'grammar', 'string'],
    [{ grammar: 'root ::= root "a" | "b"' }, 'grammar', 'left-recursive'],
    [{ grammar: 'root ::= "a"', response_format: { type: 'json_object' } }, 'grammar', 'both'],
    [{ grammar: 'root ::= "a"', ignore_eos: true }, 'ignore_eos', 'ignore_eos'],
    [{ response_format: 'json' }, 'response_format', 'object'],
    [{ response_format: { type: 'json_object', schema: 'x' } }, 'response_format.schema', 'object'],
    [{ response_format: { type: 'grammar', grammar: 7 } }, 'response_format.grammar', 'string'],
    [{ json_schema: { not: {} } }, 'json_schema', 'not'],
    [{ json_schema: 'x' }, 'json_schema', 'object'],
    [{ grammar: { type: 'lark', value: 'x' } }, 'grammar', 'regex'],
    [{ grammar: { type: 'json' } }, 'grammar.value', 'object'],
    [{ guided_json: '{"type":' }, 'guided_json', 'schema'],
    [{ guided_json: 3 }, 'guided_json', 'object'],
    [{ guided_regex: '(a' }, 'guided_regex', "')'"],
    [{ guided_choice: [] }, 'guided_choice', 'array'],
    [{ guided_choice: ['a', 7] }, 'guided_choice', 'string'],
    [{ guided_choice: ['a', ''] }, 'guided_choice', 'string'],
    [{ guided_grammar: '?start: "a"' }, 'guided_grammar', 'line 1'],
    [{ guided_whitespace_pattern: ' *', guided_json: {} }, 'guided_whitespace_pattern', 'leave it out'],
    [{ structured_outputs: {} }, 'structured_outputs', 'json'],
    [{ structured_outputs: 'x' }, 'structured_outputs', 'object'],
    [{ structured_outputs: { structural_tag: '{}' } }, 'structured_outputs.structural_tag', 'not supported'],
    [{ structured_outputs: { json: {}, regex: 'a' } }, 'structured_outputs.regex', 'both'],
    [{ structured_outputs: { json: {}, disable_additional_properties: 1 } }, 'structured_outputs', 'true or false'],
    [{ guided_choice: ['a'], grammar: 'root ::= "a"' }, 'guided_choice', 'both'],
    [{ guided_choice: ['a'], ignore_eos: true }, 'ignore_eos', 'guided_choice'],
    [{ response_format: { type: 'xml' } }, 'response_format', 'xml'],
    [{ response_format: { type: 'json_schema' } }, 'response_format.json_schema', 'object'],
    [{ response_format: { type: 'json_schema', json_schema: { name: 'x' } } }, 'response_format.json_schema.schema', 'object'],
  ]) {
    const r = await server.post('/v1/chat/completions', ask(body));
    const { error } = await r.json();
    assert.equal(r.status, 400, JSON.stringify(body));
    assert.equal(error.param, param);
    assert.ok(error.message.includes(word), error.message);
  }
  // Nothing wrong but the ways through it: the request fails, the server lives.
  const r = await server.post('/v1/chat/completions', ask({ grammar: 'root ::= (a | a a | a a a)* "!"\na ::= [a-z ] (a | b)? a?\nb ::= [a-z ] a b? a', max_tokens: 500 }));
  assert.ok([200, 400].includes(r.status));
  assert.equal((await fetch(`${server.url}/health`)).status, 200);
});

it('ends cleanly', async () => server.stop());
