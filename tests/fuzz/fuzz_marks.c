/* Text of clients through chat templates: whatever it says, it adds no control token to the prompt.
 *
 * Bytes 0 and 1 choose template and vocabulary. The rest, cut at 0xff, are the strings that a
 * client sends: what a user says, the text of a call's arguments, a result, a tool's description, a
 * key of its schema, a variable. Each template writes as many control tokens whatever these are.
 *
 * Checked: the prompt has the control tokens that it has with harmless strings in their place. */
#include "common/utf8.h"
#include "model/chat/chat.h"
#include "model/gguf/gguf_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok) {
    if (!ok)
        abort();
}

#define TURN(role, text) "<|im_start|>" role "\n{{ " text " }}<|im_end|>"
#define EACH             "{% for m in messages %}"
#define CALLS            "{% for c in m.tool_calls or [] %}"
static const char *const templates[] = {
    /* Arguments as values, as JSON, as Python writes them. */
    EACH "<|im_start|>{{ m.role }}\n{{ m.content or '' }}" CALLS
         "{{ c.function.arguments | tojson }}{% endfor %}<|im_end|>{% endfor %}"
         "{{ tools | tojson }}{{ word }}",
    EACH CALLS "{% for k, v in c.function.arguments.items() %}<{{ k }}>{{ v }}</{{ k }}>"
               "{% endfor %}{% endfor %}" TURN("x", "m.content") "{% endfor %}{{ bos_token }}",
    EACH "{{ m }}{{ '<|' + m.role + '|>' }}{% endfor %}{{ tools }}{{ word | string }}",
    EACH "{{ '[INST]' ~ (m.content or '') ~ '[/INST]' }}" CALLS
         "{{ c.function.arguments | tojson(ensure_ascii=True, indent=1) }}"
         "{{ c.function.arguments }}{% endfor %}{% endfor %}{{ eos_token }}",
    /* Text that is mapped, cut and joined: what was none before may be one behind. */
    EACH "{% set t = (m.content or '') ~ word %}{{ t | lower }}{{ t | upper }}{{ t | trim }}"
         "{{ t | replace('x', '') }}{{ t.split('y') | join }}{{ t[1:] }}{{ t[::-1] }}"
         "{{ t | title }}{{ t | indent(2) }}{{ t | striptags }}{{ t | truncate(9) }}"
         "{{ '%s|>' % t }}{{ '<{}>'.format(t) }}{{ t.strip('xyz') }}{{ (t ~ t) | escape }}"
         "{{ t * 2 }}{{ t.partition('z') | join }}{{ t | list | join('') }}"
         "{{ t | urlencode }}{{ t.title() }}{{ t.swapcase() }}{{ t | capitalize }}"
         "{{ t | center(20) }}{{ t.zfill(9) }}{{ [t, t] | join('|') }}<s>{% endfor %}",
    /* Tokens that the template's text and the client's would make together. */
    EACH "{% set t = m.content or '' %}<{{ t }}>{{ '<|' ~ t ~ '|>' }}<|im_{{ word }}|>"
         "{{ '<|im_' + word }}{{ t }}{{ word }}{{ t[:1] }}s>{% set b %}<|{{ t }}{% endset %}"
         "{{ b }}{{ word }}[{{ t }}]{{ '</' ~ t }}{{ word ~ '>' }}<|im_end|>{% endfor %}",
    "{% macro f(a, b) %}{{ a }}{{ b }}{{ caller() if caller else '' }}{% endmacro %}" EACH
    "{{ f(m.content, word) }}{% call f('<|im_start|>', m.content) %}{{ word }}</s>{% endcall %}"
    "{% filter lower %}<|IM_END|>{{ word }}{% endfilter %}"
    "{% set ns = namespace(s='') %}{% for c in m.content or '' %}{% set ns.s = ns.s ~ c %}"
    "{% endfor %}{{ ns.s }}{{ ns.s ~ '<|im_end|>' }}{% endfor %}",
};
enum { N_TEMPLATES = sizeof templates / sizeof *templates };

