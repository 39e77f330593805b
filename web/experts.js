// The map of experts: a row is a layer, a cell an expert, coloured by where it is, the brighter the
// likelier its layer uses it next.

import { get } from './api.js';

const $ = (id) => document.getElementById(id);
const canvas = $('map'), box = $('map-box'), cellText = $('map-cell');
const still = matchMedia('(prefers-reduced-motion: reduce)');

const DIGITS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';
const HEAT_OF = new Map([...DIGITS].map((c, i) => [c, i]));
const TOP = DIGITS.length - 1;
const REST = 'Point at a cell to learn about its expert, or move over the cells with the arrow keys.';
const LONGEST = 380; // css pixels that the map may be high, where there is a choice

export const TIERS = [
  { key: 'device', digit: '2', name: 'GPU memory', where: 'in GPU memory' },
  { key: 'host', digit: '1', name: 'RAM', where: 'in RAM' },
  { key: 'disk', digit: '0', name: 'disk', where: 'on disk' },
];
const BY_DIGIT = new Map(TIERS.map((t) => [t.digit, t]));

let shape = null;  // of /v1/sluice/machine
let layers = [];   // of /v1/sluice/experts
let before = null; // the tiers that were shown last, by layer
let come = new Set(); // cells whose expert is nearer than it was
let grid = null;
let cursor = null; // { row, col }: layer and expert
let palette = null;

const count = (n) => n.toLocaleString('en');

// ---------------------------------------------------------------- colours

function rgb(text) {
  const n = parseInt(text.trim().slice(1), 16);
  return [n >> 16, (n >> 8) & 255, n & 255];
}

function readColours() {
  const css = getComputedStyle(document.documentElement);
  const empty = rgb(css.getPropertyValue('--cell'));
  const mix = (to, t) => `rgb(${empty.map((v, i) => Math.round(v + (to[i] - v) * t)).join(' ')})`;
  palette = new Map(TIERS.map(({ key, digit }) => {
    const full = rgb(css.getPropertyValue(`--${key}`));
    return [digit, Array.from({ length: TOP + 1 }, (_, h) => mix(full, shape.heat ? 0.2 + 0.8 * (h / TOP) ** 0.75 : 0.75))];
  }));
  palette.flash = css.getPropertyValue('--flash');
  palette.change = css.getPropertyValue('--change');
  palette.accent = css.getPropertyValue('--accent');
}

// ---------------------------------------------------------------- layout

// Cells as large as the width allows: a layer takes several lines where they would be too small to
// see, and layers stand beside each other where experts are few.
function layOut() {
  const scale = devicePixelRatio || 1;
  const width = Math.floor(box.clientWidth * scale);
  if (!width || !layers.length) return null;
  const n = shape.per_layer, least = 3 * Math.max(1, scale / 1.5), most = 26 * scale;
  let lines = 1, across = 1, cell = 0;
  while (lines < n && width / Math.ceil(n / lines) < least) lines++;
  const perLine = Math.ceil(n / lines);
  const fit = (a) => Math.min(most, Math.floor((width - (a - 1) * 8 * scale) / (a * perLine)));
  const height = (a, c) => Math.ceil(layers.length / a) * lines * c;
  cell = fit(1);
  while (lines === 1 && across < layers.length && height(across, cell) > LONGEST * scale && fit(across + 1) >= cell * 0.75) cell = fit(++across);
  cell = Math.max(1, Math.floor(cell));
  const rows = Math.ceil(layers.length / across);
  const space = Math.round(8 * scale);
  return { scale, cell, lines, perLine, across, rows, space, gap: cell >= 5 * Math.max(1, scale / 2) ? Math.max(1, Math.round(scale / 2)) : 0,
    width: across * perLine * cell + (across - 1) * space, height: rows * lines * cell };
}

function placeOf(row, col) {
  const g = grid, column = Math.floor(row / g.rows);
  return { x: column * (g.perLine * g.cell + g.space) + (col % g.perLine) * g.cell,
    y: (row % g.rows) * g.lines * g.cell + Math.floor(col / g.perLine) * g.cell };
}

