// The dashboard in headless Chromium, against the real binary: the demo model, its experts streamed
// through fewer slots than there are experts.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { mkdirSync } from 'node:fs';
import http from 'node:http';
import { missing, Server, sleep } from '../http/server.mjs';
import { Browser, missingBrowser, NEVER_MS } from './chromium.mjs';
import { contrastProblems, labelProblems } from './checks.mjs';

const skip = missing || missingBrowser;
// The pages of a test that failed would go on asking, and slow the next.
const it = (name, run) => test(name, { skip }, async () => { try { await run(); } finally { await browser.closePages(); } });
// Everything takes a minute: `make test` leaves these to `make test-browser`.
const more = process.env.BROWSER_QUICK ? () => {} : it;
const shots = process.env.SCREENSHOTS; // a folder for pictures

// The smallest budget is named by the refusal of a smaller one.
async function leastRam(args) {
  const s = new Server([...args, '--ram', '1MiB']);
  await s.exited;
  const m = /at least (\d+) MiB are needed/.exec(s.log);
  assert.ok(m, s.log);
  return Number(m[1]);
}

const streamed = ['--experts', 'streamed', '--parallel', '2', '--queue', '8', '--warm-up', 'off'];
const server = skip ? null : await Server.start([...streamed, '--ram', `${await leastRam(streamed) + 2}MiB`]);
const browser = skip ? null : await Browser.launch();

const state = 'document.getElementById("state").textContent === "ready" && document.getElementById("model").textContent !== ""';
const idle = 'document.getElementById("send").textContent === "Send"';
const last = (selector) => `([...document.querySelectorAll(".turn.assistant")].at(-1)?.querySelector(${JSON.stringify(selector)})?.innerText ?? "")`;

async function open(options, url = server.url) {
  const p = await browser.page(options);
  await p.open(`${url}/`);
  await p.until(state);
  return p;
}

async function ask(p, text) {
  await p.click('#prompt');
  await p.type(text);
  await p.key('Enter');
  await p.until('document.getElementById("send").textContent === "Stop" || document.querySelector(".foot .note")');
}

async function done(p) {
  assert.deepEqual(p.problems, []);
  const foreign = p.requests.filter((u) => !u.startsWith(`${server.url}/`) && !u.startsWith('about:'));
  assert.deepEqual(foreign, []);
  await p.close();
}

it('loads with no error and nothing from elsewhere', async () => {
  const p = await open({});
  assert.equal(await p.text('#model'), 'test');
  await p.until('document.getElementById("memory").rows.length > 4');
  const files = p.requests.filter((u) => /\/dashboard\/|\/$/.test(u));
  assert.ok(files.length >= 8, String(files));
  await done(p);
});

it('streams an answer, tells its speed, and remembers the conversation', async () => {
  const p = await open({});
  await ask(p, 'What is 17 + 25?');
  await p.until(idle);
  assert.match(await p.run(last('.body')), /42/);
  assert.match(await p.run(last('.note')), /^\d+ tokens · [\d.,]+ tokens\/s · first after /);
  assert.match(await p.text('#announce'), /42/);
  // The second request carries the first turn.
  await ask(p, 'What is 3 + 4?');
  await p.until(idle);
  assert.equal(await p.run('document.querySelectorAll(".turn").length'), 4);
  await p.click('#new-chat');
  assert.equal(await p.run('document.querySelectorAll(".turn").length'), 0);
  assert.ok(await p.run('!document.getElementById("hello").hidden'));
  await done(p);
});

