// Colours for code: tokens() cuts a text into [kind, from, to], highlight() makes spans and text
// nodes of them. Every character is looked at a bounded number of times, so that no text takes more
// than time in proportion to its length; a string or comment that never ends reaches to the end of
// its line or of the text.
//
// Kinds: c comment, s string, k keyword, n number or constant, f name of a function, t type or tag,
// m preprocessor, decorator or variable of a shell, a key of JSON or name of an attribute; of a diff
// + - and @.

const words = (text) => new Set(text.split(' '));
const C_WORDS = 'if else for while do switch case default break continue return goto sizeof typedef struct union enum static extern const volatile inline register restrict';
const C_TYPES = 'void char short int long float double signed unsigned bool size_t ssize_t int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t';
const JS_WORDS = 'if else for while do switch case default break continue return function class extends new delete typeof instanceof in of let const var async await yield import export from try catch finally throw this super static get set void with debugger';
const CONSTANTS = 'true false null undefined NaN Infinity NULL nullptr None True False nil';

const DOUBLE = { open: '"', close: '"' }, SINGLE = { open: "'", close: "'" };
const cLike = (keywords, types = C_TYPES, more = {}) => ({
  line: ['//'], block: [['/*', '*/']], strings: [DOUBLE, SINGLE], keywords: words(keywords), types: words(types), ...more });
const hash = (keywords, types, more = {}) => ({
  line: ['#'], block: [], strings: [DOUBLE, SINGLE], keywords: words(keywords), types: words(types), ...more });
const BACKTICK = { open: '`', close: '`', lines: true };

