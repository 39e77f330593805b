// Fields that clients of other servers send: each is honoured on every endpoint, or refused by its name. None is dropped
// where that would give another answer than the one asked for.
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { missing, model, Server } from './server.mjs';

const it = (name, run) => test(name, { skip: missing }, run);
const server = missing ? null : await Server.start();

const message = [{ role: 'user', content: 'hi' }];
const endpoints = {
  '/v1/chat/completions': { messages: message, max_tokens: 8 },
  '/v1/completions': { prompt: 'hi', max_tokens: 8 },
  '/completion': { prompt: 'hi', n_predict: 8 },
  '/v1/responses': { input: 'hi', max_output_tokens: 8 },
  '/v1/messages': { model: 'test', messages: message, max_tokens: 8 },
  '/api/chat': { model: 'test', messages: message, stream: false, options: { num_predict: 8 } },
  '/api/generate': { model: 'test', prompt: 'hi', stream: false, options: { num_predict: 8 } },
};
const conversations = Object.keys(endpoints).filter((p) => !['/v1/completions', '/completion'].includes(p));

const send = async (path, extra, to = server) => {
  const body = { ...endpoints[path], ...extra };
  if (extra.options) body.options = { ...endpoints[path].options, ...extra.options };
  const r = await to.post(path, body);
  const text = await r.text();
  return { status: r.status, text, body: JSON.parse(text) };
};
const said = (path, b) => {
  if (path === '/v1/chat/completions') return b.choices[0].message.content;
  if (path === '/v1/completions') return b.choices[0].text;
  if (path === '/completion') return b.content;
  if (path === '/v1/responses') return b.output.filter((o) => o.type === 'message').flatMap((o) => o.content.map((c) => c.text)).join('');
  if (path === '/v1/messages') return b.content.map((c) => c.text ?? '').join('');
  return path === '/api/chat' ? b.message.content : b.response;
};
const refused = async (path, extra, name) => {
  const { status, text, body } = await send(path, extra);
  const words = typeof body.error === 'string' ? body.error : body.error?.message ?? '';
  assert.ok(status === 400 && words.includes(`'${name}`), `${path} ${JSON.stringify(extra)}: ${status} ${text.slice(0, 200)}`);
};
const taken = async (path, extra) => {
  const { status, text } = await send(path, extra);
  assert.equal(status, 200, `${path} ${JSON.stringify(extra)}: ${text.slice(0, 200)}`);
};

it('refuses by name what it does not do, unless it is off', async () => {
  const on = {
    mirostat: 2, dynatemp_range: 0.5, adaptive_target: 0.5, min_keep: 5, tfs_z: 0.5, length_penalty: 2, use_beam_search: true, no_repeat_ngram_size: 3, bad_words: ['a'], allowed_token_ids: [5],
    logits_processors: ['x'], lora: [{ id: 0, scale: 1 }], chat_template: '{{ x }}', documents: [{ text: 'a' }], truncate_prompt_tokens: 5, web_search_options: {}, t_max_predict_ms: 5, n_indent: 2,
    grammar_lazy: true, grammar_triggers: [{ type: 0, value: 'x' }], structural_tag: { type: 'x' }, include_stop_str_in_output: true, skip_special_tokens: false, audio: { voice: 'x' }, post_sampling_probs: true,
    prompt_logprobs: 0, return_token_ids: true, return_tokens_as_token_ids: true, include_reasoning: false, guided_whitespace_pattern: ' ', samplers: ['infill'], generation_prompt: 'x', parse_tool_calls: false, chat_parser: 'x', reasoning_budget_message: 'x', reasoning_budget_start_tag: 'x', reasoning_budget_end_tag: 'x',
    reasoning_budget_end_tags: ['x'],
  };
  for (const path of Object.keys(endpoints)) {
    for (const [name, value] of Object.entries(on)) await refused(path, { [name]: value }, name);
    await taken(path, {
      mirostat: 0, mirostat_tau: 5, mirostat_eta: 0.1, dynatemp_range: 0, dynatemp_exponent: 1, adaptive_target: -1, min_keep: 0, tfs_z: 1, length_penalty: 1, use_beam_search: false, no_repeat_ngram_size: 0, bad_words: [],
      allowed_token_ids: null, logits_processors: [], lora: [], chat_template: null, documents: [], truncate_prompt_tokens: -1, web_search_options: null, t_max_predict_ms: -1, n_indent: 0, n_cmpl: 1, grammar_lazy: false,
      grammar_triggers: [], structural_tag: null, include_stop_str_in_output: false, skip_special_tokens: true, audio: null, n_probs: 0, post_sampling_probs: false, prompt_logprobs: null, return_token_ids: false,
      return_tokens_as_token_ids: false, include_reasoning: true, generation_prompt: '', parse_tool_calls: true, chat_parser: '', reasoning_budget_message: '', n: 1, echo: false, logprobs: path === '/v1/completions' || path === '/completion' ? 0 : false,
    });
  }
});

