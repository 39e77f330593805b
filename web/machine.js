// The machine, live: rates are differences of the counters that /metrics has.

import { get, getText } from './api.js';
import { startExperts } from './experts.js';
import { showWorkers, workersOf } from './workers.js';

const $ = (id) => document.getElementById(id);
const KEEP_S = 300; // of history
const NOW_S = 3;    // that "now" is taken over
const FOUND_S = 60;

let machine = null;
const history = []; // one sample a second, oldest first

// ---------------------------------------------------------------- numbers

const fixed = (v, d) => v.toLocaleString('en', { minimumFractionDigits: d, maximumFractionDigits: d });
const rate = (v) => fixed(v, v < 10 ? 1 : 0);
const count = (v) => Math.round(v).toLocaleString('en');
const percent = (v) => `${fixed(100 * v, v > 0 && v < 0.0995 ? 1 : 0)} %`;
function bytes(v) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let i = 0;
  while (v >= 1023.5 && i < 4) { v /= 1024; i++; }
  return `${fixed(v, i && v < 99.95 ? 1 : 0)} ${units[i]}`;
}
const perSecond = (v) => (v >= 1e9 ? `${fixed(v / 1e9, 2)} GB/s` : `${fixed(v / 1e6, v < 1e7 ? 1 : 0)} MB/s`);

// ---------------------------------------------------------------- samples

// Prometheus' text format: a name, labels, a number.
function parse(text) {
  const m = new Map();
  for (const line of text.split('\n')) {
    if (!line || line[0] === '#') continue;
    const at = line.lastIndexOf(' ');
    m.set(line.slice(0, at), Number(line.slice(at + 1)));
  }
  return m;
}

// Of each of several devices: time in steps and waiting for experts, memory.
function stages(m) {
  return machine.devices.length < 2 ? [] : machine.devices.map((d, i) => {
    const v = (name) => m.get(`sluice_stage_${name}{stage="${i + 1}",device="${shortName(d)}"}`) || 0;
    return { busy: v('busy_seconds_total'), stall: v('stall_seconds_total'), memory: v('memory_bytes') };
  });
}
const shortName = (device) => device.name.split(': ')[0];

function sample(text) {
  const m = parse(text);
  const v = (name) => m.get(`sluice_${name}`) || 0;
  const found = (where) => v(`expert_lookups_total{found="${where}"}`);
  const stall = (cause) => v(`expert_stall_seconds_total{cause="${cause}"}`);
  return {
    t: performance.now() / 1000,
    generated: v('predicted_tokens_total'), prompt: v('prompt_tokens_total'),
    decode: v('decode_seconds_total'), prefill: v('prefill_seconds_total'),
    device: found('device'), host: found('host'), coming: found('coming'), disk: found('disk'),
    read: v('disk_read_bytes_total'), busy: v('disk_busy_seconds_total'), flight: v('disk_request_seconds_total'),
    peak: v('disk_peak_bytes_per_second'), errors: v('disk_errors_total'),
    demand: stall('demand'), late: stall('late'), slot: stall('slot'),
    running: v('sessions_running'), waiting: v('sessions_waiting'), parked: v('sessions_parked'),
    pages: v('kv_pages'), used: v('kv_pages_used'), kept: v('kv_pages_cached'), warmups: v('expert_warmups_left'),
    lane: v('cpu_lane_bytes_total'), up: v('link_bytes_total{how="up"}'), down: v('link_bytes_total{how="down"}'), inPlace: v('link_bytes_total{how="in place"}'),
    rowHits: v('table_lookups_total{found="memory"}'), rowReads: v('table_lookups_total{found="disk"}'),
    rowBytes: v('table_read_bytes_total'), rowStall: v('table_stall_seconds_total'), tables: v('table_bytes{where="streamed"}'),
    stages: stages(m), workers: workersOf(m), reused: v('prefix_hit_tokens_total'), rss: m.get('process_resident_memory_bytes') || 0,
  };
}

