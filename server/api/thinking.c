#include "server/api/thinking.h"

#include "server/api/chat.h"
#include "server/api/translate.h"

/* Sets object[key] where it is not given; takes over value. */
static bool suggest(json_t *object, const char *key, json_t *value, struct sl_http_error *e) {
    if (!value)
        return sl_http_from_status(e, SL_ERR_NOMEM, NULL);
    if (sl_json_given(json_object_get(object, key))) {
        json_decref(value);
        return true;
    }
    return json_object_set_new(object, key, value) == 0 ||
           sl_http_from_status(e, SL_ERR_NOMEM, NULL);
}

static bool switch_thinking(json_t *body, bool on, struct sl_http_error *e) {
    json_t *kwargs = json_object_get(body, "chat_template_kwargs");
    if (sl_json_given(kwargs) && !json_is_object(kwargs)) /* will be refused */
        return true;
    if (!json_is_object(kwargs)) {
        kwargs = json_object();
        if (json_object_set_new(body, "chat_template_kwargs", kwargs) != 0)
            return sl_http_from_status(e, SL_ERR_NOMEM, NULL);
    }
    return suggest(kwargs, "enable_thinking", json_boolean(on), e) &&
           suggest(kwargs, "thinking", json_boolean(on), e);
}

/* v: a number of tokens, from 0 up. */
static bool limit(json_t *body, json_t *v, const char *field, struct sl_http_error *e) {
    if (!sl_json_given(v))
        return true;
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > INT32_MAX)
        return sl_http_bad(e, field, "'%s' must be an integer from 0 to %d", field, INT32_MAX);
    return suggest(body, "reasoning_budget", json_incref(v), e);
}

static bool read_reasoning(json_t *body, json_t *r, struct sl_http_error *e) {
    json_t *effort = json_object_get(r, "effort");
    const json_t *enabled = json_object_get(r, "enabled"), *exclude = json_object_get(r, "exclude");
    if (!json_is_object(r))
        return sl_http_bad(e, "reasoning", "'reasoning' must be an object, not %s",
                           sl_json_kind(r));
    if (sl_json_given(effort) && !sl_json_one_of(effort, sl_reasoning_efforts))
        return sl_http_bad(e, "reasoning.effort",
                           "'reasoning.effort' must be none, minimal, low, medium, high, xhigh or "
                           "max");
    if (sl_json_given(enabled) && !json_is_boolean(enabled))
        return sl_http_bad(e, "reasoning.enabled", "'reasoning.enabled' must be true or false");
    if (sl_json_given(exclude) && !json_is_false(exclude))
        return sl_http_bad(e, "reasoning.exclude",
                           "'reasoning.exclude' is not supported: leave it out");
    if (sl_json_given(effort) && !suggest(body, "reasoning_effort", json_incref(effort), e))
        return false;
    if (sl_json_given(enabled) && !switch_thinking(body, json_is_true(enabled), e))
        return false;
    return limit(body, json_object_get(r, "max_tokens"), "reasoning.max_tokens", e);
}

static bool read_thinking(json_t *body, const json_t *t, struct sl_http_error *e) {
    static const char *const ons[] = {"enabled", "adaptive", "auto", NULL};
    const json_t *type = json_object_get(t, "type");
    bool on = sl_json_one_of(type, ons);
    if (!on && !sl_json_is(type, "disabled"))
        return sl_http_bad(e, "thinking",
                           "'thinking.type' must be enabled, adaptive, auto or disabled");
    if (!switch_thinking(body, on, e))
        return false;
    return limit(body, json_object_get(t, "budget_tokens"), "thinking.budget_tokens", e);
}

bool sl_thinking_read(json_t *body, struct sl_http_error *e) {
    json_t *reasoning = json_object_get(body, "reasoning");
    const json_t *thinking = json_object_get(body, "thinking");
    const json_t *enable = json_object_get(body, "enable_thinking");
    if (sl_json_given(enable) && !json_is_boolean(enable))
        return sl_http_bad(e, "enable_thinking", "'enable_thinking' must be true or false, not %s",
                           sl_json_kind(enable));
    if (sl_json_given(enable) && !switch_thinking(body, json_is_true(enable), e))
        return false;
    if (sl_json_given(thinking) && !read_thinking(body, thinking, e))
        return false;
    if (sl_json_given(reasoning) && !read_reasoning(body, reasoning, e))
        return false;
    return !sl_json_is(json_object_get(body, "reasoning_effort"), "none") ||
           switch_thinking(body, false, e);
}