function cellAt(event) {
  const g = grid, r = canvas.getBoundingClientRect();
  const x = (event.clientX - r.left) * g.scale, y = (event.clientY - r.top) * g.scale;
  const column = Math.floor(x / (g.perLine * g.cell + g.space));
  const line = Math.floor(y / g.cell), inLine = Math.floor((x - column * (g.perLine * g.cell + g.space)) / g.cell);
  const row = column * g.rows + Math.floor(line / g.lines), col = (line % g.lines) * g.perLine + inLine;
  if (inLine < 0 || inLine >= g.perLine || line < 0 || row < 0 || row >= layers.length || col >= layers[row].tiers.length) return null;
  return { row, col };
}

// ---------------------------------------------------------------- drawing

function draw(flash) {
  if (!shape || !layers.length) return;
  grid = layOut();
  if (!grid) return;
  if (!palette) readColours();
  if (canvas.width !== grid.width || canvas.height !== grid.height) {
    canvas.width = grid.width;
    canvas.height = grid.height;
    canvas.style.width = `${grid.width / grid.scale}px`;
    canvas.style.height = `${grid.height / grid.scale}px`;
  }
  const c = canvas.getContext('2d');
  c.clearRect(0, 0, canvas.width, canvas.height);
  const side = grid.cell - grid.gap, edge = Math.max(1, Math.round(grid.cell / 11));
  const hottest = Math.max(16, ...layers.map((l) => Math.max(...[...l.heat].map((d) => HEAT_OF.get(d))))); // colours are relative to it
  layers.forEach((l, row) => {
    for (let col = 0; col < l.tiers.length; col++) {
      const { x, y } = placeOf(row, col);
      c.fillStyle = palette.get(l.tiers[col])[Math.round(HEAT_OF.get(l.heat[col]) * TOP / hottest)];
      c.fillRect(x, y, side, side);
      if (flash && come.has(row * shape.per_layer + col)) {
        c.strokeStyle = palette.change;
        c.lineWidth = edge;
        c.strokeRect(x + edge / 2, y + edge / 2, side - edge, side - edge);
      }
    }
  });
  if (cursor) {
    const { x, y } = placeOf(cursor.row, cursor.col), w = Math.max(2, grid.scale * 1.5);
    c.strokeStyle = palette.flash;
    c.lineWidth = w;
    c.strokeRect(x - w / 2, y - w / 2, side + w, side + w);
  }
}

function describe() {
  if (!cursor || !layers[cursor.row]) { cellText.textContent = REST; return; }
  const l = layers[cursor.row];
  const p = (HEAT_OF.get(l.heat[cursor.col]) / TOP) ** 2 * 100;
  const heat = shape.heat ? ` Probability that the next token uses it: ${p < 1 ? 'below 1' : Math.round(p)} %.` : '';
  cellText.textContent = `Layer ${l.layer}, expert ${cursor.col}: ${BY_DIGIT.get(l.tiers[cursor.col]).where}.${heat}`;
}

function sums() {
  const n = { device: 0, host: 0, disk: 0 };
  for (const l of layers) for (const d of l.tiers) n[BY_DIGIT.get(d).key]++;
  return n;
}

function showSums() {
  const n = sums(), all = n.device + n.host + n.disk;
  const parts = TIERS.filter((t) => n[t.key] || (t.key === 'disk' && shape.streamed)).map((t) => `${count(n[t.key])} ${t.where}`);
  $('experts-sum').textContent = `${count(all)} in ${layers.length} layers: ${parts.join(', ')}`;
  canvas.setAttribute('aria-label', `Map of ${count(all)} experts in ${layers.length} layers: ${parts.join(', ')}`);
  const resident = all > 0 && !shape.streamed;
  $('resident').hidden = !resident;
  if (resident) $('resident').textContent = `All ${count(all)} experts are resident ${BY_DIGIT.get(n.device ? '2' : '1').where}: nothing is read from disk, and no heat is kept.`;
}

function cellOf(name, text, scope) {
  const e = document.createElement(name);
  e.textContent = text;
  if (scope) e.scope = scope;
  return e;
}