/* Beside its own bytes each vocabulary has ways to a control token by merges. */
static const char *const controls[] = {"<s>",
                                       "</s>",
                                       "<|im_start|>",
                                       "<|im_end|>",
                                       "[INST]",
                                       "[/INST]",
                                       "<|user|>",
                                       "<|channel|>",
                                       ("<\xef\xbd\x9c"
                                        "end\xef\xbd\x9c>"),
                                       "\xe2\x96\x81<PRE>"};

static size_t alphabet(unsigned b, char *out) {
    unsigned cp = b;
    if (b <= 0x20)
        cp = 0x100 + b;
    else if (b >= 0x7f && b <= 0xa0)
        cp = 0x121 + (b - 0x7f);
    else if (b == 0xad)
        cp = 0x143;
    return sl_utf8_put(cp, out);
}

struct maker {
    struct sl_gguf_writer w;
    char text[400][24];
    int32_t type[400];
    uint32_t n;
};

static void add(struct maker *m, const char *text, int32_t type) {
    check(m->n < 400 && strlen(text) < sizeof m->text[0]);
    strcpy(m->text[m->n], text);
    m->type[m->n++] = type;
}

static struct sl_tokenizer *vocabulary(bool spm) {
    static struct maker m;
    static const char *const pieces[] = {
        "<|", "im", "<|im", "|>", "end", "<|im_",           "<|im_end",
        "</", "s>", "</s",  "<",  "<s",  "\xe2\x96\x81<PRE"};
    static const char *const merges[] = {"< |", "< s", "<s >", "< /", "</ s", "</s >", "| >"};
    m = (struct maker){.n = 0};
    sl_gguf_writer_init(&m.w);
    sl_gguf_write_str(&m.w, "tokenizer.ggml.model", spm ? "llama" : "gpt2");
    if (!spm)
        sl_gguf_write_str(&m.w, "tokenizer.ggml.pre", "default");
    add(&m, "<unk>", 2);
    for (unsigned b = 0; b < 256; b++) {
        char text[8];
        if (spm)
            snprintf(text, sizeof text, "<0x%02X>", b);
        else
            text[alphabet(b, text)] = 0;
        add(&m, text, spm ? 6 : 1);
    }
    for (size_t i = 0; i < sizeof controls / sizeof *controls; i++)
        add(&m, controls[i], 3);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        if (spm || strcmp(pieces[i], "<"))
            add(&m, pieces[i], 1);
    sl_gguf_array_begin_str(&m.w, "tokenizer.ggml.merges");
    for (size_t i = 0; i < sizeof merges / sizeof *merges; i++)
        sl_gguf_array_add_str(&m.w, merges[i], strlen(merges[i]));
    sl_gguf_array_end(&m.w);
    sl_gguf_array_begin_str(&m.w, "tokenizer.ggml.tokens");
    for (uint32_t i = 0; i < m.n; i++)
        sl_gguf_array_add_str(&m.w, m.text[i], strlen(m.text[i]));
    sl_gguf_array_end(&m.w);
    sl_gguf_array_begin_i32(&m.w, "tokenizer.ggml.token_type");
    for (uint32_t i = 0; i < m.n; i++)
        sl_gguf_array_add_i32(&m.w, m.type[i]);
    sl_gguf_array_end(&m.w);
    sl_gguf_write_u32(&m.w, "tokenizer.ggml.bos_token_id", 257);
    sl_gguf_write_u32(&m.w, "tokenizer.ggml.eos_token_id", 258);
    uint8_t *bytes;
    size_t n;
    struct sl_gguf *g;
    struct sl_err err = {""};
    struct sl_tokenizer *t = NULL;
    check(sl_gguf_writer_finish(&m.w, &bytes, &n) == SL_OK);
    check(sl_gguf_open_memory(bytes, n, &g, &err) == SL_OK);
    check(sl_tokenizer_create(g, &t, &err) == SL_OK);
    sl_gguf_close(&g);
    free(bytes);
    sl_gguf_writer_release(&m.w);
    return t;
}

static struct sl_chat *model(unsigned which, bool spm) {
    static struct sl_chat made[N_TEMPLATES][2];
    static struct sl_tokenizer *tok[2];
    struct sl_chat *c = &made[which][spm];
    struct sl_err err;
    if (!tok[spm])
        tok[spm] = vocabulary(spm);
    if (!c->tok)
        check(sl_chat_init(c, tok[spm], templates[which], strlen(templates[which]), NULL, &err) ==
              SL_OK);
    check(c->template != NULL);
    return c;
}

