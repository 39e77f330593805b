/* What a constraint costs per token: bench_grammar MODEL.gguf (a vocabulary-only file will do).
 *
 * For each schema: answers whose tokens are drawn evenly from those allowed, the nonsense that
 * visits the most states, until 4,000 tokens are there; and, as answers of real models do, texts
 * that were given, cut into the longest tokens. Time per token is that of the set of allowed
 * tokens, of writing it into logits, and of taking the token, in CPU time. Each answer starts with
 * an automaton that knows nothing yet. */
#include "common/rng.h"
#include "model/grammar/automaton.h"
#include "model/grammar/json_schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const struct {
    const char *name, *schema, *text;
} cases[] = {
    {"any object", "{\"type\":\"object\"}",
     "{\n  \"name\": \"Ada Lovelace\",\n  \"born\": 1815,\n  \"tags\": [\"mathematics\", "
     "\"computing\"],\n"
     "  \"notes\": {\"first\": \"She wrote what is held to be the first program.\"}\n}"},
    {"a person",
     "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"age\":{\"type\":"
     "\"integer\",\"minimum\":0,\"maximum\":130},\"tags\":{\"type\":\"array\",\"items\":{\"type\":"
     "\"string\"}}},\"required\":[\"name\",\"age\",\"tags\"],\"additionalProperties\":false}",
     "{\"name\": \"Ada Lovelace\", \"age\": 36, \"tags\": [\"mathematics\", \"computing\", "
     "\"letters\"]}"},
    {"bounded strings",
     "{\"type\":\"array\",\"minItems\":3,\"items\":{\"type\":\"object\",\"properties\":{\"title\":{"
     "\"type\":"
     "\"string\",\"minLength\":5,\"maxLength\":200},\"id\":{\"type\":\"string\",\"pattern\":"
     "\"^[a-z0-9-]{8,40}$\"}},\"required\":[\"title\",\"id\"],\"additionalProperties\":false}}",
     "[{\"title\": \"The analytical engine weaves algebraic patterns\", \"id\": "
     "\"analytical-engine-1843\"}, "
     "{\"title\": \"Just as the loom weaves flowers and leaves\", \"id\": \"jacquard-loom-1804\"}, "
     "{\"title\": \"A note on the numbers of Bernoulli\", \"id\": \"note-g-bernoulli\"}]"},
};

/* Of this thread: what else the machine does is not counted. */
static uint64_t cpu_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

struct times {
    double mask, apply, accept, worst;
    uint32_t n, n_answers;
};

static struct sl_grammar *compile(const char *schema, double *out_ms) {
    struct sl_err err = {""};
    struct sl_buf text = {0};
    struct sl_grammar *g = NULL;
    json_t *s = json_loads(schema, 0, NULL);
    uint64_t start = cpu_ns();
    if (sl_json_schema_grammar(s, &text, &err) != SL_OK ||
        sl_grammar_parse(text.ptr, text.len, &g, &err) != SL_OK) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    *out_ms = (double)(cpu_ns() - start) * 1e-6;
    sl_buf_release(&text);
    json_decref(s);
    return g;
}

static void check(enum sl_status status, const struct sl_err *err) {
    if (status != SL_OK) {
        fprintf(stderr, "%s\n", err->text);
        exit(1);
    }
}

/* The allowed token that takes most of text, or, without text, any. */
static uint32_t choose(const struct sl_vocab_trie *v, const uint64_t *set, const char *text,
                       struct sl_rng *rng) {
    uint32_t best = UINT32_MAX, n = 0;
    size_t best_len = 0;
    for (uint32_t id = 0; id < v->n_vocab; id++) {
        if (!(set[id / 64] >> (id % 64) & 1))
            continue;
        struct sl_str s = sl_vocab_text(v, id);
        if (text) {
            if (s.len > best_len && strncmp(text, s.ptr, s.len) == 0) {
                best = id;
                best_len = s.len;
            }
        } else if (sl_rng_unit(rng) * ++n < 1) {
            best = id;
        }
    }
    return best;
}

