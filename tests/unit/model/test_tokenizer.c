/* The tokenizer, with small vocabularies made here. */
#include "tests/support/vocab.h"

static void test_bpe_merges(void **state) {
    (void)state;
    struct vocab v;
    start_bpe(&v, "gpt-2");
    uint32_t he = merge(&v, "h e"), ll = merge(&v, "l l"), hell = merge(&v, "he ll");
    uint32_t lo = merge(&v, "l o"), hello = merge(&v, "hell o"), gw = merge(&v, "\xc4\xa0 w");
    uint32_t aa = merge(&v, "a a"), aaaa = merge(&v, "aa aa");
    /* A merge whose result is no token spells its bytes where they are literal tokens. */
    v.merges[v.n_merges++] = "x y";
    struct sl_tokenizer *t = finish(&v);
    CHECK(t, "hello", 0, hello);
    CHECK(t, "hell", 0, hell);
    CHECK(t, "helo", 0, he, lo);
    CHECK(t, "lll", 0, ll, 'l');
    CHECK(t, "hello world", 0, hello, gw, 'o', 'r', 'l', 'd');
    CHECK(t, "aaaaaa", 0, aaaa, aa);
    CHECK(t, "aaa", 0, aa, 'a'); /* leftmost of equals */
    CHECK(t, "xy", 0, 'x', 'y');
    CHECK(t, "h\ne", 0, 'h', '\n', 'e'); /* not across words */
    CHECK(t, "\xc3\xa9", 0, 0xc3, 0xa9);
    /* U+FFFD in the place of each byte that is no character, as llama.cpp has it; an overlong form
     * is what it means; a lone surrogate stays. */
    CHECK(t,
          "a\xff"
          "b",
          0, 'a', 0xef, 0xbf, 0xbd, 'b');
    CHECK(t, "\xe4\xb8", 0, 0xef, 0xbf, 0xbd, 0xef, 0xbf, 0xbd);
    CHECK(t, "\xc0\x80", 0, 0);
    CHECK(t, "\xed\xa0\x80", 0, 0xed, 0xa0, 0x80);
    CHECK(t, "\xf7\xbf\xbf\xbf", 0, 0xef, 0xbf, 0xbd, 0xef, 0xbf, 0xbd, 0xef, 0xbf, 0xbd, 0xef,
          0xbf, 0xbd);
    CHECK(t, "\0", 0, 0);
    check_n(t, "", 0, SL_ENCODE_ADD_SPECIAL, NULL, 0);
    assert_string_equal(sl_tokenizer_kind(t), "gpt2/gpt-2");
    assert_int_equal(sl_tokenizer_n_vocab(t), 256 + 8);
    assert_int_equal(sl_tokenizer_find(t, "hello", 5), hello);
    assert_int_equal(sl_tokenizer_find(t, "x y", 3), SL_NO_TOKEN);
    assert_int_equal(sl_tokenizer_find(t, "xy", 2), SL_NO_TOKEN); /* known to the merges alone */
    struct sl_str piece = sl_tokenizer_piece(t, gw, false);
    assert_int_equal(piece.len, 2);
    assert_memory_equal(piece.ptr, " w", 2);
    for (uint32_t b = 0; b < 256; b++) {
        piece = sl_tokenizer_piece(t, b, false);
        assert_int_equal(piece.len, 1);
        assert_int_equal((unsigned char)piece.ptr[0], b);
    }
    assert_int_equal(sl_tokenizer_piece(t, 9999, true).len, 0);
    /* Appends; the ids before stay. */
    struct sl_ids ids = {0};
    assert_int_equal(sl_tokenizer_encode(t, "a", 1, 0, &ids), SL_OK);
    assert_int_equal(sl_tokenizer_encode(t, "hello", 5, 0, &ids), SL_OK);
    assert_int_equal(ids.n, 2);
    assert_int_equal(ids.ids[0], 'a');
    assert_int_equal(ids.ids[1], hello);
    sl_ids_release(&ids);
    sl_tokenizer_destroy(&t);
    assert_null(t);
}

