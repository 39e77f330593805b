#include "pull/source.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define DEFAULT_QUANT "Q4_K_M"

static bool name_byte(char c) {
    return isascii(c) && (isalnum(c) || (c && strchr("._+=@,()~-", c)));
}

bool sl_pull_name_ok(const char *name) {
    size_t n = strlen(name);
    if (n == 0 || n >= SL_PULL_NAME_BYTES || name[0] == '.' || name[0] == '-')
        return false;
    for (size_t i = 0; i < n; i++)
        if (!name_byte(name[i]))
            return false;
    return true;
}

const char *sl_pull_base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool sl_pull_is_hex(const char *text, size_t n) {
    return strlen(text) == n && strspn(text, "0123456789abcdefABCDEF") == n;
}

/* Every component is a name that may be used here. */
static bool path_ok(const char *path) {
    char part[SL_PULL_NAME_BYTES];
    if (strlen(path) >= SL_PULL_PATH_BYTES)
        return false;
    for (;;) {
        size_t n = strcspn(path, "/");
        if (n >= sizeof part)
            return false;
        memcpy(part, path, n);
        part[n] = '\0';
        if (!sl_pull_name_ok(part))
            return false;
        if (!path[n])
            return true;
        path += n + 1;
    }
}

/* A part of OWNER/NAME, up to one of the bytes `ends`; returns what follows, or NULL. */
static const char *take_repo_part(const char *p, const char *ends, char *out, size_t size) {
    size_t n = strcspn(p, ends);
    if (n == 0 || n >= size || p[0] == '.' || p[0] == '-')
        return NULL;
    for (size_t i = 0; i < n; i++)
        if (!isascii(p[i]) || !(isalnum(p[i]) || strchr("._-", p[i])))
            return NULL;
    memcpy(out, p, n);
    out[n] = '\0';
    return p + n;
}

static int hex_digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : tolower(c) - 'a' + 10;
}

static enum sl_status parse_url(const char *text, struct sl_pull_source *out, struct sl_err *err) {
    const char *host = strstr(text, "://") + 3;
    if (strlen(text) >= sizeof out->url)
        return sl_fail(err, SL_ERR_INVALID, "the URL has more than %zu bytes", sizeof out->url - 1);
    for (const char *c = text; *c; c++)
        if ((unsigned char)*c <= ' ' || (unsigned char)*c >= 0x7f)
            return sl_fail(err, SL_ERR_INVALID,
                           "the URL has a space or a byte that is not ASCII: encode it as %%XX");
    size_t n_host = strcspn(host, "/?#");
    if (memchr(host, '@', n_host))
        return sl_fail(err, SL_ERR_INVALID,
                       "the URL has a user or password in it, which others can read on the "
                       "command line: give --token-file");
    if (n_host == 0 || host[n_host] != '/')
        return sl_fail(err, SL_ERR_INVALID, "%s: the URL names no file", text);
    const char *path = host + n_host, *last = path + 1;
    size_t n_path = strcspn(path, "?#");
    for (const char *c = path; c < path + n_path; c++)
        if (*c == '/')
            last = c + 1;
    size_t n = 0;
    for (const char *c = last; c < path + n_path && n + 1 < sizeof out->url_name; n++) {
        bool coded = c[0] == '%' && isxdigit((unsigned char)c[1]) && isxdigit((unsigned char)c[2]);
        unsigned value = coded ? (unsigned)hex_digit(c[1]) << 4 | (unsigned)hex_digit(c[2]) : 0;
        out->url_name[n] = coded ? (char)value : c[0];
        if (!out->url_name[n])
            out->url_name[n] = '/'; /* an encoded zero is refused with the rest */
        c += coded ? 3 : 1;
    }
    out->url_name[n] = '\0';
    if (!sl_pull_name_ok(out->url_name))
        return sl_fail(err, SL_ERR_INVALID, "%s: the URL does not end in a usable file name", text);
    out->is_url = true;
    memcpy(out->url, text, strcspn(text, "#"));
    return SL_OK;
}

