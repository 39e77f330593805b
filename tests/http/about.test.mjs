// What the server says of itself: /props, /slots, /metrics, models.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { missing, patience, request, Server } from './server.mjs';

const CHAT = '/v1/chat/completions';
const secret = 'Tell me a story about a tinderbox.';
const chat = (extra = {}) => ({ messages: [{ role: 'user', content: secret }], max_tokens: 5, temperature: 0, ignore_eos: true, ...extra });
const it = (name, run) => test(name, { skip: missing }, run);
const server = missing ? null : await Server.start(['--parallel', '2', '--buffer-tokens', '16']);
const json = async (path, options) => (await fetch(server.url + path, options)).json();
const metrics = async () => {
  const text = await (await fetch(`${server.url}/metrics`)).text();
  return { text, of: (name) => Number(text.split('\n').find((l) => l.startsWith(`${name} `))?.slice(name.length + 1) ?? 0) };
};

it('tells its settings', async () => {
  const p = await json('/props');
  assert.equal(p.model_alias, 'test');
  assert.equal(p.total_slots, 2);
  assert.equal(p.default_generation_settings.n_ctx, 1024);
  assert.equal(p.default_generation_settings.params.temperature, 1);
  assert.match(p.build_info, /^sluice \d/);
  assert.ok(p.chat_template.length > 0 && p.weight_bytes > 0);
});

it('shows what its slots do, and nobody\'s words', async () => {
  const idle = await json('/slots');
  assert.deepEqual(idle.map((s) => s.state), ['idle', 'idle']);
  assert.ok(idle.every((s) => s.is_processing === false && s.n_ctx === 1024));
  // A client that does not read keeps its slot.
  const c = server.connect();
  c.socket.pause();
  c.socket.write(request(CHAT, JSON.stringify(chat({ stream: true, max_tokens: 900, logprobs: true, top_logprobs: 20 }))));
  let text, slots;
  await server.until('decode, then parked', 20000 * patience, async () => {
    text = await (await fetch(`${server.url}/slots`)).text();
    slots = JSON.parse(text);
    const busy = slots.find((s) => s.is_processing);
    if (busy && busy.state !== 'prefill') {
      assert.ok(['decode', 'parked'].includes(busy.state));
      assert.equal(busy.n_prompt_tokens_processed, busy.n_prompt_tokens);
      assert.equal(busy.n_predicted + busy.n_remain, 900);
      assert.ok(busy.id_task > 0 && busy.predicted_per_second >= 0 && busy.prompt_ms > 0);
    }
    return busy?.state === 'parked' || busy?.n_predicted > 800;
  });
  assert.ok(!text.includes('tinderbox'));
  const task = slots.find((s) => s.is_processing).id_task;
  c.socket.destroy();
  await server.until('idle', 5000 * patience, async () => (await json('/slots')).every((s) => !s.is_processing));
  const p = server.post(CHAT, chat({ max_tokens: 400 }));
  await server.until('the next task', 5000 * patience, async () => (await json('/slots')).some((s) => s.id_task > task) || (await metrics()).of('sluice_requests_total') > 1);
  await (await p).json();
});

