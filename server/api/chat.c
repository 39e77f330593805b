/* POST /v1/chat/completions and /apply-template: messages through the model's own template. */
#include "server/api/chat.h"
#include "server/api/final_message.h"
#include "server/api/handlers.h"
#include "server/api/thinking.h"

#include "common/metrics.h"
#include "server/api/translate.h"
#include "server/exchange/memory.h"
#include "server/request/messages.h"
#include "server/request/tools.h"

#include <stdlib.h>
#include <string.h>

/* Arguments that came as text are parsed for most templates: as bounded as the body itself. */
static bool arguments_fit(const json_t *messages, uint32_t units, struct sl_http_error *e) {
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *calls = json_object_get(json_array_get(messages, i), "tool_calls");
        for (size_t k = 0; k < json_array_size(calls); k++) {
            const json_t *f = json_object_get(json_array_get(calls, k), "function");
            const json_t *a = json_object_get(f, "arguments");
            if (json_is_string(a) &&
                !sl_json_take_units(json_string_value(a), json_string_length(a), &units))
                return sl_http_bad(e, "messages",
                                   "'messages': the arguments of tool calls, up to call %zu of "
                                   "message %zu, hold too many values or nest too deep",
                                   k, i);
        }
    }
    return true;
}

/* Sets what the request has not set, under either name. */
static bool set_thinking(json_t *vars, enum sl_thinking_default thinking) {
    bool on = thinking == SL_THINKING_ON;
    if (thinking == SL_THINKING_AS_TEMPLATE || json_object_get(vars, "enable_thinking") ||
        json_object_get(vars, "thinking"))
        return true;
    return json_object_set_new(vars, "enable_thinking", json_boolean(on)) == 0 &&
           json_object_set_new(vars, "thinking", json_boolean(on)) == 0;
}

/* Variables of the template. False: out of memory. */
static bool make_vars(const struct sl_exchange *ex, const json_t *body, const json_t *messages,
                      const json_t *tools, struct sl_chat_vars *out) {
    const struct sl_served *v = ex->server->served;
    const json_t *kwargs = json_object_get(body, "chat_template_kwargs");
    const json_t *effort = json_object_get(body, "reasoning_effort");
    const json_t *generate = json_object_get(body, "add_generation_prompt");
    bool opens = !json_is_false(generate) && !sl_final_message_asked(body);
    if (!sl_chat_vars_init(&v->chat, messages, tools, json_is_object(kwargs) ? kwargs : NULL, opens,
                           out))
        return false;
    json_t *copy = json_object_get(out->all, "messages"); /* to be changed */
    bool ok = sl_chat_apply_form(&v->chat.form, copy) &&
              (!v->format->short_ids || sl_tools_short_ids(copy)) &&
              ((v->format->syntax != SL_CALL_HARMONY && !v->format->reasoning_key) ||
               sl_tools_thinking(copy, v->format->reasoning_key));
    if (ok && json_is_string(effort) && !json_object_get(out->all, "reasoning_effort"))
        ok = json_object_set(out->all, "reasoning_effort", (json_t *)effort) == 0;
    ok = ok && set_thinking(out->all, ex->server->config.thinking);
    if (!ok)
        sl_chat_vars_release(out);
    return ok;
}

static size_t text_bytes(const json_t *v) {
    size_t n = 0, i;
    const char *key;
    json_t *value;
    if (json_is_string(v))
        return json_string_length(v);
    if (json_is_array(v))
        for (i = 0; i < json_array_size(v); i++)
            n += text_bytes(json_array_get(v, i));
    if (json_is_object(v))
        json_object_foreach((json_t *)v, key, value) n += text_bytes(value);
    return n;
}

struct rendering {
    struct sl_exchange *ex;
    const json_t *body, *tools;
};

/* One rendering, of the several that a request may need. */
static enum sl_status render_once(void *ctx, const json_t *messages,
                                  const struct sl_template_limits *limits, struct sl_rendered *out,
                                  struct sl_err *err) {
    const struct rendering *r = ctx;
    const struct sl_served *v = r->ex->server->served;
    struct sl_chat_vars vars = {0};
    enum sl_status status =
        make_vars(r->ex, r->body, messages, r->tools, &vars)
            ? sl_template_render_own(v->chat.template, vars.all, vars.own, limits, out, err)
            : SL_ERR_NOMEM;
    sl_chat_vars_release(&vars);
    sl_count(template_renders_total, 1);
    return status;
}

static enum sl_status render_shapes(struct sl_exchange *ex, const json_t *body,
                                    const json_t *messages, const json_t *tools,
                                    struct sl_rendered *out, struct sl_err *err) {
    struct rendering r = {ex, body, tools};
    struct sl_template_limits limits = sl_prompt_template_limits(ex, body);
    return sl_messages_render(&ex->server->served->chat, messages, &limits,
                              &(struct sl_messages_renderer){render_once, &r}, out, err);
}