function showTable() {
  if (!$('map-table-box').open) return;
  const shown = TIERS.filter((t) => t.key !== 'device' || sums().device);
  const head = document.createElement('thead'), rows = document.createElement('tbody'), tr = document.createElement('tr');
  for (const name of ['Layer', ...shown.map((t) => t.name), ...(shape.heat ? ['Hottest expert'] : [])]) tr.append(cellOf('th', name, 'col'));
  head.append(tr);
  for (const l of layers) {
    const r = document.createElement('tr');
    r.append(cellOf('th', l.layer, 'row'));
    for (const t of shown) r.append(cellOf('td', l.tiers.split(t.digit).length - 1));
    if (shape.heat) {
      let hot = 0;
      for (let i = 1; i < l.heat.length; i++) if (HEAT_OF.get(l.heat[i]) > HEAT_OF.get(l.heat[hot])) hot = i;
      r.append(cellOf('td', `${hot} (${BY_DIGIT.get(l.tiers[hot]).name})`));
    }
    rows.append(r);
  }
  $('map-table').replaceChildren(head, rows);
}

function showLegend() {
  const shown = TIERS.filter((t) => (t.key === 'device' ? shape.computing === 'device' : t.key === 'host' || shape.streamed));
  $('map-legend').replaceChildren(...shown.map((t) => {
    const li = document.createElement('li'), ramp = document.createElement('i');
    const p = palette.get(t.digit);
    ramp.className = 'ramp';
    ramp.style.background = `linear-gradient(to right, ${p[0]}, ${p[TOP >> 2]}, ${p[TOP]})`;
    li.append(ramp, `${t.name}${shape.heat ? ', cold to hot' : ''}`);
    return li;
  }));
}

// ---------------------------------------------------------------- moving over it

const MOVES = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0], PageUp: [-8, 0], PageDown: [8, 0] };

function onKey(e) {
  if (!layers.length) return;
  const at = cursor || { row: 0, col: 0 };
  if (e.key === 'Home') cursor = { row: at.row, col: 0 };
  else if (e.key === 'End') cursor = { row: at.row, col: layers[at.row].tiers.length - 1 };
  else if (MOVES[e.key]) {
    const [down, right] = cursor ? MOVES[e.key] : [0, 0];
    const row = Math.min(layers.length - 1, Math.max(0, at.row + down));
    cursor = { row, col: Math.min(layers[row].tiers.length - 1, Math.max(0, at.col + right)) };
  } else return;
  e.preventDefault();
  draw();
  describe();
}

function onPointer(e) {
  if (!grid) return;
  const at = cellAt(e);
  if (at && cursor && at.row === cursor.row && at.col === cursor.col) return;
  cursor = at;
  draw();
  describe();
}

// ---------------------------------------------------------------- news

const isShown = () => document.visibilityState === 'visible' && box.offsetParent !== null;

function take(data) {
  come = new Set();
  if (before && before.length === data.layers.length)
    data.layers.forEach((l, row) => {
      if (l.tiers !== before[row]) for (let i = 0; i < l.tiers.length; i++) if (l.tiers[i] > before[row][i]) come.add(row * shape.per_layer + i);
    });
  before = data.layers.map((l) => l.tiers);
  layers = data.layers;
  const flash = come.size > 0 && !still.matches;
  draw(flash);
  if (flash) setTimeout(draw, 400);
  showSums();
  showTable();
  describe();
}

// Looks every second while it is on the screen; what cannot move is looked at once.
async function poll() {
  let next = 1000;
  try {
    if (isShown()) {
      take(await get('v1/sluice/experts'));
      if (!shape.streamed) next = 30000;
    }
  } catch { next = 3000; /* the machine's own poll tells */ }
  setTimeout(poll, next);
}

export function startExperts(experts) {
  shape = experts;
  if (!shape.layers) return;
  readColours();
  showLegend();
  canvas.addEventListener('keydown', onKey);
  canvas.addEventListener('pointermove', onPointer);
  canvas.addEventListener('pointerdown', onPointer);
  canvas.addEventListener('pointerleave', () => { if (document.activeElement !== canvas) { cursor = null; draw(); describe(); } });
  canvas.addEventListener('focus', () => { if (!cursor) { cursor = { row: 0, col: 0 }; draw(); describe(); } });
  canvas.addEventListener('blur', () => { cursor = null; draw(); describe(); });
  $('map-table-box').addEventListener('toggle', showTable);
  new ResizeObserver(() => draw()).observe(box);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { readColours(); showLegend(); draw(); });
  poll();
}