/* Merging as the definition says it: the best pair, leftmost, again and again. */
static size_t merge_slowly(const struct vocab *v, const char *text, size_t len, uint32_t *out) {
    size_t n = len;
    for (size_t i = 0; i < len; i++)
        out[i] = (unsigned char)text[i];
    for (;;) {
        uint32_t best = UINT32_MAX;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            for (uint32_t m = 0; m < v->n_merges && m < best; m++) {
                uint32_t l = out[i], r = out[i + 1];
                if (strlen(v->merges[m]) == v->len[l] + v->len[r] + 1 &&
                    memcmp(v->merges[m], v->tokens[l], v->len[l]) == 0 &&
                    memcmp(v->merges[m] + v->len[l] + 1, v->tokens[r], v->len[r]) == 0) {
                    best = m;
                    at = i;
                }
            }
        }
        if (best == UINT32_MAX)
            return n;
        out[at] = 256 + best;
        memmove(out + at + 1, out + at + 2, (n - at - 2) * sizeof *out);
        n--;
    }
}

static void test_bpe_against_definition(void **state) {
    (void)state;
    struct vocab v;
    start_bpe(&v, "gpt-2");
    static const char *const pairs[] = {"a b",   "b a",   "a a", "c a",   "ab c", "ba ba",  "aa a",
                                        "ab ab", "ca ab", "b b", "bb aa", "c c",  "abc abc"};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        merge(&v, pairs[i]);
    enum { N = 400, LEN = 200 };
    static char text[N][LEN];
    static uint32_t want[N][LEN];
    static size_t n_want[N], len[N];
    srand(7);
    for (int k = 0; k < N; k++) {
        len[k] = 1 + (size_t)rand() % (k % 2 ? LEN : 30); /* both sides of the short-word limit */
        for (size_t i = 0; i < len[k]; i++)
            text[k][i] = "abc"[rand() % 3];
        n_want[k] = merge_slowly(&v, text[k], len[k], want[k]);
    }
    struct sl_tokenizer *t = finish(&v);
    for (int k = 0; k < N; k++)
        check_n(t, text[k], len[k], 0, want[k], n_want[k]);
    sl_tokenizer_destroy(&t);
}

static void test_special(void **state) {
    (void)state;
    struct vocab v;
    start_bpe(&v, "qwen2");
    merge(&v, "i m");
    uint32_t im_start = add(&v, "<|im_start|>", CONTROL), im_end = add(&v, "<|im_end|>", CONTROL);
    uint32_t tool = add(&v, "<tool>", USER), two = add(&v, "  ", USER),
             four = add(&v, "    ", USER);
    uint32_t tail = add(&v, "ool>x", USER), unused = add(&v, "", UNUSED);
    sl_gguf_write_u32(&v.w, "tokenizer.ggml.bos_token_id", im_start);
    sl_gguf_write_u32(&v.w, "tokenizer.ggml.eos_token_id", im_end);
    sl_gguf_write_bool(&v.w, "tokenizer.ggml.add_bos_token", true);
    sl_gguf_write_bool(&v.w, "tokenizer.ggml.add_eos_token", true);
    struct sl_tokenizer *t = finish(&v);
    enum { PARSE = SL_ENCODE_PARSE_SPECIAL, ADD = SL_ENCODE_ADD_SPECIAL };
    CHECK(t, "<|im_end|>", PARSE, im_end);
    CHECK(t, "<|im_end|>", 0, '<', '|', 256, '_', 'e', 'n', 'd', '|', '>');
    CHECK(t, "a<|im_start|>b<|im_end|>", PARSE, 'a', im_start, 'b', im_end);
    CHECK(t, "<|im_<|im_end|>", PARSE, '<', '|', 256, '_', im_end);
    CHECK(t, "<|im_end|><|im_end|", PARSE, im_end, '<', '|', 256, '_', 'e', 'n', 'd', '|');
    CHECK(t, "a<tool>b", 0, 'a', tool, 'b'); /* user-defined always */
    CHECK(t, "<tool>x", 0, tool, 'x');       /* the longer wins over the later */
    CHECK(t, "tool>x", 0, 't', tail);
    CHECK(t, "a      b", 0, 'a', four, two, 'b');
    CHECK(t, "a   b", 0, 'a', two, ' ', 'b');
    CHECK(t, "a", ADD, im_start, 'a', im_end);
    CHECK(t, "", ADD, im_start, im_end);
    assert_int_equal(sl_tokenizer_bos(t), im_start);
    assert_int_equal(sl_tokenizer_eos(t), im_end);
    assert_true(sl_tokenizer_is_eog(t, im_end));
    assert_false(sl_tokenizer_is_eog(t, im_start));
    assert_false(sl_tokenizer_is_eog(t, 'a'));
    assert_false(sl_tokenizer_is_eog(t, SL_NO_TOKEN));
    assert_true(sl_tokenizer_is_control(t, im_start));
    assert_false(sl_tokenizer_is_control(t, tool));
    assert_int_equal(sl_tokenizer_piece(t, im_end, false).len, 0);
    assert_int_equal(sl_tokenizer_piece(t, im_end, true).len, 10);
    assert_int_equal(sl_tokenizer_piece(t, tool, false).len, 6);
    assert_int_equal(sl_tokenizer_piece(t, unused, true).len, 0);
    sl_tokenizer_destroy(&t);
}