const LANGUAGES = {
  c: cLike(C_WORDS, C_TYPES, { hashLine: true }),
  cpp: cLike(`${C_WORDS} class public private protected virtual override final template typename namespace using new delete this try catch throw constexpr noexcept operator friend explicit auto mutable static_cast dynamic_cast concept requires co_await co_return __global__ __device__ __shared__`, `${C_TYPES} string vector map set pair unique_ptr shared_ptr optional`, { hashLine: true }),
  java: cLike('if else for while do switch case default break continue return class interface enum record extends implements new this super import package public private protected static final abstract void try catch finally throw throws instanceof synchronized volatile var yield native transient', 'int long short byte char float double boolean String Object List Map Set Integer', { decorator: true }),
  js: cLike(JS_WORDS, 'Array Object String Number Boolean Map Set Promise Error Math JSON Date RegExp Symbol', { strings: [DOUBLE, SINGLE, BACKTICK], regex: true, dollar: true, decorator: true }),
  ts: cLike(`${JS_WORDS} interface type enum implements public private protected readonly abstract declare namespace as is keyof satisfies`, 'string number boolean any unknown never void object Array Map Set Promise Record Partial', { strings: [DOUBLE, SINGLE, BACKTICK], regex: true, dollar: true, decorator: true }),
  go: cLike('if else for range switch case default break continue return func package import type struct interface map chan go defer select var const fallthrough goto', 'int int8 int16 int32 int64 uint uint8 uint16 uint32 uint64 uintptr float32 float64 string bool byte rune error any', { strings: [DOUBLE, SINGLE, { ...BACKTICK, raw: true }] }),
  rust: cLike('if else for while loop match break continue return fn let mut const static struct enum impl trait type pub use mod crate self super where as in ref move async await dyn unsafe extern', 'i8 i16 i32 i64 i128 isize u8 u16 u32 u64 u128 usize f32 f64 bool char str String Vec Option Result Box Self', { strings: [{ ...DOUBLE, lines: true }, { ...SINGLE, short: true }] }),
  cs: cLike('if else for foreach while do switch case default break continue return class interface struct enum record namespace using new this base public private protected internal static readonly const abstract virtual override sealed async await try catch finally throw var in out ref is as get set where yield', 'void int long short byte char float double decimal bool string object List Dictionary Task'),
  kotlin: cLike('if else for while do when break continue return fun val var class interface object data sealed enum import package is in as this super try catch finally throw public private protected internal override open abstract suspend companion', 'Int Long Short Byte Float Double Boolean Char String Any Unit List Map Set', { decorator: true }),
  swift: cLike('if else for while repeat switch case default break continue return func let var class struct enum protocol extension import guard defer in is as self super init try catch throw throws public private static override async await where', 'Int Double Float Bool String Character Array Dictionary Set Any Void', { decorator: true }),
  php: cLike('if else elseif for foreach while do switch case default break continue return function class interface trait extends implements new use namespace public private protected static abstract final echo print try catch finally throw as fn match', 'int float string bool array object mixed void', { line: ['//', '#'], dollarName: true }),
  css: { line: [], block: [['/*', '*/']], strings: [DOUBLE, SINGLE], keywords: words('important media supports import keyframes from to'), types: words('') },
  python: hash('if elif else for while break continue return def class lambda import from as with try except finally raise assert pass yield global nonlocal del in is not and or async await match case', 'int float str bool bytes list dict set tuple object type self cls print len range', {
    strings: [{ open: '"""', close: '"""', lines: true }, { open: "'''", close: "'''", lines: true }, DOUBLE, SINGLE], decorator: true }),
  ruby: hash('if elsif else unless for while until break next return def class module end do begin rescue ensure raise yield self super require then case when in and or not attr_accessor', 'Integer Float String Array Hash Symbol puts'),
  shell: hash('if then elif else fi for in while until do done case esac function return exit break continue local export readonly set unset shift source alias trap eval exec sudo', 'echo cd ls cat grep sed awk find mkdir rm cp mv chmod curl git make python npm printf test read', {
    strings: [{ ...DOUBLE, lines: true }, { ...SINGLE, lines: true, raw: true }], hashAtWord: true, dollarName: true, dashes: true }),
  lua: { line: ['--'], block: [['--[[', ']]']], strings: [DOUBLE, SINGLE, { open: '[[', close: ']]', lines: true, raw: true }], keywords: words('if then elseif else end for while do repeat until break return function local in and or not goto'), types: words('print pairs ipairs string table math') },
  sql: { line: ['--'], block: [['/*', '*/']], strings: [{ ...SINGLE, lines: true, raw: true }, DOUBLE], anyCase: true,
    keywords: words('select from where and or not insert into values update set delete create table index view drop alter add join left right inner outer full on as group by order having limit offset union all distinct case when then else end exists in between like is primary key foreign references default unique begin commit rollback with returning'), types: words('int integer bigint text varchar char real float double numeric date timestamp boolean serial count sum avg min max') },
  yaml: hash('', '', { keys: true, hashAtWord: true, dashes: true }),
  toml: hash('', '', { keys: true }),
  json: { line: ['//'], block: [], strings: [DOUBLE], keywords: words(''), types: words(''), keys: true },
  make: hash('ifeq ifneq ifdef ifndef else endif include define endef export', '', { strings: [], dollarName: true }),
};
const ALIASES = { h: 'c', 'c++': 'cpp', cc: 'cpp', hpp: 'cpp', cxx: 'cpp', cuda: 'cpp', cu: 'cpp', glsl: 'cpp', javascript: 'js', mjs: 'js', cjs: 'js', jsx: 'js', node: 'js',
  typescript: 'ts', tsx: 'ts', golang: 'go', rs: 'rust', csharp: 'cs', 'c#': 'cs', kt: 'kotlin', py: 'python', python3: 'python', py3: 'python', rb: 'ruby',
  sh: 'shell', bash: 'shell', zsh: 'shell', console: 'shell', dockerfile: 'shell', scss: 'css', less: 'css', postgresql: 'sql', mysql: 'sql', sqlite: 'sql',
  yml: 'yaml', ini: 'toml', jsonc: 'json', json5: 'json', jsonl: 'json', makefile: 'make', patch: 'diff', xml: 'html', svg: 'html', vue: 'html', htm: 'html' };
const constants = words(CONSTANTS);

export function languageOf(name) {
  const key = String(name).toLowerCase();
  const known = Object.hasOwn(ALIASES, key) ? ALIASES[key] : key;
  return known === 'diff' || known === 'html' || Object.hasOwn(LANGUAGES, known) ? known : null;
}