it('shows an answer as it comes, and stops it', async () => {
  const p = await open({});
  await p.click('#settings-toggle');
  await p.click('#set-temperature');
  await p.type('1');
  const canceled = await server.metric('sluice_requests_canceled_total');
  // A story, asked for many times over: whichever is long enough to be stopped in the middle.
  for (let i = 0; i < 20; i++) {
    await ask(p, 'Tell me a long story.');
    await p.until(`${last('.body')}.length > 20 || ${idle}`);
    await p.key('Escape');
    await p.until(idle);
    if (/stopped/.test(await p.run(last('.foot')))) break;
  }
  assert.match(await p.run(last('.foot')), /stopped/);
  assert.ok((await p.run(last('.body'))).length > 20);
  await server.until('the request is canceled', NEVER_MS, async () => await server.metric('sluice_requests_canceled_total') > canceled);
  // And another answer in its place.
  await p.click('.retry');
  await p.until(`${idle} && ${last('.note')}`);
  await done(p);
});

more('sends the settings', async () => {
  const p = await open({});
  await p.run(() => {
    const real = window.fetch;
    window.sent = [];
    window.fetch = (path, o) => { if (o?.body) window.sent.push(JSON.parse(o.body)); return real(path, o); };
  });
  await p.click('#settings-toggle');
  for (const [field, value] of [['#set-system', 'Be brief.'], ['#set-temperature', '0.5'], ['#set-max_tokens', '3']]) { await p.click(field); await p.type(value); }
  await ask(p, 'Tell me a story.');
  await p.until(idle);
  const [body] = await p.run('window.sent');
  assert.deepEqual(body.messages[0], { role: 'system', content: 'Be brief.' });
  assert.equal(body.temperature, 0.5);
  assert.equal(body.max_tokens, 3);
  assert.equal(body.stream, true);
  assert.match(await p.run(last('.note')), /3 tokens.*cut at the token limit/);
  await done(p);
});

more('says what went wrong', async () => {
  const p = await open({});
  await p.type(''); // focus is on the page
  await p.click('#prompt');
  await p.type(`Sort these: ${'12 34 56 78 '.repeat(900)}`);
  await p.key('Enter');
  await p.until('document.querySelector(".turn .problem")');
  assert.match(await p.text('.turn .problem'), /context|tokens/);
  p.problems = p.problems.filter((t) => !/status of 400/.test(t)); // the browser's own line
  await done(p);
});

// What the renderer makes of each text, in the page and under its policy.
const rendered = (p, texts) => p.run(async (all) => {
  const { render } = await import('/dashboard/markdown.js');
  return Promise.all(all.map(async (t) => {
    const e = document.createElement('div');
    e.className = 'body';
    document.getElementById('log').append(e);
    render(e, t);
    await new Promise((r) => setTimeout(r, 200)); // what would run has run
    const out = { text: e.innerText, tags: [...new Set([...e.querySelectorAll('*')].map((x) => x.tagName.toLowerCase()))].sort(),
      hrefs: [...e.querySelectorAll('a')].map((a) => [a.getAttribute('href'), a.rel, a.target]),
      on: [...e.querySelectorAll('*')].flatMap((x) => x.getAttributeNames().filter((n) => n.startsWith('on'))) };
    e.remove();
    return out;
  }));
}, texts);