/* Random text over a small alphabet against the rule itself: for each length from long to short,
 * each stretch of text not yet taken is cut at the tokens of that length, leftmost first. */
static void test_special_against_definition(void **state) {
    (void)state;
    static const char *const special[] = {"ab", "aba", "bab", "aabb", "bbbb", "abbab", "ba"};
    enum { N = sizeof special / sizeof *special, LEN = 60 };
    struct vocab v;
    start_bpe(&v, "qwen2");
    v.merges[v.n_merges++] = "q q";
    for (int i = 0; i < N; i++)
        add(&v, special[i], USER);
    struct sl_tokenizer *t = finish(&v);
    srand(3);
    for (int round = 0; round < 3000; round++) {
        char text[LEN];
        uint32_t owner[LEN], want[LEN];
        size_t len = 1 + (size_t)rand() % LEN, n = 0;
        for (size_t i = 0; i < len; i++) {
            text[i] = "ab"[rand() % 2];
            owner[i] = 0;
        }
        for (size_t l = 5; l >= 2; l--) {
            for (size_t i = 0; i + l <= len; i++) {
                for (int k = 0; k < N; k++) {
                    bool is_free = strlen(special[k]) == l && memcmp(text + i, special[k], l) == 0;
                    for (size_t j = i; is_free && j < i + l; j++)
                        is_free = owner[j] == 0;
                    for (size_t j = i; is_free && j < i + l; j++)
                        owner[j] = j == i ? 256u + (uint32_t)k : UINT32_MAX;
                }
            }
        }
        for (size_t i = 0; i < len; i++) {
            if (owner[i] != UINT32_MAX)
                want[n++] = owner[i] ? owner[i] : (unsigned char)text[i];
        }
        check_n(t, text, len, 0, want, n);
    }
    sl_tokenizer_destroy(&t);
}

static void test_eog_by_name(void **state) {
    (void)state;
    struct vocab v;
    start_bpe(&v, "gpt-4o");
    v.merges[v.n_merges++] = "q q";
    uint32_t ret = add(&v, "<|return|>", CONTROL), call = add(&v, "<|call|>", CONTROL);
    uint32_t end = add(&v, "<|end|>", CONTROL), channel = add(&v, "<|channel|>", CONTROL);
    uint32_t pad = add(&v, "<|fim_pad|>", NORMAL), prefix = add(&v, "<|fim_prefix|>", NORMAL);
    uint32_t file = add(&v, "<|file_sep|>", NORMAL);
    sl_gguf_write_u32(&v.w, "tokenizer.ggml.eos_token_id", ret);
    struct sl_tokenizer *t = finish(&v);
    assert_int_equal(sl_tokenizer_fim(t, SL_FIM_FILE), file);
    assert_int_equal(sl_tokenizer_fim(t, SL_FIM_REPO), SL_NO_TOKEN);
    assert_true(sl_tokenizer_is_eog(t, file));
    assert_true(sl_tokenizer_is_eog(t, ret));
    assert_true(sl_tokenizer_is_eog(t, call));
    assert_false(sl_tokenizer_is_eog(t, end)); /* ends a message, not the turn */
    assert_false(sl_tokenizer_is_control(t, channel));
    assert_true(sl_tokenizer_is_eog(t, pad));
    assert_true(sl_tokenizer_is_control(t, prefix));
    assert_false(sl_tokenizer_is_eog(t, prefix));
    assert_int_equal(sl_tokenizer_fim(t, SL_FIM_PREFIX), prefix);
    assert_int_equal(sl_tokenizer_fim(t, SL_FIM_SUFFIX), SL_NO_TOKEN);
    sl_tokenizer_destroy(&t);

    start_bpe(&v, "qwen2");
    v.merges[v.n_merges++] = "q q";
    end = add(&v, "<|end|>", NORMAL);
    uint32_t named = add(&v, "named", NORMAL);
    sl_gguf_write_u32(&v.w, "tokenizer.ggml.eot_token_id", named);
    sl_gguf_write_u32(&v.w, "tokenizer.ggml.fim_mid_token_id", named);
    t = finish(&v);
    assert_int_equal(sl_tokenizer_fim(t, SL_FIM_MIDDLE), named);
    assert_true(sl_tokenizer_is_eog(t, end));
    assert_true(sl_tokenizer_is_control(t, end));
    assert_true(sl_tokenizer_is_eog(t, named));
    assert_int_equal(sl_tokenizer_eos(t), 11);
    sl_tokenizer_destroy(&t);
}

