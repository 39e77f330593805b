// Machines that have layers, this one and others: a column each, from the coordinator's /metrics.

import { make } from './ui.js';

const ROWS = ['Machine', 'State', 'Layers', 'Busy', 'Experts', 'Round trip', 'Sent', 'Received', 'Queued'];

// Of parsed metrics: what each worker has. The names are addresses, without quotes.
export function workersOf(metrics) {
  const out = [];
  for (const [key, up] of metrics) {
    const m = /^sluice_worker_up\{worker="([^"]*)"\}$/.exec(key);
    if (!m) continue;
    const v = (name) => metrics.get(`sluice_worker_${name}{worker="${m[1]}"}`) || 0;
    out.push({ name: m[1], up: up === 1, losses: v('losses_total'), trip: v('round_trip_seconds'), sent: v('sent_bytes'), received: v('received_bytes'), queued: v('queued_bytes') });
  }
  return out;
}

// Bytes per second of the present link; a link that is new begins at 0.
export const linkRate = (now, from, seconds) => (seconds > 0 ? Math.max(0, now >= from ? now - from : now) / seconds : 0);

// devices: of /v1/sluice/machine; a worker's are named by its address and what they are.
export function showWorkers(table, now, from, devices, { percent, bytes, perSecond }) {
  const s = now.t - from.t;
  const before = new Map(from.workers.map((w) => [w.name, w]));
  const of = (name) => devices.map((d, i) => i).filter((i) => (name === null ? !now.workers.some((w) => devices[i].name.startsWith(`${w.name} `)) : devices[i].name.startsWith(`${name} `)));
  // Of a machine with several devices: the busiest.
  const share = (list, key) => (s > 0 && list.length ? percent(Math.min(1, Math.max(...list.map((i) => (now.stages[i][key] - (from.stages[i]?.[key] ?? 0)) / s)))) : '–');
  const layers = (list) => list.map((i) => `${devices[i].first_layer}–${devices[i].first_layer + devices[i].layers - 1}`).join(', ') || '–';
  const common = (list) => [layers(list), share(list, 'busy'), share(list, 'stall')];
  const columns = [['this machine', 'up', ...common(of(null)), '–', '–', '–', '–']];
  for (const w of now.workers) {
    const was = before.get(w.name) ?? w, lost = w.losses ? `, lost ${w.losses === 1 ? 'once' : `${w.losses} times`}` : '';
    columns.push([w.name, (w.up ? 'up' : 'lost') + (w.up ? lost : ''), ...common(of(w.name)), w.up ? `${(1000 * w.trip).toFixed(w.trip < 0.01 ? 2 : 0)} ms` : '–',
      perSecond(linkRate(w.sent, was.sent, s)), perSecond(linkRate(w.received, was.received, s)), bytes(w.queued)]);
  }
  const line = (i) => {
    const tr = make('tr');
    [ROWS[i], ...columns.map((c) => c[i])].forEach((text, k) => {
      const cell = make(i && k ? 'td' : 'th', '', text);
      if (cell.tagName === 'TH') cell.scope = i ? 'row' : 'col';
      if (!i && k) cell.title = text;
      if (i === 1 && text === 'lost') cell.className = 'error';
      tr.append(cell);
    });
    return tr;
  };
  const head = make('thead'), body = make('tbody');
  head.append(line(0));
  body.append(...ROWS.map((_, i) => i).slice(1).map(line));
  table.replaceChildren(head, body);
}
