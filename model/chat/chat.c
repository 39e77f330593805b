#include "model/chat/chat.h"

#include <stdlib.h>
#include <string.h>

static const char chatml[] =
    "{%- for message in messages -%}\n"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}\n"
    "{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}\n";
const char sl_chat_fallback_stop[] = "<|im_end|>";

static char *token_text(const struct sl_tokenizer *tok, uint32_t id) {
    struct sl_str s = {"", 0};
    if (id != SL_NO_TOKEN)
        s = sl_tokenizer_piece(tok, id, true);
    char *text = malloc(s.len + 1);
    if (text) {
        if (s.len)
            memcpy(text, s.ptr, s.len);
        text[s.len] = '\0';
    }
    return text;
}

static enum sl_status scan_vocabulary(struct sl_chat *c) {
    uint32_t n_vocab = sl_tokenizer_n_vocab(c->tok), n_eog = 0;
    for (uint32_t id = 0; id < n_vocab; id++)
        n_eog += sl_tokenizer_is_eog(c->tok, id);
    c->eog = calloc(n_eog ? n_eog : 1, sizeof *c->eog);
    if (!c->eog)
        return SL_ERR_NOMEM;
    for (uint32_t id = 0; id < n_vocab; id++)
        if (sl_tokenizer_is_eog(c->tok, id))
            c->eog[c->n_eog++] = id;

    /* Whether the file asks for BOS shows in what an empty text becomes. */
    struct sl_ids ids = {0};
    enum sl_status status = sl_tokenizer_encode(c->tok, "", 0, SL_ENCODE_ADD_SPECIAL, &ids);
    c->prepend_bos = status == SL_OK && ids.n > 0 && ids.ids[0] == sl_tokenizer_bos(c->tok);
    sl_ids_release(&ids);
    return status;
}

enum sl_status sl_chat_init(struct sl_chat *c, const struct sl_tokenizer *tok, const char *source,
                            size_t len, const struct sl_template_watch *watch, struct sl_err *err) {
    *c = (struct sl_chat){.tok = tok, .fallback = !source || len == 0};
    c->bos_text = token_text(tok, sl_tokenizer_bos(tok));
    c->eos_text = token_text(tok, sl_tokenizer_eos(tok));
    if (!c->bos_text || !c->eos_text || scan_vocabulary(c) != SL_OK) {
        sl_chat_release(c);
        return sl_fail(err, SL_ERR_NOMEM, "out of memory");
    }
    if (c->fallback) {
        source = chatml;
        len = sizeof chatml - 1;
    }
    if (sl_template_compile(source, len, &c->template, &c->template_err) != SL_OK)
        c->template = NULL;
    enum sl_status status = sl_chat_probe(c, watch, err);
    if (status != SL_OK)
        sl_chat_release(c);
    return status;
}

void sl_chat_release(struct sl_chat *c) {
    if (c->template)
        sl_template_destroy(&c->template);
    free(c->bos_text);
    free(c->eos_text);
    free(c->eog);
    free(c->shown);
    *c = (struct sl_chat){0};
}

/* A new string of the template's; borrowed from v->own. NULL: out of memory. */
static json_t *new_own(struct sl_chat_vars *v, const char *text) {
    json_t *s = json_string_nocheck(text);
    return json_array_append_new(v->own, s) == 0 ? s : NULL; /* the array holds it */
}

static bool own_roles(struct sl_chat_vars *v, json_t *messages) {
    static const char *const roles[] = {"system",    "developer", "user",
                                        "assistant", "tool",      "function"};
    enum { N = sizeof roles / sizeof *roles };
    json_t *own[N];
    for (size_t k = 0; k < N; k++)
        if (!(own[k] = new_own(v, roles[k])))
            return false;
    for (size_t i = 0; i < json_array_size(messages); i++) {
        json_t *m = json_array_get(messages, i);
        const char *role = json_string_value(json_object_get(m, "role"));
        size_t k = 0;
        while (role && k < N && strcmp(role, roles[k]) != 0)
            k++;
        if (role && k < N && json_object_set(m, "role", own[k]) != 0)
            return false;
    }
    return true;
}

bool sl_chat_vars_init(const struct sl_chat *c, const json_t *messages, const json_t *tools,
                       const json_t *more, bool add_generation_prompt, struct sl_chat_vars *out) {
    struct sl_chat_vars v = {more ? json_copy((json_t *)more) : json_object(), json_array()};
    json_t *own = json_deep_copy(messages);
    /* The setters take NULL for a failed value and say so. */
    bool ok = v.all && v.own && own && own_roles(&v, own) &&
              json_object_set(v.all, "messages", own) == 0 &&
              json_object_set_new(v.all, "add_generation_prompt",
                                  json_boolean(add_generation_prompt)) == 0 &&
              json_object_set(v.all, "bos_token", new_own(&v, c->bos_text)) == 0 &&
              json_object_set(v.all, "eos_token", new_own(&v, c->eos_text)) == 0 &&
              (tools ? json_object_set(v.all, "tools", (json_t *)tools) == 0
                     : !c->takes_none || json_object_set_new(v.all, "tools", json_null()) == 0);
    json_decref(own);
    if (ok)
        *out = v;
    else
        sl_chat_vars_release(&v);
    return ok;
}

void sl_chat_vars_release(struct sl_chat_vars *v) {
    json_decref(v->all);
    json_decref(v->own);
    *v = (struct sl_chat_vars){0};
}

static enum sl_status add_bos(const struct sl_chat *c, struct sl_ids *out) {
    uint32_t bos = sl_tokenizer_bos(c->tok);
    if (!c->prepend_bos || (out->n > 0 && out->ids[0] == bos))
        return SL_OK;
    if (out->n == out->cap) {
        uint32_t *ids = realloc(out->ids, (out->n + 1) * sizeof *ids);
        if (!ids)
            return SL_ERR_NOMEM;
        out->ids = ids;
        out->cap = out->n + 1;
    }
    memmove(out->ids + 1, out->ids, out->n * sizeof *out->ids);
    out->ids[0] = bos;
    out->n++;
    return SL_OK;
}

enum sl_status sl_chat_encode(const struct sl_chat *c, const struct sl_rendered *r,
                              const struct sl_encode_watch *watch, struct sl_ids *out) {
    enum sl_status status =
        sl_tokenizer_encode_own(c->tok, r->text, r->len, r->own, r->n_own, watch, out);
    return status == SL_OK ? add_bos(c, out) : status;
}

enum sl_status sl_chat_encode_prompt(const struct sl_chat *c, const char *text, size_t len,
                                     const struct sl_encode_watch *watch, struct sl_ids *out) {
    enum sl_status status =
        sl_tokenizer_encode_watched(c->tok, text, len, SL_ENCODE_PARSE_SPECIAL, watch, out);
    return status == SL_OK ? add_bos(c, out) : status;
}