it('counts answers by endpoint and status, and times', async () => {
  let before; // when the answers to the tests above are counted too: see 'three answers'
  await server.until('all counted', 5000 * patience, async () => {
    before = await metrics();
    return before.of('sluice_request_seconds_count') === before.of('sluice_requests_total');
  });
  for (let i = 0; i < 3; i++) await (await server.post(CHAT, chat())).json();
  await (await server.post(CHAT, chat({ temperature: 9 }))).json();
  await (await fetch(`${server.url}/nowhere/at/all`)).json();
  await fetch(`${server.url}/v1/models/other`);
  const after = await metrics();
  const rose = (name) => after.of(name) - before.of(name);
  assert.equal(rose(`sluice_http_requests_total{endpoint="${CHAT}",status="200"}`), 3);
  assert.equal(rose(`sluice_http_requests_total{endpoint="${CHAT}",status="400"}`), 1);
  assert.equal(rose('sluice_http_requests_total{endpoint="other",status="404"}'), 1);
  assert.equal(rose('sluice_http_requests_total{endpoint="/v1/models/*",status="404"}'), 1);
  assert.ok(!after.text.includes('nowhere'));
  assert.equal(rose('sluice_queue_wait_seconds_count'), 3);
  assert.equal(rose('sluice_time_to_first_token_seconds_count'), 3);
  assert.equal(rose('sluice_inter_token_seconds_count'), 3 * 4);
  // Counted when the connection's thread is done with the answer, a moment after its client has read it.
  await server.until('three answers', 5000 * patience, async () => (await metrics()).of('sluice_request_seconds_count') - before.of('sluice_request_seconds_count') === 3);
  assert.ok(rose('sluice_time_to_first_token_seconds_sum') > 0 && rose('sluice_time_to_first_token_seconds_sum') < 60 * patience);
  assert.ok(after.of('process_resident_memory_bytes') > 1e6 && after.of('process_open_fds') > 5 && after.of('process_max_fds') >= 256);
  assert.ok(Math.abs(after.of('process_start_time_seconds') - Date.now() / 1000) < 600 * patience);
});

it('writes metrics that Prometheus can read', async () => {
  const { text } = await metrics();
  const heads = new Map();
  for (const line of text.trimEnd().split('\n')) {
    const type = /^# TYPE (\S+) (counter|gauge|histogram)$/.exec(line);
    if (type) {
      assert.ok(!heads.has(type[1]), line);
      heads.set(type[1], type[2]);
    } else if (!line.startsWith('# HELP ')) {
      const m = /^([a-z_:][a-z0-9_:]*)(\{[a-z]+="[^"\\]*"(,[a-z]+="[^"\\]*")*\})? (-?\d+(\.\d+)?)$/.exec(line);
      assert.ok(m, line);
      assert.ok(heads.has(m[1]) || heads.get(m[1].replace(/_(bucket|sum|count)$/, '')) === 'histogram', line);
    }
  }
});

it('shows each stage, and stages add up', async () => {
  await (await server.post(CHAT, chat())).json();
  const p = await json('/props'), { text, of } = await metrics();
  assert.deepEqual(p.devices.map((d) => [d.first_layer, d.layers > 0, d.total_bytes <= d.budget_bytes]), [[0, true, true]]);
  assert.equal(p.devices[0].name, p.device);
  const stage = `{stage="1",device="${p.device.split(': ')[0]}"`;
  assert.equal(of(`sluice_stage_layers${stage}}`), p.devices[0].layers);
  assert.equal(of(`sluice_stage_steps_total${stage}}`) > 0, true);
  const busy = of(`sluice_stage_busy_seconds_total${stage}}`), steps = of('sluice_prefill_seconds_total') + of('sluice_decode_seconds_total');
  assert.ok(busy > 0 && steps > 0, `${busy} ${steps}`);
  for (const found of ['device', 'host', 'coming', 'disk'])
    assert.equal(of(`sluice_stage_expert_lookups_total${stage},found="${found}"}`), of(`sluice_expert_lookups_total{found="${found}"}`), found);
  assert.ok(of(`sluice_stage_expert_lookups_total${stage},found="device"}`) > 0);
  assert.ok(text.includes(`sluice_stage_memory_bytes${stage}} ${of('sluice_device_memory_bytes')}\n`));
  assert.equal(of(`sluice_stage_memory_budget_bytes${stage}}`), p.devices[0].budget_bytes);
});

it('answers HEAD as GET, without a body', async () => {
  for (const path of ['/health', '/props', '/slots', '/metrics', '/v1/models', '/v1/models/test']) {
    const r = await fetch(server.url + path, { method: 'HEAD' });
    assert.equal(r.status, 200, path);
    assert.equal(await r.text(), '');
  }
  assert.equal((await fetch(`${server.url}/v1/models/other`, { method: 'HEAD' })).status, 404);
});

it('ends cleanly', () => server.stop());
