// Every field that an endpoint knows, with every kind of value that it does not take: 400, and the field's name in the
// error. null is as if the field were not there, and unknown fields are ignored.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { missing, Server } from './server.mjs';

const it = (name, run) => test(name, { skip: missing }, run);
const server = missing ? null : await Server.start();

const values = [true, false, 0, -7, 1.5, 1e300, 4294967296, 'x', '', [], [5], {}, { x: 5 }];
const is = {
  bool: (v) => typeof v === 'boolean',
  int: (from, to = 2147483647) => (v) => Number.isInteger(v) && v >= from && v <= to,
  number: (from, to) => (v) => typeof v === 'number' && v >= from && v <= to,
  string: (v) => typeof v === 'string',
  object: (v) => typeof v === 'object' && !Array.isArray(v),
  texts: (v) => typeof v === 'object' && !Array.isArray(v) && Object.values(v).every((x) => typeof x === 'string'),
  array: (v) => Array.isArray(v) && v.length === 0,
  nothing: () => false,
};

const off = (v) => v === 0 || v === false || v === '' || (Array.isArray(v) && v.length === 0);
const sampling = {
  stream: is.bool, temperature: is.number(0, 2), top_p: is.number(0, 1), top_k: is.int(-1), min_p: is.number(0, 1), typical_p: is.number(0, 1), seed: (v) => Number.isInteger(v) && Math.abs(v) < 2 ** 63,
  presence_penalty: is.number(-2, 2), frequency_penalty: is.number(-2, 2), repeat_penalty: is.number(0.01, 100), repeat_last_n: is.int(-1), max_tokens: is.int(-1), n_predict: is.int(-1), min_tokens: is.int(0), timings_per_token: is.bool, return_progress: is.bool,
  stop_token_ids: (v) => Array.isArray(v), reasoning_format: is.nothing, reasoning_budget: is.int(-1), mirostat: off, dynatemp_range: off, samplers: (v) => is.array(v) || v === '' || v === 'x',
  dry_multiplier: is.number(0, 100), dry_base: is.number(1, 100), dry_allowed_length: is.int(0, 4096), dry_penalty_last_n: is.int(-1), dry_sequence_breakers: is.array,
  stop: (v) => (typeof v === 'string' && v !== '') || (Array.isArray(v) && v.length === 0), logit_bias: (v) => typeof v === 'object' && !(Array.isArray(v) && v.length), n: is.int(1, 128), ignore_eos: is.bool, cache_prompt: is.bool,
  timeout_s: is.number(0.001, 86400), user: is.string, metadata: is.object, service_tier: is.string, store: is.bool, response_format: is.nothing, grammar: (v) => v === '', stream_options: is.nothing,
  safety_identifier: is.string, prompt_cache_key: is.string,
};
const endpoints = {
  '/v1/chat/completions': [{ messages: [{ role: 'user', content: 'x' }] }, {
    ...sampling, messages: is.nothing, model: (v) => is.string(v), max_completion_tokens: is.int(-1), logprobs: is.bool, top_logprobs: is.nothing, tools: is.array, tool_choice: is.nothing,
    parallel_tool_calls: is.bool, reasoning_effort: is.nothing, chat_template_kwargs: is.object, add_generation_prompt: is.bool, modalities: is.nothing, functions: is.nothing, function_call: is.nothing,
  }],
  '/v1/completions': [{ prompt: 'x' }, {
    ...sampling, reasoning_budget: is.nothing, prompt: (v) => is.string(v) || (Array.isArray(v) && v.length === 1), model: is.string, logprobs: is.int(0, 20), echo: is.bool, suffix: (v) => v === '', best_of: is.int(1, 1),
  }],
  '/v1/responses': [{ input: 'x' }, {
    input: is.string, model: is.string, stream: is.bool, temperature: sampling.temperature, top_p: sampling.top_p, top_k: sampling.top_k, min_p: sampling.min_p, seed: sampling.seed, stop: sampling.stop,
    presence_penalty: sampling.presence_penalty, frequency_penalty: sampling.frequency_penalty, repeat_penalty: sampling.repeat_penalty, cache_prompt: is.bool, timeout_s: sampling.timeout_s,
    max_output_tokens: is.int(1), max_tool_calls: is.int(1), top_logprobs: is.int(0, 20), parallel_tool_calls: is.bool, store: is.bool, background: (v) => v === false, instructions: is.string, metadata: is.texts,
    user: is.string, safety_identifier: is.string, service_tier: is.string, prompt_cache_key: is.string, truncation: is.nothing, previous_response_id: is.nothing, conversation: is.nothing, prompt: is.nothing,
    include: is.array, text: is.object, reasoning: is.object, tools: is.array, tool_choice: is.nothing, chat_template_kwargs: is.object,
  }],
  '/v1/messages': [{ model: 'test', max_tokens: 1, messages: [{ role: 'user', content: 'x' }] }, {
    messages: is.nothing, model: is.string, max_tokens: is.int(1), system: (v) => is.string(v) || (Array.isArray(v) && v.length === 0), stream: is.bool, temperature: sampling.temperature, top_p: sampling.top_p, top_k: sampling.top_k,
    stop_sequences: is.array, metadata: is.object, service_tier: is.string, thinking: is.nothing, output_config: is.object, output_format: is.nothing, tools: is.array, tool_choice: is.nothing,
    min_p: sampling.min_p, seed: sampling.seed, cache_prompt: is.bool, timeout_s: sampling.timeout_s, presence_penalty: sampling.presence_penalty, frequency_penalty: sampling.frequency_penalty, repeat_penalty: sampling.repeat_penalty,
  }],
  '/tokenize': [{ content: 'x' }, { content: is.string, add_special: is.bool, parse_special: is.bool, with_pieces: is.bool }],
  '/detokenize': [{ tokens: [1] }, { tokens: (v) => Array.isArray(v) }],
  '/apply-template': [{ messages: [{ role: 'user', content: 'x' }] }, { messages: is.nothing, add_generation_prompt: is.bool, chat_template_kwargs: is.object, reasoning_effort: is.nothing, tools: is.array }],
};
// Of a message's fields those that say what is read.
const counted = ['messages', 'model', 'system', 'thinking', 'output_config', 'output_format', 'tools', 'tool_choice'];
endpoints['/v1/messages/count_tokens'] = [endpoints['/v1/messages'][0], Object.fromEntries(counted.map((f) => [f, endpoints['/v1/messages'][1][f]]))];