// The newest sample that is at least so old, else the oldest.
function back(seconds) {
  const now = history[history.length - 1];
  for (let i = history.length - 2; i >= 0; i--) if (now.t - history[i].t >= seconds - 0.2) return history[i];
  return history[0];
}

// A counter that went down belongs to another process: history begins anew.
function add(s) {
  const last = history[history.length - 1];
  if (last && (s.generated < last.generated || s.prompt < last.prompt || s.read < last.read)) history.length = 0;
  history.push(s);
  while (history.length > 2 && s.t - history[1].t > KEEP_S) history.shift();
}

const grown = (name, from, to) => to[name] - from[name];

// ---------------------------------------------------------------- drawing

function chart() {
  const canvas = $('chart'), scale = devicePixelRatio || 1;
  const w = Math.round(canvas.clientWidth * scale), h = Math.round(canvas.clientHeight * scale);
  if (!w || !h) return;
  if (canvas.width !== w || canvas.height !== h) { canvas.width = w; canvas.height = h; }
  const now = history[history.length - 1];
  const points = [];
  for (let i = 1; i < history.length; i++) {
    const to = history[i], from = history[Math.max(0, i - NOW_S)];
    if (to.t > from.t) points.push([to.t, grown('generated', from, to) / (to.t - from.t)]);
  }
  const top = Math.max(1, ...points.map((p) => p[1]));
  const step = 10 ** Math.floor(Math.log10(top)), ceiling = Math.ceil(top / step * 2) / 2 * step;
  const css = getComputedStyle(document.documentElement), c = canvas.getContext('2d');
  const x = (t) => w - (now.t - t) / KEEP_S * w, y = (v) => h - 2 * scale - v / ceiling * (h - 6 * scale);
  c.clearRect(0, 0, w, h);
  c.strokeStyle = css.getPropertyValue('--line');
  c.lineWidth = scale;
  for (const part of [0, 0.5, 1]) {
    const at = Math.round(y(part * ceiling)) + 0.5;
    c.beginPath(); c.moveTo(0, at); c.lineTo(w, at); c.stroke();
  }
  if (points.length > 1) {
    c.beginPath();
    points.forEach(([t, v], i) => (i ? c.lineTo(x(t), y(v)) : c.moveTo(x(t), y(v))));
    c.strokeStyle = css.getPropertyValue('--accent');
    c.lineWidth = 1.8 * scale;
    c.lineJoin = 'round';
    c.stroke();
    c.lineTo(w, h); c.lineTo(x(points[0][0]), h); c.closePath();
    c.globalAlpha = 0.16;
    c.fillStyle = css.getPropertyValue('--accent');
    c.fill();
    c.globalAlpha = 1;
  }
  $('chart-top').textContent = `lines at ${rate(ceiling / 2)} and ${rate(ceiling)}`;
  const shown = points.map((p) => p[1]);
  canvas.setAttribute('aria-label', shown.length
    ? `Tokens generated per second over the last five minutes: now ${rate(shown[shown.length - 1])}, highest ${rate(Math.max(...shown))}`
    : 'Tokens generated per second: nothing measured yet');
}

function meter(id, share, text) {
  const e = $(id), v = Math.min(1, Math.max(0, share || 0));
  e.firstElementChild.style.width = `${100 * v}%`;
  e.setAttribute('role', 'meter');
  e.setAttribute('aria-valuemin', '0');
  e.setAttribute('aria-valuemax', '100');
  e.setAttribute('aria-valuenow', String(Math.round(100 * v)));
  e.setAttribute('aria-valuetext', text);
  e.setAttribute('aria-label', text);
}

function stackAndLegend(bar, legend, parts) {
  const sum = parts.reduce((a, p) => a + p.value, 0);
  bar.replaceChildren(...parts.filter((p) => p.value > 0).map((p) => {
    const s = document.createElement('span');
    s.style.width = `${100 * p.value / sum}%`;
    s.style.background = p.colour;
    return s;
  }));
  if (!legend) return;
  legend.replaceChildren(...parts.map((p) => {
    const li = document.createElement('li'), mark = document.createElement('i');
    mark.style.background = p.colour;
    li.append(mark, `${p.name} ${sum ? percent(p.value / sum) : '–'}`);
    return li;
  }));
}