const isLetter = (c) => (c >= 97 && c <= 122) || (c >= 65 && c <= 90) || c === 95 || c > 127;
const isDigit = (c) => c >= 48 && c <= 57;
const isName = (c) => isLetter(c) || isDigit(c);
const lineEnd = (text, i) => { const e = text.indexOf('\n', i); return e === -1 ? text.length : e; };

// Where a string ends that begins at from; -1: it is none.
function stringEnd(text, from, s) {
  let i = from + s.open.length;
  if (s.short) { // one character or an escape: anything else is a lifetime
    const escape = text[i] === '\\', n = text.slice(i, i + (escape ? 11 : 3)).indexOf(s.close, escape ? 2 : 1);
    return n === -1 || text[i] === '\n' ? -1 : i + n + 1;
  }
  for (; i < text.length; i++) {
    const c = text[i];
    if (c === '\\' && !s.raw) i++;
    else if (c === s.close[0] && text.startsWith(s.close, i)) return i + s.close.length;
    else if (c === '\n' && !s.lines) break;
  }
  return Math.min(i, text.length);
}

// A regular expression on one line, of at most 100 characters.
function regexEnd(text, from) {
  let inClass = false;
  for (let i = from + 1; i < Math.min(text.length, from + 100); i++) {
    const c = text[i];
    if (c === '\n') return -1;
    if (c === '\\') i++;
    else if (c === '[') inClass = true;
    else if (c === ']') inClass = false;
    else if (c === '/' && !inClass) {
      while (isLetter(text.charCodeAt(i + 1))) i++;
      return i + 1;
    }
  }
  return -1;
}

function code(text, l) {
  const out = [];
  let i = 0, before = ''; // the last character that was neither space nor comment
  const push = (kind, to) => { out.push([kind, i, to]); i = to; before = text[to - 1]; };
  outer: while (i < text.length) {
    const ch = text[i], c = text.charCodeAt(i);
    if (c <= 32) { i++; continue; }
    for (const [open, close] of l.block)
      if (text.startsWith(open, i)) {
        const end = text.indexOf(close, i + open.length);
        const was = before;
        push('c', end === -1 ? text.length : end + close.length);
        before = was;
        continue outer;
      }
    for (const mark of l.line)
      if (text.startsWith(mark, i) && !(l.hashAtWord && i && text.charCodeAt(i - 1) > 32)) {
        const was = before;
        push('c', lineEnd(text, i));
        before = was;
        continue outer;
      }
    for (const s of l.strings)
      if (ch === s.open[0] && text.startsWith(s.open, i)) {
        const end = stringEnd(text, i, s);
        if (end === -1) continue;
        let after = end;
        while (l.keys && after < end + 8 && text[after] === ' ') after++;
        push(l.keys && text[after] === ':' ? 'a' : 's', end);
        continue outer;
      }
    if (isDigit(c) || (ch === '.' && isDigit(text.charCodeAt(i + 1)))) {
      let end = i + 1;
      while (end < text.length && (isName(text.charCodeAt(end)) || text[end] === '.' || ((text[end] === '-' || text[end] === '+') && /[eEpP]/.test(text[end - 1]) && !/^0x/i.test(text.slice(i, i + 2))))) end++;
      push('n', end);
    } else if (isLetter(c)) {
      let end = i + 1;
      while (end < text.length && (isName(text.charCodeAt(end)) || ((l.dashes || l.dollar) && text[end] === (l.dollar ? '$' : '-')))) end++;
      const word = text.slice(i, end > i + 64 ? i + 64 : end), key = l.anyCase ? word.toLowerCase() : word;
      let next = end;
      while (next < end + 8 && text[next] === ' ') next++;
      if (l.keys && (text[next] === ':' || text[next] === '=')) push('a', end);
      else if (before === '.' && text[next] === '(') push('f', end);
      else if (l.keywords.has(key)) push('k', end);
      else if (constants.has(word)) push('n', end);
      else if (l.types.has(key)) push('t', end);
      else if (text[next] === '(' && next === end) push('f', end);
      else { i = end; before = text[end - 1]; }
    } else if ((ch === '#' && l.hashLine && (i === 0 || /\n[ \t]*$/.test(text.slice(Math.max(0, i - 20), i))))
      || (ch === '@' && l.decorator)) {
      let end = i + 1;
      while (end < text.length && (isName(text.charCodeAt(end)) || text[end] === '.')) end++;
      push('m', end);
    } else if (ch === '$' && l.dollarName) {
      let end = i + 1;
      if (text[end] === '{' || text[end] === '(') {
        const close = text[end] === '{' ? '}' : ')';
        let j = end;
        while (j < text.length && j < end + 40 && text[j] !== close && text[j] !== '\n' && text[j] !== ' ') j++;
        end = text[j] === close ? j + 1 : end + 1;
      } else while (end < text.length && isName(text.charCodeAt(end))) end++;
      push('m', end);
    } else if (ch === '/' && l.regex && (before === '' || '=([,:!&|?{};+'.includes(before))) {
      const end = regexEnd(text, i);
      if (end === -1) { i++; before = '/'; } else push('s', end);
    } else { i++; before = ch; }
  }
  return out;
}

