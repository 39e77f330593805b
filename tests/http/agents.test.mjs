// What coding agents send, written from the public documentation of their APIs: all the fields at once, as they come.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { missing, Server } from './server.mjs';

const it = (name, run) => test(name, { skip: missing }, run);
const server = missing ? null : await Server.start();

const events = async (r) => {
  assert.equal(r.status, 200, r.status === 200 ? '' : await r.text());
  assert.equal(r.headers.get('content-type'), 'text/event-stream');
  return (await r.text()).split('\n\n').filter((e) => e && !e.startsWith(':')).map((e) => {
    const [event, data] = e.split('\n');
    const parsed = JSON.parse(data.replace(/^data: /, ''));
    assert.equal(event, `event: ${parsed.type}`);
    return parsed;
  });
};

// ---- Codex: /v1/responses

const shell = { type: 'function', name: 'shell', description: 'Runs a shell command and returns its output.', strict: false,
                parameters: { type: 'object', properties: { command: { type: 'array', items: { type: 'string' } }, workdir: { type: 'string' }, timeout_ms: { type: 'number' } },
                              required: ['command'], additionalProperties: false } };
const codex = (input) => ({
  model: 'test',
  instructions: 'You are a coding agent running in a terminal.',
  input,
  tools: [shell, { type: 'custom', name: 'apply_patch', description: 'Edits files.', format: { type: 'grammar', syntax: 'lark', definition: 'start: "x"' } },
          { type: 'web_search', external_web_access: false }, { type: 'local_shell' }, { type: 'namespace', name: 'mcp', tools: [] }],
  tool_choice: 'auto',
  parallel_tool_calls: false,
  reasoning: { effort: 'medium', summary: 'auto' },
  store: false,
  stream: true,
  include: ['reasoning.encrypted_content'],
  prompt_cache_key: '0199c7a5-0000-7000-8000-000000000000',
  text: { verbosity: 'low' },
  client_metadata: { 'x-codex-installation-id': 'x' },
});
const codexHeaders = { Authorization: 'Bearer none', 'Content-Type': 'application/json', Accept: 'text/event-stream', originator: 'codex_cli_rs',
                       session_id: '0199c7a5-0000-7000-8000-000000000000', 'User-Agent': 'codex_cli_rs/0.1' };
const message = (role, text) => ({ type: 'message', role, content: [{ type: role === 'assistant' ? 'output_text' : 'input_text', text }] });
const opening = [
  message('developer', '<permissions instructions>Commands run in a sandbox.</permissions instructions>'),
  message('user', '# AGENTS.md instructions\nBe brief.'),
  message('user', '<environment_context>\n  <cwd>/tmp</cwd>\n</environment_context>'),
  message('user', 'What is 2 + 3?'),
];

it('answers Codex', async () => {
  const all = await events(await server.post('/v1/responses', codex(opening), { headers: codexHeaders }));
  assert.equal(all[0].type, 'response.created');
  const last = all.at(-1);
  assert.ok(['response.completed', 'response.incomplete'].includes(last.type));
  assert.ok(last.response.id && last.response.usage.total_tokens > 0);
  assert.deepEqual(last.response.tools, codex([]).tools); // those that are skipped too
  const items = all.filter((e) => e.type === 'response.output_item.done').map((e) => e.item);
  assert.deepEqual(items, last.response.output);
  // Its next turn repeats all of it.
  const next = [...opening, ...items, message('user', 'What is 3 + 4?')];
  const again = await events(await server.post('/v1/responses', codex(next), { headers: codexHeaders }));
  assert.ok(again.at(-1).response.usage.input_tokens > last.response.usage.input_tokens);
});

it('takes back what Codex did with its tools', async () => {
  const input = [...opening,
    { type: 'reasoning', summary: [{ type: 'summary_text', text: 'Look first.' }], encrypted_content: 'sluice-reasoning:I should look.' },
    { type: 'function_call', name: 'shell', arguments: '{"command":["ls"],"workdir":"/tmp"}', call_id: 'call_1' },
    { type: 'function_call', name: 'shell', arguments: '{"command":["pwd"]}', call_id: 'call_2' },
    { type: 'function_call_output', call_id: 'call_1', output: '{"output":"a\\n","metadata":{"exit_code":0}}' },
    { type: 'function_call_output', call_id: 'call_2', output: [{ type: 'input_text', text: '/tmp' }] },
    { type: 'custom_tool_call', status: 'completed', call_id: 'call_3', name: 'apply_patch', input: '*** Begin Patch\n*** End Patch' },
    { type: 'custom_tool_call_output', call_id: 'call_3', output: 'Done!' }];
  const all = await events(await server.post('/v1/responses', { ...codex(input), max_output_tokens: 20 }, { headers: codexHeaders }));
  assert.ok(['response.completed', 'response.incomplete'].includes(all.at(-1).type));
});

// ---- Claude Code: /v1/messages