// ---------------------------------------------------------------- cards

function showSpeed() {
  const now = history[history.length - 1], was = back(NOW_S), passed = now.t - was.t;
  if (!(passed > 0)) return;
  $('v-decode').textContent = rate(grown('generated', was, now) / passed);
  $('v-prompt').textContent = rate(grown('prompt', was, now) / passed);
  const minute = back(FOUND_S), busy = grown('decode', minute, now);
  $('v-decoding').textContent = busy > 0.05 ? rate(grown('generated', minute, now) / busy) : '–';
  chart();
}

// The part of the samples that the shares are of: the last minute, or all there is.
function shareRange() {
  const now = history[history.length - 1], minute = back(FOUND_S);
  const asked = (a, b) => ['device', 'host', 'coming', 'disk'].reduce((n, k) => n + grown(k, a, b), 0);
  if (asked(minute, now) > 0) return [minute, now, 'in the last minute'];
  const zero = Object.fromEntries(Object.keys(now).map((k) => [k, 0]));
  return asked(zero, now) > 0 ? [zero, now, 'since the start'] : null;
}

function showFound() {
  const range = shareRange(), cpu = machine.experts.computing !== 'device';
  const part = (key, name) => ({ name, colour: `var(--${cpu && key === 'device' ? 'host' : key})`, value: range ? grown(key, range[0], range[1]) : 0 });
  const parts = cpu ? [part('device', 'RAM'), part('coming', 'coming'), part('disk', 'disk')]
    : [part('device', 'GPU'), part('host', 'RAM'), part('coming', 'coming'), part('disk', 'disk')];
  stackAndLegend($('found-bar'), $('found-legend'), parts);
  $('found-when').textContent = range ? range[2] : '';
  const left = history[history.length - 1].warmups;
  $('found-note').textContent = range ? (left > 0 ? `Warming up: ${count(left)} experts left to check.` : '') : 'Nothing has been asked for yet.';
}

function showStall() {
  const range = shareRange();
  const share = (k) => (range ? grown(k, range[0], range[1]) / Math.max(1e-9, grown('decode', range[0], range[1]) + grown('prefill', range[0], range[1])) : 0);
  const [demand, late, slot] = ['demand', 'late', 'slot'].map(share);
  const all = Math.min(1, demand + late + slot);
  $('v-stall').textContent = range ? percent(all) : '–';
  meter('m-stall', all, `Waiting for experts: ${percent(all)} of the time`);
  $('v-stall-more').textContent = range ? `not read ahead ${percent(demand)}, read too late ${percent(late)}, no free slot ${percent(slot)}` : '';
}

// Embeddings that are read from the file by row: where the rows of the last minute's tokens were, or of all so far.
function showTables() {
  const now = history[history.length - 1], minute = back(FOUND_S);
  $('card-tables').hidden = !now.tables;
  if (!now.tables) return;
  const zero = Object.fromEntries(Object.keys(now).map((k) => [k, 0]));
  const was = grown('rowHits', minute, now) + grown('rowReads', minute, now) > 0 ? minute : zero;
  const hits = grown('rowHits', was, now), reads = grown('rowReads', was, now), asked = hits + reads;
  const steps = grown('decode', was, now) + grown('prefill', was, now);
  $('v-tables').textContent = asked ? percent(hits / asked) : '–';
  meter('m-tables', asked ? hits / asked : 0, `Rows found in memory: ${asked ? percent(hits / asked) : 'none asked for yet'}`);
  $('v-tables-more').textContent = asked ? `${count(reads)} rows from disk, ${bytes(grown('rowBytes', was, now))}; ${percent(Math.min(1, grown('rowStall', was, now) / Math.max(1e-9, steps)))} of the time waiting for them` : `${bytes(now.tables)} in the file`;
}

