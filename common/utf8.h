/* UTF-8: lengths, validity, code points. Static functions only. */
#ifndef SL_COMMON_UTF8_H
#define SL_COMMON_UTF8_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Length of the well-formed character at s (n >= 1 bytes), 0 if there is none. Overlong forms,
 * surrogates and code points above U+10FFFF are not well-formed.
 * Source: Unicode, table 3-7. */
static inline uint32_t sl_utf8_len(const unsigned char *s, size_t n) {
    unsigned char c = s[0];
    if (c < 0x80)
        return 1;
    if (c < 0xc2 || c > 0xf4)
        return 0;
    if (n < 2)
        return 0;
    unsigned char lo = 0x80, hi = 0xbf;
    if (c == 0xe0)
        lo = 0xa0;
    else if (c == 0xed)
        hi = 0x9f;
    else if (c == 0xf0)
        lo = 0x90;
    else if (c == 0xf4)
        hi = 0x8f;
    if (s[1] < lo || s[1] > hi)
        return 0;
    if (c < 0xe0)
        return 2;
    if (n < 3 || (s[2] & 0xc0) != 0x80)
        return 0;
    if (c < 0xf0)
        return 3;
    return n >= 4 && (s[3] & 0xc0) == 0x80 ? 4 : 0;
}

/* The length of the well-formed prefix of text, in bytes. */
static inline size_t sl_utf8_valid_prefix(const char *text, size_t n) {
    const unsigned char *s = (const unsigned char *)text;
    size_t i = 0;
    while (i < n) {
        if (s[i] < 0x80) {
            i++;
            continue;
        }
        uint32_t len = sl_utf8_len(s + i, n - i);
        if (len == 0)
            break;
        i += len;
    }
    return i;
}

/* Copies n untrusted bytes as one line of text, for logs and clients: '?' replaces each control
 * character and each byte that is not part of well-formed UTF-8. Writes n bytes, no final zero. */
static inline void sl_utf8_line(char *out, const uint8_t *bytes, size_t n) {
    for (size_t i = 0; i < n;) {
        uint32_t len = sl_utf8_len(bytes + i, n - i);
        if (len < 2) {
            out[i] = (char)(!len || bytes[i] < ' ' || bytes[i] == 0x7f ? '?' : bytes[i]);
            i++;
            continue;
        }
        memcpy(out + i, bytes + i, len);
        i += len;
    }
}

/* Writes a code point (up to U+10FFFF, surrogates too); returns the number of bytes, 1 to 4. */
static inline uint32_t sl_utf8_put(uint32_t cp, char *out) {
    unsigned char *o = (unsigned char *)out;
    if (cp < 0x80) {
        o[0] = (unsigned char)cp;
        return 1;
    }
    if (cp < 0x800) {
        o[0] = (unsigned char)(0xc0 | cp >> 6);
        o[1] = (unsigned char)(0x80 | (cp & 0x3f));
        return 2;
    }
    if (cp < 0x10000) {
        o[0] = (unsigned char)(0xe0 | cp >> 12);
        o[1] = (unsigned char)(0x80 | (cp >> 6 & 0x3f));
        o[2] = (unsigned char)(0x80 | (cp & 0x3f));
        return 3;
    }
    o[0] = (unsigned char)(0xf0 | cp >> 18);
    o[1] = (unsigned char)(0x80 | (cp >> 12 & 0x3f));
    o[2] = (unsigned char)(0x80 | (cp >> 6 & 0x3f));
    o[3] = (unsigned char)(0x80 | (cp & 0x3f));
    return 4;
}

/* The code point of a well-formed character of len bytes. */
static inline uint32_t sl_utf8_get(const unsigned char *s, uint32_t len) {
    switch (len) {
    case 1:
        return s[0];
    case 2:
        return (uint32_t)(s[0] & 0x1f) << 6 | (s[1] & 0x3fu);
    case 3:
        return (uint32_t)(s[0] & 0x0f) << 12 | (uint32_t)(s[1] & 0x3f) << 6 | (s[2] & 0x3fu);
    default:
        return (uint32_t)(s[0] & 0x07) << 18 | (uint32_t)(s[1] & 0x3f) << 12 |
               (uint32_t)(s[2] & 0x3f) << 6 | (s[3] & 0x3fu);
    }
}

#endif
