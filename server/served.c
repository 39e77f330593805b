#include "common/log.h"
#include "server/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* For files without a template. Its end-of-turn text is also a stop string then, for such a model
 * may lack the token. */
static const char chatml[] =
    "{%- for message in messages -%}\n"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}\n"
    "{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}\n";

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

static char *token_text(const struct sl_tokenizer *tok, uint32_t id) {
    if (id == SL_NO_TOKEN)
        return copy("", 0);
    struct sl_str s = sl_tokenizer_piece(tok, id, true);
    return copy(s.ptr, s.len);
}

static enum sl_status scan_vocabulary(struct sl_served *v) {
    uint32_t n = sl_tokenizer_n_vocab(v->tok), n_eog = 0;
    for (uint32_t id = 0; id < n; id++) {
        n_eog += sl_tokenizer_is_eog(v->tok, id);
        struct sl_str s = sl_tokenizer_piece(v->tok, id, true);
        if (s.len > v->max_piece_bytes)
            v->max_piece_bytes = s.len > UINT32_MAX ? UINT32_MAX : (uint32_t)s.len;
    }
    v->eog = calloc(n_eog ? n_eog : 1, sizeof *v->eog);
    if (!v->eog)
        return SL_ERR_NOMEM;
    for (uint32_t id = 0; id < n; id++)
        if (sl_tokenizer_is_eog(v->tok, id))
            v->eog[v->n_eog++] = id;

    /* Whether the file asks for BOS shows in what an empty text becomes. */
    struct sl_ids ids = {0};
    enum sl_status st = sl_tokenizer_encode(v->tok, "", 0, SL_ENCODE_ADD_SPECIAL, &ids);
    v->prepend_bos = st == SL_OK && ids.n > 0 && ids.ids[0] == sl_tokenizer_bos(v->tok);
    sl_ids_release(&ids);
    if (st != SL_OK)
        return st;
    return sl_special_init(&v->special, v->tok);
}

static void compile_template(struct sl_served *v, const struct sl_server_model *m) {
    v->chatml_fallback = !m->chat_template || m->chat_template_bytes == 0;
    const char *source = v->chatml_fallback ? chatml : m->chat_template;
    size_t len = v->chatml_fallback ? sizeof chatml - 1 : m->chat_template_bytes;
    if (v->chatml_fallback)
        sl_warn("the model file has no chat template: chats use ChatML, which may not be what the "
                "model was trained on");
    enum sl_status st = sl_template_compile(source, len, &v->chat_template, &v->template_err);
    if (st != SL_OK) {
        v->chat_template = NULL;
        sl_warn("the model's chat template cannot be used, chats will be refused: %s",
                v->template_err.text);
    }
}

enum sl_status sl_served_create(const struct sl_server_model *m, struct sl_served **out,
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
    v->id = copy_text(m->id);
    v->path = copy_text(m->path);
    v->arch = copy_text(m->arch);
    v->chat_template_text = copy(m->chat_template, m->chat_template ? m->chat_template_bytes : 0);
    v->bos_text = token_text(v->tok, sl_tokenizer_bos(v->tok));
    v->eos_text = token_text(v->tok, sl_tokenizer_eos(v->tok));
    if (!v->id || !v->path || !v->arch || !v->chat_template_text || !v->bos_text || !v->eos_text ||
        scan_vocabulary(v) != SL_OK) {
        sl_served_destroy(&v);
        return sl_fail(err, SL_ERR_NOMEM, "out of memory");
    }
    compile_template(v, m);
    *out = v;
    return SL_OK;
}

void sl_served_destroy(struct sl_served **p) {
    struct sl_served *v = *p;
    if (!v)
        return;
    if (v->chat_template)
        sl_template_destroy(&v->chat_template);
    sl_special_release(&v->special);
    free(v->id);
    free(v->path);
    free(v->arch);
    free(v->chat_template_text);
    free(v->bos_text);
    free(v->eos_text);
    free(v->eog);
    free(v);
    *p = NULL;
}