static void test_ignore_merges(void **state) {
    (void)state;
    for (int llama3 = 0; llama3 < 2; llama3++) {
        struct vocab v;
        start_bpe(&v, llama3 ? "llama-bpe" : "qwen2");
        uint32_t ab = merge(&v, "a b"), word = add(&v,
                                                   "\xc4\xa0"
                                                   "abz",
                                                   NORMAL);
        sl_gguf_write_u32(&v.w, "tokenizer.ggml.bos_token_id", 'B');
        struct sl_tokenizer *t = finish(&v);
        if (llama3) {
            CHECK(t, " abz", 0, word);
            CHECK(t, "x", SL_ENCODE_ADD_SPECIAL, 'B', 'x'); /* BOS unless the file says no */
        } else {
            CHECK(t, " abz", 0, ' ', ab, 'z');
            CHECK(t, "x", SL_ENCODE_ADD_SPECIAL, 'x');
        }
        sl_tokenizer_destroy(&t);
    }
}

/* Characters and U+2581 for a space, merged by rank; a run of newlines by itself. */
static void test_gemma4(void **state) {
    (void)state;
    struct vocab v;
    start_gemma4(&v, "gemma4", "default");
    sl_gguf_write_bool(&v.w, "tokenizer.ggml.add_bos_token", false); /* not so */
    uint32_t space = add(&v, SPACE, NORMAL), a = add(&v, "a", NORMAL), b = add(&v, "b", NORMAL);
    uint32_t e = add(&v, "\xc3\xa9", NORMAL), nl = add(&v, "\n", NORMAL);
    uint32_t nl3 = add(&v, "\n\n\n", NORMAL);
    uint32_t ab = merge(&v, "a b"), sa = merge(&v, SPACE " a");
    uint32_t ae = merge(&v, "a \xc3\xa9"), ss = merge(&v, SPACE " " SPACE);
    uint32_t ctl = add(&v, "abab", CONTROL);
    v.merges[v.n_merges++] = "ab ab";
    v.merges[v.n_merges++] = "b \xc3\xa9"; /* what it gives is no token */
    struct sl_tokenizer *t = finish(&v);
    assert_string_equal(sl_tokenizer_kind(t), "gemma4/gemma4");
    CHECK(t, "ab a", 0, ab, sa);
    CHECK(t, "  a", 0, space, sa); /* the lower rank */
    CHECK(t, "   ", 0, ss, space);
    CHECK(t, "a\xc3\xa9", 0, ae);
    CHECK(t, "b\xc3\xa9", 0, 3 + 'b', 3 + 0xc3, 3 + 0xa9);
    CHECK(t, "a\n\n\nb", 0, a, nl3, b);
    CHECK(t, "\n\n", 0, nl, nl);
    CHECK(t, "azb", 0, a, 3 + 'z', b); /* no such character */
    CHECK(t, "a\xff", 0, a, 3 + 0xef, 3 + 0xbf, 3 + 0xbd);
    CHECK(t, "\xed\xa0\x80", 0, 3 + 0xed, 3 + 0xa0, 3 + 0x80);
    CHECK(t, "abab", 0, ctl); /* by its merges, as llama.cpp has it ... */
    CHECK(t, "abab", SL_ENCODE_PARSE_SPECIAL, ctl);
    CHECK(t, "\xc3\xa9 a", SL_ENCODE_ADD_SPECIAL, 1, e, sa);
    struct sl_ids ids = {0}; /* ... but from a message it is text */
    assert_int_equal(sl_tokenizer_encode_own(t, "abab", 4, NULL, 0, NULL, &ids), SL_OK);
    assert_int_equal(ids.n, 4);
    assert_int_equal(ids.ids[3], 3 + 'b');
    sl_ids_release(&ids);
    struct sl_str piece = sl_tokenizer_piece(t, ss, false);
    assert_int_equal(piece.len, 2);
    assert_memory_equal(piece.ptr, "  ", 2);
    piece = sl_tokenizer_piece(t, e, false);
    assert_memory_equal(piece.ptr, "\xc3\xa9", 2);
    piece = sl_tokenizer_piece(t, 3 + 0xff, false);
    assert_int_equal(piece.len, 1);
    assert_int_equal((unsigned char)piece.ptr[0], 0xff);
    char *many = malloc(40000); /* more than a short word */
    uint32_t *want = malloc(20000 * sizeof *want);
    for (size_t i = 0; i < 20000; i++)
        memcpy(many + 2 * i, "ab", 2), want[i] = ctl;
    check_n(t, many, 40000, 0, want, 10000);
    free(many);
    free(want);
    sl_tokenizer_destroy(&t);
    /* The same form by the name of the pre-split; "\n" alone is no word of its own there. */
    start_gemma4(&v, "gpt2", "sarvam-moe");
    add(&v, "\n\n", NORMAL);
    sa = merge(&v, SPACE " a");
    t = finish(&v);
    CHECK(t, " a\n\n", 0, sa, 3 + '\n', 3 + '\n');
    sl_tokenizer_destroy(&t);
}

