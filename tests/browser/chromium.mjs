// Drives a headless Chromium over its DevTools protocol, through a pair of pipes: no package is
// needed, and no port is opened. https://chromedevtools.github.io/devtools-protocol/
import { spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';

const NAMES = [process.env.CHROMIUM, 'chromium', 'chromium-browser', 'google-chrome'].filter(Boolean);
export const chromium = NAMES.find((name) => spawnSync(name, ['--version'], { stdio: 'ignore' }).status === 0);
export const missingBrowser = chromium ? false : 'there is no chromium: scripts/install_deps.sh browser installs it';

// When something never comes. Far more than the slowest machine under load takes: a minute is not.
export const NEVER_MS = 600000;

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export class Browser {
  static async launch() {
    const b = new Browser();
    b.profile = mkdtempSync(path.join(tmpdir(), 'sluice-browser-'));
    // Root has no sandbox of its own to give; the page comes from this machine.
    const args = ['--headless=new', '--remote-debugging-pipe', `--user-data-dir=${b.profile}`, '--no-first-run', '--no-default-browser-check',
      '--disable-gpu', '--disable-extensions', '--disable-background-networking', '--disable-component-update', '--disable-sync',
      '--hide-scrollbars', '--force-color-profile=srgb', '--disable-dev-shm-usage', ...(process.getuid() === 0 ? ['--no-sandbox'] : []), 'about:blank'];
    b.child = spawn(chromium, args, { stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'], detached: true });
    b.onExit = () => b.kill();
    process.on('exit', b.onExit);
    b.next = 1;
    b.calls = new Map();
    b.sessions = new Map();
    let rest = '';
    b.child.stdio[4].setEncoding('utf8').on('data', (text) => {
      const parts = (rest + text).split('\0');
      rest = parts.pop();
      for (const p of parts) b.receive(JSON.parse(p));
    });
    for (const s of b.child.stdio.slice(3)) s.on('error', () => {});
    b.exited = new Promise((resolve) => b.child.on('close', resolve));
    b.exited.then(() => { for (const c of b.calls.values()) c.reject(new Error('chromium has ended')); });
    await b.send('Target.setDiscoverTargets', { discover: false });
    return b;
  }

  receive(m) {
    if (m.id) {
      const c = this.calls.get(m.id);
      this.calls.delete(m.id);
      if (m.error) c.reject(new Error(`${c.method}: ${m.error.message}`));
      else c.resolve(m.result);
    } else {
      this.sessions.get(m.sessionId)?.event(m.method, m.params);
    }
  }

  send(method, params = {}, sessionId = undefined) {
    const id = this.next++;
    return new Promise((resolve, reject) => {
      this.calls.set(id, { resolve, reject, method });
      this.child.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
    });
  }

  // A tab with a storage of its own.
  async page({ width = 1280, height = 860, scale = 1, dark = false, reducedMotion = false, mobile = false } = {}) {
    const { browserContextId } = await this.send('Target.createBrowserContext');
    const { targetId } = await this.send('Target.createTarget', { url: 'about:blank', browserContextId });
    const { sessionId } = await this.send('Target.attachToTarget', { targetId, flatten: true });
    const p = new Page(this, sessionId, targetId);
    p.context = browserContextId;
    this.sessions.set(sessionId, p);
    for (const d of ['Page', 'Runtime', 'Network', 'Log']) await p.send(`${d}.enable`);
    await p.send('Page.setLifecycleEventsEnabled', { enabled: true });
    await p.send('Emulation.setDeviceMetricsOverride', { width, height, deviceScaleFactor: scale, mobile });
    await p.media({ dark, reducedMotion });
    return p;
  }

  async closePages() {
    for (const p of this.sessions.values()) await p.close().catch(() => {});
  }

  kill() {
    try { process.kill(-this.child.pid, 'SIGKILL'); } catch { /* it has gone */ }
    rmSync(this.profile, { recursive: true, force: true, maxRetries: 3 });
  }

  async close() {
    this.sessions.clear();
    await Promise.race([this.send('Browser.close').catch(() => {}), sleep(3000)]);
    await Promise.race([this.exited, sleep(3000)]);
    this.kill();
    process.removeListener('exit', this.onExit);
  }
}

const KEYS = { Enter: [13, '\r'], Escape: [27], Tab: [9], ArrowLeft: [37], ArrowUp: [38], ArrowRight: [39], ArrowDown: [40], Home: [36], End: [35], ' ': [32, ' '] };

export class Page {
  constructor(browser, sessionId, targetId) {
    Object.assign(this, { browser, sessionId, targetId });
    this.problems = []; // errors of the console, exceptions, violations of the policy
    this.requests = []; // every address asked for
    this.loaded = new Map(); // of each document by its loader, what is told when it is complete
  }

  send(method, params) { return this.browser.send(method, params, this.sessionId); }

  event(method, p) {
    if (method === 'Page.lifecycleEvent' && p.name === 'load') this.load(p.loaderId).resolve();
    else if (method === 'Runtime.exceptionThrown') this.problems.push(p.exceptionDetails.exception?.description ?? p.exceptionDetails.text);
    else if (method === 'Runtime.consoleAPICalled' && ['error', 'assert', 'warning'].includes(p.type))
      this.problems.push(p.args.map((a) => a.value ?? a.description).join(' '));
    else if (method === 'Log.entryAdded' && ['error', 'warning'].includes(p.entry.level)) this.problems.push(`${p.entry.text} ${p.entry.url ?? ''}`);
    else if (method === 'Network.requestWillBeSent') this.requests.push(p.request.url);
  }

  async media({ dark, reducedMotion }) {
    await this.send('Emulation.setEmulatedMedia', { features: [
      { name: 'prefers-color-scheme', value: dark ? 'dark' : 'light' },
      { name: 'prefers-reduced-motion', value: reducedMotion ? 'reduce' : 'no-preference' }] });
  }

  load(loader) {
    if (!this.loaded.has(loader)) {
      const one = {};
      one.done = new Promise((resolve) => { one.resolve = resolve; });
      this.loaded.set(loader, one);
    }
    return this.loaded.get(loader);
  }

  // The answer to Page.navigate comes while the old document is still there: only the new one's own event tells.
  async open(url) {
    const { loaderId, errorText } = await this.send('Page.navigate', { url });
    if (errorText) throw new Error(`${url}: ${errorText}`);
    let timer;
    const late = new Promise((_, reject) => { timer = setTimeout(() => reject(new Error(`${url} is not loaded after ten minutes`)), NEVER_MS); });
    try { await Promise.race([this.load(loaderId).done, late]); } finally { clearTimeout(timer); }
  }

  // The value of an expression, or of a function called in the page with these arguments.
  async run(what, ...args) {
    const expression = typeof what === 'function' ? `(${what})(${args.map((a) => JSON.stringify(a)).join(',')})` : what;
    const r = await this.send('Runtime.evaluate', { expression, awaitPromise: true, returnByValue: true, userGesture: true });
    if (r.exceptionDetails) throw new Error(r.exceptionDetails.exception?.description ?? r.exceptionDetails.text);
    return r.result.value;
  }

  async until(what, ms = NEVER_MS, ...args) {
    const end = Date.now() + ms;
    for (;;) {
      let value;
      try { value = await this.run(what, ...args); } catch (e) { if (Date.now() > end) throw e; }
      if (value) return value;
      if (Date.now() > end) throw new Error(`not within ${ms} ms: ${what}`);
      await sleep(25);
    }
  }

  text(selector) { return this.run((s) => document.querySelector(s)?.innerText ?? null, selector); }

  async click(selector) {
    const at = await this.until((s) => {
      const e = document.querySelector(s);
      if (!e) return null;
      e.scrollIntoView({ block: 'center' });
      const r = e.getBoundingClientRect();
      return r.width ? [r.x + r.width / 2, r.y + r.height / 2] : null;
    }, NEVER_MS, selector);
    await this.mouse('mousePressed', ...at);
    await this.mouse('mouseReleased', ...at);
  }

  mouse(type, x, y) { return this.send('Input.dispatchMouseEvent', { type, x, y, button: type === 'mouseMoved' ? 'none' : 'left', clickCount: 1 }); }

  // As a keyboard would: to whatever has the focus.
  type(text) { return this.send('Input.insertText', { text }); }

  async key(key, { shift = false } = {}) {
    const [code, text] = KEYS[key];
    const common = { key, code: key === ' ' ? 'Space' : key, windowsVirtualKeyCode: code, modifiers: shift ? 8 : 0 };
    await this.send('Input.dispatchKeyEvent', { type: text ? 'keyDown' : 'rawKeyDown', text, ...common });
    await this.send('Input.dispatchKeyEvent', { type: 'keyUp', ...common });
  }

  async screenshot(file, clip = undefined) {
    const { data } = await this.send('Page.captureScreenshot', { format: 'png', clip, captureBeyondViewport: !!clip });
    writeFileSync(file, Buffer.from(data, 'base64'));
  }

  async close() {
    await this.browser.send('Target.disposeBrowserContext', { browserContextId: this.context }); // with its connections
    this.browser.sessions.delete(this.sessionId);
  }
}
