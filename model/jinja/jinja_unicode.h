/* Unicode as Python's str sees it, for the template interpreter: UTF-8 steps, character classes and
 * full case mapping, the same on every machine and in every locale.
 * Bytes that are not UTF-8 count as one character each and never lead outside the text.
 * Source: Unicode Character Database by way of Python's tables (tests/templates/gen_unicode.py). */
#ifndef SL_MODEL_JINJA_UNICODE_H
#define SL_MODEL_JINJA_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sl_j_prop {
    SL_J_ALPHA = 1 << 0,
    SL_J_DECIMAL = 1 << 1,
    SL_J_DIGIT = 1 << 2,
    SL_J_NUMERIC = 1 << 3,
    SL_J_SPACE = 1 << 4,
    SL_J_UPPER = 1 << 5,
    SL_J_LOWER = 1 << 6,
    SL_J_TITLE = 1 << 7,
    SL_J_PRINTABLE = 1 << 8,
    SL_J_CASE_IGNORABLE = 1 << 9,
    SL_J_ALNUM = SL_J_ALPHA | SL_J_DECIMAL | SL_J_DIGIT | SL_J_NUMERIC,
    SL_J_CASED = SL_J_UPPER | SL_J_LOWER | SL_J_TITLE,
};

/* The generated tables: runs of equal properties (start << 11 | properties), runs of simple case
 * mappings, and the mappings to several characters. */
struct sl_j_case_run {
    uint32_t lo, hi;
    int32_t step, delta;
};
struct sl_j_case_special {
    uint32_t cp;
    char kind; /* 'u', 'l', 't' */
    uint32_t to[3];
};
extern const uint32_t sl_j_uni_props[];
extern const unsigned sl_j_uni_props_n;
extern const struct sl_j_case_run sl_j_uni_upper[], sl_j_uni_lower[], sl_j_uni_title[];
extern const unsigned sl_j_uni_upper_n, sl_j_uni_lower_n, sl_j_uni_title_n;
extern const struct sl_j_case_special sl_j_uni_special[];
extern const unsigned sl_j_uni_special_n;

unsigned sl_j_props(uint32_t cp);
/* 0-9, or -1. */
int sl_j_decimal(uint32_t cp);
/* Maps to 'u'pper, 'l'ower or 't'itle case; returns how many code points (1-3) it became. */
unsigned sl_j_case(uint32_t cp, char kind, uint32_t out[3]);

/* Reads the character at p (p < end) and returns its length in bytes. */
unsigned sl_j_utf8_next(const char *p, const char *end, uint32_t *out_cp);
/* The start of the character that ends at p (p > begin). */
const char *sl_j_utf8_prev(const char *begin, const char *p);
size_t sl_j_utf8_count(const char *p, size_t len);

#endif