static void test_phi3_strips(void **state) {
    (void)state;
    for (int phi = 0; phi < 2; phi++) {
        struct vocab v;
        start_spm(&v);
        uint32_t user = add(&v, "<|user|>", CONTROL);
        sl_gguf_write_str(&v.w, "general.name", phi ? "Phi-3.5 MoE" : "Other");
        sl_gguf_write_bool(&v.w, "tokenizer.ggml.add_space_prefix", false);
        struct sl_tokenizer *t = finish(&v);
        if (phi)
            CHECK(t, "<|user|> \n a", SL_ENCODE_PARSE_SPECIAL, user, 3 + 'a');
        else
            CHECK(t, "<|user|>\na", SL_ENCODE_PARSE_SPECIAL, user, 3 + '\n', 3 + 'a');
        sl_tokenizer_destroy(&t);
    }
}

static void test_spm(void **state) {
    (void)state;
    struct vocab v;
    start_spm(&v);
    uint32_t first = v.n;
    add_scored(&v, SPACE, -10);
    add_scored(&v, "a", -11);
    add_scored(&v, "b", -12);
    add_scored(&v, SPACE "a", -2);
    add_scored(&v, "ab", -1);
    add_scored(&v, "aa", -3);
    add_scored(&v, SPACE "ab", -4);
    add_scored(&v, "\xe4\xb8\xad", -20);
    uint32_t tool = add(&v, "<tool>", USER);
    sl_gguf_write_u32(&v.w, "tokenizer.ggml.bos_token_id", 1);
    struct sl_tokenizer *t = finish(&v);
    enum { SP, A, B, SP_A, AB, AA, SP_AB, ZHONG };
#define ID(x) (first + (x))
    CHECK(t, "ab", 0, ID(SP_AB)); /* ab first (-1), then _ab (-4) */
    CHECK(t, "a", SL_ENCODE_ADD_SPECIAL, 1, ID(SP_A));
    CHECK(t, "aaa", 0, ID(SP_A), ID(AA));
    CHECK(t, "  a", 0, ID(SP), ID(SP), ID(SP_A));
    CHECK(t, "b\xe4\xb8\xad", 0, ID(SP), ID(B), ID(ZHONG));
    CHECK(t, "\xc3\xa9", 0, ID(SP), 3 + 0xc3, 3 + 0xa9); /* byte tokens */
    CHECK(t, "\xff", 0, ID(SP), 3 + 0xff);
    CHECK(t, "\xe4", 0, ID(SP), 3 + 0xe4);
    CHECK(t, "a<tool>a", 0, ID(SP_A), tool, ID(SP_A)); /* space again after a special token */
    CHECK(t, "</s>a", SL_ENCODE_PARSE_SPECIAL, 2, ID(SP_A));
    check_n(t, "", 0, 0, NULL, 0);
    assert_string_equal(sl_tokenizer_kind(t), "llama");
    assert_int_equal(sl_tokenizer_piece(t, 3 + 0xff, false).ptr[0], (char)0xff);
    struct sl_str piece = sl_tokenizer_piece(t, ID(SP_AB), false);
    assert_int_equal(piece.len, 3);
    assert_memory_equal(piece.ptr, " ab", 3);
    assert_int_equal(sl_tokenizer_piece(t, 0, false).len, 0); /* <unk> */
    sl_tokenizer_destroy(&t);
}

