// How clients reach the server: TLS, the UNIX socket, IPv6, several addresses; keys, and web pages of other origins.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import https from 'node:https';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { after, test } from 'node:test';
import { binary, missing, model, patience, Server, sleep } from './server.mjs';

const folder = mkdtempSync(path.join(os.tmpdir(), 'sluice-test-'));
after(() => rmSync(folder, { recursive: true, force: true }));
const file = (name) => path.join(folder, name);
const noTls = missing || (spawnSync('openssl', ['version']).status === 0 ? false : 'openssl is not installed');
const it = (name, run, skip = missing) => test(name, { skip }, run);

// A certificate that signs itself, for localhost, 127.0.0.1 and ::1.
const certify = (name, cn = 'localhost') => {
  execFileSync('openssl', ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '30',
    '-subj', `/CN=${cn}`, '-addext', 'subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1',
    '-keyout', file(`${name}.key`), '-out', file(`${name}.pem`)], { stdio: 'ignore' });
  chmodSync(file(`${name}.key`), 0o600);
};

// One request by node's own clients: { status, headers, text }.
const ask = (options, body) => new Promise((resolve, reject) => {
  const client = options.protocol === 'https:' ? https : http;
  const r = client.request({ agent: false, ...options, method: options.method ?? (body ? 'POST' : 'GET') }, (response) => {
    let text = '';
    response.setEncoding('utf8');
    response.on('data', (d) => { text += d; });
    response.on('end', () => resolve({ status: response.statusCode, headers: response.headers, text, socket: response.socket }));
    response.on('error', reject);
  });
  r.on('error', reject);
  r.end(body);
});

// Starts with these options and waits until /health, asked there, says that the model is ready.
const start = async (args, where) => {
  const s = new Server(args);
  for (let i = 0; i < 600 * patience && s.child.exitCode === null; i++) {
    s.port = Number(/listening on https?:\/\/[^ ]*:(\d+)/.exec(s.log)?.[1] ?? 0);
    try {
      if (/listening on/.test(s.log) && (await ask({ path: '/health', ...where(s) })).status === 200) return s;
    } catch { /* not yet */ }
    await sleep(50);
  }
  s.child.kill('SIGKILL');
  throw new Error(`the server did not become ready:\n${s.log}`);
};
const failing = (...args) => {
  const r = spawnSync(binary, ['serve', '-m', model, '--port', '0', ...args], { encoding: 'utf8', timeout: 60000 * patience });
  assert.notEqual(r.status, 0, r.stderr);
  return r.stderr;
};
const chat = (extra = {}) => JSON.stringify({ messages: [{ role: 'user', content: 'Tell me a story.' }], max_tokens: 30, temperature: 0, ignore_eos: true, ...extra });
const CHAT = '/v1/chat/completions';
const streamed = (text) => text.split('\n\n').filter((l) => l.startsWith('data: {')).map((l) => JSON.parse(l.slice(6)).choices[0].delta.content ?? '').join('');

