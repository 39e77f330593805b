// Chat templates that are made to hold the server up: in a model's file, against the real binary. What ends them is
// their limit of steps, the client's leaving, the request's time or the server's end; never the template.
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { missing, model, patience, Server, sleep } from './server.mjs';

const it = (name, run) => test(name, { skip: missing, timeout: 120000 * patience }, run);
const folder = missing ? null : mkdtempSync(join(tmpdir(), 'sluice-templates-'));
process.on('exit', () => folder && rmSync(folder, { recursive: true }));
const CHAT = '/v1/chat/completions';
const ask = { messages: [{ role: 'user', content: 'Rome?' }], max_tokens: 2 };

// The model with another template: of the same length, so that nothing else in the file moves.
const with_template = (name, text) => {
  const file = readFileSync(model);
  const key = Buffer.from('tokenizer.chat_template');
  const at = file.indexOf(key) + key.length;
  assert.equal(file.readUInt32LE(at), 8); // a string
  const length = Number(file.readBigUInt64LE(at + 4));
  assert.ok(text.length <= length, `${text.length} bytes where there are ${length}`);
  file.write(text.padEnd(length), at + 12, 'utf8');
  const path = join(folder, `${name}.gguf`);
  writeFileSync(path, file);
  return path;
};

// Grows a tuple, then uses it as a key. Each was the end of a server once: the first by its depth, the second by its time.
const grown = (n, item) => `{% set ns = namespace(t=(1,)) %}{% for k in range(4) %}{% for i in range(${n}) %}{% set ns.t = ${item} %}`
  + '{% endfor %}{% endfor %}{{ {ns.t: 1} }}';
for (const [name, template] of [['deep', grown(99999, '(ns.t,)')], ['shared', grown(15, '(ns.t, ns.t)')]])
  it(`a ${name} tuple as a key: the server starts, refuses the chat and stops`, async () => {
    const server = await Server.start([], with_template(name, template));
    for (let i = 0; i < 3; i++) {
      const r = await server.post(CHAT, ask);
      assert.equal(r.status, 400);
      assert.equal((await r.json()).error.code, 'template_limit');
    }
    assert.equal((await server.post('/tokenize', { content: 'x' })).status, 200);
    await server.stop();
  });

it('SIGTERM while the template is tried: the server ends', async () => {
  const server = new Server(['--no-warmup'], with_template('shared', grown(15, '(ns.t, ns.t)')));
  await server.until('a listening server', 20000 * patience, () => /listening on/.test(server.log));
  await sleep(300 * patience); // the load is at the template by then, or past it
  await server.stop();
});

const ENDLESS = "{% for m in messages %}{% if m.content == 'Rome?' %}{% for i in range(100000) %}{% for j in range(100000) %}"
  + "{% endfor %}{% endfor %}{% endif %}{% endfor %}{{ 'x' }}";
const unlimited = ['--template-steps', '1000000000000', '--template-timeout-s', '86400', '--drain-s', '1'];

it('renderings without end: leaving, a time-out and SIGTERM end them', async () => {
  const server = await Server.start(unlimited, with_template('endless', ENDLESS));
  // Two clients, as many as there are workers, that leave: then there are workers again.
  const leave = [1, 2].map(() => new AbortController());
  const left = leave.map((c) => server.post(CHAT, ask, { signal: c.signal }).catch((e) => e.name));
  const third = sleep(300).then(() => {
    for (const c of leave) c.abort();
    return server.post('/tokenize', { content: 'x' });
  });
  assert.deepEqual(await Promise.all(left), ['AbortError', 'AbortError']);
  assert.equal((await third).status, 200);

  const late = await server.post(CHAT, { ...ask, timeout_s: 0.5 });
  assert.equal(late.status, 504);
  assert.equal((await late.json()).error.code, 'deadline_exceeded');

  const cut = [1, 2, 3].map(() => server.post(CHAT, ask).then((r) => r.status, () => 'closed'));
  await sleep(300);
  await server.stop();
  for (const status of await Promise.all(cut)) assert.ok(status === 503 || status === 'closed', `${status}`);
});
