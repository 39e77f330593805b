/* Special tokens: which ids they are, which are control tokens, which end a generation.
 *
 * Files say it only in part; the rest follows llama.cpp: well-known texts, and corrections for
 * vocabularies whose conversion got a type wrong.
 * Source: llama.cpp src/llama-vocab.cpp (facts: names and order of the rules). */
#include "model/tokenizer/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

static const char *const eot_texts[] = {
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "<\xef\xbd\x9c"
    "end\xe2\x96\x81"
    "of\xe2\x96\x81"
    "sentence\xef\xbd\x9c>",
    "<end_of_utterance>",
};
static const char *const eom_texts[] = {"<|eom_id|>"};
/* Fill-in-the-middle: the first three only become control tokens, the last three also end. */
static const char *const fim_pre_texts[] = {
    "<|fim_prefix|>",
    "<fim-prefix>",
    "<fim_prefix>",
    "<\xef\xbd\x9c"
    "fim\xe2\x96\x81"
    "begin\xef\xbd\x9c>",
    "<PRE>",
    "\xe2\x96\x81<PRE>",
    "<|code_prefix|>",
    "<|prefix|>",
};
static const char *const fim_suf_texts[] = {
    "<|fim_suffix|>",
    "<fim-suffix>",
    "<fim_suffix>",
    "<\xef\xbd\x9c"
    "fim\xe2\x96\x81"
    "hole\xef\xbd\x9c>",
    "<SUF>",
    "\xe2\x96\x81<SUF>",
    "<|code_suffix|>",
    "<|suffix|>",
};
static const char *const fim_mid_texts[] = {
    "<|fim_middle|>",
    "<fim-middle>",
    "<fim_middle>",
    "<\xef\xbd\x9c"
    "fim\xe2\x96\x81"
    "end\xef\xbd\x9c>",
    "<MID>",
    "\xe2\x96\x81<MID>",
    "<|code_middle|>",
    "<|middle|>",
};
static const char *const fim_pad_texts[] = {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>",
                                            "[PAD]"};
static const char *const fim_rep_texts[] = {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>",
                                            "<reponame>"};
static const char *const fim_sep_texts[] = {"<|file_sep|>"};

static const char *const eog_texts[] = {
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<\xef\xbd\x9c"
    "end\xe2\x96\x81"
    "of\xe2\x96\x81"
    "sentence\xef\xbd\x9c>",
    "[e~[",
};
/* Harmony's markup is text to show, whatever its type says. */
static const char *const shown_texts[] = {"<|channel|>", "<|message|>", "<|start|>",
                                          "<|constrain|>"};

static uint32_t find(const struct sl_tokenizer *t, const char *text) {
    return sl_tokenizer_find(t, text, strlen(text));
}

static bool is_eog_text(const struct sl_tokenizer *t, const char *text) {
    uint32_t id = find(t, text);
    return id != SL_NO_TOKEN && (t->attr[id] & SL_ATTR_EOG);
}

/* The id that a key gives; out of range counts as not given. */
static enum sl_status read_id(const struct sl_tokenizer *t, const struct sl_gguf *g,
                              const char *key, uint32_t *id, struct sl_err *err) {
    uint32_t v;
    enum sl_status status = sl_gguf_get_u32(g, key, &v, err);
    if (status == SL_AGAIN)
        return SL_OK;
    if (status == SL_OK && v < t->n_vocab)
        *id = v;
    return status;
}

struct role {
    const char *keys[2]; /* the second is an older name that wins when both are there */
    const char *const *texts;
    size_t n_texts;
    bool ends;   /* ends a generation */
    uint8_t fim; /* 1 + enum sl_fim, or 0 */
};
static const struct role roles[] = {
    {{"tokenizer.ggml.eot_token_id"}, eot_texts, COUNT(eot_texts), true, 0},
    {{"tokenizer.ggml.eom_token_id"}, eom_texts, COUNT(eom_texts), true, 0},
    {{"tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.prefix_token_id"},
     fim_pre_texts,
     COUNT(fim_pre_texts),
     false,
     1 + SL_FIM_PREFIX},
    {{"tokenizer.ggml.fim_suf_token_id", "tokenizer.ggml.suffix_token_id"},
     fim_suf_texts,
     COUNT(fim_suf_texts),
     false,
     1 + SL_FIM_SUFFIX},
    {{"tokenizer.ggml.fim_mid_token_id", "tokenizer.ggml.middle_token_id"},
     fim_mid_texts,
     COUNT(fim_mid_texts),
     false,
     1 + SL_FIM_MIDDLE},
    {{"tokenizer.ggml.fim_pad_token_id"}, fim_pad_texts, COUNT(fim_pad_texts), true, 0},
    {{"tokenizer.ggml.fim_rep_token_id"},
     fim_rep_texts,
     COUNT(fim_rep_texts),
     true,
     1 + SL_FIM_REPO},
    {{"tokenizer.ggml.fim_sep_token_id"},
     fim_sep_texts,
     COUNT(fim_sep_texts),
     true,
     1 + SL_FIM_FILE},
};