const ask = async (path, body) => {
  const r = await server.post(path, body);
  return { status: r.status, text: await r.text() };
};
// The error names the field itself or a part of it: tools[0].function.name.
const names = (said, field) => new RegExp(`'${field}['.[]`).test(said);

for (const [path, [base, fields]] of Object.entries(endpoints))
  it(`${path} names each bad field`, async () => {
    const wrong = [];
    for (const [field, takes] of Object.entries(fields))
      for (const value of values.filter((v) => !takes(v))) {
        const { status, text } = await ask(path, { ...base, [field]: value });
        const { error } = JSON.parse(text.startsWith('{') ? text : '{}');
        const param = error && 'param' in error; // Anthropic's errors have none
        if (status !== 400 || !names(error.message, field) || (param && !(error.param ?? '').startsWith(field))) wrong.push(`${field}: ${JSON.stringify(value)}: ${status} ${text.slice(0, 160)}`);
      }
    assert.deepEqual(wrong, []);
  });

it('takes null for a field that is not there, and ignores what it does not know', async () => {
  for (const [path, [base, fields]] of Object.entries(endpoints)) {
    const nulls = Object.fromEntries(Object.keys(fields).filter((f) => !(f in base)).map((f) => [f, null]));
    const limit = path === '/v1/responses' ? { max_output_tokens: 1 } : { max_tokens: 1 };
    const { status, text } = await ask(path, { ...nulls, ...base, ...limit, unheard_of: { a: [1] } });
    assert.equal(status, 200, `${path}: ${text.slice(0, 300)}`);
  }
});

