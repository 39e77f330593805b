// Checks of what people with other eyes, ears and hands need, run inside the page: each gives a list
// of problems. After WCAG 2.1: 1.1.1, 1.3.1, 1.4.3, 2.4.3, 3.3.2, 4.1.2.

// Everything that can be used or is a picture has a name; ids are one of a kind; headings do not skip.
export function labelProblems() {
  const out = [];
  const shown = (e) => e.getClientRects().length > 0 && getComputedStyle(e).visibility !== 'hidden';
  const say = (e, what) => out.push(`${e.tagName.toLowerCase()}#${e.id || e.className}: ${what}`);
  const name = (e) => {
    const by = e.getAttribute('aria-labelledby');
    const text = by ? by.split(' ').map((id) => document.getElementById(id)?.textContent ?? '').join(' ')
      : e.getAttribute('aria-label') ?? ([...(e.labels ?? [])].map((l) => l.textContent).join(' ') || e.textContent || e.title || '');
    return text.trim();
  };
  for (const e of document.querySelectorAll('button, a[href], input, textarea, select, summary, canvas, section, nav, dialog, [role=region], [role=meter], [tabindex]'))
    if (shown(e) && !name(e)) say(e, 'has no name');
  for (const e of document.querySelectorAll('input, textarea')) if (shown(e) && !e.labels?.length) say(e, 'has no label');
  for (const e of document.querySelectorAll('img')) if (!e.hasAttribute('alt')) say(e, 'has no alt');
  for (const e of document.querySelectorAll('[aria-labelledby], [aria-describedby], [aria-controls]'))
    for (const a of ['aria-labelledby', 'aria-describedby', 'aria-controls'])
      for (const id of (e.getAttribute(a) ?? '').split(' ').filter(Boolean)) if (!document.getElementById(id)) say(e, `${a} names ${id}, which is not there`);
  const ids = [...document.querySelectorAll('[id]')].map((e) => e.id);
  for (const id of ids.filter((v, i) => ids.indexOf(v) !== i)) out.push(`id ${id} twice`);
  let level = 0;
  for (const e of document.querySelectorAll('h1, h2, h3, h4, h5')) {
    if (!shown(e) || e.closest('.body')) continue;
    const n = Number(e.tagName[1]);
    if (level && n > level + 1) say(e, `skips from h${level}`);
    level = n;
  }
  if (document.querySelectorAll('main').length !== 1) out.push('not one main');
  if (!document.documentElement.lang) out.push('no lang');
  if (document.querySelector('[tabindex]:not([tabindex="0"], [tabindex="-1"])')) out.push('a tabindex above 0');
  return out;
}

// Text stands out from what it stands on: 4.5 to 1, large text 3 to 1.
export function contrastProblems() {
  const parse = (text) => {
    const m = /rgba?\(([^)]+)\)/.exec(text);
    const v = m ? m[1].split(/[ ,/]+/).map(Number) : [0, 0, 0, 0];
    return [v[0], v[1], v[2], v[3] ?? 1];
  };
  const over = (a, b) => [0, 1, 2].map((i) => a[i] * a[3] + b[i] * (1 - a[3])).concat(1);
  const light = (c) => {
    const [r, g, b] = c.slice(0, 3).map((v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((m, n) => n - m); return (x + 0.05) / (y + 0.05); };
  const ground = (e) => {
    const layers = [];
    for (let x = e; x; x = x.parentElement) layers.push(parse(getComputedStyle(x).backgroundColor));
    return layers.reverse().reduce((under, c) => over(c, under), [255, 255, 255, 1]);
  };
  const out = [];
  let seen = 0;
  for (const e of document.querySelectorAll('body *')) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    const hint = (e.tagName === 'TEXTAREA' || e.tagName === 'INPUT') && e.placeholder;
    const s = getComputedStyle(e);
    if ((!own && !hint) || !e.getClientRects().length || s.visibility === 'hidden' || e.closest('.hidden, [disabled], noscript')) continue;
    seen++;
    const under = ground(e), px = parseFloat(s.fontSize), large = px >= 24 || (px >= 18.66 && Number(s.fontWeight) >= 700);
    const colours = [s.color, ...(hint ? [getComputedStyle(e, '::placeholder').color] : [])];
    for (const c of colours) {
      const r = ratio(over(parse(c), under), under);
      if (r < (large ? 3 : 4.5)) out.push(`${e.tagName.toLowerCase()}#${e.id || e.className} "${(e.textContent || e.placeholder).trim().slice(0, 30)}": ${r.toFixed(2)}`);
    }
  }
  if (seen < 15) out.push(`only ${seen} texts were seen`);
  return out;
}