enum sl_status sl_pull_source_parse(const char *text, struct sl_pull_source *out,
                                    struct sl_err *err) {
    *out = (struct sl_pull_source){0};
    if (strncmp(text, "https://", 8) == 0 || strncmp(text, "http://", 7) == 0)
        return parse_url(text, out, err);
    const char *p = strncmp(text, "hf:", 3) == 0 ? text + 3 : text;
    p = take_repo_part(p, "/", out->owner, sizeof out->owner);
    p = p && *p == '/' ? take_repo_part(p + 1, ":", out->name, sizeof out->name) : NULL;
    if (!p)
        return sl_fail(err, SL_ERR_INVALID,
                       "'%.200s' is neither OWNER/NAME[:FILE] nor a URL that begins with https://",
                       text);
    if (*p == ':' && !path_ok(p + 1))
        return sl_fail(
            err, SL_ERR_INVALID,
            "'%.200s' is not a file name in a repository: letters, digits and ._+=@,()~- only",
            p + 1);
    if (*p == ':')
        memcpy(out->wanted, p + 1, strlen(p + 1) + 1);
    return SL_OK;
}

bool sl_pull_part_name(const char *name, size_t *out_stem_bytes, uint32_t *out_index,
                       uint32_t *out_count) {
    static const char form[] = "-00000-of-00000.gguf";
    size_t n = strlen(name);
    if (n < sizeof form)
        return false;
    const char *p = name + n - (sizeof form - 1);
    for (size_t i = 0; form[i]; i++)
        if (form[i] == '0' ? !isdigit((unsigned char)p[i]) : p[i] != form[i])
            return false;
    *out_stem_bytes = (size_t)(p - name);
    *out_index = (uint32_t)strtoul(p + 1, NULL, 10);
    *out_count = (uint32_t)strtoul(p + 10, NULL, 10);
    return *out_index >= 1 && *out_index <= *out_count && *out_count <= SL_PULL_MAX_PARTS;
}

bool sl_pull_list_add(struct sl_pull_list *list, const struct sl_pull_file *file) {
    if (list->n >= SL_PULL_MAX_FILES)
        return false;
    if ((list->n & (list->n - 1)) == 0) { /* full at every power of two */
        size_t room = list->n ? 2u * list->n : 1;
        struct sl_pull_file *more = realloc(list->files, room * sizeof *more);
        if (!more)
            return false;
        list->files = more;
    }
    list->files[list->n++] = *file;
    return true;
}

static int by_path(const void *a, const void *b) {
    return strcmp(((const struct sl_pull_file *)a)->path, ((const struct sl_pull_file *)b)->path);
}

void sl_pull_list_sort(struct sl_pull_list *list) {
    if (list->n)
        qsort(list->files, list->n, sizeof *list->files, by_path);
}

void sl_pull_list_release(struct sl_pull_list *list) {
    free(list->files);
    *list = (struct sl_pull_list){0};
}

/* How many files from i on are parts of one model; *out_count is how many it should be. */
static uint32_t model_at(const struct sl_pull_list *l, uint32_t i, uint32_t *out_count) {
    size_t stem, other;
    uint32_t index, count, n = 1;
    *out_count = 1;
    if (!sl_pull_part_name(l->files[i].path, &stem, &index, out_count))
        return 1;
    while (i + n < l->n && sl_pull_part_name(l->files[i + n].path, &other, &index, &count) &&
           count == *out_count && other == stem &&
           memcmp(l->files[i].path, l->files[i + n].path, stem) == 0)
        n++;
    return n;
}