it('says which part of a list is wrong', async () => {
  const chat = '/v1/chat/completions';
  const messages = [{ role: 'user', content: 'x' }];
  for (const [body, param, word] of [
    [{ messages: [...messages, 5] }, 'messages[1]', 'object'],
    [{ messages: [{ role: 'king', content: 'x' }] }, 'messages[0].role', 'system'],
    [{ messages: [{ role: 'user', content: 5 }] }, 'messages[0].content', 'number'],
    [{ messages: [{ role: 'user', content: [{ type: 'text' }] }] }, 'messages[0].content[0]', 'text'],
    [{ messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'data:,' } }] }] }, 'messages[0].content[0]', 'text only'],
    [{ messages: [{ role: 'user', content: [{ type: 'input_audio' }] }] }, 'messages[0].content[0]', 'text only'],
    [{ messages, stop: ['a', ''] }, 'stop', 'stop[1]'],
    [{ messages, logit_bias: { 7: 'x' } }, 'logit_bias', '7'],
    [{ messages, stream: true, stream_options: { include_usage: 1 } }, 'stream_options.include_usage', 'true or false'],
    [{ messages, logprobs: true, top_logprobs: 21 }, 'top_logprobs', '20'],
    [{ messages, max_tokens: 'many' }, 'max_tokens', 'from -1 to 2147483647, not a string'],
    [{ messages, reasoning_effort: 'enormous' }, 'reasoning_effort', 'high'],
    [{ messages, response_format: { type: 'json_schema', json_schema: { name: 'x', strict: 'yes', schema: {} } } }, 'response_format.json_schema.strict', 'true or false'],
  ]) {
    const { status, text } = await ask(chat, body);
    const { error } = JSON.parse(text);
    assert.equal(status, 400, `${JSON.stringify(body)}: ${text.slice(0, 200)}`);
    assert.ok(error.param.startsWith(param), `${JSON.stringify(body)}: ${text}`);
    assert.ok(error.message.includes(word), text);
  }
  const { status, text } = await ask(chat, { messages, model: 'another' });
  assert.equal(status, 404);
  assert.equal(JSON.parse(text).error.param, 'model');
});

// The demo model's answers at temperature 0 are the same every time, so that a field's effect shows.
const native = async (extra) => {
  const { status, text } = await ask('/completion', { prompt: 'once upon a time', temperature: 0, n_predict: 8, return_tokens: true, ...extra });
  assert.equal(status, 200, text);
  return JSON.parse(text);
};

it('computes the prompt alone when asked for 0 tokens, and sets no limit for -1', async () => {
  const none = await native({ n_predict: 0 });
  assert.deepEqual([none.tokens, none.content, none.tokens_predicted, none.stop_type], [[], '', 0, 'limit']);
  assert.equal(none.timings.predicted_per_second, 0);
  const chat = { messages: [{ role: 'user', content: 'x' }], temperature: 0 };
  const { status, text } = await ask('/v1/chat/completions', { ...chat, max_tokens: 0 });
  assert.equal(status, 200);
  assert.equal(JSON.parse(text).usage.completion_tokens, 0);
  const stream = await ask('/v1/chat/completions', { ...chat, n_predict: 0, stream: true });
  assert.match(stream.text, /"finish_reason":"length"[^]*\[DONE\]/);
  assert.equal(JSON.parse((await ask('/v1/chat/completions', { ...chat, n_predict: 3 })).text).usage.completion_tokens, 3);
  assert.equal(JSON.parse((await ask('/v1/chat/completions', { ...chat, max_tokens: 2, n_predict: 3 })).text).usage.completion_tokens, 2);
});

it('ends at a token of stop_token_ids, also with ignore_eos, and not before min_tokens', async () => {
  const { tokens } = await native({ ignore_eos: true });
  assert.equal(tokens.length, 8);
  const at = tokens.findIndex((id, i) => i > 1 && tokens.indexOf(id) === i);
  const cut = await native({ ignore_eos: true, stop_token_ids: [tokens[at]] });
  assert.deepEqual([cut.tokens, cut.stop_type], [tokens.slice(0, at + 1), 'eos']);
  const held = await native({ stop_token_ids: [tokens[at]], min_tokens: 8 });
  assert.equal(held.tokens.length, 8);
  assert.ok(!held.tokens.slice(0, 7).includes(tokens[at]));
  assert.deepEqual(held.tokens.slice(0, at), tokens.slice(0, at));
  const bad = await ask('/completion', { prompt: 'x', min_tokens: 2, grammar: 'root ::= "a"' });
  assert.equal(bad.status, 400);
  assert.match(bad.text, /min_tokens/);
});

it('takes logit_bias as pairs of ids or texts', async () => {
  const { tokens } = await native({});
  for (const logit_bias of [[[tokens[0], false]], { [tokens[0]]: false }, [[tokens[0], -100]]])
    assert.notEqual((await native({ logit_bias })).tokens[0], tokens[0]);
  const r = JSON.parse((await ask('/tokenize', { content: 'q' })).text).tokens;
  const forced = await native({ n_predict: 1, logit_bias: [['q', 100]] });
  assert.ok(r.includes(forced.tokens[0]), `${forced.tokens} of ${r}`);
});

