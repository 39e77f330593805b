#!/usr/bin/env node
// Load: many streams at once on loopback for minutes, beside clients that break off and clients that send garbage.
//
//   tests/load/load.mjs [--seconds 300] [--streams 64] [--aborters 8] [--garbage 4] [--json FILE] [-- options of serve]
//
// Every streamed answer is compared with the same request's answer given before the load. It fails when: a stream
// differs, ends without [DONE], or gets a status but 200 and 429; memory, descriptors, connections or sessions are not
// at the end what they were; the 99th percentile of the time between two tokens is above three times the median; the
// server does not end with 0.
import { writeFileSync } from 'node:fs';
import net from 'node:net';
import os from 'node:os';
import { parseArgs } from 'node:util';
import { request, Server, sleep } from '../http/server.mjs';

const { values: o, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    seconds: { type: 'string', default: '300' }, streams: { type: 'string', default: '64' }, aborters: { type: 'string', default: '8' },
    garbage: { type: 'string', default: '4' }, json: { type: 'string' },
  },
});
const seconds = Number(o.seconds), nStreams = Number(o.streams);
const CHAT = '/v1/chat/completions';
const RSS_SLACK = 4 << 20;

// The same numbers in each run.
let state = 12345;
const random = (n) => { state = (Math.imul(state, 1103515245) + 12345) >>> 0; return (state >>> 8) % n; };

const prompts = ['Tell me a story.', 'What is 17 + 25?', 'Sort: pear fig apple', 'word '.repeat(60), 'Count from 3 to 9.', 'The fox and the crow', 'How many grams are 3 kg?', 'a'];
const bodyOf = (i) => JSON.stringify({
  messages: [{ role: 'user', content: prompts[i % prompts.length] }], stream: true, seed: i, temperature: i % 2 ? 0.8 : 0,
  max_tokens: 64 + (i % 16) * 16, ignore_eos: true,
});
const N_KINDS = 32;

const failures = [];
const fail = (text) => { if (failures.push(text) <= 20) console.error(`FAILED: ${text}`); };
const intervals = []; // ms between two tokens
const firsts = []; // ms to the first
const counts = { streams: 0, busy: 0, tokens: 0, aborted: 0, garbage: 0 };
let stop = false;

// One stream: { status, content, done }. onTokens(n, ms, first): n tokens came with one read, so long after the read
// before. While it runs tokens are only counted, so that this process takes little time; they are read at the end.
const MARK = '"delta":{"content":';
const stream = (port, body, onTokens = () => {}) => new Promise((resolve) => {
  const socket = net.connect(port, '127.0.0.1', () => socket.write(request(CHAT, body)));
  const parts = [];
  let tail = '', last = performance.now(), first = true;
  socket.setNoDelay(true);
  socket.setEncoding('utf8');
  socket.on('error', () => {});
  socket.on('data', (d) => {
    const now = performance.now();
    parts.push(d);
    const text = tail + d;
    let n = 0;
    for (let at = -1; (at = text.indexOf(MARK, at + 1)) >= 0;) n++;
    tail = text.slice(1 - MARK.length);
    if (n) {
      onTokens(n, now - last, first);
      first = false;
      last = now;
    }
  });
  socket.on('close', () => {
    const all = parts.join('');
    let content = '';
    for (const m of all.matchAll(/^data: (\{.*)$/gm)) content += JSON.parse(m[1]).choices?.[0]?.delta?.content ?? (m[1].includes('"error"') ? m[1] : '');
    resolve({ status: Number(/^HTTP\/1\.1 (\d+)/.exec(all)?.[1] ?? 0), content, done: all.includes('data: [DONE]') });
  });
});

const streamer = async (port, want) => {
  while (!stop) {
    const i = random(N_KINDS);
    const a = await stream(port, bodyOf(i), (n, ms, first) => {
      counts.tokens += n;
      (first ? firsts : intervals).push(ms);
      for (let k = 1; k < n; k++) intervals.push(0); // they came together
    });
    counts.streams++;
    if (a.status === 429) {
      counts.busy++;
      await sleep(200);
    } else if (a.status !== 200) fail(`a stream got status ${a.status}`);
    else if (!a.done) fail(`stream ${i} ended early: ${a.content.slice(-200)}`);
    else if (a.content !== want[i]) fail(`stream ${i} differs: ${a.content.slice(0, 100)}`);
  }
};

const aborter = async (port) => {
  while (!stop) {
    const body = random(2) ? bodyOf(random(N_KINDS)) : bodyOf(random(N_KINDS)).replace('"stream":true', '"stream":false');
    const socket = net.connect(port, '127.0.0.1', () => socket.write(request(CHAT, body)));
    socket.on('error', () => {});
    socket.on('data', () => {});
    await sleep(random(600));
    if (random(2)) socket.resetAndDestroy();
    else socket.destroy();
    counts.aborted++;
  }
};

const pieces = ['POST ', CHAT, ' HTTP/1.1\r\n', 'Host: localhost\r\n', 'Content-Length: 5\r\n', 'Transfer-Encoding: chunked\r\n', '\r\n', '{"messages":', '[', '\0', 'ffffffff\r\n', '\xff', 'GET / HTTP/1.1\r\n'];
const garbler = async (port) => {
  while (!stop) {
    const socket = net.connect(port, '127.0.0.1');
    socket.on('error', () => {});
    socket.on('data', () => {});
    if (random(3) === 0) socket.write(request(CHAT, ['{"messages":', '[]', '{"messages":[],"stream":true}', '{"messages":[{"role":"user","content":"x"}],"temperature":9}'][random(4)]));
    else socket.write(Buffer.from(Array.from({ length: 1 + random(20) }, () => pieces[random(pieces.length)]).join(''), 'latin1'));
    await sleep(20 + random(100));
    socket.destroy();
    counts.garbage++;
  }
};

const at = (sorted, share) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];
const mean = (list) => list.reduce((a, b) => a + b, 0) / list.length;

