/* What a chat template expects of messages, found by trying it: once, when the model is opened, so
 * that a request needs no trials of its own. */
#include "model/chat/chat.h"

#include <stdlib.h>
#include <string.h>

/* Far more than a published template needs for four messages. */
static const struct sl_template_limits probe_limits = {
    .max_steps = 200000,
    .max_depth = 1000,
    .max_output_bytes = 1 << 20,
    .max_memory_bytes = 16 << 20,
    .max_time_ns = 30000000000u,
};

/* The template and who may end its renderings. */
struct probe {
    struct sl_chat *c;
    struct sl_template_limits limits;
    struct sl_err *err;
};

/* A key that no template has in its own text. */
#define KEY       "probe_key"
#define ARGUMENTS "{\"" KEY "\": \"probe value\"}"

bool sl_chat_apply_form(const struct sl_chat_form *form, json_t *messages) {
    bool ok = true;
    for (size_t i = 0; i < json_array_size(messages); i++) {
        json_t *m = json_array_get(messages, i), *calls = json_object_get(m, "tool_calls");
        bool empty = form->empty_content || !json_array_size(calls);
        if (empty && json_is_null(json_object_get(m, "content")))
            ok = ok && json_object_set_new(m, "content", json_string("")) == 0;
        for (size_t k = 0; !form->arguments_as_text && k < json_array_size(calls); k++) {
            json_t *f = json_object_get(json_array_get(calls, k), "function");
            const json_t *a = json_object_get(f, "arguments");
            if (!json_is_string(a))
                continue;
            json_t *parsed = json_loadb(json_string_value(a), json_string_length(a), 0, NULL);
            if (json_is_object(parsed))
                ok = ok && json_object_set(f, "arguments", parsed) == 0;
            json_decref(parsed);
        }
    }
    return ok;
}

static json_t *text_message(const char *role, const char *text) {
    return json_pack("{s:s,s:s}", "role", role, "content", text);
}

static json_t *call_message(void) {
    return json_pack("{s:s,s:n,s:[{s:s,s:s,s:{s:s,s:s}}]}", "role", "assistant", "content",
                     "tool_calls", "id", "probe0000", "type", "function", "function", "name",
                     "probe", "arguments", ARGUMENTS);
}

static json_t *result_message(void) {
    return json_pack("{s:s,s:s,s:s,s:s}", "role", "tool", "tool_call_id", "probe0000", "name",
                     "probe", "content", "Found.");
}

static json_t *probe_tools(void) {
    return json_pack("[{s:s,s:{s:s,s:s,s:{s:s,s:{s:{s:s,s:s}},s:[s]}}}]", "type", "function",
                     "function", "name", "probe", "description", "Looks something up.",
                     "parameters", "type", "object", "properties", "what", "type", "string",
                     "description", "What to look up.", "required", "what");
}

/* Takes messages over (NULL: out of memory). *out_taken: the template rendered them, and *out_text
 * is the caller's. That it refuses them or passes a limit is no error. */
static enum sl_status render(const struct probe *p, json_t *messages, const json_t *tools,
                             bool *out_taken, char **out_text) {
    size_t len;
    struct sl_chat_vars vars = {0};
    struct sl_err err;
    enum sl_status status = sl_fail(&err, SL_ERR_NOMEM, "out of memory");
    if (messages && sl_chat_vars_init(p->c, messages, tools, NULL, true, &vars))
        status = sl_template_render(p->c->template, vars.all, &p->limits, out_text, &len, &err);
    sl_chat_vars_release(&vars);
    json_decref(messages);
    *out_taken = status == SL_OK;
    if (status == SL_OK || status == SL_ERR_INVALID || status == SL_ERR_LIMIT)
        return SL_OK;
    return sl_fail(p->err, status, "%s", err.text);
}

static unsigned count(const char *text, const char *needle) {
    unsigned n = 0;
    for (const char *p = text; (p = strstr(p, needle)); p += strlen(needle))
        n++;
    return n;
}

/* What a rendered conversation shows to be wrong: absent text as the word None, arguments as Python
 * writes dictionaries, as JSON inside of JSON, or not at all. */