it('keeps hostile text inert', async () => {
  const p = await open({});
  await p.run('window.hit = 0');
  const hostile = ['<script>window.hit = 1</script>', '<img src=x onerror="window.hit = 1">', '<svg onload="window.hit = 1">',
    '[a](javascript:window.hit=1)', '[a](  JaVaScRiPt:window.hit=1)', '[a](java\tscript:window.hit=1)', '[a](data:text/html,<script>1</script>)',
    '[a](vbscript:x)', '[a](//example.com)', '[a](/metrics)', '![a](javascript:window.hit=1)', '![pixel](https://example.com/p.png)',
    '<javascript:window.hit=1>', '<https://example.com/"onmouseover="window.hit=1>', '[x](https://e.com" onclick="window.hit=1)',
    '```"><img src=x onerror=window.hit=1>\n<script>window.hit=1</script>\n```', '| a | <img src=x onerror=window.hit=1> |\n|--|--|\n| <b>x</b> | `<i>` |',
    '- <iframe src="https://example.com">', '> <style>*{display:none}</style>', '# <object data="x">', '`<img src=x onerror=window.hit=1>`',
    '**<embed src=x>**', '&lt;script&gt;', '[<img src=x onerror=window.hit=1>](https://example.com)', '<a href="javascript:window.hit=1">x</a>'];
  const allowed = new Set('a blockquote br button code del div em h3 h4 h5 hr li ol p pre span strong table tbody td th thead tr ul'.split(' '));
  const texts = [...hostile, hostile.join('\n\n'), hostile.join(' ')];
  const made = await rendered(p, texts);
  for (const [i, text] of texts.entries()) {
    const r = made[i];
    assert.deepEqual(r.tags.filter((t) => !allowed.has(t)), [], text);
    assert.deepEqual(r.on, [], text);
    for (const [href, rel, target] of r.hrefs) {
      assert.match(href, /^(https?:\/\/|mailto:)/, text);
      assert.match(rel, /noopener/, text);
      assert.equal(target, '_blank');
    }
  }
  assert.equal(await p.run('window.hit'), 0);
  assert.ok(made[0].text.includes('<script>window.hit = 1</script>')); // as text, all of it
  // Should one ever get past the renderer, the policy stops it.
  await p.run(() => {
    const e = document.createElement('div');
    e.innerHTML = '<img src="x" onerror="window.hit = 1"><a id="j" href="javascript:window.hit = 1">x</a>';
    document.body.append(e);
    e.querySelector('#j').click();
    const s = document.createElement('script');
    s.textContent = 'window.hit = 1';
    document.body.append(s);
  });
  await sleep(200);
  assert.equal(await p.run('window.hit'), 0);
  assert.ok(p.problems.length > 0 && p.problems.every((t) => /Content Security Policy|404|ERR_/.test(t)), String(p.problems));
  p.problems = [];
  await done(p);
});

// A server that says what it is told to, in place of the real one: the page's own fetch is replaced.
const scripted = (p, chunks) => p.run((list) => {
  const real = window.fetch;
  window.fetch = (path, o) => {
    if (path !== 'v1/chat/completions') return real(path, o);
    const bytes = new TextEncoder().encode(list.map((c) => (typeof c === 'string' ? c : `data: ${JSON.stringify(c)}\n\n`)).join(''));
    return Promise.resolve(new Response(new ReadableStream({ async start(s) {
      for (let i = 0; i < bytes.length; i += 7) { s.enqueue(bytes.slice(i, i + 7)); if (i % 700 === 0) await new Promise((r) => setTimeout(r, 1)); } // in the middle of everything
      s.close();
    } }), { status: 200 }));
  };
}, chunks);
const delta = (d, finish_reason = null) => ({ choices: [{ index: 0, delta: d, finish_reason }] });

