/* Calls as JSON objects: {"name": ..., "arguments": {...}}, one or in an array, and the form
 * {"name": {...}}. Other members are passed over. */
#include "server/answer/splitter_internal.h"

#include <jansson.h>
#include <string.h>

/* The JSON string that begins at byte `at`: NO when none does, or it is longer than most. */
static enum sl_split_match string_at(const struct sl_splitter *s, size_t at, size_t most,
                                     size_t *out_end) {
    const char *text = sl_split_text(s);
    if (text[at] != '"')
        return SL_SPLIT_NO;
    for (size_t i = at + 1; i < s->n && i - at <= most; i++) {
        if (text[i] == '"') {
            *out_end = i + 1;
            return SL_SPLIT_YES;
        }
        i += text[i] == '\\';
    }
    return s->n - at > most ? SL_SPLIT_NO : SL_SPLIT_MAYBE;
}

static json_t *decode(const char *text, size_t len) {
    return json_loadb(text, len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
}

static bool keyed(const struct sl_splitter *s) {
    return s->f->syntax == SL_CALL_JSON_KEYED;
}

static bool is_key(const struct sl_splitter *s, const char *key) {
    return key && s->key_len == strlen(key) && memcmp(s->key, key, s->key_len) == 0;
}

static bool open_step(struct sl_splitter *s) {
    size_t at = sl_split_space(s, 0);
    if (at == s->n)
        return false;
    char c = sl_split_text(s)[at];
    s->in_array = c == '[';
    if (c != '[' && c != '{')
        return sl_split_call_fail(s);
    sl_split_take(s, at + s->in_array);
    s->state = SL_SPLIT_JSON_ITEM;
    return true;
}

static bool item_step(struct sl_splitter *s) {
    size_t at = sl_split_space(s, 0);
    if (at == s->n)
        return false;
    if (sl_split_text(s)[at] != '{')
        return sl_split_call_fail(s);
    sl_split_take(s, at + 1);
    s->first = true;
    s->state = SL_SPLIT_JSON_KEY;
    return true;
}

static bool key_step(struct sl_splitter *s) {
    size_t at = sl_split_space(s, 0), end;
    if (at == s->n)
        return false;
    enum sl_split_match m = string_at(s, at, SL_SPLIT_NAME_BYTES, &end);
    if (m == SL_SPLIT_MAYBE)
        return false;
    json_t *key = m == SL_SPLIT_YES ? decode(sl_split_text(s) + at, end - at) : NULL;
    if (!json_is_string(key) || json_string_length(key) > SL_SPLIT_NAME_BYTES) {
        json_decref(key);
        return sl_split_call_fail(s);
    }
    s->key_len = json_string_length(key);
    memcpy(s->key, json_string_value(key), s->key_len);
    json_decref(key);
    sl_split_take(s, end);
    s->state = SL_SPLIT_JSON_COLON;
    return true;
}

static bool colon_step(struct sl_splitter *s) {
    size_t at = sl_split_space(s, 0);
    if (at == s->n)
        return false;
    if (sl_split_text(s)[at] != ':')
        return sl_split_call_fail(s);
    sl_split_take(s, at + 1);
    s->state = SL_SPLIT_JSON_VALUE;
    return true;
}

/* What came before the name. */
static void give_early(struct sl_splitter *s) {
    if (s->is_early_done && s->name[0] && !s->called) {
        sl_split_call_certain(s);
        sl_split_call_arguments(s, s->early.ptr, s->early.len);
    }
}

static bool name_value(struct sl_splitter *s) {
    size_t end;
    enum sl_split_match m = string_at(s, 0, SL_SPLIT_NAME_BYTES, &end);
    if (m == SL_SPLIT_MAYBE)
        return false;
    json_t *name = m == SL_SPLIT_YES ? decode(sl_split_text(s), end) : NULL;
    bool ok = json_is_string(name) && !s->name[0] &&
              sl_split_call_name(s, json_string_value(name), json_string_length(name));
    json_decref(name);
    if (!ok)
        return sl_split_call_fail(s);
    sl_split_take(s, end);
    give_early(s);
    s->state = SL_SPLIT_JSON_BEHIND;
    return true;
}

/* Arguments that are a string which holds their JSON. */
static bool string_arguments(struct sl_splitter *s) {
    size_t end, taken;
    enum sl_split_match m = string_at(s, 0, SL_SPLIT_HELD_BYTES, &end);
    if (m == SL_SPLIT_MAYBE)
        return false;
    json_t *value = m == SL_SPLIT_YES ? decode(sl_split_text(s), end) : NULL;
    const char *text = value ? json_string_value(value) : "";
    size_t len = value ? json_string_length(value) : 0;
    struct sl_json_scan scan = {0};
    while (len && (*text == ' ' || *text == '\n'))
        text++, len--;
    sl_buf_clear(&s->early);
    bool ok = len && *text == '{' &&
              sl_json_scan_put(&scan, text, len, &taken, &s->early) == SL_JSON_SCAN_DONE &&
              taken == len;
    if (ok) {
        s->has_early = s->is_early_done = true;
        sl_split_take(s, end);
        give_early(s);
        s->state = SL_SPLIT_JSON_BEHIND;
    }
    json_decref(value);
    return ok || sl_split_call_fail(s);
}

static bool value_step(struct sl_splitter *s) {
    size_t at = sl_split_space(s, 0);
    if (at == s->n)
        return false;
    sl_split_take(s, at);
    char c = sl_split_text(s)[0];
    if (c == ' ' || c == '\n' || c == '\t' || c == '\r')
        return sl_split_call_fail(s);
    if (!keyed(s) && (is_key(s, "name") || is_key(s, s->f->name_key)))
        return name_value(s);
    bool arguments = keyed(s) || is_key(s, "arguments") || is_key(s, "parameters");
    s->scan = (struct sl_json_scan){0};
    if (!arguments || c == 'n') {
        s->state = SL_SPLIT_JSON_SKIP;
        return true;
    }
    if (s->called || s->has_early || (c != '{' && c != '"'))
        return sl_split_call_fail(s);
    if (keyed(s) && !sl_split_call_name(s, s->key, s->key_len))
        return sl_split_call_fail(s);
    if (c == '"')
        return string_arguments(s);
    s->has_early = !s->name[0];
    if (!s->has_early)
        sl_split_call_certain(s);
    s->state = s->has_early ? SL_SPLIT_JSON_EARLY : SL_SPLIT_JSON_ARGUMENTS;
    return true;
}

/* Passes over a value, or keeps it until there is a name. */
static bool pass_step(struct sl_splitter *s) {
    bool early = s->state == SL_SPLIT_JSON_EARLY;
    size_t taken, room = SL_SPLIT_HELD_BYTES -
                         (s->raw.len < SL_SPLIT_HELD_BYTES ? s->raw.len : SL_SPLIT_HELD_BYTES);
    bool bounded = !s->config->hold_calls;
    size_t n = s->n;
    if (bounded && n > room)
        n = room - sl_split_unfinished(sl_split_text(s), room);
    if (s->n == 0)
        return false;
    enum sl_json_scan_result r =
        early ? sl_json_scan_put(&s->scan, sl_split_text(s), n, &taken, &s->early)
              : sl_json_scan(&s->scan, sl_split_text(s), n, &taken);
    sl_split_take(s, taken);
    if (r == SL_JSON_SCAN_BAD || (r == SL_JSON_SCAN_MORE && s->n))
        return sl_split_call_fail(s);
    if (r == SL_JSON_SCAN_MORE)
        return false;
    s->is_early_done = s->is_early_done || early;
    s->state = SL_SPLIT_JSON_BEHIND;
    return true;
}

static bool behind_step(struct sl_splitter *s) {
    size_t at = sl_split_space(s, 0);
    if (at == s->n)
        return false;
    char c = sl_split_text(s)[at];
    bool ends = c == '}' && (s->name[0] || s->called);
    if (c != ',' && !ends)
        return sl_split_call_fail(s);
    sl_split_take(s, at + 1);
    s->state = SL_SPLIT_JSON_KEY;
    if (c == ',')
        return true;
    if (!s->called) {
        sl_split_call_certain(s);
        sl_split_call_arguments(s, "{}", 2);
    }
    sl_split_call_done(s);
    s->state = s->in_array ? SL_SPLIT_JSON_MORE : SL_SPLIT_JSON_CLOSE;
    return true;
}

static bool more_step(struct sl_splitter *s) {
    size_t at = sl_split_space(s, 0);
    if (at == s->n)
        return false;
    char c = sl_split_text(s)[at];
    if (c != ',' && c != ']')
        return sl_split_call_fail(s);
    s->state = SL_SPLIT_JSON_CLOSE;
    if (c == ',') {
        sl_split_call_next(s);
        s->state = SL_SPLIT_JSON_ITEM;
    }
    sl_split_take(s, at + 1);
    return true;
}

static bool close_step(struct sl_splitter *s) {
    size_t at = sl_split_space(s, 0);
    if (s->f->lines && at < s->n && sl_split_text(s)[at] == '{') {
        sl_split_call_begin(s);
        sl_split_take(s, at);
        s->state = SL_SPLIT_JSON_ITEM;
        return true;
    }
    return sl_split_close(s, at, s->f->call_close);
}

bool sl_split_json(struct sl_splitter *s) {
    switch (s->state) {
    case SL_SPLIT_JSON_OPEN:
        return open_step(s);
    case SL_SPLIT_JSON_ITEM:
        return item_step(s);
    case SL_SPLIT_JSON_KEY:
        return key_step(s);
    case SL_SPLIT_JSON_COLON:
        return colon_step(s);
    case SL_SPLIT_JSON_VALUE:
        return value_step(s);
    case SL_SPLIT_JSON_ARGUMENTS:
        return sl_split_call_scan(s, SL_SPLIT_JSON_BEHIND);
    case SL_SPLIT_JSON_EARLY:
    case SL_SPLIT_JSON_SKIP:
        return pass_step(s);
    case SL_SPLIT_JSON_BEHIND:
        return behind_step(s);
    case SL_SPLIT_JSON_MORE:
        return more_step(s);
    default:
        return close_step(s);
    }
}
