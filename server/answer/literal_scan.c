#include "server/answer/literal_scan.h"

#include "common/utf8.h"

#include <string.h>

enum state { KEY, PAIR, VALUE, STRING, BEHIND };

/* Of one step: bytes taken, or why none. */
enum { BAD = -1, WAIT = 0 };

struct input {
    const struct sl_literal_dialect *d;
    const char *text;
    size_t len;
    bool ended;
    struct sl_buf *out;
};

static bool is_space(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static void put_inside(struct sl_buf *out, const char *text, size_t len) {
    size_t from = out->len;
    sl_buf_json(out, text, len);
    if (out->failed)
        return;
    memmove(out->ptr + from, out->ptr + from + 1, out->len - from - 2); /* the quotation marks */
    out->len -= 2;
}

/* How much of the dialect's quote stands at the start: its length, WAIT for less, BAD for none. */
static int quote_at(const struct input *in) {
    size_t n = in->d->quote ? strlen(in->d->quote) : 0;
    size_t have = in->len < n ? in->len : n;
    if (n == 0 || memcmp(in->text, in->d->quote, have) != 0)
        return BAD;
    return have == n ? (int)n : in->ended ? BAD : WAIT;
}

/* The opening of a string. */
static int open_string(struct sl_literal_scan *s, const struct input *in, bool in_key) {
    int n = quote_at(in);
    char c = in->text[0];
    if (n == WAIT)
        return n;
    if (n == BAD && c != '"' && (c != '\'' || in->d->quote))
        return BAD;
    s->quote = n == BAD ? c : '<';
    s->in_key = in_key;
    s->state = STRING;
    sl_buf_puts(in->out, "\"");
    return n == BAD ? 1 : n;
}

/* A number, a word or a bare key: its length; WAIT where it may go on. */
static int word_len(const struct input *in) {
    size_t n = 0;
    while (n < in->len && n <= SL_LITERAL_WORD_BYTES &&
           !strchr(" \n\t\r\"'{}[](),=:<", in->text[n]))
        n++;
    if (n == 0 || n > SL_LITERAL_WORD_BYTES)
        return BAD;
    return n == in->len && !in->ended ? WAIT : (int)n;
}

static void separate(struct sl_literal_scan *s, struct sl_buf *out) {
    if (s->any)
        sl_buf_puts(out, ", ");
    s->any = true;
}

static int key(struct sl_literal_scan *s, const struct input *in) {
    char c = in->text[0];
    if (c == '"' || c == '\'' || quote_at(in) >= WAIT) {
        if (quote_at(in) == WAIT)
            return WAIT;
        separate(s, in->out);
        return open_string(s, in, true);
    }
    int n = word_len(in);
    if (n <= 0)
        return n;
    separate(s, in->out);
    sl_buf_json(in->out, in->text, (size_t)n);
    s->state = PAIR;
    return n;
}

static int word(struct sl_literal_scan *s, const struct input *in) {
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"},
                                           {"true", "true"}, {"false", "false"}, {"null", "null"}};
    int n = word_len(in);
    if (n <= 0)
        return n;
    s->state = BEHIND;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i][0]) == (size_t)n && memcmp(in->text, words[i][0], (size_t)n) == 0) {
            sl_buf_puts(in->out, words[i][1]);
            return n;
        }
    struct sl_json_scan number = {0};
    size_t taken;
    if (sl_json_scan(&number, in->text, (size_t)n, &taken) == SL_JSON_SCAN_BAD ||
        taken < (size_t)n || !sl_json_scan_may_end(&number))
        return BAD;
    sl_buf_put(in->out, in->text, (size_t)n);
    return n;
}

static int value(struct sl_literal_scan *s, const struct input *in) {
    char c = in->text[0];
    char close = c == '{' ? '}' : c == '[' ? ']' : c == '(' && !in->d->quote ? ')' : 0;
    if (close) {
        if (s->depth == SL_LITERAL_DEPTH)
            return BAD;
        s->open[s->depth++] = close;
        s->any = false;
        s->state = close == '}' ? KEY : VALUE;
        sl_buf_puts(in->out, close == '}' ? "{" : "[");
        return 1;
    }
    if (c == '"' || c == '\'' || quote_at(in) >= WAIT)
        return open_string(s, in, false);
    return word(s, in);
}

static uint32_t hex(const char *text, size_t n) {
    uint32_t v = 0;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        uint32_t digit = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                         : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a') + 10
                         : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A') + 10
                                                : UINT32_MAX;
        if (digit == UINT32_MAX)
            return UINT32_MAX;
        v = v << 4 | digit;
    }
    return v;
}

static void put_code_point(struct sl_buf *out, uint32_t cp) {
    char text[4];
    if (cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000))
        cp = 0xfffd;
    put_inside(out, text, sl_utf8_put(cp, text));
}