const claude = (hash, messages, extra = {}) => ({
  model: 'test',
  max_tokens: 32000,
  messages,
  system: [
    { type: 'text', text: `x-anthropic-billing-header: cc_version=2.1.77.abc; cc_entrypoint=cli; cch=${hash};` },
    { type: 'text', text: 'You are a coding agent.', cache_control: { type: 'ephemeral' } },
    { type: 'text', text: 'Be brief.\n\n# Environment\nPlatform: linux', cache_control: { type: 'ephemeral', ttl: '1h' } },
  ],
  tools: [
    { name: 'Bash', description: 'Runs a command.', input_schema: { $schema: 'http://json-schema.org/draft-07/schema#', type: 'object', properties: { command: { type: 'string' } },
                                                                    required: ['command'], additionalProperties: false }, cache_control: { type: 'ephemeral' } },
    { type: 'web_search_20250305', name: 'web_search', max_uses: 8 },
  ],
  metadata: { user_id: 'user_0_account__session_1' },
  thinking: { type: 'adaptive' },
  output_config: { effort: 'medium' },
  context_management: { edits: [{ type: 'clear_thinking_20251015', keep: 'all' }] },
  stream: true,
  ...extra,
});
const claudeHeaders = { 'x-api-key': 'none', 'anthropic-version': '2023-06-01', 'anthropic-beta': 'claude-code-20250219,interleaved-thinking-2025-05-14',
                        'content-type': 'application/json', 'x-app': 'cli' };
const question = [{ role: 'user', content: [{ type: 'text', text: '<system-reminder>\nNone.\n</system-reminder>' }, { type: 'text', text: 'What is 2 + 3?', cache_control: { type: 'ephemeral' } }] }];

it('answers Claude Code', async () => {
  const all = await events(await server.post('/v1/messages?beta=true', claude('00001', question), { headers: claudeHeaders }));
  assert.equal(all[0].type, 'message_start');
  assert.equal(all.at(-1).type, 'message_stop');
  const end = all.find((e) => e.type === 'message_delta');
  assert.ok(['end_turn', 'max_tokens'].includes(end.delta.stop_reason));
  const text = all.filter((e) => e.delta?.type === 'text_delta').map((e) => e.delta.text).join('');
  const next = [...question, { role: 'assistant', content: [{ type: 'text', text }] }, { role: 'user', content: [{ type: 'text', text: 'What is 3 + 4?' }] }];
  await events(await server.post('/v1/messages?beta=true', claude('00002', next), { headers: claudeHeaders }));
});

it('takes back what Claude Code did with its tools', async () => {
  const messages = [...question,
    { role: 'assistant', content: [{ type: 'thinking', thinking: 'Look first.', signature: 'x' }, { type: 'text', text: 'I look.' },
                                   { type: 'tool_use', id: 'toolu_1', name: 'Bash', input: { command: 'ls' } }, { type: 'tool_use', id: 'toolu_2', name: 'Bash', input: { command: 'pwd' } }] },
    { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'toolu_1', content: 'a' },
                              { type: 'tool_result', tool_use_id: 'toolu_2', is_error: true, content: [{ type: 'text', text: 'no' }], cache_control: { type: 'ephemeral' } },
                              { type: 'text', text: '<system-reminder>Go on.</system-reminder>' }] },
    { role: 'system', content: 'The user is in a hurry.' }];
  const all = await events(await server.post('/v1/messages?beta=true', claude('00004', messages, { max_tokens: 20 }), { headers: claudeHeaders }));
  assert.equal(all.at(-1).type, 'message_stop');
});

it('gives one prompt to requests that differ in the accounting header only', async () => {
  const count = async (system) => {
    const r = await server.post('/v1/messages/count_tokens?beta=true', { model: 'test', messages: question, system }, { headers: claudeHeaders });
    return (await r.json()).input_tokens;
  };
  const { system } = claude('1', question);
  const without = await count(system.slice(1));
  assert.ok(without > 0);
  for (const hash of ['00001', 'a much longer one than the other']) assert.equal(await count(claude(hash, question).system), without);
});

it('finds the prefix again although that header changed', async () => {
  const long = (hash) => {
    const body = claude(hash, question, { stream: false, max_tokens: 4 });
    body.system[2].text = 'Answer in as few words as you can. '.repeat(20);
    return body;
  };
  const ask = async (hash) => (await (await server.post('/v1/messages?beta=true', long(hash), { headers: claudeHeaders })).json()).usage;
  const first = await ask('00001'), second = await ask('00002');
  assert.equal(first.cache_read_input_tokens, 0);
  assert.ok(second.cache_read_input_tokens >= 64, JSON.stringify(second));
  assert.equal(second.input_tokens + second.cache_read_input_tokens, first.input_tokens);
});

it('names conversations for Claude Code', async () => {
  const schema = { type: 'object', properties: { title: { type: 'string', maxLength: 20 } }, required: ['title'], additionalProperties: false };
  const r = await server.post('/v1/messages?beta=true', claude('00003', question, { tools: [], thinking: { type: 'disabled' }, stream: false, temperature: 1, max_tokens: 200,
                                                                                    output_config: { format: { type: 'json_schema', schema } } }), { headers: claudeHeaders });
  const body = await r.json();
  assert.equal(r.status, 200, JSON.stringify(body));
  assert.equal(typeof JSON.parse(body.content[0].text).title, 'string');
});

it('ends cleanly', () => server.stop());