it('folds reasoning, and shows code, lists, tables and links', async () => {
  const p = await open({});
  await scripted(p, [': prompt 3/9\n\n', delta({ role: 'assistant' }), delta({ reasoning_content: 'Let me <b>think</b>' }), delta({ reasoning_content: ' – über alles.' }),
    delta({ content: '# Title\n\n```py\nprint("<b>")\n```\n\n- one\n- **two**\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n\n' }),
    delta({ content: '[link](https://example.com/x) <script>window.hit = 1</script> <img src=x onerror="window.hit = 1">' }), delta({}, 'stop'), 'data: [DONE]\n\n']);
  await ask(p, 'Show me.');
  await p.until(`${idle} && document.querySelector(".turn.assistant .retry")`);
  const q = (s) => p.run((x) => document.querySelector(`.turn.assistant ${x}`)?.textContent ?? null, s);
  assert.equal(await p.run('document.querySelector(".reasoning").open'), false);
  assert.equal(await q('.thoughts'), 'Let me <b>think</b> – über alles.');
  assert.equal(await q('.code code'), 'print("<b>")');
  assert.equal(await q('.code .head button'), 'Copy');
  assert.equal(await q('li strong'), 'two');
  assert.equal(await q('td.r'), '2');
  assert.ok((await q('.body')).includes('<script>window.hit = 1</script> <img src=x onerror="window.hit = 1">'));
  assert.equal(await p.run('window.hit'), undefined);
  assert.equal(await p.run('document.querySelector(".turn.assistant .body a").rel'), 'noopener noreferrer nofollow');
  // Copied as it is.
  await p.browser.send('Browser.grantPermissions', { permissions: ['clipboardReadWrite', 'clipboardSanitizedWrite'], origin: server.url, browserContextId: p.context });
  await p.click('.code .head button');
  await p.until('document.querySelector(".code .head button").textContent === "Copied"');
  assert.equal(await p.run('navigator.clipboard.readText()'), 'print("<b>")');
  // Pressed again while it says so, it has its own name afterwards; and without TLS there is another way.
  await p.run('Object.defineProperty(navigator, "clipboard", { value: undefined })');
  await p.run('document.execCommand = (what) => { window.old = [what, document.activeElement.value]; return true; }');
  await p.click('.code .head button');
  assert.equal(await p.text('#announce'), 'Copied');
  await p.until('document.querySelector(".code .head button").textContent === "Copy"');
  assert.deepEqual(await p.run('window.old'), ['copy', 'print("<b>")']);
  assert.deepEqual(await p.run(labelProblems), []);
  assert.deepEqual(await p.run(contrastProblems), []);
  await done(p);
});

more('keeps what came before an answer broke off', async () => {
  for (const [end, want] of [[[{ error: { message: 'the disk is gone', type: 'server_error', code: 500 } }], /the disk is gone \(500\)/],
    [[], /the connection ended before the answer did/], [['data: {"broken\n\n'], /this page failed/]]) {
    const p = await open({});
    await scripted(p, [delta({ content: 'Half an ans' }), ...end]);
    await ask(p, 'Well?');
    await p.until('document.querySelector(".turn .problem")');
    assert.match(await p.text('.turn .problem'), want);
    assert.equal(await p.run(last('.body')), 'Half an ans');
    assert.equal(await p.text('.retry'), 'Try again');
    await done(p);
  }
});

more('keeps what has not changed while an answer grows', async () => {
  const p = await open({});
  const same = await p.run(async () => {
    const { render } = await import('/dashboard/markdown.js');
    const e = document.createElement('div');
    render(e, '# One\n\nTwo\n\n- a');
    const [one, two, three] = e.children;
    render(e, '# One\n\nTwo\n\n- a\n- b\n\nEnd');
    return [e.children[0] === one, e.children[1] === two, e.children[2] === three, e.children.length, e.innerText];
  });
  assert.deepEqual(same.slice(0, 4), [true, true, true, 4]);
  // Of a list its items, of a table its rows, of a paragraph its parts.
  const kept = await p.run(async () => {
    const { render } = await import('/dashboard/markdown.js');
    return [['1. a\n2. b', '\n3. c', 'li'], ['| a |\n|---|\n| b |', '\n| c |', 'td'], ['*a* `b` c', ' d **e**', 'em'], ['> *a*\n> - b', '\n> - c', 'li'], ['- a\n  - b', '\n  - c', 'li li'], ['# *a*', ' b', 'em']].map(([text, more, selector]) => {
      const e = document.createElement('div');
      render(e, text);
      const first = e.querySelector(selector);
      render(e, text + more);
      return first !== null && first === e.querySelector(selector);
    });
  });
  assert.deepEqual(kept, [true, true, true, true, true, true]);
  await done(p);
});