it('binds the answer on every endpoint, in whatever form that is asked for', async () => {
  for (const path of Object.keys(endpoints))
    for (const extra of [{ guided_choice: ['ab'] }, { guided_regex: 'ab' }, { grammar: 'root ::= "ab"' }, { guided_grammar: 'root ::= "ab"' }, { structured_outputs: { choice: ['ab'] } }]) {
      const { status, text, body } = await send(path, extra);
      assert.equal(status, 200, text);
      assert.equal(said(path, body), 'ab', `${path} ${JSON.stringify(extra)}: ${text}`);
    }
  for (const path of Object.keys(endpoints))
    for (const extra of [{ guided_json: { const: 1 } }, { json_schema: { const: 1 } }]) assert.equal(said(path, (await send(path, extra)).body), '1', `${path} ${JSON.stringify(extra)}`);
});

it('samples alike on every endpoint', async () => {
  // One token that is far above all others, where nothing else is allowed to come.
  const [id] = (await (await server.post('/tokenize', { content: 'q' })).json()).tokens.slice(-1);
  for (const path of Object.keys(endpoints)) {
    const all = async (extra) => said(path, (await send(path, extra)).body);
    const bias = { logit_bias: [[id, 100]] };
    assert.equal(await all({ ...bias, ignore_eos: true }), 'q'.repeat(8), path);
    const dry = await all({ ...bias, ignore_eos: true, dry_multiplier: 100, dry_base: 4, dry_allowed_length: 1, top_k: 1 });
    assert.ok(!dry.includes('qqqq'), `${path}: ${dry}`);
    assert.ok(!(await all({ ...bias, ignore_eos: true, presence_penalty: 2, repetition_penalty: 100, top_k: 1 })).includes('qq'), path);
    assert.equal(await all({ ...bias, stop_token_ids: [id] }), '', path);
  }
  for (const path of ['/api/chat', '/api/generate']) {
    const { body } = await send(path, { options: { logit_bias: [[id, 100]], ignore_eos: true } });
    assert.equal(said(path, body), 'q'.repeat(8), path);
    for (const [name, value] of [['mirostat', 1], ['dry_base', 0.5], ['top_k', 'x'], ['stop', 5]]) await refused(path, { options: { [name]: value } }, `options.${name}`);
  }
});

it('says what a field of another API is called here', async () => {
  const foreign = {
    '/v1/chat/completions': { max_output_tokens: 5, stop_sequences: ['x'], num_predict: 5, format: 'json', think: true, echo: true, best_of: 2, n_probs: 3, add_special_tokens: true },
    '/v1/completions': { max_output_tokens: 5, stop_sequences: ['x'], reasoning_effort: 'low', best_of: 2, n_probs: 3, add_special_tokens: false },
    '/completion': { echo: true, suffix: 'x', top_logprobs: 3, max_output_tokens: 5, stop_sequences: ['x'], logprobs: true, add_special_tokens: false, reasoning_effort: 'low' },
    '/v1/responses': { response_format: { type: 'json_object' }, n: 2, n_cmpl: 2, best_of: 2, echo: true, logprobs: true, max_tokens: 5, max_completion_tokens: 5, n_predict: 5, stop_sequences: ['x'], reasoning_effort: 'low', thinking: { type: 'enabled' }, enable_thinking: true, timings_per_token: true, tool_choice: 'required' },
    '/v1/messages': { response_format: { type: 'json_object' }, n: 2, stop: 'x', logprobs: true, top_logprobs: 3, max_completion_tokens: 5, reasoning_effort: 'low', reasoning: { effort: 'low' }, enable_thinking: true, mcp_servers: [{ url: 'x' }], timings_per_token: true, tool_choice: { type: 'any' } },
    '/api/chat': { response_format: { type: 'json_object' }, n: 2, temperature: 1, stop: ['x'], num_predict: 5, max_tokens: 5, reasoning_effort: 'low', logprobs: 3, tool_choice: 'required' },
    '/api/generate': { response_format: { type: 'json_object' }, n: 2, temperature: 1, top_p: 0.5, num_ctx: 64, reasoning: { effort: 'low' }, logprobs: true },
  };
  for (const [path, fields] of Object.entries(foreign)) for (const [name, value] of Object.entries(fields)) await refused(path, { [name]: value }, name);
  for (const name of ['n', 'n_cmpl']) {
    const several = (await send('/completion', { prompt: ['once upon', 'a time'], [name]: 2, temperature: 1.5, seed: 3, ignore_eos: true })).body;
    assert.deepEqual(several.map((c) => [c.index, c.tokens_predicted]), [0, 1, 2, 3].map((i) => [i, 8]));
    assert.notEqual(several[0].content, several[1].content);
    assert.equal((await send('/v1/chat/completions', { [name]: 3 })).body.choices.length, 3);
    await refused('/completion', { [name]: 0 }, name);
  }
  // llama.cpp reads the number of alternatives under this name too.
  const { body } = await send('/completion', { logprobs: 2, ignore_eos: true });
  assert.equal(body.completion_probabilities[0].top_logprobs.length, 2);
});

