// Conversations in headless Chromium, against the real binary with the demo model: history, branches,
// files, settings, the context, and other machines.
import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { missing, Server } from '../http/server.mjs';
import { Browser, missingBrowser, NEVER_MS } from './chromium.mjs';
import { contrastProblems, labelProblems } from './checks.mjs';

const skip = missing || missingBrowser;
// The pages of a test that failed would go on asking, and slow the next.
const it = (name, run) => test(name, { skip }, async () => { try { await run(); } finally { await browser.closePages(); } });
// `make test` leaves these to `make test-browser`.
const more = process.env.BROWSER_QUICK ? () => {} : it;
const shots = process.env.SCREENSHOTS;
const server = skip ? null : await Server.start(['--parallel', '2']);
const browser = skip ? null : await Browser.launch();

const ready = 'document.getElementById("state").textContent === "ready" && !document.getElementById("history-open").disabled && document.getElementById("set-top_p").placeholder === "1"';
const idle = 'document.getElementById("send").textContent === "Send"';
const turns = '[...document.querySelectorAll(".turn.user, .turn.assistant .body")].map((e) => e.textContent.replace("You: ", ""))';

async function open(options = {}, url = server.url) {
  const p = await browser.page(options);
  await p.open(`${url}/`);
  await p.until(ready);
  return p;
}
async function ask(p, text) {
  const n = await p.run('document.querySelectorAll(".turn").length');
  await p.click('#prompt');
  await p.type(text);
  await p.key('Enter');
  await p.until(`${idle} && document.querySelectorAll(".turn").length === ${n + 2} && document.querySelectorAll(".turn.assistant .retry").length === ${n / 2 + 1}`);
}
async function fill(p, selector, text) {
  await p.click(selector);
  await p.run((s) => document.querySelector(s).select(), selector);
  await p.type(text);
}
const done = async (p) => { assert.deepEqual(p.problems, []); await p.close(); };
const capture = (p) => p.run(() => {
  const real = window.fetch;
  window.sent = [];
  window.fetch = (to, o) => { if (o?.body) window.sent.push(JSON.parse(o.body)); return real(to, o); };
});

it('keeps conversations over a reload, and finds, renames and deletes them', async () => {
  const p = await open();
  await ask(p, 'What is 2 + 2?');
  const said = await p.run(turns);
  assert.match(said[1], /4/);
  await p.open(`${server.url}/`);
  await p.until(`${ready} && document.querySelectorAll(".turn").length === 2`);
  assert.deepEqual(await p.run(turns), said);
  assert.match(await p.text('.note'), /tokens/);
  await p.click('#new-chat');
  await ask(p, 'What is 5 + 6?');
  await p.click('#history-open');
  const names = '[...document.querySelectorAll("#chats .name")].map((e) => e.textContent)';
  await p.until('document.getElementById("drawer").open');
  assert.deepEqual(await p.run(names), ['What is 5 + 6?', 'What is 2 + 2?']);
  assert.deepEqual(await p.run(labelProblems), []);
  await fill(p, '#chat-search', '2 + 2');
  await p.until(`${names}.length === 1`);
  // A name of markup is a name.
  await p.click('#chats .tools button');
  await fill(p, '.rename input', '<img src=x onerror=alert(1)>');
  await p.key('Enter');
  await fill(p, '#chat-search', 'onerror');
  await p.until(`${names}[0] === "<img src=x onerror=alert(1)>"`);
  await p.click('#chats .open');
  await p.until('!document.getElementById("drawer").open');
  assert.deepEqual(await p.run(turns), said);
  await p.click('#history-open');
  await p.click('#chats li[data-id] .tools button:last-child');
  await p.until(`${names}.length === 1`);
  await p.click('#drawer-said button'); // undone
  await p.until(`${names}.length === 2`);
  await p.click('#delete-all');
  await p.click('#drawer-said button');
  await p.until(`${names}.length === 0`);
  await p.key('Escape');
  await p.open(`${server.url}/`);
  await p.until(ready);
  assert.deepEqual(await p.run(turns), []);
  await p.click('#history-open');
  assert.deepEqual(await p.run(names), []);
  await done(p);
});

