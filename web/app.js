// The page as a whole: which part is shown, the server's state, and the key.

import { get, goodKey, hasKey, health, onKeyWanted, setKey } from './api.js';
import { startChat } from './chat.js';
import { startDrawer } from './drawer.js';
import { setContext } from './gauge.js';
import { startMachine } from './machine.js';
import { showDefaults } from './settings.js';

const $ = (id) => document.getElementById(id);

for (const b of document.querySelectorAll('[data-show]'))
  b.addEventListener('click', () => {
    document.body.dataset.view = b.dataset.show;
    for (const o of document.querySelectorAll('[data-show]')) o.setAttribute('aria-pressed', String(o === b));
    window.dispatchEvent(new Event('resize')); // what was hidden has a size now
  });

// ---------------------------------------------------------------- state

const state = $('state');
function show(kind, text) {
  if (state.textContent === text && state.dataset.state === kind) return;
  state.dataset.state = kind;
  state.textContent = text;
  state.title = text;
}

let known = false; // the model's name
async function look() {
  let next = 5000;
  try {
    const h = await health();
    if (h.status === 'ok') {
      show('ok', 'ready');
      if (!known) {
        const { data } = await get('v1/models');
        known = true;
        get('props').then((p) => { const d = p.default_generation_settings; setContext(d.n_ctx); showDefaults(d.params); }).catch(() => { /* a gauge and hints alone */ });
        $('model').textContent = data[0].id;
        $('model').title = data[0].id;
        document.title = `${data[0].id} – Sluice`;
        $('hello-text').textContent = `Chat with ${data[0].id}. What you write goes to this server and nowhere else.`;
      }
    } else if (h.status === 'loading model') {
      show('loading', `loading ${Math.round(100 * (h.progress || 0))} %`);
      next = 500;
    } else {
      show('error', h.error || h.status);
    }
  } catch (e) {
    if (e.status === 401) next = 500;
    else { known = false; show('error', e instanceof TypeError ? 'the server cannot be reached' : e.message); next = 2000; }
  }
  setTimeout(look, next);
}

// ---------------------------------------------------------------- the key

const dialog = $('key-dialog');
function askForKey(refused) {
  if (dialog.open) return;
  $('key-open').hidden = false; // for those who close the dialog
  $('key-error').hidden = !refused;
  $('key-error').textContent = refused ? 'The server did not accept that key.' : '';
  $('key').value = '';
  dialog.showModal();
  $('key').focus();
}
onKeyWanted.run = () => askForKey(hasKey());
$('key-open').addEventListener('click', () => askForKey(false));
$('key-form').addEventListener('submit', async (e) => {
  e.preventDefault();
  const value = $('key').value.trim();
  if (!value) return;
  if (!goodKey(value)) {
    $('key-error').textContent = 'A key can only have visible ASCII characters.';
    $('key-error').hidden = false;
    return;
  }
  setKey(value);
  dialog.close();
  try { await get('v1/models'); } catch { return; } // refused: the dialog is open again
  $('prompt').focus();
});

startChat();
startDrawer();
startMachine();
look();