more('an answer that grew looks like one that came at once', async () => {
  const p = await open({});
  const problem = await p.run(async () => {
    const { render } = await import('/dashboard/markdown.js');
    const bits = ['a', ' ', '\n', '\n\n', '*', '**', '`', '[', '](https://e.org)', '|', '-', '\n-|-\n', '\n- ', '\n  - ', '\n1. ', '\n# ', '\n> ', '\n```\n', 'word ', '\n| a | b |', '\n|---|--:|\n', '\n    ', '\\'];
    let seed = 1;
    const random = () => { seed = (seed * 48271) % 2147483647; return seed / 2147483647; };
    for (let n = 0; n < 400; n++) {
      const e = document.createElement('div'), whole = document.createElement('div');
      let text = '';
      for (let i = 0; i < 25; i++) {
        text += bits[Math.floor(random() * bits.length)];
        if (random() < 0.3) continue;
        render(e, text);
        whole.blocks = null;
        whole.replaceChildren();
        render(whole, text);
        if (e.innerHTML !== whole.innerHTML) return [text, e.innerHTML, whole.innerHTML];
      }
    }
    return null;
  });
  assert.equal(problem, null);
  // What is longer than a page can lay out is there as text, every character of it.
  const [shown, same, blocks] = await p.run(async () => {
    const { render } = await import('/dashboard/markdown.js');
    const e = document.createElement('div'), line = 'plain words\n', text = line.repeat(110000);
    render(e, text);
    render(e, `${text}**end**`);
    return [e.lastChild.className, e.textContent.replace(/\s/g, '') === `${text}**end**`.replace(/\s/g, ''), e.childNodes.length];
  });
  assert.deepEqual([shown, same, blocks], ['rest', true, 2]);
  await done(p);
});

it('maps the experts of a run, and tells of each', async () => {
  const p = await open({});
  await p.until('document.getElementById("map").width > 50');
  assert.match(await p.text('#experts-sum'), /^128 in 8 layers: /);
  await ask(p, 'Tell me a short story.');
  await p.until(idle);
  await p.until('/[1-9]\\d* in RAM, \\d+ on disk/.test(document.getElementById("experts-sum").textContent)');
  await p.until('/RAM \\d/.test(document.getElementById("found-legend").innerText)');
  // Cells of both tiers are drawn: their hues differ.
  const hues = await p.run(() => {
    const c = document.getElementById('map'), { data } = c.getContext('2d').getImageData(0, 0, c.width, c.height);
    let green = 0, grey = 0;
    for (let i = 0; i < data.length; i += 4) {
      if (!data[i + 3]) continue;
      if (data[i + 1] - data[i] > 40) green++; else grey++;
    }
    return { green, grey };
  });
  assert.ok(hues.green > 100 && hues.grey > 100, JSON.stringify(hues));
  // With the pointer, with the keyboard, as a table.
  const box = await p.run('document.getElementById("map").scrollIntoView({ block: "center" }), JSON.parse(JSON.stringify(document.getElementById("map").getBoundingClientRect()))');
  await p.mouse('mouseMoved', box.x + 2, box.y + 2);
  await p.until('/^Layer 0, expert 0: (in RAM|on disk)/.test(document.getElementById("map-cell").textContent)');
  await p.mouse('mouseMoved', 5, 300);
  await p.run('document.getElementById("map").focus()');
  for (const k of ['ArrowRight', 'ArrowRight', 'ArrowDown']) await p.key(k);
  assert.match(await p.text('#map-cell'), /^Layer 1, expert 2: (in RAM|on disk)\. Probability that the next token uses it: (below 1|\d+) %\.$/);
  await p.key('End');
  assert.match(await p.text('#map-cell'), /^Layer 1, expert 15: /);
  await p.click('#map-table-box summary');
  await p.until('document.querySelectorAll("#map-table tbody tr").length === 8');
  const sum = await p.run('[...document.querySelectorAll("#map-table tbody tr")].reduce((n, r) => n + Number(r.cells[1].textContent) + Number(r.cells[2].textContent), 0)');
  assert.equal(sum, 128);
  if (shots) await p.run('document.getElementById("map-table-box").open = false');
  await done(p);
});