it('speaks TLS 1.2 and later, and the same answers', async () => {
  certify('one');
  const ca = readFileSync(file('one.pem'));
  const secure = (s) => ({ protocol: 'https:', host: 'localhost', port: s.port, ca });
  const server = await start(['--tls-cert', file('one.pem'), '--tls-key', file('one.key'), '--unix-socket', file('tls.sock')], secure);
  const r = await ask({ ...secure(server), path: CHAT }, chat());
  assert.equal(r.status, 200);
  const content = JSON.parse(r.text).choices[0].message.content;
  for (const version of ['TLSv1.2', 'TLSv1.3']) {
    const s = await ask({ ...secure(server), path: CHAT, minVersion: version, maxVersion: version }, chat({ stream: true }));
    assert.equal(streamed(s.text), content);
    assert.match(s.text, /data: \[DONE\]/);
  }
  for (const version of ['TLSv1', 'TLSv1.1'])
    await assert.rejects(ask({ ...secure(server), path: '/health', minVersion: version, maxVersion: version, ciphers: 'DEFAULT@SECLEVEL=0' }), (e) => e.code === 'ECONNRESET' || /alert|protocol/i.test(e.message));
  // The socket beside it is for this machine's user and has none.
  assert.equal((await ask({ socketPath: file('tls.sock'), path: '/health' })).status, 200);
  // Forty at once, half of them broken off in the middle: suspended, resumed and closed under TLS.
  const many = await Promise.all(Array.from({ length: 40 }, async (_, i) => {
    const job = ask({ ...secure(server), path: CHAT, ...(i % 2 ? { signal: AbortSignal.timeout(30) } : {}) }, chat({ stream: true, max_tokens: i % 2 ? 900 : 30 }));
    return job.then((a) => streamed(a.text), () => 'broken off');
  }));
  assert.ok(many.filter((_, i) => i % 2 === 0).every((t) => t === content));
  await server.until('idle', 5000 * patience, async () => {
    const m = (await ask({ ...secure(server), path: '/metrics' })).text;
    return /^sluice_sessions_running 0$/m.test(m) && /^sluice_sessions_waiting 0$/m.test(m);
  });
  // What is no handshake is closed, and the next client is served.
  const plain = net.connect(server.port, '127.0.0.1');
  plain.on('error', () => {});
  plain.end('GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n');
  await new Promise((resolve) => plain.on('close', resolve));
  assert.equal((await ask({ ...secure(server), path: '/health' })).status, 200);

  // A renewed certificate, at SIGHUP; a broken one changes nothing.
  certify('two', 'renewed');
  const subject = () => spawnSync('sh', ['-c', `openssl s_client -connect 127.0.0.1:${server.port} </dev/null 2>/dev/null | openssl x509 -noout -subject`], { encoding: 'utf8' }).stdout;
  assert.match(subject(), /localhost/);
  writeFileSync(file('one.pem'), readFileSync(file('two.pem')));
  server.child.kill('SIGHUP');
  await server.until('refused', 5000 * patience, async () => /keeping the old certificate: --tls-key .*one\.key is not the key/.test(server.log));
  assert.match(subject(), /localhost/);
  writeFileSync(file('one.key'), readFileSync(file('two.key')));
  server.child.kill('SIGHUP');
  await server.until('taken', 5000 * patience, async () => /the certificate was read again/.test(server.log));
  assert.match(subject(), /renewed/);
  await server.stop();
}, noTls);

it('says which file of TLS is wrong', () => {
  certify('a');
  certify('b');
  writeFileSync(file('text.pem'), 'no certificate\n');
  execFileSync('openssl', ['ec', '-aes256', '-passout', 'pass:x', '-in', file('a.key'), '-out', file('locked.key')], { stdio: 'ignore' });
  assert.match(failing('--tls-cert', file('none.pem'), '--tls-key', file('a.key')), /--tls-cert .*none\.pem: No such file/);
  assert.match(failing('--tls-cert', file('a.pem'), '--tls-key', file('none.key')), /--tls-key .*none\.key: No such file/);
  assert.match(failing('--tls-cert', file('text.pem'), '--tls-key', file('a.key')), /--tls-cert .*text\.pem cannot be used/);
  assert.match(failing('--tls-cert', file('a.pem'), '--tls-key', file('text.pem')), /--tls-key .*text\.pem cannot be used/);
  assert.match(failing('--tls-cert', file('a.pem'), '--tls-key', file('b.key')), /b\.key is not the key of the first certificate in .*a\.pem/);
  assert.match(failing('--tls-cert', file('a.pem'), '--tls-key', file('locked.key')), /locked\.key .*password/);
  assert.match(failing('--tls-cert', file('a.pem')), /--tls-key is missing/);
}, noTls);