/* A role's id: from the file, else the lowest id among the well-known texts. */
static enum sl_status assign_role(struct sl_tokenizer *t, const struct sl_gguf *g,
                                  const struct role *r, struct sl_err *err) {
    uint32_t id = SL_NO_TOKEN;
    for (int k = 0; k < 2 && r->keys[k]; k++) {
        SL_TRY(read_id(t, g, r->keys[k], &id, err));
    }
    if (id == SL_NO_TOKEN) {
        for (size_t i = 0; i < r->n_texts; i++) {
            uint32_t found = find(t, r->texts[i]);
            if (found < id)
                id = found;
        }
        if (id != SL_NO_TOKEN)
            t->attr[id] |= SL_ATTR_CONTROL;
    }
    if (id != SL_NO_TOKEN && r->ends)
        t->attr[id] |= SL_ATTR_EOG;
    if (r->fim)
        t->fim[r->fim - 1] = id;
    return SL_OK;
}

static void correct_eog(struct sl_tokenizer *t) {
    for (size_t i = 0; i < COUNT(eog_texts); i++) {
        uint32_t id = find(t, eog_texts[i]);
        if (id != SL_NO_TOKEN)
            t->attr[id] |= SL_ATTR_EOG | SL_ATTR_CONTROL;
    }
    for (size_t i = 0; i < COUNT(shown_texts); i++) {
        uint32_t id = find(t, shown_texts[i]);
        if (id != SL_NO_TOKEN)
            t->attr[id] =
                (uint8_t)((t->attr[id] & SL_ATTR_EOG) | SL_ATTR_USER_DEFINED | SL_ATTR_GUARDED);
    }
    /* Harmony and Solar: a message's end is not the turn's. */
    bool call = is_eog_text(t, "<|call|>") || is_eog_text(t, "<|calls|>");
    if (call && is_eog_text(t, "<|end|>") &&
        (is_eog_text(t, "<|return|>") || is_eog_text(t, "<|flush|>")))
        t->attr[find(t, "<|end|>")] = SL_ATTR_USER_DEFINED | SL_ATTR_GUARDED;
    /* Gemma 4 has "</s>" as an HTML tag. */
    if (is_eog_text(t, "<|tool_response>") && is_eog_text(t, "</s>"))
        t->attr[find(t, "</s>")] = SL_ATTR_NORMAL;
}

/* One byte cannot be told from the text that it is. */
static void guard_controls(struct sl_tokenizer *t) {
    for (uint32_t i = 0; i < t->n_vocab; i++) {
        if (t->attr[i] & (SL_ATTR_CONTROL | SL_ATTR_UNKNOWN))
            t->attr[i] |= SL_ATTR_GUARDED;
        if (sl_strings_get(&t->strings, i).len < 2)
            t->attr[i] &= (uint8_t)~SL_ATTR_GUARDED;
    }
}

