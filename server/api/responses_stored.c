/* Responses that are kept: what a request goes on from, and GET and DELETE /v1/responses/{id}.
 * Source: OpenAI API reference, "Responses": retrieve, delete, list input items; "Conversation
 * state". */
#include "server/api/handlers.h"
#include "server/api/prompt.h"
#include "server/api/responses.h"
#include "server/exchange/memory.h"

#include <stdlib.h>
#include <string.h>

#define MAX_TURNS 1000u /* that a conversation goes back */

/* ------------------------------------------------------------------------------------- history */

/* What may be taken from the store for one request: no more than a body may hold. */
struct room {
    uint64_t bytes;
    uint32_t units;
};

static struct room room_for(const struct sl_exchange *ex) {
    return (struct room){ex->server->config.max_body_bytes,
                         sl_server_json_units(&ex->server->config)};
}

/* JSON text that this server wrote. NULL: ex->error is set. */
static json_t *load(struct sl_exchange *ex, const char *text, struct room *room) {
    size_t len = strlen(text);
    if (len > room->bytes || !sl_json_take_units(text, len, &room->units)) {
        sl_http_fail(&ex->error, 413, "request_too_large", "previous_response_id",
                     "the conversation that was kept is larger than a request may be: begin a new "
                     "one");
        return NULL;
    }
    room->bytes -= len;
    json_t *v = json_loadb(text, len, 0, NULL);
    if (!v)
        sl_http_from_status(&ex->error, SL_ERR_NOMEM, NULL);
    return v;
}

static bool not_found(struct sl_exchange *ex, const char *id, const char *field) {
    static const char why[] = "it was not stored, was deleted, or has made room for others "
                              "(--response-store)";
    if (field)
        return sl_http_fail(&ex->error, 400, "previous_response_not_found", field,
                            "'%s': there is no response '%.100s': %s", field, id, why);
    return sl_http_fail(&ex->error, 404, "response_not_found", NULL,
                        "there is no response '%.100s': %s", id, why);
}

/* field: of the request, that named it; NULL = the path. */
static bool get(struct sl_exchange *ex, const char *id, const char *field,
                struct sl_stored_response *out) {
    struct sl_response_store *store = ex->server->responses;
    enum sl_status status = store ? sl_response_store_get(store, ex->owner, id, out) : SL_AGAIN;
    if (status == SL_AGAIN)
        return not_found(ex, id, field);
    return status == SL_OK || sl_http_from_status(&ex->error, status, NULL);
}

/* Puts the items of an array in front of those of another. */
static bool prepend(struct sl_exchange *ex, json_t *items, const json_t *before) {
    json_t *all = json_array();
    bool ok = all && json_array_extend(all, (json_t *)before) == 0 &&
              json_array_extend(all, items) == 0 && json_array_clear(items) == 0 &&
              json_array_extend(items, all) == 0;
    json_decref(all);
    return ok || sl_http_from_status(&ex->error, SL_ERR_NOMEM, NULL);
}

/* Puts the conversation up to a response in front of items: inputs and, but for the newest where
 * the caller wants none, outputs. */
static bool put_history(struct sl_exchange *ex, const char *id, const char *field, bool output,
                        struct room *room, json_t *items) {
    char *next = strdup(id);
    bool ok = next || sl_http_from_status(&ex->error, SL_ERR_NOMEM, NULL);
    for (uint32_t i = 0; ok && next; i++) {
        struct sl_stored_response r = {0};
        if (i == MAX_TURNS)
            ok = sl_http_bad(&ex->error, field,
                             "the conversation goes back more than %u responses: begin a new one",
                             MAX_TURNS);
        ok = ok && get(ex, next, field, &r);
        json_t *response = ok && (output || i) ? load(ex, r.response, room) : NULL;
        if (ok && (output || i))
            ok = response && prepend(ex, items, json_object_get(response, "output"));
        json_t *input = ok ? load(ex, r.input, room) : NULL;
        ok = ok && input && prepend(ex, items, input);
        json_decref(input);
        json_decref(response);
        free(next);
        next = r.previous;
        r.previous = NULL;
        sl_stored_response_release(&r);
    }
    free(next);
    return ok;
}

/* An item of an answer by its id, which names the response and the place in it: "msg_", the
 * response's own part, two hexadecimal digits and more. NULL: ex->error is set. */