it('refuses samplers that it does not have, unless they are off', async () => {
  await native({ mirostat: 0, mirostat_tau: 5, mirostat_eta: 0.1, dynatemp_range: 0, dynatemp_exponent: 1 });
  for (const extra of [{ mirostat: 1 }, { dynatemp_range: 0.5 }]) {
    const { status, text } = await ask('/completion', { prompt: 'x', ...extra });
    assert.equal(status, 400);
    assert.ok(names(JSON.parse(text).error.message, Object.keys(extra)[0]), text);
  }
});

it('takes another seed each time where it is -1', async () => {
  for (const [path, read] of [['/v1/completions', (b) => b.choices[0].text], ['/completion', (b) => b.content]]) {
    const ask16 = async (seed) => read(JSON.parse((await ask(path, { prompt: 'once upon a time', max_tokens: 48, temperature: 1.5, ignore_eos: true, seed })).text));
    assert.notEqual(await ask16(-1), await ask16(-1));
    assert.equal(await ask16(5), await ask16(5));
  }
});

it('applies the samplers that the list names, in its own order', async () => {
  const usual = ['penalties', 'dry', 'top_n_sigma', 'top_k', 'typ_p', 'top_p', 'min_p', 'xtc', 'temperature'];
  const set = { temperature: 0.7, top_k: 3, top_p: 0.9, min_p: 0.05, repeat_penalty: 1.3, dry_multiplier: 1, seed: 11, n_predict: 32, ignore_eos: true };
  const all = await native(set);
  assert.deepEqual((await native({ ...set, samplers: usual })).tokens, all.tokens);
  // Where a step is off, its place makes no difference; one that is not named is off.
  assert.deepEqual((await native({ ...set, samplers: ['xtc', 'top_n_sigma', ...usual.filter((s) => s !== 'xtc' && s !== 'top_n_sigma' && s !== 'typ_p')] })).tokens, all.tokens);
  const without = async (step, off) => assert.deepEqual((await native({ ...set, samplers: usual.filter((s) => s !== step) })).tokens, (await native({ ...set, ...off })).tokens, step);
  // As SillyTavern lists them, with names that are gone or have two forms.
  assert.deepEqual((await native({ ...set, tfs_z: 1, samplers: ['penalties', 'dry', 'top_n_sigma', 'top_k', 'typ_p', 'tfs_z', 'typical_p', 'top_p', 'min_p', 'xtc', 'temperature', 'adaptive_p'] })).tokens, all.tokens);
  assert.deepEqual((await native({ ...set, samplers: 'edskypmxt' })).tokens, all.tokens);
  assert.deepEqual((await native({ ...set, samplers: 'k' })).tokens, (await native({ ...set, samplers: ['top_k'] })).tokens);
  await without('dry', { dry_multiplier: 0 });
  await without('penalties', { repeat_penalty: 1 });
  await without('top_k', { top_k: 0 });
  await without('top_p', { top_p: 1 });
  await without('min_p', { min_p: 0 });
  await without('temperature', { temperature: 1 });
  assert.deepEqual((await native({ ...set, samplers: [] })).tokens, (await native({ seed: 11, n_predict: 32, ignore_eos: true, temperature: 1 })).tokens);
  assert.notDeepEqual((await native({ ...set, samplers: ['temperature'] })).tokens, all.tokens);
  for (const [samplers, word] of [[['top_k', 'nonsense'], '[1]'], [['temperature', 'top_k'], "'top_k' after 'temperature'"], [[5], '[0]'], ['kzt', '[1]'], [['dry', 'dry'], "'dry' twice"], [5, 'a number'], [Array(33).fill('dry'), 'at most 32'], ['tk', "'top_k' after 'temperature'"]]) {
    const { status, text } = await ask('/completion', { prompt: 'x', ...set, samplers });
    const { error } = JSON.parse(text);
    assert.ok(status === 400 && error.param === 'samplers' && error.message.includes(word), text);
  }
});

// At temperature 0 the demo model goes on with one token for ever, or with a few in turn.
const dull = { prompt: 'one two one two one two one two', n_predict: 48, ignore_eos: true };
const longestRun = (tokens) => Math.max(...tokens.map((id, i) => { let n = 1; while (tokens[i + n] === id) n++; return n; }));
// The longest run of tokens that stands twice in the list, which may overlap.
const longestRepeat = (t) => {
  let best = 0;
  for (let i = 0; i < t.length; i++) for (let j = i + 1; j < t.length; j++) { let n = 0; while (j + n < t.length && t[i + n] === t[j + n]) n++; best = Math.max(best, n); }
  return best;
};

