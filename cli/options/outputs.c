#include "cli/options/outputs.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define PATH_BYTES 4096u

static const char *word_of(const struct sl_arg *a) {
    switch (a->kind) {
    case SL_ARG_INPUT:
    case SL_ARG_OUTPUT:
    case SL_ARG_FOLDER:
        return *(const char *const *)a->out;
    case SL_ARG_KEPT: { /* off: no file */
        const char *word = *(const char *const *)a->out;
        return word && strcmp(word, "off") == 0 ? NULL : word;
    }
    default:
        return NULL;
    }
}

static bool is_same(const struct stat *a, const struct stat *b) {
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* The folder of path, and its last name; false: no folder. */
static bool parent_of(const char *path, struct stat *out, const char **out_name) {
    char folder[PATH_BYTES];
    const char *slash = strrchr(path, '/');
    *out_name = slash ? slash + 1 : path;
    int n = slash == path ? 1 : slash ? (int)(slash - path) : 1;
    if ((size_t)n >= sizeof folder)
        return false;
    snprintf(folder, sizeof folder, "%.*s", n, slash ? path : ".");
    return stat(folder, out) == 0;
}

/* Do both paths name the same file, whether it exists or not? Pipes, terminals and devices may be
 * shared. */
static bool same_file(const char *a, const char *b) {
    struct stat x, y;
    const char *name_a, *name_b;
    if (stat(a, &x) == 0)
        return stat(b, &y) == 0 && is_same(&x, &y) && (S_ISREG(x.st_mode) || S_ISBLK(x.st_mode));
    if (stat(b, &y) == 0)
        return false;
    return parent_of(a, &x, &name_a) && parent_of(b, &y, &name_b) && is_same(&x, &y) &&
           strcmp(name_a, name_b) == 0;
}

/* "NAME-00001-of-00002.gguf": how many parts, and where the five digits of this one's number are;
 * else 1. */
static uint32_t n_parts(const char *path, size_t *out_at) {
    size_t n = strlen(path);
    unsigned part, parts;
    int end = 0;
    *out_at = 0;
    if (n < 20 || sscanf(path + n - 20, "-%5u-of-%5u.gguf%n", &part, &parts, &end) != 2 ||
        end != 20)
        return 1;
    *out_at = n - 19;
    return parts ? parts : 1;
}

/* The name of part i, from 1. */
static bool part_name(const char *path, size_t at, uint32_t i, char out[PATH_BYTES]) {
    int n = at ? snprintf(out, PATH_BYTES, "%.*s%05u%s", (int)at, path, i, path + at + 5)
               : snprintf(out, PATH_BYTES, "%s", path);
    return n >= 0 && (size_t)n < PATH_BYTES;
}

static bool is_model(const char *path, const char *model) {
    char part[PATH_BYTES];
    size_t at;
    uint32_t n = n_parts(model, &at);
    if (same_file(path, model))
        return true;
    for (uint32_t i = 1; i <= n; i++)
        if (part_name(model, at, i, part) && same_file(path, part))
            return true;
    return false;
}

/* Compares with the mirror itself and with the files in it, or in its folder, that are named like
 * the model's parts. */
static bool is_mirror(const char *path, const char *mirror, const char *model) {
    char part[PATH_BYTES], copy[PATH_BYTES];
    size_t at;
    uint32_t n = n_parts(model, &at);
    const char *slash = strrchr(mirror, '/');
    if (is_model(path, mirror))
        return true;
    for (uint32_t i = 1; i <= n; i++) {
        if (!part_name(model, at, i, part))
            continue;
        const char *name = strrchr(part, '/');
        name = name ? name + 1 : part;
        for (uint32_t sibling = 0; sibling < 2; sibling++) {
            int dir = sibling ? (int)(slash ? slash - mirror : 0) : (int)strlen(mirror);
            int len = snprintf(copy, sizeof copy, "%.*s%s%s", dir, mirror,
                               dir || (sibling && slash) ? "/" : "", name);
            if (len > 0 && (size_t)len < sizeof copy && same_file(path, copy))
                return true;
        }
    }
    return false;
}

static bool is_in(const char *path, const char *folder) {
    struct stat parent, kept;
    const char *name;
    return parent_of(path, &parent, &name) && stat(folder, &kept) == 0 && is_same(&parent, &kept);
}

static int overwritten(const struct sl_command *c, const struct sl_arg *a, const char *path,
                       const char *what, const char *name) {
    return sl_usage_error(c->name, "%s is '%s', which %s%s: it would be overwritten", a->name, path,
                          what, name);
}

static int check_list(const struct sl_command *c, const struct sl_arg *a, const char *path,
                      const struct sl_arg *b) {
    const struct sl_arg_list *l = b->out;
    const char *model = c->model && *c->model ? *c->model : "";
    for (uint32_t i = 0; i < l->n; i++)
        if (a->kind == SL_ARG_KEPT ? strcmp(path, l->items[i]) == 0
                                   : is_mirror(path, l->items[i], model))
            return overwritten(c, a, path, b->name, " reads");
    return -1;
}

static int check_pair(const struct sl_command *c, const struct sl_arg *a, const char *path,
                      const struct sl_arg *b) {
    const char *other = word_of(b);
    if (b->kind == SL_ARG_INPUTS)
        return check_list(c, a, path, b);
    if (!other)
        return -1;
    if (b->kind == SL_ARG_FOLDER && a->kind == SL_ARG_OUTPUT && is_in(path, other))
        return sl_usage_error(c->name, "%s is '%s', which is in %s: nothing else is kept there",
                              a->name, path, b->name);
    bool by_words = a->kind == SL_ARG_KEPT || b->kind == SL_ARG_KEPT;
    if (by_words ? strcmp(path, other) == 0 : same_file(path, other))
        return overwritten(c, a, path, b->name, " names too");
    return -1;
}

static int check_output(const struct sl_command *c, const struct sl_arg *a) {
    const char *path = word_of(a), *model = c->model ? *c->model : NULL;
    bool by_words = a->kind == SL_ARG_KEPT;
    if (!path)
        return -1;
    if (model && (by_words ? strcmp(path, model) == 0 : is_model(path, model)))
        return overwritten(c, a, path, "is the model", "");
    int rc = -1;
    for (const struct sl_arg *b = c->args; b < c->args + c->n_args && rc < 0; b++)
        if (b != a && b->out != (const void *)c->model)
            rc = check_pair(c, a, path, b);
    return rc;
}

int sl_outputs_check(const struct sl_command *c) {
    int rc = -1;
    for (const struct sl_arg *a = c->args; a < c->args + c->n_args && rc < 0; a++)
        if (a->kind == SL_ARG_OUTPUT || a->kind == SL_ARG_KEPT)
            rc = check_output(c, a);
    return rc;
}