static json_t *find_item(struct sl_exchange *ex, const char *id, const char *where,
                         struct room *room) {
    enum { OWN = 24 };
    const char *own = strchr(id, '_');
    struct sl_stored_response r = {0};
    char name[sizeof "resp_" + OWN] = "resp_";
    char *end = NULL;
    if (own && strlen(own + 1) > OWN) {
        memcpy(name + 5, own + 1, OWN);
        unsigned long i = strtoul(own + 1 + OWN, &end, 16);
        struct sl_http_error before = ex->error;
        json_t *found = NULL;
        if (!*end && get(ex, name, where, &r)) {
            json_t *response = load(ex, r.response, room);
            found = json_incref(json_array_get(json_object_get(response, "output"), i));
            json_decref(response);
            sl_stored_response_release(&r);
            if (found && sl_json_is(json_object_get(found, "id"), id))
                return found;
            json_decref(found);
            if (!response)
                return NULL;
        }
        ex->error = before;
    }
    sl_http_bad(&ex->error, where,
                "'%s' refers to the item '%.100s', which is not stored: send the item itself",
                where, id);
    return NULL;
}

/* The request's own items as they are kept, as an array: a text becomes a message, references
 * become what they refer to. NULL: ex->error is set. */
static json_t *own_items(struct sl_exchange *ex, const json_t *input, struct room *room) {
    json_t *items = json_array();
    bool ok = items != NULL;
    if (json_is_string(input)) {
        ok =
            ok && json_array_append_new(items, json_pack("{s:s,s:s,s:[{s:s,s:O}]}", "type",
                                                         "message", "role", "user", "content",
                                                         "type", "input_text", "text", input)) == 0;
    }
    for (size_t i = 0; ok && json_is_array(input) && i < json_array_size(input); i++) {
        json_t *item = json_array_get(input, i);
        const char *id = json_string_value(json_object_get(item, "id"));
        struct sl_where where = sl_where_index("input", i);
        if (sl_json_is(json_object_get(item, "type"), "item_reference") && id) {
            item = find_item(ex, id, where.text, room);
            if (!item) {
                json_decref(items);
                return NULL;
            }
            ok = json_array_append_new(items, item) == 0;
        } else {
            ok = json_array_append(items, item) == 0;
        }
    }
    if (ok)
        return items;
    json_decref(items);
    sl_http_from_status(&ex->error, SL_ERR_NOMEM, NULL);
    return NULL;
}

/* Whether the answer is to be kept. */
static bool is_kept(const struct sl_exchange *ex, const json_t *body) {
    return ex->server->responses && !json_is_false(json_object_get(body, "store"));
}

bool sl_responses_recall(struct sl_exchange *ex, json_t *body, struct sl_request_about *about,
                         size_t *out_before) {
    *out_before = 0;
    const json_t *input = json_object_get(body, "input");
    const json_t *previous = json_object_get(body, "previous_response_id");
    struct room room = room_for(ex);
    if (sl_json_given(previous) && !json_is_string(previous))
        return sl_http_bad(&ex->error, "previous_response_id",
                           "'previous_response_id' must be a string, not %s",
                           sl_json_kind(previous));
    if (!json_is_string(input) && !json_is_array(input))
        return true; /* refused where it is read */
    json_t *items = own_items(ex, input, &room);
    if (!items)
        return false;
    bool ok = true;
    size_t own = json_array_size(items);
    if (about && is_kept(ex, body)) {
        char *text = json_dumps(items, JSON_COMPACT);
        ok = text || sl_http_from_status(&ex->error, SL_ERR_NOMEM, NULL);
        if (text && sl_response_store_takes(ex->server->responses, strlen(text))) {
            about->input = text;
            about->previous = json_is_string(previous) ? strdup(json_string_value(previous)) : NULL;
            if (json_is_string(previous) && !about->previous)
                ok = sl_http_from_status(&ex->error, SL_ERR_NOMEM, NULL);
        } else {
            free(text);
        }
    }
    if (ok && json_is_string(previous))
        ok = put_history(ex, json_string_value(previous), "previous_response_id", true, &room,
                         items);
    *out_before = json_array_size(items) - own;
    if (ok && json_object_set(body, "input", items) != 0)
        ok = sl_http_from_status(&ex->error, SL_ERR_NOMEM, NULL);
    json_decref(items);
    return ok;
}