// As on a machine so busy that the page has ended before the disk got anything of it.
const stuck = (p) => p.run(() => {
  const request = () => ({});
  IDBDatabase.prototype.transaction = () => ({ objectStore: () => ({ get: request, put: request, delete: request, clear: request }) });
});

it('keeps an answer over a reload directly after it, and what was deleted stays so', async () => {
  const p = await open();
  const names = '[...document.querySelectorAll("#chats .name")].map((e) => e.textContent)';
  await stuck(p);
  await ask(p, 'What is 8 + 1?');
  const said = await p.run(turns);
  await p.open(`${server.url}/`);
  await p.until(ready);
  assert.deepEqual(await p.run(turns), said);
  await p.until('Object.keys(localStorage).every((k) => !k.startsWith("sluice.unsaved"))'); // the disk has it now
  await stuck(p);
  await p.click('#history-open');
  await p.until(`${names}.length === 1`);
  await p.click('#chats .tools button:last-child');
  await p.open(`${server.url}/`);
  await p.until(ready);
  await p.click('#history-open');
  assert.deepEqual(await p.run(names), []);
  await p.until('Object.keys(localStorage).every((k) => !k.startsWith("sluice.unsaved"))');
  await done(p);
});

it('keeps the part of an answer that had come when the page was closed', async () => {
  const p = await open();
  await p.run(() => {
    const real = window.fetch;
    window.fetch = (to, o) => to !== 'v1/chat/completions' ? real(to, o) : Promise.resolve(new Response(new ReadableStream({ start(s) {
      const delta = (d) => s.enqueue(new TextEncoder().encode(`data: ${JSON.stringify({ choices: [{ index: 0, delta: d, finish_reason: null }] })}\n\n`));
      delta({ reasoning_content: 'Hm.' });
      delta({ content: 'Half an **ans' });
    } }), { status: 200 })); // and it never ends
  });
  await stuck(p);
  await p.click('#prompt');
  await p.type('Well?');
  await p.key('Enter');
  await p.until('document.querySelector(".turn.assistant .body")?.textContent.includes("Half an")');
  await p.open(`${server.url}/`);
  await p.until(`${ready} && document.querySelectorAll(".turn").length === 2`);
  assert.deepEqual(await p.run(turns), ['Well?', 'Half an **ans']);
  assert.equal(await p.text('.note'), 'the page was closed before the end');
  assert.equal(await p.run('document.querySelector(".thoughts").textContent'), 'Hm.');
  await p.click('.retry'); // of the real server
  await p.until(`${idle} && document.querySelector(".branches span")?.textContent === "2/2"`);
  await p.until('document.querySelector(".turn.assistant .note")?.textContent.includes("token")');
  await done(p);
});

more('keeps what two tabs add to one conversation', async () => {
  const p = await open();
  const said = await p.run(async () => {
    const { DiskBackend, History } = await import('/dashboard/history.js');
    const { addNode, newChat } = await import('/dashboard/conversation.js');
    const open = async () => { const h = new History(await DiskBackend.open()); await h.read(); return h; };
    const one = await open(), c = newChat();
    addNode(c, null, 'user', 'both');
    await one.save(c);
    const two = await open();
    addNode(c, null, 'user', 'one');
    await one.save(c);
    const copy = two.get(c.id);
    addNode(copy, null, 'user', 'two');
    await two.save(copy);
    return (await open()).get(c.id).nodes.map((n) => n.content).sort();
  });
  assert.deepEqual(said, ['both', 'one', 'two']);
  await done(p);
});