// ------------------------------------------------------------------------------------------------ reasoning

const folder = missing ? null : mkdtempSync(join(tmpdir(), 'sluice-foreign-'));
process.on('exit', () => folder && rmSync(folder, { recursive: true }));
const turns = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n";
const thinks = turns + '{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% else %}<think>\n{% endif %}';

// The demo model with this template, as long as its own.
function thinker() {
  const file = readFileSync(model), key = Buffer.from('tokenizer.chat_template');
  const at = file.indexOf(key) + key.length + 4;
  const length = Number(file.readBigUInt64LE(at)), text = Buffer.from(thinks);
  assert.ok(text.length + 4 <= length);
  file.fill(' ', at + 8, at + 8 + length);
  text.copy(file, at + 8);
  file.write('{#', at + 8 + text.length);
  file.write('#}', at + 8 + length - 2);
  const path = join(folder, 'thinks.gguf');
  writeFileSync(path, file);
  return path;
}

it('turns thinking on and off, and limits it, under every name that clients have for it', async () => {
  const s = await Server.start([], thinker());
  try {
    const prompt = async (extra) => (await (await s.post('/apply-template', { messages: message, ...extra })).json()).prompt;
    const open = (p) => assert.ok(p.endsWith('<think>\n'), p);
    const shut = (p) => assert.ok(p.endsWith('</think>\n\n'), p);
    for (const extra of [{}, { enable_thinking: true }, { thinking: { type: 'enabled' } }, { thinking: { type: 'auto' } }, { reasoning: { enabled: true } }, { reasoning: { effort: 'low' } }, { reasoning_effort: 'high' },
      { enable_thinking: false, chat_template_kwargs: { enable_thinking: true } }]) open(await prompt(extra));
    for (const extra of [{ enable_thinking: false }, { thinking: { type: 'disabled' } }, { reasoning: { enabled: false } }, { reasoning: { effort: 'none' } }, { reasoning_effort: 'none' }, { chat_template_kwargs: { enable_thinking: false, x: 1 }, reasoning_effort: 'low' }]) shut(await prompt(extra));
    const answer = async (path, extra) => (await send(path, { temperature: 0, ignore_eos: true, ...extra }, s)).body;
    const chat = '/v1/chat/completions';
    const ask = async (extra) => { const { content, reasoning_content } = (await answer(chat, { max_tokens: 40, ...extra })).choices[0].message; return { content, reasoning_content }; };
    const free = await ask({}), limited = await ask({ reasoning_budget: 6 });
    assert.notDeepEqual(limited, free);
    assert.ok(limited.reasoning_content.length < free.reasoning_content.length, JSON.stringify([limited, free]));
    for (const extra of [{ thinking_token_budget: 6 }, { thinking: { type: 'enabled', budget_tokens: 6 } }, { reasoning: { max_tokens: 6 } }, { reasoning: { max_tokens: 3 }, reasoning_budget: 6 }]) assert.deepEqual(await ask(extra), limited, JSON.stringify(extra));
    // A choice of the template's variables is kept beside what turns thinking off.
    const off = await answer('/v1/responses', { max_output_tokens: 8, reasoning: { effort: 'none' }, chat_template_kwargs: { x: 1 } });
    assert.ok(off.output.every((o) => o.type !== 'reasoning'), JSON.stringify(off.output));
    for (const [extra, name] of [[{ thinking: { type: 'x' } }, 'thinking.type'], [{ thinking: true }, 'thinking'], [{ thinking: { type: 'enabled', budget_tokens: 'x' } }, 'thinking.budget_tokens'], [{ enable_thinking: 1 }, 'enable_thinking'],
      [{ reasoning: 'low' }, 'reasoning'], [{ reasoning: { effort: 'x' } }, 'reasoning.effort'], [{ reasoning: { enabled: 1 } }, 'reasoning.enabled'], [{ reasoning: { exclude: true } }, 'reasoning.exclude'], [{ reasoning: { max_tokens: -5 } }, 'reasoning.max_tokens']]) await refused(chat, extra, name);
  } finally {
    await s.stop();
  }
});

