#include "model/jinja/jinja_unicode.h"

#include <string.h>

static uint32_t props_entry(uint32_t cp, uint32_t *out_start) {
    unsigned lo = 0, hi = sl_j_uni_props_n;
    while (hi - lo > 1) {
        unsigned mid = (lo + hi) / 2;
        if ((sl_j_uni_props[mid] >> 11) <= cp)
            lo = mid;
        else
            hi = mid;
    }
    *out_start = sl_j_uni_props[lo] >> 11;
    return sl_j_uni_props[lo] & 0x7ffu;
}

unsigned sl_j_props(uint32_t cp) {
    uint32_t start;
    return cp > 0x10ffff ? 0 : props_entry(cp, &start);
}

int sl_j_decimal(uint32_t cp) {
    uint32_t start;
    if (cp >= '0' && cp <= '9')
        return (int)(cp - '0');
    if (cp < 0x80 || cp > 0x10ffff || !(props_entry(cp, &start) & SL_J_DECIMAL))
        return -1;
    return (int)((cp - start) % 10);
}

unsigned sl_j_case(uint32_t cp, char kind, uint32_t out[3]) {
    if (cp < 0x80) {
        if (kind == 'l')
            out[0] = cp >= 'A' && cp <= 'Z' ? cp + 32 : cp;
        else
            out[0] = cp >= 'a' && cp <= 'z' ? cp - 32 : cp;
        return 1;
    }
    unsigned lo = 0, hi = sl_j_uni_special_n;
    while (lo < hi) {
        unsigned mid = (lo + hi) / 2;
        if (sl_j_uni_special[mid].cp < cp)
            lo = mid + 1;
        else
            hi = mid;
    }
    for (; lo < sl_j_uni_special_n && sl_j_uni_special[lo].cp == cp; lo++) {
        if (sl_j_uni_special[lo].kind != kind)
            continue;
        memcpy(out, sl_j_uni_special[lo].to, 3 * sizeof *out);
        return out[2] ? 3 : out[1] ? 2 : 1;
    }
    const struct sl_j_case_run *runs = kind == 'u'   ? sl_j_uni_upper
                                       : kind == 'l' ? sl_j_uni_lower
                                                     : sl_j_uni_title;
    unsigned n = kind == 'u' ? sl_j_uni_upper_n : kind == 'l' ? sl_j_uni_lower_n : sl_j_uni_title_n;
    out[0] = cp;
    /* Runs with a step of two interleave with others, so a few are looked at. */
    lo = 0, hi = n;
    while (lo < hi) {
        unsigned mid = (lo + hi) / 2;
        if (runs[mid].lo <= cp)
            lo = mid + 1;
        else
            hi = mid;
    }
    for (unsigned back = 0; lo > 0 && back < 4; back++) {
        const struct sl_j_case_run *r = &runs[--lo];
        if (cp <= r->hi && (cp - r->lo) % (uint32_t)r->step == 0) {
            out[0] = (uint32_t)((int32_t)cp + r->delta);
            break;
        }
    }
    return 1;
}

unsigned sl_j_utf8_next(const char *p, const char *end, uint32_t *out_cp) {
    const unsigned char *s = (const unsigned char *)p;
    size_t left = (size_t)(end - p);
    unsigned c = s[0], need = c >= 0xf0 && c < 0xf5 ? 4 : c >= 0xe0 ? 3 : c >= 0xc2 ? 2 : 1;
    *out_cp = c;
    if (c < 0x80)
        return 1;
    if (c >= 0xf5 || need == 1 || need > left)
        return 1;
    uint32_t cp = need == 2 ? c & 0x1f : need == 3 ? c & 0x0f : c & 0x07;
    for (unsigned i = 1; i < need; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 1;
        cp = cp << 6 | (s[i] & 0x3f);
    }
    *out_cp = cp;
    return need;
}

const char *sl_j_utf8_prev(const char *begin, const char *p) {
    uint32_t cp;
    for (int back = 1; back <= 4 && p - back >= begin; back++)
        if (((unsigned char)p[-back] & 0xc0) != 0x80) {
            if (sl_j_utf8_next(p - back, p, &cp) == (unsigned)back)
                return p - back;
            break;
        }
    return p - 1;
}

size_t sl_j_utf8_count(const char *p, size_t len) {
    const char *end = p + len;
    size_t n = 0;
    uint32_t cp;
    while (p < end) {
        p += (unsigned char)*p < 0x80 ? 1 : sl_j_utf8_next(p, end, &cp);
        n++;
    }
    return n;
}