static enum sl_status give_up(void *ctx) {
    uint32_t *left = ctx;
    return (*left)-- ? SL_OK : SL_ERR_TIMEOUT;
}

/* Encodes text while it is asked n times, and gives up then. */
static void expect_given_up(const struct sl_tokenizer *t, const char *text, size_t len) {
    struct sl_ids ids = {0}, all = {0};
    uint32_t left = UINT32_MAX;
    const struct sl_encode_watch watch = {give_up, &left};
    assert_int_equal(sl_tokenizer_encode(t, text, len, 0, &all), SL_OK);
    assert_int_equal(sl_tokenizer_encode_watched(t, text, len, 0, &watch, &ids), SL_OK);
    uint32_t n_asked = UINT32_MAX - left;
    assert_true(n_asked >= 5);
    assert_int_equal(ids.n, all.n);
    assert_memory_equal(ids.ids, all.ids, all.n * sizeof *all.ids);
    for (uint32_t n = 0; n < n_asked; n += 3) {
        left = n;
        assert_int_equal(sl_tokenizer_encode_watched(t, text, len, 0, &watch, &ids),
                         SL_ERR_TIMEOUT);
        assert_int_equal(ids.n, all.n); /* nothing was appended */
        left = n;
        assert_int_equal(sl_tokenizer_encode_own(t, text, len, NULL, 0, &watch, &ids),
                         SL_ERR_TIMEOUT);
        assert_int_equal(ids.n, all.n);
    }
    sl_ids_release(&ids);
    sl_ids_release(&all);
}

/* A long text can be given up in the midst, be it many words or one. */
static void test_watch(void **state) {
    (void)state;
    enum { LEN = 100000 };
    char *words = malloc(LEN), *one = malloc(LEN);
    assert_true(words && one);
    for (size_t i = 0; i < LEN; i++) {
        one[i] = "ab"[i % 3 == 0];
        words[i] = i % 2 ? ' ' : 'a';
    }
    struct vocab v;
    start_spm(&v);
    add_scored(&v, SPACE, -10);
    add_scored(&v, "a", -11);
    add_scored(&v, "b", -12);
    add_scored(&v, "ab", -1);
    add_scored(&v, "aa", -3);
    struct sl_tokenizer *t = finish(&v);
    expect_given_up(t, words, LEN);
    expect_given_up(t, one, LEN);
    sl_tokenizer_destroy(&t);
    start_bpe(&v, "gpt-2");
    merge(&v, "a b");
    merge(&v, "b ab");
    t = finish(&v);
    expect_given_up(t, words, LEN);
    expect_given_up(t, one, LEN);
    sl_tokenizer_destroy(&t);
    /* Nothing but tokens that are looked for in the text: no word, no merge. */
    start_bpe(&v, "gpt-2");
    v.merges[v.n_merges++] = "q q";
    add(&v, "a ", USER);
    add(&v, "a a a ", USER);
    t = finish(&v);
    expect_given_up(t, words, LEN);
    sl_tokenizer_destroy(&t);
    free(words);
    free(one);
}