static enum sl_status build_matchers(struct sl_tokenizer *t, struct sl_err *err) {
    uint32_t n_special = 0, n_user = 0;
    uint32_t *ids = malloc((size_t)t->n_vocab * 2 * sizeof *ids), *user = ids + t->n_vocab;
    if (!ids)
        return sl_fail(err, SL_ERR_NOMEM, "out of memory for the special tokens");
    for (uint32_t i = 0; i < t->n_vocab; i++) {
        if (!(t->attr[i] & (SL_ATTR_CONTROL | SL_ATTR_USER_DEFINED | SL_ATTR_UNKNOWN)))
            continue;
        ids[n_special++] = i;
        if (!(t->attr[i] & (SL_ATTR_CONTROL | SL_ATTR_UNKNOWN)))
            user[n_user++] = i;
    }
    enum sl_status status = sl_matcher_init(&t->special, &t->strings, ids, n_special);
    if (status == SL_OK)
        status = sl_matcher_init(&t->user, &t->strings, user, n_user);
    free(ids);
    return status == SL_OK ? SL_OK : sl_fail(err, status, "out of memory for the special tokens");
}

/* Phi-3's special tokens swallow the white space after them; only the model's name tells. */
static enum sl_status load_strip(struct sl_tokenizer *t, const struct sl_gguf *g,
                                 struct sl_err *err) {
    struct sl_str name = {0};
    enum sl_status status = sl_gguf_get_str(g, "general.name", &name, err);
    if (status != SL_OK)
        return status == SL_AGAIN ? SL_OK : status;
    bool phi3 = false;
    for (size_t i = 0; i + 4 <= name.len; i++) {
        phi3 |= strncasecmp(name.ptr + i, "phi3", 4) == 0;
        phi3 |= i + 5 <= name.len && strncasecmp(name.ptr + i, "phi-3", 5) == 0;
    }
    if (!phi3)
        return SL_OK;
    t->strip_right = calloc(t->n_vocab, sizeof *t->strip_right);
    if (!t->strip_right)
        return sl_fail(err, SL_ERR_NOMEM, "out of memory for the special tokens");
    for (uint32_t i = 0; i < t->n_vocab; i++)
        t->strip_right[i] = t->attr[i] & (SL_ATTR_CONTROL | SL_ATTR_USER_DEFINED | SL_ATTR_UNKNOWN);
    static const char *const kept[] = {"<unk>", "<s>", "<|endoftext|>"};
    for (size_t i = 0; i < COUNT(kept); i++) {
        uint32_t id = find(t, kept[i]);
        if (id != SL_NO_TOKEN)
            t->strip_right[id] = false;
    }
    return SL_OK;
}

enum sl_status sl_tokenizer_load_special(struct sl_tokenizer *t, const struct sl_gguf *g,
                                         struct sl_err *err) {
    if (t->bos >= t->n_vocab)
        t->bos = SL_NO_TOKEN;
    if (t->eos >= t->n_vocab)
        t->eos = SL_NO_TOKEN;
    if (t->unk >= t->n_vocab)
        t->unk = SL_NO_TOKEN;
    SL_TRY(read_id(t, g, "tokenizer.ggml.bos_token_id", &t->bos, err));
    SL_TRY(read_id(t, g, "tokenizer.ggml.eos_token_id", &t->eos, err));
    SL_TRY(read_id(t, g, "tokenizer.ggml.unknown_token_id", &t->unk, err));
    const struct {
        const char *key;
        bool *out;
        uint32_t id;
        const char *needs;
    } flags[] = {
        {"tokenizer.ggml.add_bos_token", &t->add_bos, t->bos, "tokenizer.ggml.bos_token_id"},
        {"tokenizer.ggml.add_eos_token", &t->add_eos, t->eos, "tokenizer.ggml.eos_token_id"},
    };
    for (size_t i = 0; i < COUNT(flags); i++) {
        enum sl_status status = sl_gguf_get_bool(g, flags[i].key, flags[i].out, err);
        if (status != SL_OK && status != SL_AGAIN)
            return status;
        if (i == 0 && t->pretok && sl_pretok_traits(t->pretok)->always_bos)
            t->add_bos = true;
        if (*flags[i].out && flags[i].id == SL_NO_TOKEN)
            return sl_fail(err, SL_ERR_CORRUPT, "%s is true, but %s names no token of the %u",
                           flags[i].key, flags[i].needs, t->n_vocab);
    }
    for (size_t i = 0; i < COUNT(roles); i++)
        SL_TRY(assign_role(t, g, &roles[i], err));
    if (t->eos != SL_NO_TOKEN)
        t->attr[t->eos] |= SL_ATTR_EOG;
    correct_eog(t);
    guard_controls(t);
    SL_TRY(load_strip(t, g, err));
    return build_matchers(t, err);
}