/* A backslash and what it stands for; what Python does not know stays as it is. */
static int escape(const struct input *in) {
    static const char from[] = "ntrbfav0\\'\"/", to[] = "\n\t\r\b\f\a\v\0\\'\"/";
    if (in->len < 2)
        return in->ended ? BAD : WAIT;
    char c = in->text[1];
    size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits) {
        if (in->len < 2 + digits)
            return in->ended ? BAD : WAIT;
        uint32_t cp = hex(in->text + 2, digits);
        if (cp == UINT32_MAX)
            return BAD;
        if (c == 'u' && cp >= 0xd800 && cp < 0xdc00) { /* JSON's pairs */
            size_t n = in->len < 8 ? in->len : 8;
            bool pair = memcmp(in->text + 6, "\\u", n > 7 ? 2 : n - 6) == 0;
            if (pair && in->len < 12)
                return in->ended ? BAD : WAIT;
            uint32_t low = pair ? hex(in->text + 8, 4) : 0;
            if (low >= 0xdc00 && low < 0xe000) {
                put_code_point(in->out, 0x10000 + ((cp - 0xd800) << 10) + (low - 0xdc00));
                return 12;
            }
        }
        put_code_point(in->out, cp);
        return (int)(2 + digits);
    }
    const char *known = c ? strchr(from, c) : NULL;
    if (known)
        put_inside(in->out, to + (known - from), 1);
    else if (c != '\n') /* which joins two lines */
        put_inside(in->out, "\\", 1);
    return known || c == '\n' ? 2 : 1;
}

static int string(struct sl_literal_scan *s, const struct input *in) {
    size_t n = 0;
    while (n < in->len && in->text[n] != s->quote && (in->text[n] != '\\' || s->quote == '<'))
        n++;
    if (n) {
        put_inside(in->out, in->text, n);
        return n > INT32_MAX ? BAD : (int)n;
    }
    if (in->text[0] == '\\' && s->quote != '<')
        return escape(in);
    int end = s->quote == '<' ? quote_at(in) : 1;
    if (end == WAIT)
        return end;
    if (end == BAD) { /* some other "<" */
        put_inside(in->out, in->text, 1);
        return 1;
    }
    sl_buf_puts(in->out, "\"");
    s->state = s->in_key ? PAIR : BEHIND;
    return end;
}

/* The end of what is open, if byte c is it. */
static bool closes(struct sl_literal_scan *s, const struct input *in, char c, bool *out_done) {
    char want = s->depth ? s->open[s->depth - 1] : in->d->close;
    if (c != want)
        return false;
    *out_done = s->depth == 0;
    sl_buf_puts(in->out, s->depth == 0 || want == '}' ? "}" : "]");
    s->depth -= s->depth > 0;
    s->any = true;
    s->state = BEHIND;
    return true;
}

static int step(struct sl_literal_scan *s, const struct input *in, bool *out_done) {
    char c = in->text[0];
    bool in_list = s->depth && s->open[s->depth - 1] != '}';
    if (s->state == STRING)
        return string(s, in);
    if (is_space(c))
        return 1;
    switch ((enum state)s->state) {
    case KEY:
        return closes(s, in, c, out_done) ? 1 : key(s, in);
    case PAIR:
        if (c != (s->depth ? ':' : in->d->pair))
            return BAD;
        sl_buf_puts(in->out, ": ");
        s->state = VALUE;
        return 1;
    case VALUE:
        if (in_list && closes(s, in, c, out_done)) /* empty, or behind a comma */
            return 1;
        if (in_list)
            separate(s, in->out);
        return value(s, in);
    default:
        if (closes(s, in, c, out_done))
            return 1;
        s->state = in_list ? VALUE : KEY;
        return c == ',' ? 1 : BAD;
    }
}

enum sl_json_scan_result sl_literal_scan_put(struct sl_literal_scan *s,
                                             const struct sl_literal_dialect *d, const char *text,
                                             size_t len, bool ended, size_t *out_taken,
                                             struct sl_buf *out) {
    bool done = false;
    size_t at = 0;
    if (!s->begun)
        sl_buf_puts(out, "{");
    s->begun = true;
    while (at < len && !done) {
        const struct input in = {d, text + at, len - at, ended, out};
        struct sl_literal_scan before = *s;
        size_t out_len = out->len;
        int n = step(s, &in, &done);
        if (n <= 0) {
            *s = before;
            out->len = out_len;
            *out_taken = at;
            return n == BAD ? SL_JSON_SCAN_BAD : SL_JSON_SCAN_MORE;
        }
        at += (size_t)n;
    }
    *out_taken = at;
    return done ? SL_JSON_SCAN_DONE : SL_JSON_SCAN_MORE;
}