static unsigned flaws(const char *text) {
    return count(text, "None") + count(text, "'" KEY "'") + count(text, "\\\"" KEY) +
           !strstr(text, KEY);
}

/* The conversations that are tried, as some template or other takes only one: with a result, ending
 * in a call that has none, after a message of the system. */
enum conversation { WITH_RESULT, WITHOUT_RESULT, AFTER_SYSTEM, N_CONVERSATIONS };

static json_t *conversation(enum conversation which, const struct sl_chat_form *form) {
    json_t *m = json_array();
    bool ok = m && (which != AFTER_SYSTEM ||
                    json_array_append_new(m, text_message("system", "Be brief.")) == 0);
    ok = ok && json_array_append_new(m, text_message("user", "Look it up.")) == 0 &&
         json_array_append_new(m, call_message()) == 0 &&
         json_array_append_new(m, which == WITHOUT_RESULT ? text_message("user", "And?")
                                                          : result_message()) == 0 &&
         sl_chat_apply_form(form, m);
    if (ok)
        return m;
    json_decref(m);
    return NULL;
}

/* Tries every form on one conversation; *out_found: the template took it in one of them. */
static enum sl_status find_form(const struct probe *p, enum conversation which, const json_t *tools,
                                bool *out_found) {
    /* The usual one first. */
    static const struct sl_chat_form forms[] = {
        {false, false}, {true, false}, {false, true}, {true, true}};
    unsigned least = 0;
    *out_found = false;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        char *text = NULL;
        bool taken;
        SL_TRY(render(p, conversation(which, &forms[i]), tools, &taken, &text));
        if (!taken)
            continue;
        unsigned n = flaws(text);
        if (*out_found && n >= least) {
            free(text);
            continue;
        }
        free(p->c->shown);
        p->c->shown = text;
        *out_found = true;
        least = n;
        p->c->form = forms[i];
    }
    return SL_OK;
}

/* Whether a plain conversation is taken with `tools` that are none: some templates for tools alone
 * are, when the name is missing, good for other conversations as well. */
static enum sl_status find_none(const struct probe *p) {
    char *text = NULL;
    bool with = false, without = false;
    p->c->takes_none = true;
    enum sl_status status =
        render(p, json_pack("[o]", text_message("user", "Hello.")), NULL, &with, &text);
    free(text);
    if (status != SL_OK || with)
        return status;
    text = NULL;
    p->c->takes_none = false;
    status = render(p, json_pack("[o]", text_message("user", "Hello.")), NULL, &without, &text);
    free(text);
    p->c->takes_none = !without;
    return status;
}

/* A template that refuses the user alone says nothing of the system. */
static enum sl_status find_system(const struct probe *p) {
    char *text = NULL;
    bool with = false, without = false;
    json_t *user = text_message("user", "Hello."), *system = text_message("system", "Be brief.");
    enum sl_status status = render(p, json_pack("[o,O]", system, user), NULL, &with, &text);
    free(text);
    text = NULL;
    if (status != SL_OK) {
        json_decref(user);
        return status;
    }
    status = render(p, json_pack("[o]", user), NULL, &without, &text);
    free(text);
    p->c->takes_system = with || !without;
    return status;
}

enum sl_status sl_chat_probe(struct sl_chat *c, const struct sl_template_watch *watch,
                             struct sl_err *err) {
    struct probe p = {.c = c, .limits = probe_limits, .err = err};
    if (watch)
        p.limits.watch = *watch;
    c->form = (struct sl_chat_form){.empty_content = true};
    c->takes_system = c->takes_none = true;
    free(c->shown);
    c->shown = NULL;
    if (!c->template)
        return SL_OK;
    bool found = false;
    json_t *tools = probe_tools();
    enum sl_status status = tools ? find_none(&p) : sl_fail(err, SL_ERR_NOMEM, "out of memory");
    if (status == SL_OK)
        status = find_system(&p);
    for (int which = 0; which < N_CONVERSATIONS && status == SL_OK && !found; which++)
        status = find_form(&p, (enum conversation)which, tools, &found);
    json_decref(tools);
    return status;
}