static bool has_tool_messages(const json_t *messages) {
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *m = json_array_get(messages, i);
        const char *role = json_string_value(json_object_get(m, "role"));
        if (json_object_get(m, "tool_calls") || strcmp(role, "tool") == 0 ||
            strcmp(role, "function") == 0)
            return true;
    }
    return false;
}

/* Where the template knows nothing of tools, the server tells the model itself. */
static enum sl_status render_told(struct sl_exchange *ex, const json_t *body,
                                  const json_t *messages, const json_t *tools,
                                  struct sl_rendered *out, struct sl_err *err) {
    bool in_user = !ex->server->served->chat.takes_system;
    json_t *told = json_deep_copy(messages);
    enum sl_status status = told && sl_tools_as_text(told, tools, in_user)
                                ? render_shapes(ex, body, told, NULL, out, err)
                                : SL_ERR_NOMEM;
    json_decref(told);
    return status;
}

const char *const sl_reasoning_efforts[] = {"none", "minimal", "low", "medium",
                                            "high", "xhigh",   "max", NULL};

/* The rendered prompt, the caller's to release. False: ex->error is set. */
static bool render(struct sl_exchange *ex, const json_t *body, const json_t *tools,
                   struct sl_rendered *out) {
    const struct sl_served *v = ex->server->served;
    struct sl_http_error *e = &ex->error;
    static const struct sl_field fields[] = {
        {"add_generation_prompt", SL_FIELD_BOOL, 0, 0, 0},
    };
    bool without_effect;
    if (!sl_fields_read(body, fields, sizeof fields / sizeof *fields, &without_effect, e))
        return false;
    const json_t *effort = json_object_get(body, "reasoning_effort");
    if (sl_json_given(effort) && !sl_json_one_of(effort, sl_reasoning_efforts)) {
        sl_http_bad(e, "reasoning_effort",
                    "'reasoning_effort' must be none, minimal, low, medium, high, xhigh or max");
        return false;
    }
    const json_t *kwargs = json_object_get(body, "chat_template_kwargs");
    if (kwargs && !json_is_null(kwargs) && !json_is_object(kwargs)) {
        sl_http_bad(e, "chat_template_kwargs", "'chat_template_kwargs' must be an object, not %s",
                    sl_json_kind(kwargs));
        return false;
    }
    json_t *messages = sl_final_message_check(v, body, e) ? sl_messages_read(body, e) : NULL;
    if (!messages)
        return false;
    if (!v->chat.template) {
        sl_http_fail(e, 500, "chat_template", NULL,
                     "the model's chat template cannot be used: %.400s", v->chat.template_err.text);
        json_decref(messages);
        return false;
    }
    bool ok = false;
    if (arguments_fit(messages, sl_server_json_units(&ex->server->config), e) &&
        sl_prompt_may_fit(ex, text_bytes(messages), "messages")) {
        struct sl_err err = {0};
        bool tell = v->format->prompt_hint && (tools || has_tool_messages(messages));
        enum sl_status status = tell ? render_told(ex, body, messages, tools, out, &err)
                                     : render_shapes(ex, body, messages, tools, out, &err);
        if (status == SL_ERR_INVALID)
            sl_http_bad(e, "messages", "the model's chat template refuses these messages: %.400s",
                        err.text);
        else if (status == SL_ERR_LIMIT)
            sl_http_fail(e, 400, "template_limit", "messages",
                         "these messages are too much for the model's chat template: %.400s",
                         err.text);
        else if (status != SL_OK)
            sl_http_from_status(e, status, &err);
        if (status == SL_ERR_INVALID)
            sl_count(template_refusals_total, 1);
        else if (status == SL_ERR_LIMIT)
            sl_count(template_limits_total, 1);
        ok = status == SL_OK &&
             (!sl_final_message_asked(body) || sl_final_message_open(messages, out, e));
    }
    json_decref(messages);
    return ok;
}

/* The prompt's ids. NULL: ex->error is set. */
static struct sl_ids *encode(struct sl_exchange *ex, const struct sl_rendered *r) {
    const struct sl_served *v = ex->server->served;
    /* Rendered: the template may have printed tools, or anything many times. */
    if (!sl_prompt_may_fit(ex, r->len, "messages"))
        return NULL;
    struct sl_ids *prompt = calloc(1, sizeof *prompt);
    const struct sl_encode_watch watch = sl_prompt_watch(ex);
    enum sl_status status = prompt ? sl_chat_encode(&v->chat, r, &watch, prompt) : SL_ERR_NOMEM;
    if (status == SL_OK)
        return prompt;
    (void)sl_prompt_not_encoded(ex, status);
    if (prompt)
        sl_ids_release(prompt);
    free(prompt);
    return NULL;
}