more('shows speed, disk and sessions as they are', async () => {
  const p = await open({});
  await p.until('document.getElementById("v-sessions").textContent.includes("0 of 2 running")');
  const long = server.post('/v1/completions', { prompt: 'a', max_tokens: 900, ignore_eos: true, temperature: 1 });
  await p.until('document.getElementById("v-sessions").textContent.includes("1 of 2 running")');
  await p.until('Number(document.getElementById("v-decode").textContent) > 0');
  await p.until('/^Request \\d+: generating\\n?.*tokens/s.test(document.getElementById("slots").innerText)');
  await long;
  await p.until('/B\\/s/.test(document.getElementById("v-disk").textContent)');
  assert.match(await p.run('document.getElementById("m-kv").getAttribute("aria-valuetext")'), /KV pages used: \d+ of \d+/);
  const rows = await p.run('[...document.getElementById("memory").rows].map((r) => r.cells[0].innerText)');
  assert.ok(rows.includes('expert slots') && rows.includes('KV cache'), String(rows));
  await done(p);
});

more('works with the keyboard alone', async () => {
  const p = await open({});
  const focus = () => p.run('document.activeElement.id || document.activeElement.className || document.activeElement.tagName');
  await p.key('Tab');
  assert.equal(await focus(), 'skip');
  await p.key('Enter');
  assert.equal(await focus(), 'prompt');
  await p.type('What is 2 + 2?');
  await p.key('Enter', { shift: true });
  assert.equal(await p.run('document.querySelectorAll(".turn").length'), 0);
  await p.key('Enter');
  await p.until(`${idle} && ${last('.note')}`);
  // Everything that can be clicked is reached by Tab, and seen to be.
  const reached = new Set();
  for (let i = 0; i < 40; i++) {
    await p.key('Tab');
    reached.add(await focus());
    const outline = await p.run('(() => { const e = document.activeElement; return e === document.body || getComputedStyle(e).outlineStyle !== "none"; })()');
    assert.ok(outline, `the focus cannot be seen on ${await focus()}`);
  }
  for (const id of ['settings-toggle', 'new-chat', 'prompt', 'send', 'map', 'log']) assert.ok(reached.has(id), `${id}: ${[...reached]}`);
  await done(p);
});

for (const [name, options] of [['light', {}], ['dark', { dark: true }], ['a phone', { width: 360, height: 740, mobile: true }], ['a dark phone', { width: 360, height: 740, mobile: true, dark: true }]])
  (name.includes('dark') ? it : more)(`has labels and contrast: ${name}`, async () => {
    const p = await open(options);
    await ask(p, 'What is 5 + 6?');
    await p.until(idle);
    await p.click('#settings-toggle');
    for (const view of options.mobile ? ['chat', 'machine'] : ['both']) {
      if (view === 'machine') await p.click('[data-show=machine]');
      await p.until('document.getElementById("memory").rows.length > 4');
      assert.deepEqual(await p.run(labelProblems), []);
      assert.deepEqual(await p.run(contrastProblems), []);
    }
    await done(p);
  });

it('fits a phone', async () => {
  const p = await open({ width: 360, height: 740, scale: 2, mobile: true });
  const wide = () => p.run(() => {
    const out = [...document.querySelectorAll('body *')].filter((e) => e.getBoundingClientRect().right > innerWidth + 0.5 && !e.closest('.code, .wrap, .scroll, .hidden'));
    return [document.documentElement.scrollWidth, out.map((e) => e.id || e.className || e.tagName).slice(0, 5)];
  });
  assert.deepEqual(await wide(), [360, []]);
  await p.run(async () => {
    const { render } = await import('/dashboard/markdown.js');
    const e = document.createElement('div');
    e.className = 'turn assistant body';
    document.getElementById('log').append(e);
    render(e, `${'word'.repeat(100)}\n\n\`\`\`c\n${'long line '.repeat(40)}\n\`\`\`\n\n|${' a long heading |'.repeat(9)}\n|${'---|'.repeat(9)}\n|${' cell |'.repeat(9)}\n\nhttps://example.com/${'x'.repeat(300)}`);
  });
  assert.deepEqual(await wide(), [360, []]);
  await p.click('[data-show=machine]');
  await p.until('document.getElementById("map").width > 50 && document.getElementById("memory").rows.length > 4');
  assert.deepEqual(await wide(), [360, []]);
  await p.click('[data-show=chat]');
  assert.ok(await p.run('document.getElementById("prompt").getBoundingClientRect().bottom <= innerHeight'));
  await done(p);
});

