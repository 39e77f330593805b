#include "common/log.h"
#include "server/exchange/exchange.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static char *copy(const char *text, size_t len) {
    char *p = malloc(len + 1);
    if (p) {
        if (len)
            memcpy(p, text, len);
        p[len] = '\0';
    }
    return p;
}

static char *copy_text(const char *text) {
    return copy(text ? text : "", text ? strlen(text) : 0);
}

/* The longest token text, which sizes the streams' buffers. */
static uint32_t longest_piece(const struct sl_tokenizer *tok) {
    size_t longest = 0;
    for (uint32_t id = 0; id < sl_tokenizer_n_vocab(tok); id++) {
        struct sl_str s = sl_tokenizer_piece(tok, id, true);
        if (s.len > longest)
            longest = s.len;
    }
    return longest > UINT32_MAX ? UINT32_MAX : (uint32_t)longest;
}

enum sl_status sl_served_create(const struct sl_server_model *m,
                                const struct sl_template_watch *watch, struct sl_served **out,
                                struct sl_err *err) {
    struct sl_served *v = calloc(1, sizeof *v);
    if (!v)
        return sl_fail(err, SL_ERR_NOMEM, "out of memory");
    v->engine = m->engine;
    v->tok = m->tokenizer;
    v->n_ctx_train = m->n_ctx_train;
    v->size_bytes = m->size_bytes;
    v->created_s = (int64_t)time(NULL);
    snprintf(v->fingerprint, sizeof v->fingerprint, "fp_%010llx",
             (unsigned long long)(m->fingerprint & 0xffffffffffu));
    sl_engine_info(m->engine, &v->info);
    v->any_name = m->any_name;
    v->pools_last = m->pools_last;
    bool named = true;
    for (uint32_t i = 0; i <= m->n_aliases && named; i++) {
        v->names[i] = copy_text(i ? m->aliases[i - 1] : m->id);
        named = v->names[i] != NULL;
        v->n_names += named;
    }
    v->path = copy_text(m->path);
    v->arch = copy_text(m->arch);
    v->chat_template_text = copy(m->chat_template, m->chat_template ? m->chat_template_bytes : 0);
    v->max_piece_bytes = longest_piece(v->tok);
    enum sl_status status = sl_fail(err, SL_ERR_NOMEM, "out of memory");
    if (named && v->path && v->arch && v->chat_template_text)
        status =
            sl_chat_init(&v->chat, v->tok, m->chat_template, m->chat_template_bytes, watch, err);
    if (status == SL_OK && sl_vocab_trie_create(v->tok, &v->vocab) != SL_OK)
        status = sl_fail(err, SL_ERR_NOMEM, "out of memory");
    if (status != SL_OK) {
        sl_served_destroy(&v);
        return status;
    }
    v->format =
        sl_answer_format_find(v->tok, v->chat_template_text, m->chat_template_bytes, v->chat.shown);
    v->thinks = sl_answer_format_thinks(v->format, v->tok, v->chat_template_text,
                                        m->chat_template_bytes, v->chat.shown);
    if (sl_answer_format_markers(v->format, v->tok, &v->markers) != SL_OK) {
        sl_served_destroy(&v);
        return sl_fail(err, SL_ERR_NOMEM, "out of memory");
    }
    if (v->chat.fallback)
        sl_warn("the model file has no chat template: chats use ChatML, which may not be what the "
                "model was trained on");
    if (!v->chat.template)
        sl_warn("the model's chat template cannot be used, chats will be refused: %s",
                v->chat.template_err.text);
    *out = v;
    return SL_OK;
}

void sl_served_destroy(struct sl_served **p) {
    struct sl_served *v = *p;
    if (!v)
        return;
    sl_chat_release(&v->chat);
    sl_vocab_trie_destroy(&v->vocab);
    sl_ids_release(&v->markers);
    for (uint32_t i = 0; i < v->n_names; i++)
        free(v->names[i]);
    free(v->path);
    free(v->arch);
    free(v->chat_template_text);
    free(v);
    *p = NULL;
}

bool sl_served_has_name(const struct sl_served *v, const char *name) {
    for (uint32_t i = 0; i < v->n_names; i++)
        if (strcmp(v->names[i], name) == 0)
            return true;
    return v->any_name;
}

bool sl_server_failed(const struct sl_server *s, struct sl_err *out_why) {
    enum sl_server_state state = (enum sl_server_state)atomic_load(&s->state);
    if (state == SL_SERVER_FAILED)
        *out_why = s->fail_err;
    return state == SL_SERVER_FAILED ||
           (state == SL_SERVER_READY && sl_engine_failed(s->served->engine, out_why));
}