static void test_detok(void **state) {
    (void)state;
    struct vocab v;
    start_bpe(&v, "gpt-2");
    v.merges[v.n_merges++] = "q q";
    uint32_t eos = add(&v, "<|endoftext|>", CONTROL);
    struct sl_tokenizer *t = finish(&v);
    struct sl_detok d = {0};
    struct sl_str s;
    /* An emoji comes out whole with its last byte. */
    static const unsigned char emoji[] = {0xf0, 0x9f, 0x98, 0x80};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(sl_detok_push(&d, t, emoji[i], false, &s), SL_OK);
        assert_int_equal(s.len, i == 3 ? 4 : 0);
    }
    assert_memory_equal(s.ptr, emoji, 4);
    /* A control token between two halves is silent and leaves them together. */
    assert_int_equal(sl_detok_push(&d, t, 0xc3, false, &s), SL_OK);
    assert_int_equal(s.len, 0);
    assert_int_equal(sl_detok_push(&d, t, eos, false, &s), SL_OK);
    assert_int_equal(s.len, 0);
    assert_int_equal(sl_detok_push(&d, t, 0xa9, false, &s), SL_OK);
    assert_int_equal(s.len, 2);
    sl_detok_release(&d);

    /* The replacements are those of Python's bytes.decode(errors="replace"). */
#define R "\xef\xbf\xbd"
    static const struct {
        const char *bytes, *text;
    } cases[] = {
        {"a\xff"
         "b",
         "a" R "b"},
        {"\xc3", R},
        {"\xc3"
         "A",
         R "A"},
        {"\xf0\x9f\x98", R},
        {"\xf0\x9f\x98"
         "A",
         R "A"},
        {"\xf0\x9f"
         "A",
         R "A"},
        {"\xf0\x9f\xf0\x9f\x98\x80", R "\xf0\x9f\x98\x80"},
        {"\xf0\x80\x80", R R R},
        {"\xed\xa0\x80", R R R},
        {"\xe0\x80\xaf", R R R},
        {"\xf4\x90\x80\x80", R R R R},
        {"\xc0\xaf", R R},
        {"\xe4\xb8\xc3\xa9", R "\xc3\xa9"},
        {"\x80\xbf", R R},
        {"\xf5\x80", R R},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        uint32_t ids[16];
        char out[64];
        size_t n = strlen(cases[k].bytes), len;
        for (size_t i = 0; i < n; i++)
            ids[i] = (unsigned char)cases[k].bytes[i];
        decode(t, ids, n, false, out, &len);
        if (strcmp(out, cases[k].text) != 0)
            fail_msg("case %zu gives '%s'", k, out);
    }
    uint32_t shown[] = {'a', eos};
    char out[64];
    size_t len;
    decode(t, shown, 2, true, out, &len);
    assert_string_equal(out, "a<|endoftext|>");
    decode(t, shown, 2, false, out, &len);
    assert_string_equal(out, "a");
    sl_tokenizer_destroy(&t);

    start_spm(&v);
    uint32_t hi = add(&v, SPACE "hi", NORMAL);
    t = finish(&v);
    uint32_t twice[] = {1, hi, hi};
    decode(t, twice, 3, false, out, &len);
    assert_string_equal(out, "hi hi");
    decode(t, twice, 3, true, out, &len);
    assert_string_equal(out, "<s> hi hi");
    sl_tokenizer_destroy(&t);
}

static void refuse(struct vocab *v, enum sl_status want, const char *word) {
    struct sl_tokenizer *t = NULL;
    struct sl_err err = {""};
    enum sl_status status = try_finish(v, &t, &err);
    if (status != want || !strstr(err.text, word))
        fail_msg("status %d, want %d with '%s': %s", status, want, word, err.text);
    assert_null(t);
}

