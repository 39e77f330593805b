// Coding agents, where they are installed, with the settings of docs/AGENTS.md and no others: each finishes two turns
// against a server that was started with a model alone. The model is synthetic and talks nonsense: what is tested is that
// the agents' requests are taken, and that their second turn finds the first one's prompt in the cache.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { binary, patience, Server } from '../http/server.mjs';

const here = dirname(fileURLToPath(import.meta.url));
const page = readFileSync(join(here, '../../docs/AGENTS.md'), 'utf8');
const NAME = 'nonsense';
const folder = mkdtempSync(join(tmpdir(), 'sluice-agents-'));
process.on('exit', () => rmSync(folder, { recursive: true, force: true }));

// The n-th block of code under a heading, for this server.
const block = (heading, port, n = 0) => {
  const section = page.split(/^## /m).find((s) => s.startsWith(`${heading}\n`));
  assert.ok(section, `docs/AGENTS.md has no section '${heading}'`);
  const text = [...section.matchAll(/^```\w+\n(.*?)^```/gms)].map((m) => m[1])[n];
  assert.ok(text, `no block ${n} under '${heading}'`);
  return text.replaceAll('MODEL"', `${NAME}"`).replaceAll(/\bMODEL\b(?!=)/g, NAME).replaceAll('8080', String(port));
};
const variables = (text) => Object.fromEntries([...text.matchAll(/^(?:export )?([A-Z_]+)=(\S+)$/gm)].map((m) => [m[1], m[2]]));

const find = (program) => {
  const own = join(here, 'node_modules/.bin', program);
  if (existsSync(own)) return own;
  const found = spawnSync('sh', ['-c', `command -v ${program}`], { encoding: 'utf8' }).stdout.trim();
  return found || null;
};

// A token that the model often says ends its answers: a synthetic one never says its own.
const make_model = async () => {
  const path = join(folder, `${NAME}.gguf`);
  const made = spawnSync(binary, ['synth', '-o', path, '--ctx', '131072', '--layers', '2', '--embd', '128', '--quiet'], { encoding: 'utf8' });
  assert.equal(made.status, 0, made.stderr);
  const server = await Server.start([], path);
  const { tokens } = await (await server.post('/completion', { prompt: 'hello', n_predict: 400, return_tokens: true, seed: 1 })).json();
  await server.stop();
  const times = new Map();
  for (const id of tokens) times.set(id, (times.get(id) ?? 0) + 1);
  const end = [...times].sort((a, b) => b[1] - a[1])[0][0];
  const file = readFileSync(path), key = Buffer.from('tokenizer.ggml.eos_token_id');
  const at = file.indexOf(key) + key.length;
  assert.equal(file.readUInt32LE(at), 4); // a u32
  file.writeUInt32LE(end, at + 4);
  writeFileSync(path, file);
  return path;
};

let serving;
const serve = () => serving ??= (async () => {
  const path = await make_model();
  return Server.ready(new Server([], path, [])); // with a model alone
})();

const agents = [
  { name: 'Codex', free: true, program: 'codex', path: '/v1/responses', file: '.codex/config.toml',
    turn: (k) => ['exec', ...(k ? ['resume', '--last'] : ['--strict-config']), '--skip-git-repo-check', ['Say hello.', 'Go on.'][k]] },
  { name: 'opencode', free: true, program: 'opencode', path: '/v1/chat/completions', file: '.config/opencode/opencode.json',
    turn: (k) => ['run', ...(k ? ['-c'] : []), ['Say hello.', 'Go on.'][k]], env: { OPENCODE_DISABLE_AUTOUPDATE: '1' } },
  { name: 'Continue', free: true, program: 'cn', path: '/v1/chat/completions', file: '.continue/config.yaml',
    turn: (k, home) => ['--config', join(home, '.continue/config.yaml'), ...(k ? ['--resume'] : []), '-p', ['Say hello.', 'Go on.'][k]],
    env: { CONTINUE_TELEMETRY_ENABLED: '0' } },
  { name: 'Claude Code', program: 'claude', path: '/v1/messages',
    turn: (k) => [...(k ? ['-c'] : []), '-p', ['Say hello.', 'Go on.'][k]], env: { DISABLE_AUTOUPDATER: '1' } },
];

const run = (program, words, env, cwd) => new Promise((resolve) => {
  const child = spawn(program, words, { cwd, env, stdio: ['ignore', 'pipe', 'pipe'], timeout: 3600000 });
  let out = '', err = '';
  child.stdout.on('data', (d) => { out += d; });
  child.stderr.on('data', (d) => { err += d; });
  child.on('close', (code, signal) => resolve({ code, signal, out, err }));
});

for (const a of agents) {
  const program = find(a.program);
  const skip = !existsSync(binary) ? `${binary} is not built` : patience > 1 ? 'only with the release build' : program ? false : `${a.program} is not installed${a.free ? ": make test-clients installs it" : ""}`;
  test(`${a.name} finishes two turns with the settings of docs/AGENTS.md`, { skip }, async () => {
    const server = await serve();
    const home = join(folder, a.program), work = join(home, 'work');
    mkdirSync(work, { recursive: true });
    writeFileSync(join(work, 'a.py'), 'print("hi")\n');
    const text = block(a.name, server.port);
    if (a.file) {
      mkdirSync(dirname(join(home, a.file)), { recursive: true });
      writeFileSync(join(home, a.file), text);
    }
    const env = { PATH: process.env.PATH, HOME: home, ...(a.file ? {} : variables(text)), ...a.env };
    const line = new RegExp(`POST ${a.path}[^ ]* 200, [^,]*, (\\d+) \\+ (\\d+) tokens`, 'g');
    const counts = [];
    for (const k of [0, 1]) {
      const before = server.log.length, cached = await server.metric('sluice_prefix_hit_tokens_total');
      const r = await run(program, a.turn(k, home), env, work);
      const log = server.log.slice(before);
      assert.equal(r.code, 0, `${a.program} ended with ${r.code ?? r.signal}\n${r.out.slice(-2000)}\n${r.err.slice(-4000)}\n${log.slice(-2000)}`);
      assert.ok(r.out.trim().length > 0, `no answer\n${r.err.slice(-2000)}`);
      assert.doesNotMatch(log, /POST [^ ]+ [45]\d\d,/);
      const asked = [...log.matchAll(line)].map((m) => Number(m[1]));
      assert.ok(asked.length > 0, `no POST ${a.path}:\n${log}`);
      counts.push({ prompt: Math.max(...asked), cached: await server.metric('sluice_prefix_hit_tokens_total') - cached });
    }
    assert.ok(counts[1].cached >= counts[0].prompt / 2, JSON.stringify(counts)); // the first turn's prompt was found
  });
}

// Settings of clients that cannot be run here: what they point at is there, and gives what they read of it.
test('what Open WebUI and aider are told to use is there', { skip: existsSync(binary) ? false : `${binary} is not built` }, async () => {
  const server = await serve();
  const web = variables(block('Open WebUI', server.port));
  const aider = variables(block('aider, and others that take OpenAI\'s API', server.port));
  const metadata = JSON.parse(block('aider, and others that take OpenAI\'s API', server.port, 1));
  assert.deepEqual(Object.keys(metadata), [`openai/${NAME}`]);
  for (const base of [web.OPENAI_API_BASE_URL, web.RAG_OPENAI_API_BASE_URL, aider.OPENAI_API_BASE]) {
    const { data } = await (await fetch(`${base}/models`)).json();
    assert.deepEqual(data.map((m) => [m.id, m.context_length]), [[NAME, 131072]]);
  }
  const headers = { 'Content-Type': 'application/json', Authorization: `Bearer ${aider.OPENAI_API_KEY}` };
  const ask = (base, path, body) => fetch(base + path, { method: 'POST', headers, body: JSON.stringify(body) });
  const embedding = await (await ask(web.RAG_OPENAI_API_BASE_URL, '/embeddings', { model: web.RAG_EMBEDDING_MODEL, input: ['a', 'b'] })).json();
  assert.deepEqual(embedding.data.map((d) => d.embedding.length), [128, 128]);
  const chat = await ask(aider.OPENAI_API_BASE, '/chat/completions', { model: NAME, messages: [{ role: 'user', content: 'hi' }], stream: true, max_tokens: 4 });
  assert.match(await chat.text(), /data: \[DONE\]/);
});

test('the server ends cleanly', async () => serving && (await serving).stop());