/* Does the word stand in the path on its own: "Q4_K" not in "IQ4_K", nor in "Q4_K_M"? */
static bool has_word(const char *path, const char *word) {
    size_t n = strlen(word);
    for (const char *p = path; *p; p++) {
        bool begins = p == path || strchr("-._/", p[-1]) != NULL;
        if (begins && strncasecmp(p, word, n) == 0 && (!p[n] || strchr("-./", p[n])))
            return true;
    }
    return false;
}

/* Vision projectors and calibration data come with models, and are none. */
static bool is_companion(const char *path) {
    const char *name = sl_pull_base_name(path);
    return strncasecmp(name, "mmproj", 6) == 0 || strcasestr(name, "imatrix") != NULL;
}

enum fit { EXACT, QUANT, ANY };

static bool fits(const struct sl_pull_list *l, uint32_t i, uint32_t n, const char *wanted,
                 enum fit how) {
    if (how != EXACT)
        return !is_companion(l->files[i].path) &&
               (how == ANY || has_word(l->files[i].path, wanted));
    for (uint32_t k = i; k < i + n; k++)
        if (strcmp(l->files[k].path, wanted) == 0 ||
            strcmp(sl_pull_base_name(l->files[k].path), wanted) == 0)
            return true;
    return false;
}

/* How many models fit; the first of them. names: gets what they are called, as far as it fits. */
static uint32_t find_models(const struct sl_pull_list *l, const char *wanted, enum fit how,
                            uint32_t *out_first, uint32_t *out_n, uint32_t *out_count, char *names,
                            size_t size) {
    uint32_t found = 0, n, count;
    size_t used = 0;
    names[0] = '\0';
    for (uint32_t i = 0; i < l->n; i += n) {
        n = model_at(l, i, &count);
        if (!fits(l, i, n, wanted, how))
            continue;
        if (found++ == 0) {
            *out_first = i;
            *out_n = n;
            *out_count = count;
        }
        if (used + strlen(l->files[i].path) + 8 < size)
            used += (size_t)snprintf(names + used, size - used, "%s%s", used ? ", " : "",
                                     l->files[i].path);
        else if (used + 6 < size && names[used - 1] != '.')
            used += (size_t)snprintf(names + used, size - used, ", ...");
    }
    return found;
}

enum sl_status sl_pull_choose(const struct sl_pull_list *l, const char *wanted, uint32_t *out_first,
                              uint32_t *out_n, struct sl_err *err) {
    uint32_t first = 0, n = 0, count = 0;
    char names[300], all[300];
    uint32_t models = find_models(l, "", ANY, &first, &n, &count, all, sizeof all);
    uint32_t found = models;
    if (wanted[0]) {
        found = find_models(l, wanted, EXACT, &first, &n, &count, names, sizeof names);
        if (!found)
            found = find_models(l, wanted, QUANT, &first, &n, &count, names, sizeof names);
        if (found > 1)
            return sl_fail(err, SL_ERR_INVALID, "'%.60s' names %u models; name a file: %s", wanted,
                           found, names);
        if (!found && models)
            return sl_fail(err, SL_ERR_INVALID, "there is no '%.60s'; there are: %s", wanted, all);
    } else if (models > 1) {
        found = find_models(l, DEFAULT_QUANT, QUANT, &first, &n, &count, names, sizeof names);
        if (found != 1)
            return sl_fail(err, SL_ERR_INVALID,
                           "there are %u models; add ':' and a file or quantisation of: %s", models,
                           all);
    }
    if (!found)
        return sl_fail(err, SL_ERR_INVALID, "there is no GGUF file with a model in it");
    for (uint32_t i = 0; i < count; i++) {
        size_t stem;
        uint32_t index = 1, of;
        if (i >= n ||
            (count > 1 &&
             (!sl_pull_part_name(l->files[first + i].path, &stem, &index, &of) || index != i + 1)))
            return sl_fail(err, SL_ERR_INVALID, "%s: part %u of %u is missing",
                           l->files[first].path, i + 1, count);
    }
    *out_first = first;
    *out_n = count;
    return SL_OK;
}