it('serves on a UNIX socket alone, for its user', async () => {
  const at = file('s.sock');
  const args = ['--host', 'none', '--unix-socket', at];
  const server = await start(args, () => ({ socketPath: at }));
  assert.ok(!/http:\/\//.test(server.log));
  assert.equal(statSync(at).mode & 0o777, 0o600);
  const whole = await ask({ socketPath: at, path: CHAT }, chat());
  const stream = await ask({ socketPath: at, path: CHAT }, chat({ stream: true }));
  assert.equal(streamed(stream.text), JSON.parse(whole.text).choices[0].message.content);
  // A client that leaves frees its work here too.
  const c = net.connect(at);
  const body = chat({ n: 16, max_tokens: 900, ignore_eos: true });
  c.write(`POST ${CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
  const running = async () => Number(/^sluice_sessions_running (\d+)$/m.exec((await ask({ socketPath: at, path: '/metrics' })).text)[1]);
  await server.until('running', 5000 * patience, async () => (await running()) > 0);
  c.destroy();
  await server.until('freed', 1000 * patience, async () => (await running()) === 0);

  assert.match(failing('--unix-socket', at), /s\.sock is in use by another program/);
  assert.ok(existsSync(at));
  // Killed, it leaves its socket behind; the next one replaces it, and removes it at its end.
  server.child.kill('SIGKILL');
  await server.exited;
  assert.ok(existsSync(at));
  const next = await start([...args, '--unix-mode', '0660'], () => ({ socketPath: at }));
  assert.equal(statSync(at).mode & 0o777, 0o660);
  await next.stop();
  assert.ok(!existsSync(at));
});

it('does not take what is not its own for a socket, nor options that want another', async () => {
  writeFileSync(file('data.txt'), 'mine');
  assert.match(failing('--unix-socket', file('data.txt')), /which is not a socket/);
  assert.equal(readFileSync(file('data.txt'), 'utf8'), 'mine');
  assert.match(failing('--unix-socket', file('no/such/folder.sock')), /No such file/);
  assert.match(failing('--unix-socket', file('x'.repeat(200))), /at most 107 bytes/);
  assert.match(failing('--host', 'none'), /needs --unix-socket/);
  assert.match(failing('--unix-socket', file('m.sock'), '--unix-mode', '0999'), /--unix-mode/);
  assert.match(failing('--unix-mode', '0660'), /needs --unix-socket/);
  assert.match(failing('--cache-disk', '1GiB'), /needs --cache-dir/);
});

const haveV6 = Object.values(os.networkInterfaces()).flat().some((i) => i.address === '::1');
it('listens on several addresses, IPv6 among them', async () => {
  const server = await start(['--host', '127.0.0.1', '--host', '[::1]', '--host', '127.0.0.2'], (s) => ({ host: '127.0.0.1', port: s.port }));
  for (const host of ['127.0.0.1', '::1', '127.0.0.2'])
    assert.equal((await ask({ host, port: server.port, path: '/health' })).status, 200);
  assert.match(server.log, /http:\/\/\[::1\]:\d+/);
  await assert.rejects(ask({ host: '127.0.0.3', port: server.port, path: '/health' }), /ECONNREFUSED/);
  assert.match(failing('--host', '::1', '--port', String(server.port)), /in use by another program/);
  await server.stop();
}, missing || (haveV6 ? false : 'there is no IPv6 here'));

it('asks for one of its keys, and keeps them to itself', async () => {
  writeFileSync(file('keys'), '# for tests\nkey-number-one-1111\n\nkey-number-two-2222\n');
  const server = await start(['--api-key-file', file('keys'), '--api-key', 'key-in-arguments-3333', '--log-level', 'debug', '--cors-origin', 'https://app.example'], (s) => ({ host: '127.0.0.1', port: s.port }));
  const get = (headers, p = '/v1/models', method = 'GET') => ask({ host: '127.0.0.1', port: server.port, path: p, headers, method });
  for (const key of ['key-number-one-1111', 'key-number-two-2222', 'key-in-arguments-3333']) {
    assert.equal((await get({ Authorization: `Bearer ${key}` })).status, 200);
    assert.equal((await get({ Authorization: `bearer ${key} ` })).status, 200);
    assert.equal((await get({ 'x-api-key': key })).status, 200);
  }
  for (const headers of [{}, { Authorization: 'Bearer key-number-one-1112' }, { Authorization: 'Bearer key-number-one-111' }, { Authorization: 'Bearer ' }, { Authorization: 'Basic key-number-one-1111' }, { 'x-api-key': '' }, { 'x-api-key': '# for tests' }, { 'x-api-key': 'key-number-one-1111key-number-one-1111' }]) {
    const r = await get(headers);
    assert.equal(r.status, 401, JSON.stringify(headers));
    assert.equal(r.headers['www-authenticate'], 'Bearer');
    assert.equal(JSON.parse(r.text).error.code, 'invalid_api_key');
  }
  assert.equal((await get({}, '/metrics')).status, 401);
  assert.equal((await get({}, '/slots')).status, 401);
  assert.equal((await get({}, '/health')).status, 200);
  // A browser asks first, without a key.
  const asks = { Origin: 'https://app.example', 'Access-Control-Request-Method': 'POST', 'Access-Control-Request-Headers': 'authorization,content-type' };
  assert.equal((await get(asks, CHAT, 'OPTIONS')).status, 204);
  assert.equal((await get({ ...asks, Origin: 'https://other.example' }, CHAT, 'OPTIONS')).status, 401);
  const command = readFileSync(`/proc/${server.child.pid}/cmdline`, 'latin1');
  await server.stop();
  assert.ok(!/key-(number|in)/.test(server.log) && !/key-(number|in)/.test(command));
});

it('lets web pages of the named origins ask, and no others', async () => {
  const server = await start(['--cors-origin', 'https://app.example', '--cors-origin', 'http://localhost:3000'], (s) => ({ host: '127.0.0.1', port: s.port }));
  const get = (headers, p = '/v1/models', method = 'GET') => ask({ host: '127.0.0.1', port: server.port, path: p, headers, method });
  let r = await get({ Origin: 'http://localhost:3000' });
  assert.equal(r.headers['access-control-allow-origin'], 'http://localhost:3000');
  assert.match(r.headers.vary, /Origin/);
  r = await get({ Origin: 'https://evil.example' });
  assert.equal(r.headers['access-control-allow-origin'], undefined);
  r = await get({ Origin: 'https://app.example', 'Access-Control-Request-Method': 'POST', 'Access-Control-Request-Headers': 'authorization, x-stainless-os' }, CHAT, 'OPTIONS');
  assert.equal(r.status, 204);
  assert.match(r.headers['access-control-allow-methods'], /POST/);
  assert.equal(r.headers['access-control-allow-headers'], 'authorization, x-stainless-os');
  r = await ask({ host: '127.0.0.1', port: server.port, path: CHAT, headers: { Origin: 'https://app.example' } }, chat({ stream: true }));
  assert.equal(r.headers['access-control-allow-origin'], 'https://app.example'); // of streams too
  r = await ask({ host: '127.0.0.1', port: server.port, path: CHAT, headers: { Origin: 'https://app.example' } }, '{');
  assert.equal(r.status, 400);
  assert.equal(r.headers['access-control-allow-origin'], 'https://app.example'); // and of errors
  await server.stop();

  const closed = await start([], (s) => ({ host: '127.0.0.1', port: s.port }));
  r = await ask({ host: '127.0.0.1', port: closed.port, path: '/v1/models', headers: { Origin: 'https://app.example' } });
  assert.ok(!Object.keys(r.headers).some((h) => h.startsWith('access-control') || h === 'vary'));
  await closed.stop();
});

// A page whose name was made to point here asks by that name; node's client would, too.
it('serves its own names only where it asks for no key', async () => {
  const status = async (s, host, p = '/v1/models', headers = {}) => (await ask({ host: '127.0.0.1', port: s.port, path: p, headers: { ...(host === null ? {} : { Host: host }), ...headers }, setHost: false })).status;
  const at = file('names.sock');
  const server = await start(['--unix-socket', at], (s) => ({ host: '127.0.0.1', port: s.port }));
  for (const host of ['localhost', `LOCALHOST:${server.port}`, '127.0.0.1:1', '127.9.9.9', '[::1]', `[::1]:${server.port}`])
    assert.equal(await status(server, host), 200, host);
  for (const host of ['attacker.example', `attacker.example:${server.port}`, 'localhost.attacker.example', '192.168.1.1', '0.0.0.0', 'x', '', 'a b'])
    for (const p of ['/v1/models', '/health', '/', '/nowhere'])
      assert.equal(await status(server, host, p, { Origin: `http://${host}` }), 421, `${host} ${p}`);
  const r = await ask({ host: '127.0.0.1', port: server.port, path: '/props', headers: { Host: 'attacker.example' } });
  const error = JSON.parse(r.text).error;
  assert.equal(error.code, 'host_not_allowed');
  assert.match(error.message, /attacker\.example.*--allowed-hosts/);
  assert.ok(!r.text.includes('demo'));
  // HTTP/1.0 needs no Host, and a browser does not come by a UNIX socket.
  const c = server.connect();
  c.socket.write('GET /v1/models HTTP/1.0\r\n\r\n');
  assert.match(await c.all, /^HTTP\/1\.[01] 200/);
  assert.equal((await ask({ socketPath: at, path: '/v1/models', headers: { Host: 'any.example' } })).status, 200);
  await server.stop();

  const named = await start(['--allowed-hosts', 'Gateway.example,10.0.0.7', '--allowed-hosts', 'fd00::7'], (s) => ({ host: '127.0.0.1', port: s.port }));
  for (const host of ['gateway.example', 'gateway.example:8080', '10.0.0.7', '[fd00::7]:1', 'localhost']) assert.equal(await status(named, host), 200, host);
  for (const host of ['attacker.example', 'a.gateway.example', '10.0.0.8']) assert.equal(await status(named, host), 421, host);
  await named.stop();

  // Elsewhere than on loopback addresses are its own, and so is the machine's name.
  const open = await start(['--host', '0.0.0.0'], (s) => ({ host: '127.0.0.1', port: s.port }));
  for (const host of ['192.168.1.1:8080', '10.1.2.3', '[fd00::1]', os.hostname(), `${os.hostname().split('.')[0]}.local`]) assert.equal(await status(open, host), 200, host);
  assert.equal(await status(open, 'attacker.example'), 421);
  await open.stop();

  // With a key it is the key that counts.
  const keyed = await start(['--api-key', 'secret'], (s) => ({ host: '127.0.0.1', port: s.port }));
  assert.equal(await status(keyed, 'gateway.example', '/v1/models', { Authorization: 'Bearer secret' }), 200);
  assert.equal(await status(keyed, 'gateway.example'), 401);
  await keyed.stop();
});

it('runs nothing for pages of other origins', async (t) => {
  const server = await start(['--cors-origin', 'https://app.example'], (s) => ({ host: '127.0.0.1', port: s.port }));
  const own = `127.0.0.1:${server.port}`;
  server.url = `http://${own}`;
  t.after(() => server.child.kill());
  const requests = async () => server.metric('sluice_requests_total');
  const post = (headers) => ask({ host: '127.0.0.1', port: server.port, path: CHAT, headers: { 'Content-Type': 'text/plain', ...headers } }, chat({ max_tokens: 1 }));
  const before = await requests();
  for (const headers of [{ Origin: 'http://attacker.example' }, { Origin: 'null' }, { Origin: 'http://127.0.0.1:3000' }, { Origin: `http://localhost:${server.port}` },
    { Origin: `http://${own}`, 'Sec-Fetch-Site': 'cross-site' }, { 'Sec-Fetch-Site': 'same-site' }, { Origin: 'http://attacker.example', 'Content-Type': 'application/json' }]) {
    const r = await post(headers);
    assert.equal(r.status, 403, JSON.stringify(headers));
    assert.match(r.text, /origin_not_allowed/);
    assert.match(r.text, /--cors-origin/);
  }
  assert.equal(await requests(), before);
  for (const headers of [{}, { Origin: `http://${own}` }, { Origin: 'https://app.example' }, { Origin: 'https://app.example', 'Sec-Fetch-Site': 'cross-site' }, { Origin: 'http://proxy.example', 'Sec-Fetch-Site': 'same-origin' }, { 'Sec-Fetch-Site': 'none' }])
    assert.equal((await post(headers)).status, 200, JSON.stringify(headers));
  assert.equal(await requests(), before + 6);
  // To read without effect is no harm: the browser keeps the answer from the page.
  const r = await ask({ host: '127.0.0.1', port: server.port, path: '/v1/models', headers: { Origin: 'http://attacker.example' } });
  assert.equal(r.status, 200);
  assert.equal(r.headers['access-control-allow-origin'], undefined);
  await server.stop();
});

it('takes keys without the white space around them, and says so', async () => {
  writeFileSync(file('dos-keys'), 'key-one-1111 \r\n\tkey-two-2222\r\n');
  const server = await start(['--api-key-file', file('dos-keys'), '--api-key', ' key-three-3333 '], (s) => ({ host: '127.0.0.1', port: s.port }));
  for (const key of ['key-one-1111', 'key-two-2222', 'key-three-3333'])
    assert.equal((await ask({ host: '127.0.0.1', port: server.port, path: '/v1/models', headers: { Authorization: `Bearer ${key}` } })).status, 200, key);
  assert.match(server.log, /dos-keys: the white space around the key in line 1/);
  assert.match(server.log, /--api-key: the white space/);
  assert.ok(!/key-(one|two|three)/.test(server.log));
  await server.stop();
  for (const key of ['  ', 'a b', 'schlüssel', 'a\tb']) {
    const said = failing('--api-key', key);
    assert.match(said, /--api-key (is empty|has white space|holds a character)/, key);
    assert.ok(!said.includes(key.trim() || '!'), said);
  }
});