more('heeds the wish for less motion', async () => {
  const p = await open({ reducedMotion: true });
  assert.equal(await p.run('getComputedStyle(document.querySelector(".meter span")).transitionDuration'), '0s');
  await done(p);
});

it('asks for the key, and keeps it for the tab', async () => {
  const locked = await Server.start(['--api-key', 'open-sesame']);
  const p = await browser.page({});
  await p.open(`${locked.url}/`);
  await p.until('document.getElementById("key-dialog").open');
  assert.equal(await p.run('document.activeElement.id'), 'key');
  // Closed without one, the page asks for nothing, until its button is used.
  await p.key('Escape');
  await p.until('!document.getElementById("key-dialog").open');
  const asked = p.requests.length;
  await p.until('performance.getEntriesByName(new URL("health", location).href).length >= 4'); // while the page looks again and again
  assert.ok(p.requests.slice(asked).every((u) => u.endsWith('/health')), String(p.requests.slice(asked)));
  await p.click('#key-open');
  await p.type('ключ'); // which no header can carry
  await p.key('Enter');
  await p.until('!document.getElementById("key-error").hidden');
  assert.equal(await p.text('#key-error'), 'A key can only have visible ASCII characters.');
  await p.run('document.getElementById("key").select()');
  await p.type('wrong');
  await p.key('Enter');
  await p.until('document.getElementById("key-error").textContent === "The server did not accept that key."');
  await p.type('open-sesame');
  await p.key('Enter');
  await p.until(state);
  await ask(p, 'What is 1 + 1?');
  await p.until(`${idle} && ${last('.note')}`);
  assert.equal(await p.run('sessionStorage.getItem("sluice.key")'), 'open-sesame');
  assert.equal(await p.run('Object.keys(localStorage).some((k) => localStorage[k].includes("sesame"))'), false);
  assert.ok(p.requests.every((u) => !u.includes('sesame')));
  await p.open(`${locked.url}/`);
  await p.until(state);
  // This server has room for all experts, and the page says so.
  await p.until('/^All 128 experts are resident in RAM/.test(document.getElementById("resident").textContent)');
  assert.ok(await p.run('document.getElementById("card-disk").hidden'));
  assert.ok(p.problems.every((t) => /status of 401/.test(t)), String(p.problems));
  await p.close();
  await locked.stop();
});

more('tells when the server is gone', async () => {
  const gone = await Server.start([]);
  const p = await open({}, gone.url);
  await gone.stop();
  await p.until('document.getElementById("state").dataset.state === "error"');
  await p.until('/cannot be reached/.test(document.getElementById("machine-error").textContent)');
  await p.close();
});

// SCREENSHOTS=docs/images make test-browser: the pictures of docs/DASHBOARD.md.
// The real server, but for two devices that it has not: what it says of its one passes through `change`.
async function before(change) {
  const proxy = http.createServer(async (q, r) => {
    const from = await fetch(server.url + q.url);
    const body = Buffer.from(await from.arrayBuffer());
    r.writeHead(from.status, { 'content-type': from.headers.get('content-type') ?? 'text/plain' });
    r.end(from.ok ? change(q.url, body) : body);
  });
  await new Promise((listening) => proxy.listen(0, '127.0.0.1', listening));
  proxy.unref();
  return proxy;
}