it('branches at an edited message and at another answer', async () => {
  const p = await open();
  await capture(p);
  await ask(p, 'What is 1 + 1?');
  await ask(p, 'What is 2 + 3?');
  const first = await p.run(turns);
  await p.click('.mine:last-of-type .edit-open, .mine .edit-open'); // the first message
  await p.until('document.activeElement.closest(".edit")');
  await p.key('Escape');
  await p.until('document.activeElement.className === "edit-open"');
  await p.key('Enter');
  await p.until('document.activeElement.closest(".edit")');
  await p.run('document.activeElement.select()');
  await p.type('What is 7 + 8?');
  await p.key('Enter');
  await p.until(`${idle} && document.querySelector(".turn.assistant .retry")`);
  assert.deepEqual((await p.run('window.sent.at(-1).messages')).map((m) => m.content), ['What is 7 + 8?']);
  assert.match((await p.run(turns))[1], /15/);
  assert.equal(await p.text('.branches span'), '2/2');
  await p.click('.branches button');
  assert.deepEqual(await p.run(turns), first);
  assert.equal(await p.text('.branches span'), '1/2');
  await p.click('.retry:last-child'); // of the first answer
  await p.until(`${idle} && document.querySelectorAll(".branches").length === 2`);
  assert.equal((await p.run(turns)).length, 2);
  await p.until('[...document.querySelectorAll(".branches span")].every((e, i) => e.textContent === ["1/2", "2/2"][i])');
  // The branches are there after a reload, and so is the one that was shown.
  const shown = await p.run(turns);
  await p.open(`${server.url}/`);
  await p.until(`${ready} && document.querySelectorAll(".branches").length === 2`);
  assert.deepEqual(await p.run(turns), shown);
  await p.click('.assistant .branches button');
  assert.deepEqual(await p.run(turns), first);
  await done(p);
});

