/* The bodies of answers with vectors, which have length 1 whatever the API. */
#include "server/api/renderers.h"

#include "common/clock.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Pooled sums become a vector of length 1; a mean differs from its sum in the length alone. */
static double scale_of(const struct sl_choice *c, uint32_t n) {
    double squares = 0;
    for (uint32_t i = 0; i < n; i++)
        squares += c->pooled[i] * c->pooled[i];
    return squares > 0 ? 1 / sqrt(squares) : 0;
}

static void put_numbers(struct sl_buf *b, const struct sl_choice *c, uint32_t n) {
    double scale = scale_of(c, n);
    sl_buf_puts(b, "[");
    for (uint32_t i = 0; i < n; i++)
        sl_buf_printf(b, i ? ",%.9g" : "%.9g", (double)(float)(c->pooled[i] * scale));
    sl_buf_puts(b, "]");
}

/* The floats' bytes, little-endian, three at a time. */
static void put_base64(struct sl_buf *b, const struct sl_choice *c, uint32_t n) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    double scale = scale_of(c, n);
    uint32_t bits = 0, n_bytes = 0;
    char four[4];
    sl_buf_puts(b, "\"");
    for (uint32_t i = 0; i < n; i++) {
        float x = (float)(c->pooled[i] * scale);
        uint32_t word;
        memcpy(&word, &x, sizeof word);
        for (uint32_t k = 0; k < 4; k++) {
            bits = bits << 8 | (word >> 8 * k & 0xff);
            if (++n_bytes % 3)
                continue;
            for (uint32_t d = 0; d < 4; d++)
                four[d] = digits[bits >> (18 - 6 * d) & 63];
            sl_buf_put(b, four, 4);
            bits = 0;
        }
    }
    uint32_t left = n_bytes % 3; /* bytes in bits */
    if (left) {
        bits <<= 24 - 8 * left;
        for (uint32_t d = 0; d < 4; d++)
            four[d] = d <= left ? digits[bits >> (18 - 6 * d) & 63] : '=';
        sl_buf_put(b, four, 4);
    }
    sl_buf_puts(b, "\"");
}

static uint64_t n_tokens(const struct sl_gen *g) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < g->n_prompts; i++)
        n += g->prompts[i].n;
    return n;
}

/* {"object":"list","data":[{"object":"embedding","index":0,"embedding":...}],"model":...,
 * "usage":...} */
static void whole(struct sl_buf *b, const struct sl_gen *g) {
    uint32_t n_embd = g->served->info.n_embd;
    unsigned long long n = n_tokens(g);
    sl_buf_puts(b, "{\"object\":\"list\",\"data\":[");
    for (uint32_t i = 0; i < g->n_choices; i++) {
        sl_buf_printf(b, "%s{\"object\":\"embedding\",\"index\":%u,\"embedding\":", i ? "," : "",
                      i);
        if (g->params.base64)
            put_base64(b, &g->choices[i], n_embd);
        else
            put_numbers(b, &g->choices[i], n_embd);
        sl_buf_puts(b, "}");
    }
    sl_buf_puts(b, "],\"model\":");
    sl_buf_json_text(b, sl_gen_model(g));
    sl_buf_printf(b, ",\"usage\":{\"prompt_tokens\":%llu,\"total_tokens\":%llu}}", n, n);
}

/* {"model":...,"embeddings":[[...]],"total_duration":ns,...} */
static void ollama_whole(struct sl_buf *b, const struct sl_gen *g) {
    uint64_t ns = sl_now_ns() - g->ex->started_ns;
    sl_buf_puts(b, "{\"model\":");
    sl_buf_json_text(b, sl_gen_model(g));
    sl_buf_puts(b, ",\"embeddings\":[");
    for (uint32_t i = 0; i < g->n_choices; i++) {
        sl_buf_puts(b, i ? "," : "");
        put_numbers(b, &g->choices[i], g->served->info.n_embd);
    }
    sl_buf_printf(b, "],\"total_duration\":%llu,\"load_duration\":0,\"prompt_eval_count\":%llu}",
                  (unsigned long long)ns, (unsigned long long)n_tokens(g));
}

static void ollama_old_whole(struct sl_buf *b, const struct sl_gen *g) {
    sl_buf_puts(b, "{\"embedding\":");
    put_numbers(b, g->choices, g->served->info.n_embd);
    sl_buf_puts(b, "}");
}

const struct sl_renderer sl_embeddings_renderer = {.id_prefix = "embd-", .whole = whole};
const struct sl_renderer sl_ollama_embed_renderer = {.id_prefix = "", .whole = ollama_whole};
const struct sl_renderer sl_ollama_embeddings_renderer = {.id_prefix = "",
                                                          .whole = ollama_old_whole};