it('tells several devices apart, and shows no card of one', async () => {
  const one = await open({});
  await one.until('document.getElementById("memory").rows.length > 4');
  assert.equal(await one.run('document.getElementById("card-devices").hidden'), true);
  await done(one);
  const devices = [0, 1].map((i) => ({ name: `cuda:${i}: A <b>GPU</b>, sm_90`, first_layer: 3 * i, layers: 3 + 2 * i, budget_bytes: 2 ** 30 * (i + 1), total_bytes: 2 ** 20, device_slots: 9, host_slots: 3 }));
  const began = performance.now();
  const proxy = await before((url, body) => {
    if (url === '/v1/sluice/machine') return JSON.stringify({ ...JSON.parse(body), devices });
    if (url !== '/metrics') return body;
    const seconds = (performance.now() - began) / 1000;
    const lines = devices.flatMap((d, i) => [['busy_seconds_total', 100 + seconds * (i ? 0.25 : 0.75)], ['stall_seconds_total', seconds / 10], ['memory_bytes', 2 ** 28 * (i + 1)]]
      .map(([name, v]) => `sluice_stage_${name}{stage="${i + 1}",device="cuda:${i}"} ${v.toFixed(9)}`));
    return `${body.toString().replace(/^sluice_stage_.*\n/gm, '')}${lines.join('\n')}\n`;
  });
  const p = await open({}, `http://127.0.0.1:${proxy.address().port}`);
  const rows = 'document.getElementById("devices").children';
  await p.until(`${rows}.length === 2 && !/busy 0 %/.test(${rows}[0].innerText)`);
  const text = await p.run(`[...${rows}].map((r) => r.innerText)`);
  assert.match(text[0], /^cuda:0: layers 0 to 2\s*busy ([\d.]+) %, \d+(\.\d)? % waiting for experts; 256 MiB of 1\.0 GiB$/);
  assert.match(text[1], /^cuda:1: layers 3 to 7\s*busy ([\d.]+) %, .*; 512 MiB of 2\.0 GiB$/);
  const share = (t) => Number(/busy ([\d.]+) %/.exec(t)[1]);
  assert.ok(share(text[0]) > 1.5 * share(text[1]), String(text));
  assert.match(await p.run('document.getElementById("device").title'), /layers 3 to 7: cuda:1: A <b>GPU<\/b>, sm_90, 1\.0 MiB of 2\.0 GiB planned/);
  assert.deepEqual(p.problems, []);
  await p.close();
  proxy.closeAllConnections();
  proxy.close();
});

if (shots) it('takes pictures', async () => {
  mkdirSync(shots, { recursive: true });
  const looks = { 'dashboard-dark': { width: 1360, height: 900, dark: true }, 'dashboard-light': { width: 1360, height: 900 },
    'dashboard-phone': { width: 390, height: 844, dark: true, mobile: true } };
  for (const [name, options] of Object.entries(looks)) {
    const p = await open(options);
    for (const q of ['Tell me a short story.', 'What is 17 + 25?']) { await ask(p, q); await p.until(idle); }
    await p.click('.log > :last-child .retry');
    await p.until(`${idle} && document.querySelector(".branches")`);
    for (let i = 0; i < 5; i++) await server.post('/v1/completions', { prompt: 'Once upon a time', max_tokens: 60, temperature: 1 });
    const more = server.post('/v1/completions', { prompt: 'a', max_tokens: 300, ignore_eos: true, temperature: 1 });
    await sleep(3000);
    if (options.mobile) await p.click('[data-show=machine]');
    await sleep(1500);
    await p.screenshot(`${shots}/${name}.png`);
    await more;
    await p.close();
  }
});

test('stops cleanly', { skip }, async () => {
  await browser.close();
  await server.stop();
});