/* ----------------------------------------------------------------------------------- endpoints */

/* The id of the path, and whether more than that is asked for. False: no such path; ex->error is
 * set. The caller frees the id. */
static bool read_path(struct sl_exchange *ex, char **out_id, bool *out_items) {
    static const char items[] = "/input_items";
    const char *id = ex->path + strlen(ex->route->path);
    size_t n = strcspn(id, "/");
    *out_items = strcmp(id + n, items) == 0;
    *out_id = NULL;
    if (n == 0 || (id[n] && !*out_items))
        return sl_http_fail(&ex->error, 404, "unknown_url", NULL, "there is no endpoint %.100s",
                            ex->path);
    *out_id = strndup(id, n);
    return *out_id || sl_http_from_status(&ex->error, SL_ERR_NOMEM, NULL);
}

static int dump_to_buf(const char *text, size_t len, void *buf) {
    struct sl_buf *b = buf;
    sl_buf_put(b, text, len);
    return b->failed ? -1 : 0;
}

/* An item as lists have it: with a type and an id. */
static bool complete_item(json_t *item, size_t number) {
    bool has_type = sl_json_given(json_object_get(item, "type"));
    bool has_id = json_is_string(json_object_get(item, "id"));
    return (has_type || json_object_set_new(item, "type", json_string("message")) == 0) &&
           (has_id || json_object_set_new(item, "id", json_sprintf("item_%zu", number)) == 0);
}

static void put_id(struct sl_buf *b, const char *name, const json_t *item) {
    const char *id = json_string_value(json_object_get(item, "id"));
    sl_buf_printf(b, ",\"%s\":", name);
    if (id)
        sl_buf_json_text(b, id);
    else
        sl_buf_puts(b, "null");
}

/* All of what the model was given, the newest first unless the query says otherwise. */
static void put_items(struct sl_exchange *ex, const char *id) {
    struct room room = room_for(ex);
    struct sl_buf *b = &ex->reply;
    json_t *items = json_array();
    bool ok = items || sl_http_from_status(&ex->error, SL_ERR_NOMEM, NULL);
    ok = ok && put_history(ex, id, NULL, false, &room, items);
    size_t n = json_array_size(items);
    sl_buf_puts(b, "{\"object\":\"list\",\"data\":[");
    for (size_t k = 0; ok && k < n; k++) {
        size_t i = ex->ascending ? k : n - 1 - k;
        json_t *item = json_array_get(items, i);
        sl_buf_puts(b, k ? "," : "");
        if (!complete_item(item, i) || json_dump_callback(item, dump_to_buf, b, JSON_COMPACT) != 0)
            b->failed = true;
    }
    sl_buf_puts(b, "]");
    put_id(b, "first_id", json_array_get(items, ex->ascending || !n ? 0 : n - 1));
    put_id(b, "last_id", json_array_get(items, ex->ascending && n ? n - 1 : 0));
    sl_buf_puts(b, ",\"has_more\":false}");
    json_decref(items);
}

void sl_response_get_handle(struct sl_exchange *ex) {
    char *id;
    bool items;
    struct sl_stored_response r = {0};
    if (!read_path(ex, &id, &items))
        return;
    if (items) {
        put_items(ex, id);
    } else if (get(ex, id, NULL, &r)) {
        sl_buf_puts(&ex->reply, r.response);
        sl_stored_response_release(&r);
    }
    free(id);
}

void sl_response_delete_handle(struct sl_exchange *ex) {
    char *id;
    bool items;
    struct sl_response_store *store = ex->server->responses;
    if (!read_path(ex, &id, &items))
        return;
    if (items) {
        sl_http_fail(&ex->error, 405, "method_not_allowed", NULL,
                     "DELETE is not allowed on input items; use GET");
    } else if (!store || !sl_response_store_delete(store, ex->owner, id)) {
        not_found(ex, id, NULL);
    } else {
        sl_buf_puts(&ex->reply, "{\"id\":");
        sl_buf_json_text(&ex->reply, id);
        sl_buf_puts(&ex->reply, ",\"object\":\"response\",\"deleted\":true}");
    }
    free(id);
}