const server = await Server.start(['--parallel', String(nStreams), '--threads', String(Math.max(1, os.cpus().length - 1)), ...positionals]);
const metrics = async () => {
  const text = await (await fetch(`${server.url}/metrics`)).text();
  return (name) => Number(new RegExp(`^${name} ([\\d.]+)$`, 'm').exec(text)?.[1] ?? NaN);
};
const want = [];
for (let i = 0; i < N_KINDS; i++) {
  const a = await stream(server.port, bodyOf(i));
  if (!a.done) throw new Error(`no answer before the load: ${a.status} ${a.content}`);
  want.push(a.content);
}

const started = performance.now();
const samples = [];
const all = [
  ...Array.from({ length: nStreams }, () => streamer(server.port, want)),
  ...Array.from({ length: Number(o.aborters) }, () => aborter(server.port)),
  ...Array.from({ length: Number(o.garbage) }, () => garbler(server.port)),
];
while ((performance.now() - started) / 1000 < seconds) {
  await sleep(Math.min(2000, seconds * 50));
  const m = await metrics();
  samples.push({ s: (performance.now() - started) / 1000, rss: m('process_resident_memory_bytes'), fds: m('process_open_fds') });
}
stop = true;
await Promise.all(all);
const took = (performance.now() - started) / 1000;
for (let i = 0; i < 100; i++) {
  const m = await metrics();
  if (m('sluice_sessions_running') + m('sluice_sessions_waiting') + m('sluice_sessions_parked') === 0 && m('sluice_http_connections') <= 2) break;
  if (i === 99) fail(`left behind: ${m('sluice_sessions_running')} running, ${m('sluice_sessions_waiting')} waiting, ${m('sluice_http_connections')} connections`);
  await sleep(50);
}
await server.stop().catch((e) => fail(e.message));

intervals.sort((a, b) => a - b);
firsts.sort((a, b) => a - b);
const third = Math.ceil(samples.length / 3);
const rssBefore = mean(samples.slice(third, 2 * third).map((s) => s.rss)), rssAfter = mean(samples.slice(-third).map((s) => s.rss));
const result = {
  seconds: took, streams: nStreams, ...counts, tokens_per_second: counts.tokens / took,
  inter_token_ms: { p50: at(intervals, 0.5), p90: at(intervals, 0.9), p99: at(intervals, 0.99), p999: at(intervals, 0.999), max: intervals.at(-1) },
  first_token_ms: { p50: at(firsts, 0.5), p99: at(firsts, 0.99) },
  rss_mib: { second_third: rssBefore / 2 ** 20, last_third: rssAfter / 2 ** 20, max: Math.max(...samples.map((s) => s.rss)) / 2 ** 20 },
  fds: { first: samples[0].fds, max: Math.max(...samples.map((s) => s.fds)) },
};
if (rssAfter - rssBefore > RSS_SLACK) fail(`resident memory grew by ${((rssAfter - rssBefore) / 2 ** 20).toFixed(1)} MiB`);
if (!(result.inter_token_ms.p99 <= 3 * result.inter_token_ms.p50)) fail('the 99th percentile between tokens is above three times the median');
result.failures = failures;
if (o.json) writeFileSync(o.json, `${JSON.stringify(result, null, 2)}\n`);
console.log(JSON.stringify(result, (k, v) => (typeof v === 'number' ? Math.round(v * 100) / 100 : v), 1));
process.exit(failures.length ? 1 : 0);