static void answer(struct sl_automaton *a, const struct sl_vocab_trie *v, float *logits,
                   const char *text, struct sl_rng *rng, struct times *t) {
    struct sl_cursor c;
    struct sl_err err = {""};
    check(sl_cursor_init(&c, a, &err), &err);
    for (uint32_t i = 0; i < 400 && !c.ended && (!text || *text); i++) {
        const uint64_t *set;
        uint64_t t0 = cpu_ns();
        check(sl_cursor_mask(&c, &set, &err), &err);
        uint64_t t1 = cpu_ns();
        sl_token_set_apply(set, v->n_vocab, logits, v->n_vocab);
        uint64_t t2 = cpu_ns();
        uint32_t id = choose(v, set, text, rng);
        if (id == UINT32_MAX)
            check(SL_ERR_INVALID, &(struct sl_err){"the text is not one of the grammar"});
        if (text)
            text += sl_vocab_text(v, id).len;
        uint64_t t3 = cpu_ns();
        check(sl_cursor_push_token(&c, id, &err), &err);
        uint64_t t4 = cpu_ns();
        double mask = (double)(t1 - t0) * 1e-3;
        t->mask += mask;
        t->apply += (double)(t2 - t1) * 1e-3;
        t->accept += (double)(t4 - t3) * 1e-3;
        t->worst = mask > t->worst ? mask : t->worst;
        t->n++;
    }
    t->n_answers++;
    sl_cursor_release(&c);
}

int main(int argc, char **argv) {
    struct sl_gguf *gguf = NULL;
    struct sl_tokenizer *tok = NULL;
    struct sl_vocab_trie *v = NULL;
    struct sl_err err = {""};
    if (argc != 2) {
        fprintf(stderr, "usage: bench_grammar MODEL.gguf\n");
        return 2;
    }
    check(sl_gguf_open(argv[1], &gguf, &err), &err);
    check(sl_tokenizer_create(gguf, &tok, &err), &err);
    uint64_t start = cpu_ns();
    if (sl_vocab_trie_create(tok, &v) != SL_OK)
        return 1;
    printf("%s: %u tokens, tries of %u and %u nodes made in %.0f ms\n", argv[1], v->n_vocab,
           v->plain.n_nodes, v->rest.n_nodes, (double)(cpu_ns() - start) * 1e-6);
    printf("%-16s %-6s %10s %9s %9s %9s %9s %9s  (us a token)\n", "schema", "text", "compile ms",
           "set", "logits", "take", "sum", "worst set");
    float *logits = calloc(v->n_vocab + 64, sizeof *logits);
    uint32_t eog = sl_tokenizer_eos(tok);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double compile_ms;
        struct sl_grammar *g = compile(cases[i].schema, &compile_ms);
        for (int given = 0; given < 2; given++) {
            struct times t = {0};
            struct sl_rng rng = {7};
            while (t.n < 4000 && t.n_answers < 100) {
                struct sl_automaton *a = NULL;
                if (sl_automaton_create(g, v, &eog, 1, &a) != SL_OK)
                    return 1;
                answer(a, v, logits, given ? cases[i].text : NULL, &rng, &t);
                sl_automaton_destroy(&a);
            }
            printf("%-16s %-6s %10.2f %9.1f %9.1f %9.1f %9.1f %9.0f\n", cases[i].name,
                   given ? "given" : "drawn", compile_ms, t.mask / t.n, t.apply / t.n,
                   t.accept / t.n, (t.mask + t.apply + t.accept) / t.n, t.worst);
        }
        sl_grammar_destroy(&g);
    }
    free(logits);
    sl_vocab_trie_destroy(&v);
    sl_tokenizer_destroy(&tok);
    sl_gguf_close(&gguf);
    return 0;
}
