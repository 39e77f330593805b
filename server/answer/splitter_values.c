/* What stands between tags, as JSON: by the types that a schema leaves open, and of values that
 * have tags of their own by what is nested in them. */
#include "server/answer/splitter_internal.h"

#include "model/grammar/json_types.h"

#include <string.h>

#define MAX_NESTED_DEPTH 32u

void sl_split_put_inside(struct sl_buf *out, const char *text, size_t len) {
    size_t from = out->len;
    sl_buf_json(out, text, len);
    if (out->failed)
        return;
    memmove(out->ptr + from, out->ptr + from + 1, out->len - from - 2); /* the quotation marks */
    out->len -= 2;
}

/* Python's words, which models write for JSON's. */
static const char *python_word(const char *text, size_t len) {
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (len == strlen(words[i][0]) && memcmp(text, words[i][0], len) == 0)
            return words[i][1];
    return NULL;
}

/* Appends the one JSON value that text is. Its type; 0: it is none, and what was appended is not to
 * be used. */
static uint32_t json_value(struct sl_buf *out, const char *text, size_t len) {
    struct sl_json_scan scan = {0};
    size_t taken;
    sl_json_scan_put(&scan, text, len, &taken, out);
    if (taken < len || !sl_json_scan_may_end(&scan))
        return 0;
    switch (text[0]) {
    case '{':
        return SL_JSON_OBJECT;
    case '[':
        return SL_JSON_ARRAY;
    case '"':
        return SL_JSON_STRING;
    case 'n':
        return SL_JSON_NULL;
    case 't':
    case 'f':
        return SL_JSON_BOOLEAN;
    default:
        return SL_JSON_NUMBER;
    }
}

static void trim(const char **text, size_t *len) {
    while (*len && sl_split_is_space(**text))
        (*text)++, (*len)--;
    while (*len && sl_split_is_space((*text)[*len - 1]))
        (*len)--;
}

/* Digits stay as the model wrote them. */
void sl_split_put_value(struct sl_buf *out, uint32_t types, bool quoted, const char *text,
                        size_t len) {
    const char *from = text, *word;
    size_t n = len, before = out->len;
    trim(&from, &n);
    if (!(types & SL_JSON_STRING) && (word = python_word(from, n)) != NULL)
        from = word, n = strlen(word);
    uint32_t type = json_value(out, from, n);
    /* A text in quotation marks is JSON only where the key or the type says that it is none. */
    if ((type & types) && (type != SL_JSON_STRING || quoted))
        return;
    out->len = before;
    sl_buf_json(out, text, len);
}

/* ---- values with tags in them ---- */

struct tree {
    struct sl_buf *out;
    const char *open, *close; /* what tags begin with; close begins with open */
    const json_t *root;
};

static bool at(const char *text, size_t len, const char *marker) {
    size_t n = strlen(marker);
    return len >= n && memcmp(text, marker, n) == 0;
}

/* An element: its name, what is in it, and the whole length. False: there is no whole one. */
static bool element(const struct tree *t, const char *text, size_t len, struct sl_str *out_name,
                    struct sl_str *out_inside, size_t *out_len) {
    size_t n_open = strlen(t->open), n_close = strlen(t->close), i = n_open;
    if (!at(text, len, t->open) || at(text, len, t->close))
        return false;
    while (i < len && text[i] != '>' && text[i] != '\n' && i - n_open < SL_SPLIT_NAME_BYTES)
        i++;
    if (i >= len || text[i] != '>' || i == n_open)
        return false;
    *out_name = (struct sl_str){text + n_open, i - n_open};
    size_t from = i + 1;
    uint32_t depth = 0;
    for (i = from; i < len; i++) {
        if (text[i] != t->open[0] || !at(text + i, len - i, t->open))
            continue;
        if (!at(text + i, len - i, t->close)) {
            depth++;
            continue;
        }
        if (depth--)
            continue;
        size_t name = i + n_close, end = name + out_name->len;
        *out_inside = (struct sl_str){text + from, i - from};
        *out_len = end + 1;
        return end < len && text[end] == '>' &&
               memcmp(text + name, out_name->ptr, out_name->len) == 0;
    }
    return false;
}

static bool is_item(struct sl_str name) {
    return name.len == 4 && memcmp(name.ptr, "item", 4) == 0;
}

static const json_t *member_schema(const json_t *schema, struct sl_str name) {
    char key[SL_SPLIT_NAME_BYTES + 1];
    memcpy(key, name.ptr, name.len);
    key[name.len] = '\0';
    const json_t *s = json_object_get(json_object_get(schema, "properties"), key);
    return s ? s : json_object_get(schema, "additionalProperties");
}

static bool put_tree(const struct tree *t, const json_t *schema, const char *text, size_t len,
                     uint32_t depth);

/* Elements side by side, as the members of an array or of an object. False: something else is there
 * as well. */
static bool put_elements(const struct tree *t, const json_t *schema, uint32_t types,
                         const char *text, size_t len, uint32_t depth) {
    struct sl_str name, inside;
    size_t n, count = 0;
    bool is_array = false;
    while (len) {
        if (!element(t, text, len, &name, &inside, &n))
            return false;
        if (count == 0)
            is_array = is_item(name) && (types & SL_JSON_ARRAY);
        if (is_array && !is_item(name))
            return false;
        sl_buf_puts(t->out, count++ ? ", " : is_array ? "[" : "{");
        if (!is_array) {
            sl_buf_json(t->out, name.ptr, name.len);
            sl_buf_puts(t->out, ": ");
        }
        const json_t *s = is_array ? json_object_get(schema, "items") : member_schema(schema, name);
        if (!put_tree(t, s, inside.ptr, inside.len, depth + 1))
            return false;
        text += n;
        len -= n;
        trim(&text, &len);
    }
    sl_buf_puts(t->out, is_array ? "]" : "}");
    return true;
}

static bool put_tree(const struct tree *t, const json_t *schema, const char *text, size_t len,
                     uint32_t depth) {
    uint32_t types = sl_json_types(t->root, schema);
    const char *from = text;
    size_t n = len;
    trim(&from, &n);
    if (depth > MAX_NESTED_DEPTH)
        return false;
    if (at(from, n, t->open))
        return put_elements(t, schema, types, from, n, depth);
    if (n == 0 && !(types & SL_JSON_STRING) && (types & (SL_JSON_OBJECT | SL_JSON_ARRAY)))
        sl_buf_puts(t->out, types & SL_JSON_OBJECT ? "{}" : "[]");
    else
        sl_split_put_value(t->out, types, false, text, len);
    return true;
}

void sl_split_put_tree(struct sl_buf *out, const struct sl_answer_format *f, const json_t *root,
                       const json_t *schema, const char *text, size_t len) {
    const struct tree t = {out, f->key_open, f->value_close, root};
    size_t before = out->len;
    if (put_tree(&t, schema, text, len, 0))
        return;
    out->len = before;
    sl_buf_json(out, text, len);
}