/* What a conversation asks of its answer. */
struct wishes {
    struct sl_tool_use tools;
    struct sl_content_form form;
};

static bool read_wishes(const json_t *body, struct wishes *w, struct sl_http_error *e) {
    if (!sl_tool_use_read(body, &w->tools, e) || !sl_content_form_read(body, &w->form, e))
        return false;
    if ((w->tools.bound || w->form.field) && sl_final_message_asked(body))
        return sl_http_bad(e, "continue_final_message",
                           "'continue_final_message' cannot be given with '%.60s', which describes "
                           "an answer from its beginning",
                           w->tools.bound ? "tool_choice" : w->form.field);
    if (w->form.is_grammar && w->tools.callable)
        return sl_http_bad(e, w->form.field,
                           "'%s' cannot be given with 'tools': it would have to describe "
                           "their calls; set 'tool_choice' to 'none'",
                           w->form.field);
    return true;
}

static void wishes_release(struct wishes *w) {
    sl_tool_use_release(&w->tools);
    sl_content_form_release(&w->form);
}

/* Makes a limit on reasoning ready for this place, or drops it where there can be none. */
static bool plan_budget(struct sl_exchange *ex, bool thinks, enum sl_answer_place place,
                        struct sl_reasoning_budget *b) {
    const struct sl_server_config *config = &ex->server->config;
    const struct sl_served *v = ex->server->served;
    const struct sl_answer_format *f = v->format;
    struct sl_http_error *e = &ex->error;
    if (config->limits_reasoning && !b->asked && f->think_close) {
        b->given = true;
        b->tokens = config->reasoning_budget;
    }
    if (!b->given)
        return true;
    b->given = thinks && place != SL_ANSWER_BEHIND_REASONING;
    if (!b->given)
        return true;
    if (!f->think_close)
        return sl_http_bad(e, "reasoning_budget",
                           "'reasoning_budget': this model's reasoning has no marker that closes "
                           "it; use 'reasoning_effort'");
    b->open = place == SL_ANSWER_IN_REASONING;
    b->opens = f->think_open;
    b->ends = f->think_close;
    b->tok = v->tok;
    enum sl_status status = sl_tokenizer_encode(v->tok, f->think_close, strlen(f->think_close),
                                                SL_ENCODE_PARSE_SPECIAL, &b->close);
    if (status != SL_OK || !b->close.n)
        return sl_http_from_status(e, status != SL_OK ? status : SL_ERR_NOMEM, NULL);
    return true;
}

/* How the answer is read, and the grammar that binds it, by where the prompt ends. */
static bool plan_answer(struct sl_exchange *ex, const json_t *body, struct wishes *w,
                        const char *text, size_t len, struct sl_gen_params *p) {
    const struct sl_served *v = ex->server->served;
    struct sl_content_form *form = &w->form;
    bool fresh = json_is_false(json_object_get(body, "add_generation_prompt"));
    enum sl_answer_place place = fresh ? SL_ANSWER_FRESH : sl_answer_place(v->format, text, len);
    if (sl_final_message_asked(body)) /* it is within the content */
        place = SL_ANSWER_BEHIND_REASONING;
    bool harmony = v->format->syntax == SL_CALL_HARMONY;
    struct sl_str header = sl_answer_open_header(v->format, text, fresh ? 0 : len);
    const json_t *callable = w->tools.callable;
    bool thinks = v->thinks || place == SL_ANSWER_IN_REASONING;
    if (w->tools.choice == SL_TOOLS_NONE)
        callable = NULL;
    if (!plan_budget(ex, thinks, place, &p->budget))
        return false;
    p->header = strndup(header.ptr, header.len);
    if (!p->header)
        return sl_http_from_status(&ex->error, SL_ERR_NOMEM, NULL);
    p->tools = json_incref((json_t *)callable);
    p->splits = thinks || callable;
    bool apart = thinks && !p->raw_reasoning;
    p->split = (struct sl_splitter_config){.format = v->format,
                                           .tools = callable,
                                           .thinks = apart,
                                           .in_reasoning = apart && place == SL_ANSWER_IN_REASONING,
                                           .hold_calls = !p->stream,
                                           .header = {p->header, header.len}};
    bool before = harmony || (thinks && place != SL_ANSWER_BEHIND_REASONING);
    if (!w->tools.bound && !(form->field && (before || callable)))
        return sl_params_bind(p, form, form->rule, form->field, v->tok, &ex->error);

    struct sl_err err;
    struct sl_answer_grammar g = {.format = v->format,
                                  .tok = v->tok,
                                  .tools = callable,
                                  .choice = w->tools.choice,
                                  .parallel = w->tools.parallel,
                                  .thinks = thinks,
                                  .place = place,
                                  .content = form->field ? form->rule : NULL};
    if (!form->field)
        sl_json_schema_rules_begin(&form->rules, &form->text);
    enum sl_status status = sl_answer_grammar(&g, &form->rules, &err);
    const char *field = w->tools.bound ? "tools" : form->field;
    if (status == SL_ERR_INVALID)
        return sl_http_bad(&ex->error, "tools", "'tools': %.440s", err.text);
    if (status != SL_OK)
        return sl_http_from_status(&ex->error, status, &err);
    return sl_params_bind(p, form, "sl-answer", field, v->tok, &ex->error);
}

