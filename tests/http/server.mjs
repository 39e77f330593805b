// Starts the real binary on a free port for the tests, and stops it.
import { spawn } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import net from 'node:net';
import { availableParallelism } from 'node:os';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../../', import.meta.url));
export const binary = process.env.SLUICE_BIN ?? `${root}build/${process.env.MODE ?? 'release'}/sluice`;
export const model = process.env.SLUICE_TEST_MODEL ?? `${root}demo/demo.gguf`;
export const missing = !existsSync(binary) ? `${binary} is not built` : !existsSync(model) ? `${model} is not there` : false;
// Two programs run side by side: threads that wait for each other there gain nothing. TSan is there for threads.
const alone = /tsan/.test(binary) ? [] : ['--threads', '1'];
// As many as by default, for the tests that are to have them in release too.
export const threads = /asan/.test(binary) ? [] : ['--threads', String(availableParallelism())];
// A sanitizer's build may take this much longer.
export const patience = /tsan/.test(binary) ? 10 : /asan/.test(binary) ? 5 : 1;

// As good as never, for what ends by itself.
export const NEVER_MS = 240000 * patience;

// Milliseconds that count for less while more wants to run than there are CPUs: as tests/support/fair_clock.py.
export class FairClock {
  constructor() {
    this.ms = 0;
    this.last = performance.now();
  }

  // To be asked often.
  look() {
    const now = performance.now();
    const running = Number(readFileSync('/proc/loadavg', 'latin1').split(' ')[3].split('/')[0]) - 1; // who asks left out
    this.ms += (now - this.last) * Math.min(1, availableParallelism() / Math.max(1, running));
    this.last = now;
    return this.ms;
  }
}

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// For races: does not keep the process alive when the other side has won.
export const deadline = (ms) => new Promise((resolve) => setTimeout(resolve, ms).unref());

export class Server {
  // usual: the options that most tests want.
  constructor(args = [], file = model, usual = ['--alias', 'test', '--ctx', '1024']) {
    this.log = '';
    this.child = spawn(binary, ['serve', '-m', file, '--port', '0', ...usual, ...alone, ...args],
                       { stdio: ['ignore', 'ignore', 'pipe'] });
    process.on('exit', () => this.child.kill('SIGKILL')); // a test that throws leaves nothing behind,
    for (const s of ['SIGTERM', 'SIGINT']) process.once(s, () => process.exit(1)); // nor one that is stopped
    this.child.stderr.on('data', (d) => { this.log += d; });
    this.exited = new Promise((resolve) => this.child.on('close', (code, signal) => resolve({ code, signal })));
  }

  // Resolves when the model is loaded.
  static start(args, file) {
    return Server.ready(new Server(args, file));
  }

  static async ready(s) {
    for (const clock = new FairClock(); clock.look() < NEVER_MS;) {
      const m = /listening on http:\/\/[^ ]*:(\d+)/.exec(s.log);
      if (m) {
        s.port = Number(m[1]);
        s.url = `http://127.0.0.1:${s.port}`;
        if ((await fetch(`${s.url}/health`)).status === 200) return s;
      }
      if (s.child.exitCode !== null) break;
      await sleep(50);
    }
    s.child.kill('SIGKILL');
    throw new Error(`the server did not become ready:\n${s.log}`);
  }

  // Ends it as an operator would, and expects it to be clean: a sanitizer's report is not.
  async stop(signal = 'SIGTERM') {
    this.child.kill(signal);
    const end = await Promise.race([this.exited, deadline(NEVER_MS)]);
    if (!end) this.child.kill('SIGKILL');
    if (!end || end.code !== 0 || /Sanitizer|runtime error/.test(this.log))
      throw new Error(`the server ended with ${JSON.stringify(end)}:\n${this.log.slice(-20000)}`);
  }

  post(path, body, options = {}) {
    return fetch(this.url + path, { method: 'POST', body: typeof body === 'string' ? body : JSON.stringify(body), ...options });
  }

  async metric(name) {
    // A connection of its own: one that is kept may be closed by the server just when it is used again.
    const text = await (await fetch(`${this.url}/metrics`, { headers: { Connection: 'close' } })).text();
    const m = new RegExp(`^${name} (-?\\d+)$`, 'm').exec(text);
    if (!m) throw new Error(`no metric ${name}`);
    return Number(m[1]);
  }

  // Waits until check() holds; fails after ms of a fair clock. Says why a fetch in it failed, which a test's report leaves out.
  async until(what, ms, check) {
    const clock = new FairClock();
    try {
      while (!(await check())) {
        if (clock.look() > ms) throw new Error(`not within ${ms} ms: ${what}`);
        await sleep(20);
      }
    } catch (e) {
      throw e.cause ? new Error(`${what}: ${e.message}: ${e.cause.code ?? ''} ${e.cause.message}`, { cause: e }) : e;
    }
  }

  // A raw connection: send() bytes, read to the end with all.
  connect() {
    const socket = net.connect(this.port, '127.0.0.1');
    socket.on('error', () => {});
    const all = new Promise((resolve) => {
      let text = '';
      socket.on('data', (d) => { text += d.toString('latin1'); });
      socket.on('close', () => resolve(text));
    });
    return { socket, all };
  }
}

export const request = (path, body, headers = 'Connection: close\r\n') =>
  `POST ${path} HTTP/1.1\r\nHost: localhost\r\n${headers}Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;