it('has defaults of its operator for thinking, which requests may change', async () => {
  const file = thinker();
  const s = await Server.start(['--reasoning', 'off', '--reasoning-budget', '6'], file);
  try {
    const prompt = async (extra) => (await (await s.post('/apply-template', { messages: message, ...extra })).json()).prompt;
    for (const extra of [{}, { reasoning_effort: 'high' }, { chat_template_kwargs: { x: 1 } }]) assert.match(await prompt(extra), /<\/think>\n\n$/);
    for (const extra of [{ enable_thinking: true }, { chat_template_kwargs: { enable_thinking: true } }, { thinking: { type: 'enabled' } }]) assert.match(await prompt(extra), /<think>\n$/);
    const thought = async (path, extra) => {
      const { body } = await send(path, { temperature: 0, ignore_eos: true, ...extra }, s);
      return path === '/v1/messages' ? body.content.map((c) => c.thinking ?? '').join('') : body.choices[0].message.reasoning_content ?? '';
    };
    const chat = '/v1/chat/completions', on = { chat_template_kwargs: { enable_thinking: true }, max_tokens: 40 };
    assert.equal(await thought(chat, { max_tokens: 8 }), '');
    const six = await thought(chat, on), free = await thought(chat, { ...on, reasoning_budget: -1 });
    assert.ok(six.length > 0 && six.length < free.length, JSON.stringify([six, free]));
    assert.equal(await thought(chat, { ...on, reasoning_budget: 6 }), six);
    assert.ok((await thought(chat, { ...on, reasoning_budget: 12 })).length > six.length);
    assert.equal(await thought('/v1/messages', { thinking: { type: 'enabled' }, max_tokens: 40 }), six);
  } finally {
    await s.stop();
  }
});

it('takes the fields of conversations on all of their endpoints', async () => {
  for (const path of conversations) {
    await taken(path, { reasoning_budget: 4, add_generation_prompt: false, ignore_eos: true, reasoning_format: 'none', cache_prompt: false, min_tokens: 2, timeout_s: 60 });
    await refused(path, { continue_final_message: true }, 'continue_final_message');
  }
});

it('goes on with a message that is marked as the beginning of the answer', async () => {
  const messages = [...message, { role: 'assistant', content: 'once' }];
  const ask = async (last, extra) => send('/v1/chat/completions', { messages: [messages[0], { ...messages[1], ...last }], temperature: 0, max_tokens: 8, ...extra });
  const whole = async (...a) => said('/v1/chat/completions', (await ask(...a)).body);
  const went_on = await whole({}, { continue_final_message: true });
  assert.notEqual(went_on, await whole({}));
  assert.equal(await whole({ prefix: true }), went_on);
  assert.equal(await whole({ partial: true }), went_on);
  assert.equal(await whole({ prefix: false }), await whole({}));
  assert.match((await ask({ prefix: 'x' })).text, /'messages\[1\].prefix' must be true or false/);
});

it('makes vectors in the one way it has', async () => {
  const embed = async (extra) => { const r = await server.post('/v1/embeddings', { input: 'hi', ...extra }); return { status: r.status, text: await r.text() }; };
  assert.equal((await embed({ normalize: true, embd_normalize: 2, add_special_tokens: true, truncate_prompt_tokens: -1 })).status, 200);
  for (const [name, value] of Object.entries({ normalize: false, embd_normalize: -1, add_special_tokens: false, truncate_prompt_tokens: 1, messages: message })) {
    const { status, text } = await embed({ [name]: value });
    assert.ok(status === 400 && JSON.parse(text).error.param === name, `${name}: ${text.slice(0, 200)}`);
  }
});

test.after(async () => server && server.stop());