it('stops repeating where DRY is asked for', async () => {
  const plain = await native(dull);
  assert.ok(longestRun(plain.tokens) > 20, JSON.stringify(plain.tokens));
  const dry = await native({ ...dull, dry_multiplier: 5 });
  assert.ok(longestRepeat(dry.tokens) < 10 && longestRepeat(dry.tokens) < longestRepeat(plain.tokens) / 2, JSON.stringify(dry.tokens));
  const { dry_multiplier, dry_base, dry_allowed_length, dry_penalty_last_n, dry_sequence_breakers } = dry.generation_settings;
  assert.deepEqual({ dry_multiplier, dry_base, dry_allowed_length, dry_penalty_last_n, dry_sequence_breakers }, { dry_multiplier: 5, dry_base: 1.75, dry_allowed_length: 2, dry_penalty_last_n: -1, dry_sequence_breakers: ['\n', ':', '"', '*'] });
  // Nothing may stand twice in a row, and nothing may be said again: a limit of 1 with a large factor.
  const strict = await native({ ...dull, dry_multiplier: 100, dry_allowed_length: 1 });
  assert.ok(longestRepeat(strict.tokens) <= 1, JSON.stringify(strict.tokens));
  for (const off of [{ dry_multiplier: 0, dry_base: 3 }, { dry_multiplier: 5, dry_penalty_last_n: 0 }, { dry_multiplier: 5, dry_allowed_length: 4096 }, { dry_base: 2, dry_sequence_breakers: [] }])
    assert.deepEqual((await native({ ...dull, ...off })).tokens, plain.tokens, JSON.stringify(off));
  // The token that repeats, as a breaker: no sequence is longer than it.
  const { content } = JSON.parse((await ask('/detokenize', { tokens: [plain.tokens[0]] })).text);
  const broken = await native({ ...dull, dry_multiplier: 5, dry_sequence_breakers: [content] });
  const run = plain.tokens.findIndex((id) => id !== plain.tokens[0]);
  assert.deepEqual(broken.tokens.slice(0, run), plain.tokens.slice(0, run));
});

it('takes DRY with ids, several choices, streams, a grammar and the other penalties, and always alike', async () => {
  const dry = { dry_multiplier: 5, dry_allowed_length: 2 };
  const ids = JSON.parse((await ask('/tokenize', { content: dull.prompt, add_special: true })).text).tokens;
  const once = await native({ ...dull, ...dry });
  assert.deepEqual((await native({ ...dull, ...dry, prompt: ids })).tokens, once.tokens);
  const many = JSON.parse((await ask('/v1/completions', { prompt: ids, max_tokens: 48, ignore_eos: true, temperature: 0, n: 3, ...dry })).text);
  assert.equal(many.choices.length, 3);
  for (const c of many.choices) assert.equal(c.text, once.content);
  const stream = (await ask('/completion', { ...dull, ...dry, temperature: 0, stream: true })).text;
  assert.equal(stream.split('\n').filter((l) => l.startsWith('data: ')).map((l) => JSON.parse(l.slice(6)).content).join(''), once.content);
  const both = await Promise.all([1, 2, 3].map(() => native({ ...dull, ...dry, repeat_penalty: 1.1, logit_bias: [['q', 1]], temperature: 0.8, seed: 5 })));
  for (const b of both) assert.deepEqual(b.tokens, both[0].tokens);
  const bound = await native({ prompt: 'ab', n_predict: 60, grammar: 'root ::= "abababababababab"', dry_multiplier: 100, dry_allowed_length: 0 });
  assert.equal(bound.content, 'abababababababab');
});

it('says what is wrong with breakers', async () => {
  for (const [dry_sequence_breakers, word] of [['\n', 'an array of strings, not a string'], [['a', 5], '[1]'], [['a', ''], '[1]'], [['x'.repeat(65)], '64'], [Array(33).fill('a'), '32']]) {
    const { status, text } = await ask('/v1/chat/completions', { messages: [{ role: 'user', content: 'x' }], dry_sequence_breakers });
    const { error } = JSON.parse(text);
    assert.ok(status === 400 && error.param === 'dry_sequence_breakers' && error.message.includes(word), text);
  }
});