function diff(text) {
  const out = [];
  for (let i = 0; i < text.length;) {
    const end = lineEnd(text, i), head = text.slice(i, i + 4);
    const kind = /^(\+\+\+|---|diff|inde)/.test(head) ? 'k' : { '+': '+', '-': '-', '@': '@' }[text[i]];
    if (kind && end > i) out.push([kind, i, end]);
    i = end + 1;
  }
  return out;
}

function html(text) {
  const out = [];
  let i = 0;
  for (;;) {
    i = text.indexOf('<', i);
    if (i === -1) return out;
    if (text.startsWith('<!--', i)) {
      const end = text.indexOf('-->', i);
      out.push(['c', i, end === -1 ? text.length : end + 3]);
      i = out.at(-1)[2];
      continue;
    }
    let j = i + 1;
    while (text[j] === '/' || text[j] === '!' || text[j] === '?') j++;
    const name = j;
    while (j < text.length && (isName(text.charCodeAt(j)) || text[j] === '-' || text[j] === ':')) j++;
    if (j === name) { i++; continue; }
    out.push(['t', i, j]);
    while (j < text.length && text[j] !== '>' && text[j] !== '<') {
      const from = j;
      if (text[j] === '"' || text[j] === "'") {
        const end = text.indexOf(text[j], j + 1);
        j = end === -1 ? text.length : end + 1;
        out.push(['s', from, j]);
      } else if (isLetter(text.charCodeAt(j))) {
        while (j < text.length && (isName(text.charCodeAt(j)) || text[j] === '-' || text[j] === ':')) j++;
        out.push(['a', from, j]);
      } else j++;
    }
    if (text[j] === '>') { out.push(['t', j, j + 1]); j++; }
    i = j;
  }
}

export function tokens(text, name) {
  const language = languageOf(name);
  if (!language) return [];
  if (language === 'diff') return diff(text);
  return language === 'html' ? html(text) : code(text, LANGUAGES[language]);
}

// What is shown in colour: a span costs far more memory than its text. The rest is plain.
export const COLOURED_CHARACTERS = 100000;
const COLOURED_SPANS = 20000;
const CLASSES = { '+': 'h-add', '-': 'h-del', '@': 'h-at' };

export function highlight(element, text, name) {
  const parts = [];
  let at = 0;
  for (const [kind, from, to] of tokens(text.slice(0, COLOURED_CHARACTERS), name).slice(0, COLOURED_SPANS)) {
    if (from > at) parts.push(text.slice(at, from));
    const span = document.createElement('span');
    span.className = CLASSES[kind] ?? `h-${kind}`;
    span.textContent = text.slice(from, to);
    parts.push(span);
    at = to;
  }
  parts.push(text.slice(at));
  const all = document.createDocumentFragment();
  for (const p of parts) all.append(p);
  element.replaceChildren(all);
}