it('writes conversations to files, and reads them again', async () => {
  const p = await open();
  const folder = mkdtempSync(path.join(tmpdir(), 'sluice-files-'));
  await browser.send('Browser.setDownloadBehavior', { behavior: 'allow', downloadPath: folder, browserContextId: p.context });
  const file = async (ending) => {
    let name;
    await server.until(`a file .${ending}`, NEVER_MS, () => (name = readdirSync(folder).find((f) => f.endsWith(`.${ending}`))) !== undefined);
    return readFileSync(path.join(folder, name), 'utf8');
  };
  await ask(p, 'What is 3 + 3?');
  await p.click('#history-open');
  await p.click('#chats .tools button:nth-child(2)');
  assert.match(await file('md'), /^# What is 3 \+ 3\?\n\n## You\n\nWhat is 3 \+ 3\?\n\n## Model\n\n/);
  await p.click('#export-all');
  const json = JSON.parse(await file('json'));
  assert.equal(json.conversations[0].nodes.length, 2);
  const { root } = await p.send('DOM.getDocument');
  const { nodeId } = await p.send('DOM.querySelector', { nodeId: root.nodeId, selector: '#import-file' });
  const bring = async (text, want) => {
    const from = path.join(folder, 'in.txt');
    writeFileSync(from, text);
    await p.send('DOM.setFileInputFiles', { nodeId, files: [from] });
    await p.until(`${JSON.stringify(want)} === document.getElementById("drawer-said").textContent`);
  };
  await bring('{', 'Not imported: the file is not JSON.');
  await bring(JSON.stringify(json), 'All conversations in the file are already here.');
  json.conversations[0].nodes[0].content = '<b>other</b>';
  json.conversations[0].title = 'from elsewhere';
  await bring(JSON.stringify(json), 'Imported 1 conversation.');
  await p.until('document.querySelectorAll("#chats li").length === 2');
  rmSync(folder, { recursive: true });
  await done(p);
});

it('checks settings and sends them, and goes back to the defaults', async () => {
  const p = await open();
  await capture(p);
  await p.click('#settings-toggle');
  await fill(p, '#set-top_p', '1.5');
  await p.click('#prompt');
  await p.type('What is 1 + 3?');
  await p.key('Enter');
  await p.until('document.activeElement.id === "set-top_p"');
  assert.equal(await p.text('#bad-top_p'), 'Top p must be from 0 to 1.');
  assert.equal(await p.run('document.getElementById("prompt").value'), 'What is 1 + 3?');
  assert.deepEqual(await p.run('window.sent'), []);
  for (const [id, text] of [['top_p', '0.9'], ['top_k', '40'], ['min_p', '0.05'], ['seed', '7'], ['temperature', '0.3'], ['max_tokens', '50'], ['reasoning_budget', '64']]) await fill(p, `#set-${id}`, text);
  await p.run(() => { const s = document.getElementById('set-thinking'); s.value = 'off'; s.dispatchEvent(new Event('change')); });
  await p.click('#send');
  await p.until(`${idle} && document.querySelector(".retry")`);
  const { messages: _, ...rest } = await p.run('window.sent[0]');
  assert.deepEqual(rest, { stream: true, stream_options: { include_usage: true }, temperature: 0.3, top_p: 0.9, top_k: 40, min_p: 0.05, seed: 7, max_tokens: 50, reasoning_budget: 64,
    chat_template_kwargs: { enable_thinking: false, thinking: false } });
  assert.equal(await p.run('document.querySelector(".problem")'), null); // the server takes all of it
  await p.open(`${server.url}/`);
  await p.until(ready);
  assert.equal(await p.run('document.getElementById("set-seed").value'), '7');
  await p.click('#settings-toggle');
  await p.click('#settings-reset');
  assert.deepEqual(await p.run('[...document.querySelectorAll("#settings input, #settings select")].map((e) => e.value).filter(Boolean)'), []);
  await done(p);
});

it('tells how full the context is', async () => {
  const p = await open();
  await ask(p, 'What is 4 + 4?');
  assert.match(await p.text('#gauge-text'), /^\d+ of 1,024 tokens of context$/);
  const kinds = await p.run(async () => {
    const { show } = await import('/dashboard/gauge.js');
    return [100, 900, 1024].map((n) => { show(n); const e = document.getElementById('gauge'); return [e.dataset.kind, document.getElementById('gauge-text').textContent]; });
  });
  assert.deepEqual(kinds.map((k) => k[0]), ['', 'warn', 'full']);
  assert.match(kinds[1][1], /124 are left/);
  assert.match(kinds[2][1], /it is full/);
  await done(p);
});

it('goes on where the browser keeps nothing', async () => {
  const p = await browser.page({});
  await p.send('Page.addScriptToEvaluateOnNewDocument', { source: `
    for (const name of ['indexedDB', 'localStorage', 'sessionStorage'])
      Object.defineProperty(window, name, { get() { throw new DOMException('no', 'SecurityError'); } });` });
  await p.open(`${server.url}/`);
  await p.until(ready);
  assert.match(await p.text('#notice'), /stores nothing for this page \(SecurityError\)/);
  await p.click('#notice button');
  await ask(p, 'What is 2 + 1?');
  await p.click('#history-open');
  await p.until('document.querySelectorAll("#chats li").length === 1');
  await done(p);
});

it('keeps the focus where the keyboard was', async () => {
  const p = await open();
  const focus = () => p.run('document.activeElement.getAttribute("aria-label") || document.activeElement.id || document.activeElement.className');
  await ask(p, 'What is 1 + 2?');
  await p.click('.retry');
  await p.until(`${idle} && document.querySelector(".branches span")?.textContent === "2/2"`);
  await p.click('.branches button');
  assert.equal(await focus(), 'Later version'); // there is no earlier one to go on to
  await p.key('Enter');
  await p.until('document.querySelector(".branches span").textContent === "2/2"');
  assert.equal(await focus(), 'Earlier version');
  await p.click('#history-open');
  await p.click('#chats .tools button');
  await p.key('Escape');
  await p.until('!document.querySelector(".rename")');
  assert.equal(await focus(), 'open');
  assert.ok(await p.run('document.getElementById("drawer").open'));
  await p.click('#delete-all');
  await p.key('Tab');
  await p.key('Enter'); // kept
  await p.until('!document.querySelector("#drawer-said button")');
  assert.equal(await focus(), 'delete-all');
  await p.click('#chats .tools button:last-child');
  await p.until('document.querySelector("#drawer-said button")');
  assert.equal(await focus(), 'chat-search');
  await p.click('#drawer-said button');
  await p.until('document.querySelector("#chats .open")');
  assert.equal(await focus(), 'open');
  await done(p);
});

it('refuses what could not be read again', async () => {
  const p = await open();
  await p.run(async () => { (await import('/dashboard/conversation.js')).LIMITS.text = 10; });
  await p.click('#prompt');
  await p.type('more than ten characters');
  await p.key('Enter');
  assert.match(await p.text('#notice'), /^A message can have at most 10 characters; this one has 24\./);
  assert.equal(await p.run('document.getElementById("prompt").value'), 'more than ten characters');
  assert.deepEqual(await p.run(turns), []);
  // Nor is an answer kept that is longer.
  await p.run(() => {
    const real = window.fetch;
    window.fetch = (to, o) => to !== 'v1/chat/completions' ? real(to, o) : Promise.resolve(new Response(new ReadableStream({ start(s) {
      s.enqueue(new TextEncoder().encode(`data: ${JSON.stringify({ choices: [{ delta: { content: 'x'.repeat(40) } }] })}\n\n`)); // and more would come
    }, cancel() { window.canceled = true; } }), { status: 200 }));
  });
  await p.run('document.getElementById("prompt").select()');
  await p.type('short');
  await p.key('Enter');
  await p.until(`${idle} && document.querySelector(".problem")`);
  assert.match(await p.text('.problem'), /^the answer is longer than this page keeps: 10 characters/);
  assert.equal(await p.run('window.canceled'), true);
  await done(p);
});

more('colours code, as text alone, and holds a megabyte of it', async () => {
  const p = await open();
  const r = await p.run(async () => {
    const { render } = await import('/dashboard/markdown.js');
    const e = document.createElement('div');
    e.className = 'body';
    document.getElementById('log').append(e);
    const text = 'const a = "<img src=x onerror=window.hit=1>"; // <script>\n';
    render(e, `\`\`\`js\n${text}\`\`\`\n\n\`\`\`diff\n+a\n-b\n\`\`\`\n\n\`\`\`html\n<b class="x">\n\`\`\``);
    const out = { kinds: [...e.querySelectorAll('code span')].map((s) => s.className), text: e.querySelector('code').textContent, tags: [...new Set([...e.querySelectorAll('code *')].map((x) => x.tagName))] };
    const big = document.createElement('div');
    const code = text.repeat(Math.ceil(2 ** 20 / text.length));
    render(big, `\`\`\`js\n${code}\`\`\``);
    return { ...out, same: big.querySelector('code').textContent === code.trimEnd(), spans: big.querySelectorAll('code span').length, hit: window.hit };
  });
  assert.deepEqual(r.kinds, ['h-k', 'h-s', 'h-c', 'h-add', 'h-del', 'h-t', 'h-a', 'h-s', 'h-t']);
  assert.equal(r.text, 'const a = "<img src=x onerror=window.hit=1>"; // <script>');
  assert.deepEqual(r.tags, ['SPAN']);
  assert.ok(r.same && r.spans > 1000 && r.spans <= 20000, JSON.stringify(r.spans));
  assert.deepEqual(await p.run(contrastProblems), []);
  await p.media({ dark: true });
  assert.deepEqual(await p.run(contrastProblems), []);
  await done(p);
});

it('fits a phone whatever the server says', async () => {
  const proxy = http.createServer(async (q, r) => {
    if (q.url === '/health') { r.end(JSON.stringify({ status: 'error', error: `the model could not be loaded: ${'x'.repeat(300)} <b>` })); return; }
    const from = await fetch(server.url + q.url);
    r.writeHead(from.status, { 'content-type': from.headers.get('content-type') ?? 'text/plain' });
    r.end(Buffer.from(await from.arrayBuffer()));
  });
  await new Promise((listening) => proxy.listen(0, '127.0.0.1', listening));
  proxy.unref();
  const p = await browser.page({ width: 360, height: 740, mobile: true });
  await p.open(`http://127.0.0.1:${proxy.address().port}/`);
  await p.until('document.getElementById("state").dataset.state === "error"');
  await p.run(() => { document.getElementById('key-open').hidden = false; document.getElementById('model').textContent = '<b>name</b>'.repeat(40); });
  assert.deepEqual(await p.run(() => [...document.querySelectorAll('body *')].filter((e) => e.getClientRects().length && e.getBoundingClientRect().right > innerWidth + 0.5 && !e.closest('.hidden')).map((e) => e.id || e.className)), []);
  // No button's text is broken into letters.
  assert.deepEqual(await p.run(() => [...document.querySelectorAll('.top button')].filter((e) => e.offsetHeight > 50).map((e) => e.textContent)), []);
  assert.ok(await p.run('document.querySelector(".top").offsetHeight < 180'));
  await done(p);
  proxy.closeAllConnections();
  proxy.close();
});

for (const dark of [false, true])
  (dark ? it : more)(`the drawer, settings and branches fit a phone: ${dark ? 'dark' : 'light'}`, async () => {
    const p = await open({ width: 360, height: 740, mobile: true, dark });
    await ask(p, 'What is 6 + 1?');
    await p.click('.retry');
    await p.until(`${idle} && document.querySelector(".branches")`);
    const fits = async () => {
      assert.deepEqual(await p.run(() => [...document.querySelectorAll('body *')].filter((e) => e.getClientRects().length && e.getBoundingClientRect().right > innerWidth + 0.5 && !e.closest('.code, .wrap, .scroll, .hidden')).map((e) => e.id || e.className)), []);
      assert.deepEqual(await p.run(contrastProblems), []);
      assert.deepEqual(await p.run(labelProblems), []);
    };
    await fits();
    await p.click('#settings-toggle');
    await fill(p, '#set-top_k', 'many');
    await p.click('#set-seed');
    await p.until('!document.getElementById("bad-top_k").hidden');
    await fits();
    await p.click('#settings-toggle');
    await p.click('.edit-open');
    await fits();
    await p.click('#history-open');
    await fits();
    if (shots) await p.screenshot(`${shots}/dashboard-history.png`);
    await p.click('#chats .tools button');
    await fits();
    await done(p);
  });

it('shows machines, a column each', async () => {
  const devices = [{ name: 'cpu: here', first_layer: 0, layers: 3 }, { name: 'b:7070 A GPU', first_layer: 3, layers: 5 }].map((d) => ({ budget_bytes: 0, total_bytes: 0, device_slots: 0, host_slots: 0, ...d }));
  const began = performance.now();
  const proxy = http.createServer(async (q, r) => {
    const from = await fetch(server.url + q.url);
    let body = Buffer.from(await from.arrayBuffer());
    if (q.url === '/v1/sluice/machine') body = JSON.stringify({ ...JSON.parse(body), devices });
    const s = (performance.now() - began) / 1000;
    if (q.url === '/metrics') body = `${body}sluice_worker_up{worker="b:7070"} 1\nsluice_worker_losses_total{worker="b:7070"} 2\nsluice_worker_round_trip_seconds{worker="b:7070"} 0.00025
sluice_worker_sent_bytes{worker="b:7070"} ${1e7 * s}\nsluice_worker_received_bytes{worker="b:7070"} ${3e7 * s}\nsluice_worker_queued_bytes{worker="b:7070"} 2048
sluice_stage_busy_seconds_total{stage="2",device="b:7070 A GPU"} ${s / 2}\nsluice_worker_up{worker="c:7070"} 0\nsluice_worker_losses_total{worker="c:7070"} 1\n`;
    r.writeHead(from.status, { 'content-type': from.headers.get('content-type') ?? 'text/plain' });
    r.end(body);
  });
  await new Promise((listening) => proxy.listen(0, '127.0.0.1', listening));
  proxy.unref();
  const p = await open({}, `http://127.0.0.1:${proxy.address().port}`);
  const columns = '((rows) => [...(rows[0]?.cells ?? [])].map((_, k) => rows.map((r) => r.cells[k].textContent)))([...document.querySelectorAll("#machines tr")])';
  await p.until(`${columns}[2] && !/^0/.test(${columns}[2][6])`);
  const [names, here, b, c] = await p.run(columns);
  assert.deepEqual(names.slice(0, 3), ['Machine', 'State', 'Layers']);
  assert.deepEqual(here.slice(0, 3), ['this machine', 'up', '0–2']);
  assert.deepEqual(b.slice(0, 3), ['b:7070', 'up, lost 2 times', '3–7']);
  assert.match(b[3], /^[1-9]\d* %$/);
  assert.equal(b[5], '0.25 ms');
  assert.match(b[6], /^[\d.]+ MB\/s$/);
  assert.equal(b[8], '2.0 KiB');
  assert.deepEqual(c.slice(0, 3), ['c:7070', 'lost', '–']);
  assert.deepEqual(await p.run(labelProblems), []);
  await done(p);
  const plain = await open();
  await plain.until('document.getElementById("memory").rows.length > 4');
  assert.equal(await plain.run('document.getElementById("card-machines").hidden'), true);
  await done(plain);
  proxy.closeAllConnections();
  proxy.close();
});

test('stops cleanly', { skip }, async () => {
  await browser.close();
  await server.stop();
});