it('tells timings that are true, and at each event when asked', async () => {
  const one = await native({ n_predict: 1 });
  assert.deepEqual([one.timings.predicted_n, one.timings.predicted_per_second], [1, 0]);
  const { timings: t } = await native({});
  assert.ok(Math.abs(t.predicted_per_second - ((t.predicted_n - 1) / t.predicted_ms) * 1e3) < 1e-6, JSON.stringify(t));
  assert.equal(t.cache_n, t.cached_n);
  const chat = { messages: [{ role: 'user', content: 'x' }], max_tokens: 4, ignore_eos: true, stream: true };
  const events = async (extra) => (await ask('/v1/chat/completions', { ...chat, ...extra })).text.split('\n\n').filter((e) => /^data: .*"content":"[^"]/.test(e));
  assert.ok((await events({})).every((e) => !e.includes('timings')));
  const timed = await events({ timings_per_token: true });
  assert.ok(timed.length > 0 && timed.every((e) => e.includes('"timings":{"prompt_n":')), timed.join());
  for (const [path, body] of [['/v1/chat/completions', chat], ['/v1/completions', { prompt: 'x', max_tokens: 4, ignore_eos: true, stream: true }]]) { // beside the usage, of the whole request
    const { text } = await ask(path, { ...body, n: 2, stream_options: { include_usage: true } });
    const last = JSON.parse(text.split('\n\n').at(-3).slice(6));
    assert.deepEqual([last.choices, last.usage.completion_tokens, last.timings?.predicted_n], [[], 8, 8], text);
  }
});

// The first event has what was cached, the last the whole prompt, and the answer comes after all of them.
it('says how far a prompt is, where asked', async () => {
  const long = 'a b c d e f g h '.repeat(80);
  for (const [path, body] of [['/v1/chat/completions', { messages: [{ role: 'user', content: long }] }], ['/v1/completions', { prompt: long }], ['/completion', { prompt: long }]]) {
    const chunks = async (more) => (await ask(path, { ...body, max_tokens: 2, ignore_eos: true, stream: true, ...more })).text.split('\n\n').filter((e) => /^data: {/.test(e)).map((e) => JSON.parse(e.slice(6)));
    assert.ok((await chunks({ cache_prompt: false })).every((c) => !c.prompt_progress), path);
    await chunks({});
    for (const [cached, more] of [[false, { cache_prompt: false }], [true, {}]]) {
      const all = await chunks({ ...more, return_progress: true, timings_per_token: true });
      const told = all.map((c) => c.prompt_progress).filter(Boolean);
      const said = JSON.stringify(told);
      assert.ok(told.length >= 2 && all.slice(0, told.length).every((c) => c.prompt_progress), `${path}: ${said}`);
      assert.ok(told[0].processed === told[0].cache && told[0].cache > 0 === cached, `${path}: ${said}`);
      assert.ok(told.at(-1).processed === told.at(-1).total && told[0].total > 600, `${path}: ${said}`);
      const times = all.slice(0, told.length).map((c) => c.timings); // those of the prompt so far
      assert.ok(times.every((t, i) => t.prompt_n === told[i].processed - told[i].cache && t.cache_n === told[i].cache && t.prompt_ms >= (times[i - 1]?.prompt_ms ?? 0) && t.predicted_n === 0), `${path}: ${JSON.stringify(times)}`);
      assert.deepEqual([times[0].prompt_n, times[0].prompt_ms, times[0].prompt_per_second], [0, 0, 0]);
      assert.ok(told.every((p, i) => i === 0 || (p.processed > told[i - 1].processed && p.time_ms >= told[i - 1].time_ms && p.cache === told[0].cache)), `${path}: ${said}`);
    }
    const whole = await ask(path, { ...body, max_tokens: 2, return_progress: true });
    assert.ok(whole.status === 200 && !whole.text.includes('prompt_progress'), whole.text);
  }
  for (const [path, body] of [['/v1/responses', { input: 'x' }], ['/v1/messages', { model: 'test', max_tokens: 1, messages: [{ role: 'user', content: 'x' }] }]])
    assert.equal((await ask(path, { ...body, return_progress: true })).status, 400, path);
});

// JavaScript cuts an emoji in two, and keeps the halves in a conversation's history.
it('takes half a character and NUL as U+FFFD', async () => {
  for (const half of ['\ud83d', '\ude00 x', 'a\u0000b']) {
    const { status, text } = await ask('/apply-template', { messages: [{ role: 'user', content: half }] });
    assert.equal(status, 200, text);
    assert.ok(JSON.parse(text).prompt.includes(half.replace(/[\ud800-\udfff\0]/, '\ufffd')), text);
  }
});

it('ends cleanly', () => server.stop());