function showDisk() {
  const now = history[history.length - 1], was = back(NOW_S), passed = now.t - was.t;
  if (!(passed > 0)) return;
  const speed = grown('read', was, now) / passed;
  $('v-disk').textContent = perSecond(speed);
  $('v-disk-of').textContent = now.peak ? `of ${perSecond(now.peak)}, the highest seen` : 'no limit seen yet';
  meter('m-disk', now.peak ? speed / now.peak : 0, now.peak ? `Disk: ${perSecond(speed)} of ${perSecond(now.peak)}` : `Disk: ${perSecond(speed)}`);
  const busy = grown('busy', was, now);
  const more = [busy > 0.001 ? `${rate(grown('flight', was, now) / busy)} requests at once` : 'idle', `${bytes(now.read)} read in all`];
  if (now.errors) more.push(`${count(now.errors)} errors`);
  $('v-disk-more').textContent = more.join(' · ');
}

// The link's limit is the highest rate that this page has seen: nothing measures it before.
let linkPeak = 0;
function showLink() {
  const now = history[history.length - 1], was = back(NOW_S), passed = now.t - was.t;
  $('card-link').hidden = machine.experts.computing !== 'device';
  if (!(passed > 0) || $('card-link').hidden) return;
  const [up, down, inPlace] = ['up', 'down', 'inPlace'].map((k) => grown(k, was, now) / passed);
  const speed = up + down + inPlace;
  if (passed > 2) linkPeak = Math.max(linkPeak, speed);
  $('v-link').textContent = perSecond(speed);
  $('v-link-of').textContent = linkPeak ? `of ${perSecond(linkPeak)}, the highest that this page has seen` : '';
  meter('m-link', linkPeak ? speed / linkPeak : 0, `Link: ${perSecond(speed)}`);
  $('v-link-more').textContent = `copied up ${perSecond(up)} · copied down ${perSecond(down)} · read in place ${perSecond(inPlace)}${now.lane ? ` · left to the CPU ${perSecond(grown('lane', was, now) / passed)}` : ''}`;
}

const DOING = { prefill: 'reading its prompt', decode: 'generating', parked: 'waiting for its client' };
function showSlots(slots) {
  const busy = slots.filter((s) => s.is_processing);
  $('slots').hidden = !busy.length;
  $('slots').replaceChildren(...busy.slice(0, 16).map((s) => {
    const li = document.createElement('li'), what = document.createElement('span'), how = document.createElement('span');
    what.textContent = `Request ${s.id_task}: ${DOING[s.state] || s.state}`;
    how.textContent = s.state === 'prefill' ? `${count(s.n_prompt_tokens_processed)} of ${count(s.n_prompt_tokens)} tokens`
      : `${count(s.n_predicted)} tokens, ${rate(s.predicted_per_second)}/s`;
    how.className = 'dim';
    li.append(what, how);
    return li;
  }));
}

function showSessions() {
  const s = history[history.length - 1], n = machine.sessions.parallel;
  const dots = Math.min(n, 64), waiting = Math.min(s.waiting, 32);
  $('session-dots').replaceChildren(...Array.from({ length: dots + waiting }, (_, i) => {
    const d = document.createElement('span');
    if (i < s.running) d.className = 'on';
    if (i >= dots) d.className = 'wait';
    return d;
  }));
  const parts = [`${count(s.running)} of ${count(n)} running`, `${count(s.waiting)} of ${count(machine.sessions.queue)} waiting`];
  if (s.parked) parts.push(`${count(s.parked)} waiting for their clients`);
  $('v-sessions').textContent = parts.join(', ');
  meter('m-kv', s.pages ? s.used / s.pages : 0, `KV pages used: ${count(s.used)} of ${count(s.pages)}`);
  const kept = s.kept ? `, ${count(s.kept)} kept for repeated prompts` : '';
  $('v-kv').textContent = `${count(s.used)} of ${count(s.pages)} KV pages used${kept}; ${count(machine.context_tokens)} tokens a session at most`;
}