static void test_refusals(void **state) {
    (void)state;
    struct vocab v;
    start_bpe(&v, "no-such-split");
    v.merges[v.n_merges++] = "q q";
    refuse(&v, SL_ERR_UNSUPPORTED, "no-such-split");
    start_bpe(&v, "qwen2");
    refuse(&v, SL_ERR_CORRUPT, "tokenizer.ggml.merges");
    start_bpe(&v, "glm4"); /* has no BOS by default */
    v.merges[v.n_merges++] = "q q";
    sl_gguf_write_bool(&v.w, "tokenizer.ggml.add_bos_token", true);
    refuse(&v, SL_ERR_CORRUPT, "bos_token_id");
    start_bpe(&v, "qwen2");
    v.merges[v.n_merges++] = "q q";
    sl_gguf_write_str(&v.w, "tokenizer.ggml.eos_token_id", "seven");
    refuse(&v, SL_ERR_CORRUPT, "eos_token_id");
    memset(&v, 0, sizeof v);
    sl_gguf_writer_init(&v.w);
    sl_gguf_write_str(&v.w, "tokenizer.ggml.model", "rwkv");
    add(&v, "a", NORMAL);
    refuse(&v, SL_ERR_UNSUPPORTED, "rwkv");
    memset(&v, 0, sizeof v);
    sl_gguf_writer_init(&v.w);
    add(&v, "a", NORMAL);
    refuse(&v, SL_ERR_CORRUPT, "tokenizer.ggml.model");
    start_spm(&v);
    char *huge = malloc(70000);
    memset(huge, 'x', 70000);
    add_n(&v, huge, 70000, NORMAL);
    free(huge);
    refuse(&v, SL_ERR_CORRUPT, "70000");
}

static void own_gives(const struct sl_tokenizer *t, const char *text, size_t from, size_t to,
                      uint32_t id, uint32_t want) {
    struct sl_range own = {from, to};
    struct sl_ids ids = {0};
    uint32_t n = 0;
    assert_int_equal(sl_tokenizer_encode_own(t, text, strlen(text), &own, from < to, NULL, &ids),
                     SL_OK);
    for (size_t i = 0; i < ids.n; i++)
        n += ids.ids[i] == id;
    if (n != want)
        fail_msg("'%s', own in [%zu, %zu): %u times %u, not %u", text, from, to, n, id, want);
    sl_ids_release(&ids);
}

/* Guarded tokens come from own text alone, by merges either. */
static void test_own(void **state) {
    (void)state;
    struct vocab v;
    start_bpe(&v, "gpt-4o");
    merge(&v, "q q");
    uint32_t qs = add(&v, "qqq", CONTROL), end = add(&v, "<|end|>", CONTROL);
    v.merges[v.n_merges++] = "qq q";
    uint32_t start = add(&v, "<|start|>", CONTROL), tool = add(&v, "<tool>", USER);
    add(&v, "<|call|>", CONTROL);
    add(&v, "<|return|>", CONTROL);
    struct sl_tokenizer *t = finish(&v);
    own_gives(t, "qqqqqqqqq", 3, 6, qs, 1);
    own_gives(t, "qqqqqqqqq", 0, 9, qs, 3);
    own_gives(t, "qqqqqqqqq", 1, 8, qs, 2);
    own_gives(t, "qqqqqqqqq", 1, 6, qs, 1);
    own_gives(t, "qqq", 0, 2, qs, 0);
    own_gives(t, "qqq", 0, 0, qs, 0);
    struct sl_ids ids = {0};
    assert_int_equal(sl_tokenizer_encode(t, "qqq", 3, 0, &ids), SL_OK);
    assert_int_equal(ids.ids[0], qs); /* what the guard is against */
    sl_ids_release(&ids);
    /* Harmony's markup is shown, and guarded all the same. */
    own_gives(t, "<|start|><|end|>", 0, 0, start, 0);
    own_gives(t, "<|start|><|end|>", 0, 0, end, 0);
    own_gives(t, "<|start|><|end|>", 0, 16, end, 1);
    own_gives(t, "a<tool>a", 0, 0, tool, 1);
    assert_true(sl_tokenizer_is_guarded(t, start) && sl_tokenizer_is_guarded(t, end));
    assert_false(sl_tokenizer_is_guarded(t, tool));
    sl_tokenizer_destroy(&t);

    start_spm(&v);
    add_scored(&v, "</", -1);
    add_scored(&v, "s>", -2);
    t = finish(&v);
    own_gives(t, "</s>", 0, 0, 2, 0);
    own_gives(t, "</s>", 0, 4, 2, 1);
    sl_tokenizer_destroy(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bpe_merges),  cmocka_unit_test(test_bpe_against_definition),
        cmocka_unit_test(test_special),     cmocka_unit_test(test_special_against_definition),
        cmocka_unit_test(test_eog_by_name), cmocka_unit_test(test_ignore_merges),
        cmocka_unit_test(test_gemma4),      cmocka_unit_test(test_phi3_strips),
        cmocka_unit_test(test_spm),         cmocka_unit_test(test_watch),
        cmocka_unit_test(test_detok),       cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
