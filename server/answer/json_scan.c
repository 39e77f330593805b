#include "server/answer/json_scan.h"

enum {
    BEFORE, /* a value; zero: where a scan begins */
    FIRST_ITEM,
    FIRST_KEY,
    KEY,
    COLON,
    BEHIND, /* a value inside of an array or object */
    STRING,
    ESCAPE,
    HEX,
    MINUS,
    ZERO,
    INTEGER,
    POINT,
    FRACTION,
    EXP,
    EXP_SIGN,
    EXP_DIGITS,
    WORD,
    OVER,
};

static const char *const words[] = {"true", "false", "null"};

static bool is_space(unsigned char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static bool is_digit(unsigned char c) {
    return c >= '0' && c <= '9';
}

static bool is_hex(unsigned char c) {
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static bool inside_object(const struct sl_json_scan *s) {
    uint32_t d = s->depth - 1;
    return s->is_object[d / 64] >> (d % 64) & 1;
}

static void value_over(struct sl_json_scan *s) {
    s->state = s->depth ? BEHIND : OVER;
}

static bool open_level(struct sl_json_scan *s, bool object) {
    if (s->depth == SL_JSON_SCAN_DEPTH)
        return false;
    uint64_t bit = 1ull << (s->depth % 64);
    if (object)
        s->is_object[s->depth / 64] |= bit;
    else
        s->is_object[s->depth / 64] &= ~bit;
    s->depth++;
    s->state = object ? FIRST_KEY : FIRST_ITEM;
    return true;
}

static bool close_level(struct sl_json_scan *s, bool object) {
    if (!s->depth || inside_object(s) != object)
        return false;
    s->depth--;
    value_over(s);
    return true;
}

static bool begin_value(struct sl_json_scan *s, unsigned char c) {
    if (c == '{' || c == '[')
        return open_level(s, c == '{');
    if (c == '"') {
        s->state = STRING;
        s->in_key = false;
        return true;
    }
    if (c == '-' || is_digit(c)) {
        s->state = c == '-' ? MINUS : c == '0' ? ZERO : INTEGER;
        return true;
    }
    for (uint8_t i = 0; i < 3; i++)
        if ((unsigned char)words[i][0] == c) {
            s->state = WORD;
            s->word = i;
            s->at = 1;
            return true;
        }
    return false;
}

static bool begin_key(struct sl_json_scan *s, unsigned char c) {
    s->state = STRING;
    s->in_key = true;
    return c == '"';
}

static bool string_byte(struct sl_json_scan *s, unsigned char c) {
    switch (s->state) {
    case ESCAPE:
        s->state = c == 'u' ? HEX : STRING;
        s->at = 0;
        return c == '"' || c == '\\' || c == '/' || c == 'b' || c == 'f' || c == 'n' || c == 'r' ||
               c == 't' || c == 'u';
    case HEX:
        if (++s->at == 4)
            s->state = STRING;
        return is_hex(c);
    default:
        if (c == '\\')
            s->state = ESCAPE;
        else if (c == '"' && s->in_key)
            s->state = COLON;
        else if (c == '"')
            value_over(s);
        return true;
    }
}

static bool between(struct sl_json_scan *s, unsigned char c) {
    switch (s->state) {
    case BEFORE:
        return begin_value(s, c);
    case FIRST_ITEM:
        return c == ']' ? close_level(s, false) : begin_value(s, c);
    case FIRST_KEY:
        return c == '}' ? close_level(s, true) : begin_key(s, c);
    case KEY:
        return begin_key(s, c);
    case COLON:
        s->state = BEFORE;
        return c == ':';
    default: /* BEHIND */
        if (c == ',') {
            s->state = inside_object(s) ? KEY : BEFORE;
            return true;
        }
        return (c == ']' || c == '}') && close_level(s, c == '}');
    }
}

/* A byte of a number: whether it is part of it; *out_over: it is not, and the number may end. */
static bool number_byte(struct sl_json_scan *s, unsigned char c, bool *out_over) {
    bool digit = is_digit(c), e = c == 'e' || c == 'E';
    *out_over = false;
    switch (s->state) {
    case MINUS:
        s->state = c == '0' ? ZERO : INTEGER;
        return digit;
    case POINT:
        s->state = FRACTION;
        return digit;
    case EXP:
        s->state = digit ? EXP_DIGITS : EXP_SIGN;
        return digit || c == '+' || c == '-';
    case EXP_SIGN:
        s->state = EXP_DIGITS;
        return digit;
    default:
        break;
    }
    if (digit && s->state != ZERO)
        return true;
    if (c == '.' && (s->state == ZERO || s->state == INTEGER)) {
        s->state = POINT;
        return true;
    }
    if (e && s->state != EXP_DIGITS) {
        s->state = EXP;
        return true;
    }
    *out_over = true;
    return false;
}

bool sl_json_scan_may_end(const struct sl_json_scan *s) {
    return s->state == OVER || (s->depth == 0 && (s->state == ZERO || s->state == INTEGER ||
                                                  s->state == FRACTION || s->state == EXP_DIGITS));
}

enum sl_json_scan_result sl_json_scan(struct sl_json_scan *s, const char *text, size_t len,
                                      size_t *out_taken) {
    size_t i = 0;
    bool ok = true, over = false;
    while (i < len && s->state != OVER) {
        unsigned char c = (unsigned char)text[i];
        if (s->state == STRING || s->state == ESCAPE || s->state == HEX) {
            ok = string_byte(s, c);
        } else if (s->state == WORD) {
            const char *w = words[s->word];
            ok = (unsigned char)w[s->at++] == c;
            if (ok && !w[s->at])
                value_over(s);
        } else if (s->state >= MINUS && s->state <= EXP_DIGITS) {
            ok = number_byte(s, c, &over);
            if (over) {
                value_over(s);
                ok = true;
                continue; /* the byte stands behind the number */
            }
        } else if (!is_space(c)) {
            ok = between(s, c);
        }
        if (!ok) {
            *out_taken = i;
            return SL_JSON_SCAN_BAD;
        }
        i++;
    }
    *out_taken = i;
    return s->state == OVER ? SL_JSON_SCAN_DONE : SL_JSON_SCAN_MORE;
}

enum sl_json_scan_result sl_json_scan_put(struct sl_json_scan *s, const char *text, size_t len,
                                          size_t *out_taken, struct sl_buf *out) {
    size_t at = 0;
    enum sl_json_scan_result r = SL_JSON_SCAN_MORE;
    while (at < len && r == SL_JSON_SCAN_MORE) {
        /* Up to a control character at a time; outside of strings it is white space or wrong. */
        size_t n = at, taken;
        while (n < len && (unsigned char)text[n] >= 0x20)
            n++;
        if (n > at) {
            r = sl_json_scan(s, text + at, n - at, &taken);
            sl_buf_put(out, text + at, taken);
            at += taken;
            continue;
        }
        bool in_string = s->state == STRING;
        r = sl_json_scan(s, text + at, 1, &taken);
        if (in_string)
            sl_buf_printf(out, "\\u%04x", (unsigned)(unsigned char)text[at]);
        else
            sl_buf_put(out, text + at, taken);
        at += taken;
    }
    *out_taken = at;
    return r;
}
