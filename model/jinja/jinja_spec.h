/* One value as a format specification says: what % (jinja_percent.c) and str.format
 * (jinja_format.c) have in common. Failures end the rendering (sl_j_fail). */
#ifndef SL_MODEL_JINJA_SPEC_H
#define SL_MODEL_JINJA_SPEC_H

#include "model/jinja/jinja_ast.h"
#include "model/jinja/jinja_value.h"

enum { SL_JSPEC_MAX_WIDTH = 1 << 20, SL_JSPEC_MAX_PRECISION = 300 };

struct sl_jspec {
    uint32_t fill;
    char align, sign, type, group; /* 0 when not given */
    bool alt;
    int64_t width, precision; /* -1: none */
};

struct sl_jv sl_jspec_int(struct sl_jrt *rt, const struct sl_jspec *s, int64_t i);
struct sl_jv sl_jspec_float(struct sl_jrt *rt, const struct sl_jspec *s, double f);
/* By s->type: s str(), a ascii(), else repr(); cut to the precision. */
struct sl_jv sl_jspec_text(struct sl_jrt *rt, const struct sl_jspec *s, struct sl_jv v);
/* A string of one character, or the number of one. */
struct sl_jv sl_jspec_char(struct sl_jrt *rt, struct sl_jv v);
/* The digits at *p, which is moved behind them: a width or a precision. */
int64_t sl_jspec_number(struct sl_jrt *rt, const char **p, const char *end);
/* "-", "+", " " or nothing before a number. */
const char *sl_jspec_sign(const struct sl_jspec *s, bool negative);
/* sign, prefix and body, filled to the width. */
struct sl_jv sl_jspec_pad(struct sl_jrt *rt, const struct sl_jspec *s, const char *sign,
                          const char *prefix, const char *body);

#endif
