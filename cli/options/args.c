#include "cli/options/args.h"

#include "cli/options/args_env.h"
#include "cli/options/completion.h"
#include "cli/options/help.h"
#include "cli/options/outputs.h"
#include "cli/options/pulled_model.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_WORD 48u

static uint32_t edit_distance(const char *a, const char *b) {
    uint32_t na = (uint32_t)strlen(a), nb = (uint32_t)strlen(b);
    uint32_t row[MAX_WORD + 1];
    if (na > MAX_WORD || nb > MAX_WORD)
        return UINT32_MAX;
    for (uint32_t j = 0; j <= nb; j++)
        row[j] = j;
    for (uint32_t i = 1; i <= na; i++) {
        uint32_t diagonal = row[0];
        row[0] = i;
        for (uint32_t j = 1; j <= nb; j++) {
            uint32_t best = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[nb];
}

const char *sl_args_nearest(const char *word, const char *const *candidates, uint32_t n) {
    const char *best = NULL;
    uint32_t best_distance = (uint32_t)strlen(word) / 3 + 2;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t d = edit_distance(word, candidates[i]);
        if (d < best_distance) {
            best_distance = d;
            best = candidates[i];
        }
    }
    return best;
}

/* Decimal; with hex "0x" too. A leading zero is no octal. */
static bool parse_unsigned(const char *text, bool hex, uint64_t max, uint64_t *out) {
    char *end;
    errno = 0;
    if (!isdigit((unsigned char)text[0]))
        return false;
    hex = hex && text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
    unsigned long long v = strtoull(text, &end, hex ? 16 : 10);
    if (*end || errno || v > max)
        return false;
    *out = v;
    return true;
}

/* Writes the value; false when it does not parse. */
static bool store(const struct sl_arg *a, const char *text) {
    uint64_t u;
    switch (a->kind) {
    case SL_ARG_STRING:
    case SL_ARG_TEXT:
    case SL_ARG_SECRET:
    case SL_ARG_INPUT:
    case SL_ARG_OUTPUT:
    case SL_ARG_KEPT:
    case SL_ARG_FOLDER:
        *(const char **)a->out = text;
        return true;
    case SL_ARG_U32:
        if (!parse_unsigned(text, false, UINT32_MAX, &u))
            return false;
        *(uint32_t *)a->out = (uint32_t)u;
        return true;
    case SL_ARG_U64:
        return parse_unsigned(text, true, UINT64_MAX, (uint64_t *)a->out);
    case SL_ARG_BYTES:
        return sl_parse_bytes(text, (uint64_t *)a->out);
    case SL_ARG_F32: {
        char *end;
        float f = strtof(text, &end);
        if (end == text || *end || !isfinite(f))
            return false;
        *(float *)a->out = f;
        return true;
    }
    case SL_ARG_INPUTS:
    case SL_ARG_LIST: {
        struct sl_arg_list *l = a->out;
        if (l->n == SL_ARG_LIST_MAX)
            return false;
        l->items[l->n++] = text;
        return true;
    }
    case SL_ARG_FLAG:
    case SL_ARG_HEADING:
        break;
    }
    return false;
}

/* ---- which numbers ---- */

static double stored_number(const struct sl_arg *a) {
    switch (a->kind) {
    case SL_ARG_U32:
        return *(const uint32_t *)a->out;
    case SL_ARG_U64:
    case SL_ARG_BYTES:
        return (double)*(const uint64_t *)a->out;
    case SL_ARG_F32:
        return (double)*(const float *)a->out;
    default:
        return 0;
    }
}

static bool is_number(enum sl_arg_kind kind) {
    return kind == SL_ARG_U32 || kind == SL_ARG_U64 || kind == SL_ARG_F32 || kind == SL_ARG_BYTES;
}

/* NULL: none. A list of numbers may have the name that one number has elsewhere. */
static const struct sl_arg_limit *limit_of(const struct sl_command *c, const struct sl_arg *a) {
    if (!is_number(a->kind))
        return NULL;
    for (uint32_t i = 0; i < c->n_limits; i++)
        if (strcmp(c->limits[i].name, a->name) == 0)
            return &c->limits[i];
    return NULL;
}

/* "a whole number from 2 to 16777216, or 0 for the model's own" into buf. */
static const char *allowed(const struct sl_arg *a, const struct sl_arg_limit *l, char *buf,
                           size_t size) {
    static const char *const kinds[] = {
        [SL_ARG_U32] = "a whole number",
        [SL_ARG_U64] = "a whole number",
        [SL_ARG_F32] = "a number",
        [SL_ARG_BYTES] = "a size such as 512MiB or 2GiB",
    };
    struct sl_arg_limit own = {.most = a->kind == SL_ARG_U32 ? (double)UINT32_MAX : HUGE_VAL};
    char range[96] = "";
    if (!l && a->kind != SL_ARG_F32)
        l = &own;
    if (l && l->least == SL_ARG_ABOVE_0)
        snprintf(range, sizeof range, " above 0");
    else if (l && isinf(l->most))
        snprintf(range, sizeof range, l->least > 0 ? " of at least %.10g" : " from %.10g up",
                 l->least);
    else if (l)
        snprintf(range, sizeof range, " from %.10g to %.10g", l->least, l->most);
    snprintf(buf, size, "%s%s%s%s", kinds[a->kind], range, l && l->zero ? ", or 0 for " : "",
             l && l->zero ? l->zero : "");
    return buf;
}

/* Stores a value that was given under this name, which is the option's or another. */
static bool take(const struct sl_command *c, const struct sl_arg *a, const char *name,
                 const char *text, struct sl_err *err) {
    if (!*text && a->kind != SL_ARG_TEXT && !is_number(a->kind)) {
        (void)sl_fail(err, SL_ERR_CONFIG, "%s is empty: must be %s", name, a->value);
        return false;
    }
    const struct sl_arg_limit *l = limit_of(c, a);
    union {
        uint32_t u32;
        uint64_t u64;
        float f32;
    } before = {.u64 = 0}; /* a number that is refused leaves what was there */
    size_t size = a->kind == SL_ARG_U32   ? sizeof before.u32
                  : a->kind == SL_ARG_F32 ? sizeof before.f32
                                          : sizeof before.u64;
    if (is_number(a->kind))
        memcpy(&before, a->out, size);
    bool stored = store(a, text);
    double v = stored ? stored_number(a) : 0;
    if (stored && (!l || (v == 0 && l->zero) || (v >= l->least && v <= l->most)))
        return true;
    if (a->kind == SL_ARG_LIST || a->kind == SL_ARG_INPUTS) {
        (void)sl_fail(err, SL_ERR_CONFIG, "%s %s is one too many: at most %u may be given", name,
                      text, SL_ARG_LIST_MAX);
        return false;
    }
    memcpy(a->out, &before, size);
    char must_be[256];
    (void)sl_fail(err, SL_ERR_CONFIG, "%s is '%s': must be %s", name, text,
                  allowed(a, l, must_be, sizeof must_be));
    return false;
}

static const struct sl_arg *find(const struct sl_command *c, const char *word, size_t len) {
    for (uint32_t i = 0; i < c->n_args; i++) {
        const struct sl_arg *a = &c->args[i];
        if (a->kind == SL_ARG_HEADING)
            continue;
        if (len == 2 && word[1] != '-' && a->letter == word[1])
            return a;
        if (strlen(a->name) == len && memcmp(a->name, word, len) == 0)
            return a;
    }
    return NULL;
}

static int unknown_option(const struct sl_command *c, const char *word, size_t len) {
    char name[MAX_WORD + 1];
    snprintf(name, sizeof name, "%.*s", (int)(len < MAX_WORD ? len : MAX_WORD), word);
    const char *names[128];
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->n_args && n < SL_COUNTOF(names); i++)
        if (c->args[i].kind != SL_ARG_HEADING)
            names[n++] = c->args[i].name;
    const char *near = sl_args_nearest(name, names, n);
    return sl_usage_error(c->name, "unknown option '%s'%s%s%s", name,
                          near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

/* An option that was not given, from its variable. False after an error message. */
static bool take_variable(const struct sl_command *c, const struct sl_arg *a, bool *out_seen) {
    char name[SL_VARIABLE_BYTES];
    const char *text = sl_args_variable(a, name) ? sl_args_variable_value(name) : NULL;
    struct sl_err err;
    *out_seen = false;
    if (!text)
        return true;
    *out_seen = true;
    if (a->kind == SL_ARG_FLAG) {
        if (sl_parse_switch(text, a->out))
            return true;
        sl_usage_error(c->name, "%s is '%s': must be 1 or 0, as %s is a flag", name, text, a->name);
        return false;
    }
    if (take(c, a, name, text, &err))
        return true;
    sl_usage_error(c->name, "%s", err.text);
    return false;
}

/* -m, or the one argument. */
static int take_model(const struct sl_command *c, const char *argument) {
    if (*c->model && argument)
        return sl_usage_error(c->name, "two models given: %s and %s", *c->model, argument);
    if (argument)
        *c->model = argument;
    if (!*c->model && !c->model_optional)
        return sl_usage_error(c->name, "no model given; say which with -m MODEL.gguf");
    return -1;
}

bool sl_args_set(const struct sl_command *c, const char *option, const char *name, const char *text,
                 struct sl_err *err) {
    return take(c, find(c, option, strlen(option)), name, text, err);
}

int sl_args_parse(const struct sl_command *c, int argc, char **argv) {
    bool seen[128] = {false};
    bool only_arguments = false;
    const char *argument = NULL;
    if (argc == 2 && strcmp(argv[1], SL_LIST_OPTIONS) == 0) {
        sl_completion_print(c);
        return 0;
    }
    for (int i = 1; i < argc; i++) {
        char *word = argv[i];
        if (only_arguments || word[0] != '-' || !word[1]) {
            if (!c->model || argument)
                return sl_usage_error(c->name, "unexpected argument '%s'", word);
            if (!*word)
                return sl_usage_error(c->name, "MODEL is empty");
            argument = word;
            continue;
        }
        if (strcmp(word, "--") == 0) {
            only_arguments = true;
            continue;
        }
        if (strcmp(word, "-h") == 0 || strcmp(word, "--help") == 0) {
            sl_help_print(c);
            return 0;
        }
        const char *eq = word[1] == '-' ? strchr(word, '=') : NULL;
        size_t len = eq ? (size_t)(eq - word) : strlen(word);
        const struct sl_arg *a = find(c, word, len);
        if (!a)
            return unknown_option(c, word, len);
        seen[a - c->args] = true;
        if (a->kind == SL_ARG_FLAG) {
            if (eq)
                return sl_usage_error(c->name, "%s takes no value", a->name);
            *(bool *)a->out = true;
            continue;
        }
        if (!eq && i + 1 >= argc)
            return sl_usage_error(c->name, "%s needs a value: %s", a->name, a->value);
        const char *value = eq ? eq + 1 : argv[++i];
        struct sl_err err;
        if (!take(c, a, a->name, value, &err))
            return sl_usage_error(c->name, "%s", err.text);
    }
    for (uint32_t i = 0; i < c->n_args; i++) {
        bool is_model = c->model && c->args[i].out == (void *)c->model;
        if (!seen[i] && !(is_model && argument) && !take_variable(c, &c->args[i], &seen[i]))
            return 2;
    }
    for (uint32_t i = 0; i < c->n_args; i++)
        if (c->args[i].required && !seen[i])
            return sl_usage_error(c->name, "%s %s is required", c->args[i].name,
                                  c->args[i].value ? c->args[i].value : "");
    int rc = c->model ? take_model(c, argument) : -1;
    if (rc < 0 && c->model && !c->model_is_source)
        rc = sl_pulled_model(c->name, c->model);
    return rc >= 0 ? rc : sl_outputs_check(c);
}