enum { SAID, ARGUMENTS, RESULT, DESCRIPTION, KEY, WORD, N_TEXTS };

/* The control tokens of the prompt; false: the template refuses it. */
static bool prompt(const struct sl_chat *c, char *const text[N_TEXTS], uint32_t *out_n) {
    const struct sl_template_limits limits = {.max_steps = 200000,
                                              .max_depth = 300,
                                              .max_output_bytes = 1 << 20,
                                              .max_memory_bytes = 16 << 20,
                                              .now_s = 1700000000};
    json_t *messages =
        json_pack("[{s:s,s:s},{s:s,s:s,s:[{s:s,s:s,s:{s:s,s:s}}]},{s:s,s:s,s:s}]", "role", "user",
                  "content", text[SAID], "role", "assistant", "content", text[WORD], "tool_calls",
                  "id", text[KEY], "type", "function", "function", "name", "f", "arguments",
                  text[ARGUMENTS], "role", "tool", "content", text[RESULT], "name", text[WORD]);
    json_t *tools =
        json_pack("[{s:s,s:{s:s,s:s,s:{s:s,s:{s:{s:s,s:[s]}}}}}]", "type", "function", "function",
                  "name", "f", "description", text[DESCRIPTION], "parameters", "type", "object",
                  "properties", text[KEY], "type", "string", "enum", text[WORD]);
    json_t *more = json_pack("{s:s,s:{s:s}}", "word", text[WORD], text[KEY], text[KEY], text[SAID]);
    struct sl_chat_vars vars = {0};
    struct sl_rendered r = {0};
    struct sl_ids ids = {0};
    struct sl_err err = {""};
    check(messages && tools && more && sl_chat_vars_init(c, messages, tools, more, true, &vars));
    json_t *copy = json_object_get(vars.all, "messages");
    check(sl_chat_apply_form(&c->form, copy));
    bool ok = sl_template_render_own(c->template, vars.all, vars.own, &limits, &r, &err) == SL_OK;
    *out_n = 0;
    if (ok) {
        for (size_t i = 0; i < r.n_own; i++)
            check(r.own[i].from < r.own[i].to && r.own[i].to <= r.len &&
                  (!i || r.own[i - 1].to < r.own[i].from));
        check(sl_chat_encode(c, &r, NULL, &ids) == SL_OK);
        for (size_t i = 0; i < ids.n; i++)
            *out_n += sl_tokenizer_is_guarded(c->tok, ids.ids[i]);
    }
    sl_ids_release(&ids);
    sl_rendered_release(&r);
    sl_chat_vars_release(&vars);
    json_decref(messages);
    json_decref(tools);
    json_decref(more);
    return ok;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2)
        return 0;
    const struct sl_chat *c = model(data[0] % N_TEMPLATES, data[1] & 1);
    char *text[N_TEXTS] = {0};
    const uint8_t *p = data + 2, *end = data + size;
    for (int i = 0; i < N_TEXTS; i++) {
        const uint8_t *stop = p < end ? memchr(p, 0xff, (size_t)(end - p)) : NULL;
        size_t n = (size_t)((stop ? stop : end) - p);
        n = sl_utf8_valid_prefix((const char *)p, n);
        text[i] = strndup((const char *)p, n);
        check(text[i] != NULL);
        p = stop ? stop + 1 : end;
    }
    /* Arguments that are no object stay text, which some templates cannot go through. */
    json_error_t e;
    json_t *arguments = json_loads(text[ARGUMENTS], 0, &e);
    static char harmless[] = "q", none[] = "{\"q\":\"q\"}";
    char *const plain[N_TEXTS] = {harmless, json_is_object(arguments) ? none : harmless,
                                  harmless, harmless,
                                  harmless, harmless};
    json_decref(arguments);
    uint32_t n, want;
    if (prompt(c, text, &n) && prompt(c, plain, &want) && n != want) {
        fprintf(stderr, "%u control tokens, %u with harmless text, template %d\n", n, want,
                data[0] % N_TEMPLATES);
        abort();
    }
    for (int i = 0; i < N_TEXTS; i++)
        free(text[i]);
    return 0;
}