function showDevices() {
  const now = history[history.length - 1], from = back(NOW_S), s = now.t - from.t;
  $('devices').replaceChildren(...machine.devices.map((d, i) => {
    const li = document.createElement('li'), what = document.createElement('span'), how = document.createElement('span');
    const part = (name) => percent(s > 0 ? Math.min(1, (now.stages[i][name] - from.stages[i][name]) / s) : 0);
    what.textContent = `${shortName(d)}: layers ${d.first_layer} to ${d.first_layer + d.layers - 1}`;
    how.textContent = `busy ${part('busy')}${machine.experts.streamed ? `, ${part('stall')} waiting for experts` : ''}`
      + (d.budget_bytes ? `; ${bytes(now.stages[i].memory)} of ${bytes(d.budget_bytes)}` : '');
    how.className = 'dim';
    li.append(what, how);
    return li;
  }));
}

function showMemory() {
  const { rows, total_bytes: total, budget_bytes: budget, device_total_bytes: onDevice, device_budget_bytes: deviceBudget } = machine.memory;
  const sorted = [...rows].sort((a, b) => b.bytes - a.bytes);
  const colour = (i) => `var(--m${Math.min(i, 6)})`;
  stackAndLegend($('memory-bar'), null, sorted.map((r, i) => ({ value: r.bytes, colour: colour(i) })));
  $('memory-plan').textContent = `planned ${bytes(total)} of ${bytes(budget)}${deviceBudget ? `, and ${bytes(onDevice)} of ${bytes(deviceBudget)} on ${machine.devices.length > 1 ? 'devices' : 'the device'}` : ''}`;
  $('memory').replaceChildren(...sorted.map((r, i) => {
    const tr = document.createElement('tr'), name = document.createElement('td'), detail = document.createElement('td'), size = document.createElement('td');
    const mark = document.createElement('i');
    mark.style.background = colour(i);
    name.append(mark, r.kind === 'host' && !r.stage ? r.what : `${r.what} (${r.kind}${r.stage ? ` ${r.stage}` : ''})`);
    detail.textContent = r.detail;
    detail.className = 'detail dim';
    size.textContent = bytes(r.bytes);
    size.className = 'size';
    tr.append(name, detail, size);
    return tr;
  }));
}

function showStatic() {
  const x = machine.experts;
  $('device').textContent = machine.device;
  $('device').title = machine.devices.map((d) => `layers ${d.first_layer} to ${d.first_layer + d.layers - 1}: ${d.name}${d.budget_bytes ? `, ${bytes(d.total_bytes)} of ${bytes(d.budget_bytes)} planned` : ''}`).join('\n');
  for (const id of ['card-found', 'card-disk', 'card-stall']) $(id).hidden = !x.streamed;
  $('card-experts').hidden = !x.layers;
  $('card-devices').hidden = machine.devices.length < 2;
  showMemory();
}

// ---------------------------------------------------------------- the poll

function show() {
  showSpeed();
  showSessions();
  showLink();
  if (machine.devices.length > 1) showDevices();
  const now = history[history.length - 1];
  $('card-machines').hidden = !now.workers.length;
  if (now.workers.length) showWorkers($('machines'), now, back(NOW_S), machine.devices, { percent, bytes, perSecond });
  const { rss } = history[history.length - 1];
  $('memory-now').textContent = rss ? `${bytes(rss)} resident now, ` : '';
  if (machine.experts.streamed) { showFound(); showStall(); showDisk(); }
  showTables();
}

async function poll() {
  let next = 1000;
  try {
    if (document.visibilityState === 'visible') {
      if (!machine) {
        machine = await get('v1/sluice/machine');
        showStatic();
        startExperts(machine.experts);
      }
      const [text, slots] = await Promise.all([getText('metrics'), get('slots')]);
      add(sample(text));
      show();
      showSlots(slots);
      $('machine-error').hidden = true;
    }
  } catch (e) {
    next = 2000;
    if (e.status !== 401) {
      $('machine-error').textContent = `No data from the server: ${e.message}`;
      $('machine-error').hidden = false;
    }
  }
  setTimeout(poll, next);
}

export function startMachine() {
  window.addEventListener('resize', () => { if (history.length) chart(); });
  poll();
}