void sl_chat_answer(struct sl_exchange *ex, enum sl_api api, const json_t *body,
                    struct sl_request_about *about) {
    const struct sl_served *v = ex->server->served;
    struct sl_gen_params params = {0};
    struct wishes wishes = {0};
    struct sl_ids *prompt = NULL;
    struct sl_rendered r = {0};
    bool ok =
        sl_prompt_check_model(ex, body) && sl_params_read(body, api, v->tok, &params, &ex->error);
    params.about = *about;
    *about = (struct sl_request_about){0};
    if (!ok || !read_wishes(body, &wishes, &ex->error))
        goto out;
    if (!render(ex, body, wishes.tools.shown, &r) ||
        !plan_answer(ex, body, &wishes, r.text, r.len, &params))
        goto out;
    prompt = encode(ex, &r);
    if (!prompt || !sl_prompt_fits(ex, prompt->n, "messages"))
        goto out;
    /* A model that does not know the fallback's end-of-turn token writes it as text, but not where
     * a grammar says what it writes. */
    if (v->chat.fallback && !params.grammar && params.stop.n < SL_STOP_MAX &&
        sl_stop_add(&params.stop, sl_chat_fallback_stop, strlen(sl_chat_fallback_stop), NULL) !=
            SL_OK) {
        sl_http_from_status(&ex->error, SL_ERR_NOMEM, NULL);
        goto out;
    }
    sl_prompt_generate(ex, api, &params, prompt, NULL, 1);
    prompt = NULL;
out:
    sl_rendered_release(&r);
    if (prompt)
        sl_ids_release(prompt);
    free(prompt);
    wishes_release(&wishes);
    sl_params_release(&params);
}

bool sl_chat_count(struct sl_exchange *ex, const json_t *body, size_t *out_tokens) {
    struct sl_tool_use tools = {0};
    struct sl_ids *prompt = NULL;
    struct sl_rendered r = {0};
    if (sl_prompt_check_model(ex, body) && sl_tool_use_read(body, &tools, &ex->error) &&
        render(ex, body, tools.shown, &r))
        prompt = encode(ex, &r);
    sl_tool_use_release(&tools);
    sl_rendered_release(&r);
    if (!prompt)
        return false;
    *out_tokens = prompt->n;
    sl_ids_release(prompt);
    free(prompt);
    return true;
}

/* NULL: ex->error is set. */
static json_t *read_body(struct sl_exchange *ex) {
    static const struct sl_foreign_field foreign[] = {
        {"max_output_tokens", "use 'max_completion_tokens'"},
        {"num_predict", "use 'max_completion_tokens'"},
        {"stop_sequences", "use 'stop'"},
        {"format", "use 'response_format'"},
        {"think", "use 'reasoning_effort' or 'enable_thinking'"},
        {NULL, NULL}};
    json_t *body = sl_prompt_body(ex);
    if (!body ||
        (sl_translate_refuse(body, foreign, &ex->error) && sl_thinking_read(body, &ex->error) &&
         sl_final_message_read_mark(body, &ex->error)))
        return body;
    json_decref(body);
    return NULL;
}

void sl_chat_handle(struct sl_exchange *ex) {
    json_t *body = read_body(ex);
    if (!body)
        return;
    struct sl_request_about about = {0};
    sl_chat_answer(ex, SL_API_CHAT, body, &about);
    json_decref(body);
}

void sl_chat_count_handle(struct sl_exchange *ex) {
    json_t *body = read_body(ex);
    if (!body)
        return;
    size_t n;
    if (sl_chat_count(ex, body, &n))
        sl_buf_printf(&ex->reply, "{\"input_tokens\":%zu}", n);
    json_decref(body);
}

void sl_apply_template_handle(struct sl_exchange *ex) {
    json_t *body = read_body(ex);
    if (!body)
        return;
    struct sl_tool_use tools = {0};
    struct sl_rendered r = {0};
    if (sl_tool_use_read(body, &tools, &ex->error) && render(ex, body, tools.shown, &r)) {
        sl_buf_puts(&ex->reply, "{\"prompt\":");
        sl_buf_json(&ex->reply, r.text, r.len);
        sl_buf_puts(&ex->reply, "}");
    }
    sl_tool_use_release(&tools);
    sl_rendered_release(&r);
    json_decref(body);
}
