/* A worker's copy of a model: the link is not held up by a slow disk, what is gone from the copy is
 * fetched again, and what has come before a cut, whole, is not. */
#include "cluster/model_cache.h"

#include "common/bytes.h"
#include "common/clock.h"
#include "common/cond.h"
#include "common/crc.h"
#include "model/synth/synth.h"
#include "tests/support/folder.h"

#include <pthread.h>

#define PIECES_MOST 24u
/* Far beyond what anything here takes. */
#define LONG_NS 60000000000u

/* The coordinator and the link to it: pieces of zeros come on a thread of their own, the last one
 * that was asked for only when it is needed. */
static struct {
    struct sl_piece_source source; /* first */
    struct sl_model_cache *cache;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct sl_setup_fetch asked[PIECES_MOST];
    uint32_t n_asked, n_came, n_all;
    bool flushing, late;
} far_end = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void wait_a_little(void) {
    sl_cond_wait_until(&far_end.changed, &far_end.lock, sl_now_ns() + 100000000u);
}

/* The disk: has what was written only after another piece has come, if one is to come. */
int fdatasync(int fd) {
    (void)fd;
    pthread_mutex_lock(&far_end.lock);
    uint32_t before = far_end.n_came;
    uint64_t until_ns = sl_now_ns() + LONG_NS;
    far_end.flushing = true;
    pthread_cond_broadcast(&far_end.changed);
    while (far_end.n_came == before && far_end.n_came < far_end.n_asked && !far_end.late) {
        wait_a_little();
        far_end.late = sl_now_ns() > until_ns;
    }
    far_end.flushing = false;
    pthread_mutex_unlock(&far_end.lock);
    return 0;
}

static enum sl_status ask(struct sl_piece_source *s, const struct sl_setup_fetch *what) {
    (void)s;
    assert_int_equal(what->n_bytes, SL_PIECE_BYTES);
    assert_int_equal(what->offset % SL_PIECE_BYTES, 0);
    pthread_mutex_lock(&far_end.lock);
    assert_true(far_end.n_asked < far_end.n_all);
    far_end.asked[far_end.n_asked++] = *what;
    pthread_cond_broadcast(&far_end.changed);
    pthread_mutex_unlock(&far_end.lock);
    return SL_OK;
}

static bool wanted(struct sl_piece_source *s) {
    (void)s;
    return true;
}

static void *link_main(void *unused) {
    uint8_t *piece = calloc(1, SL_PIECE_HEAD_BYTES + SL_PIECE_BYTES);
    (void)unused;
    assert_non_null(piece);
    sl_put_u32(piece + 12, sl_crc32c(0, piece + SL_PIECE_HEAD_BYTES, SL_PIECE_BYTES));
    pthread_mutex_lock(&far_end.lock);
    while (far_end.n_came < far_end.n_all) {
        struct sl_err err;
        uint32_t ahead = far_end.n_asked - far_end.n_came;
        bool last = far_end.n_asked == far_end.n_all || far_end.flushing;
        if (ahead == 0 || (ahead == 1 && !last)) {
            wait_a_little();
            continue;
        }
        sl_put_u32(piece, far_end.asked[far_end.n_came].file);
        sl_put_u64(piece + 4, far_end.asked[far_end.n_came].offset);
        pthread_mutex_unlock(&far_end.lock);
        enum sl_status status =
            sl_model_cache_take(far_end.cache, piece, SL_PIECE_HEAD_BYTES + SL_PIECE_BYTES, &err);
        pthread_mutex_lock(&far_end.lock);
        assert_int_equal(status, SL_OK);
        far_end.n_came++;
        pthread_cond_broadcast(&far_end.changed);
    }
    pthread_mutex_unlock(&far_end.lock);
    free(piece);
    return NULL;
}

static struct sl_setup_model model_of(uint32_t n_files, uint32_t n_pieces) {
    struct sl_setup_model m = {.content = 1, .n_files = n_files};
    for (uint32_t i = 0; i < n_files; i++)
        m.files[i].size_bytes = m.files[i].header_bytes = (uint64_t)n_pieces * SL_PIECE_BYTES;
    return m;
}

static void copy_of(const struct folder *dir, struct folder *out) {
    char path[512];
    path_in(dir, "0000000000000001", path);
    assert_true(strlen(path) < sizeof out->path);
    memcpy(out->path, path, strlen(path) + 1);
}

static void close_copy(struct folder *dir) {
    struct folder copy;
    copy_of(dir, &copy);
    close_folder(&copy);
    close_folder(dir);
}

/* Opens the copy and fetches all; n_all: how many pieces that must take. */
static void fetch(const struct folder *dir, const struct sl_setup_model *m, uint32_t n_all) {
    struct sl_err err = {""};
    pthread_t link;
    far_end.source = (struct sl_piece_source){ask, wanted};
    far_end.n_asked = far_end.n_came = 0;
    far_end.n_all = n_all;
    assert_int_equal(sl_model_cache_open(dir->path, m, &far_end.cache, &err), SL_OK);
    assert_int_equal(pthread_create(&link, NULL, link_main, NULL), 0);
    enum sl_status status = sl_model_cache_headers(far_end.cache, &far_end.source, &err);
    pthread_join(link, NULL);
    if (status != SL_OK)
        fail_msg("%s", err.text);
    assert_int_equal(far_end.n_asked, n_all);
    sl_model_cache_close(&far_end.cache);
}

static void test_slow_disk(void **state) {
    (void)state;
    const struct sl_setup_model m = model_of(1, PIECES_MOST);
    struct folder dir;
    open_folder(&dir);
    fetch(&dir, &m, PIECES_MOST);
    assert_false(far_end.late);
    fetch(&dir, &m, 0); /* the list has all */
    close_copy(&dir);
}

static void test_file_is_gone(void **state) {
    (void)state;
    const struct sl_setup_model m = model_of(2, 3);
    struct folder dir, copy;
    char path[512];
    open_folder(&dir);
    fetch(&dir, &m, 6);
    copy_of(&dir, &copy);
    path_in(&copy, "model-00002-of-00002.gguf", path);
    assert_int_equal(unlink(path), 0);
    fetch(&dir, &m, 3);
    fetch(&dir, &m, 0);
    assert_int_equal(truncate(path, SL_PIECE_BYTES), 0);
    fetch(&dir, &m, 3);
    close_copy(&dir);
}

/* All but the last piece come; that one with another byte than its checksum is of, then not at all.
 */
static uint8_t damaged[SL_PIECE_HEAD_BYTES + SL_PIECE_BYTES];

static enum sl_status take(const struct sl_setup_fetch *what, struct sl_err *err) {
    sl_put_u32(damaged, what->file);
    sl_put_u64(damaged + 4, what->offset);
    return sl_model_cache_take(far_end.cache, damaged, sizeof damaged, err);
}

static enum sl_status ask_until_cut(struct sl_piece_source *s, const struct sl_setup_fetch *what) {
    struct sl_err err;
    (void)s;
    sl_put_u32(damaged + 12, sl_crc32c(0, damaged + SL_PIECE_HEAD_BYTES, SL_PIECE_BYTES));
    if (++far_end.n_asked < far_end.n_all) {
        assert_int_equal(take(what, &err), SL_OK);
        /* It has come, so nobody asks for it any more. */
        assert_int_equal(take(what, &err), SL_ERR_PROTOCOL);
        assert_non_null(strstr(err.text, "nobody asked for"));
        return SL_OK;
    }
    damaged[SL_PIECE_HEAD_BYTES + 12345] ^= 1;
    assert_int_equal(take(what, &err), SL_ERR_PROTOCOL);
    assert_non_null(strstr(err.text, "not those that were sent"));
    damaged[SL_PIECE_HEAD_BYTES + 12345] ^= 1;
    return SL_OK;
}

static bool not_wanted(struct sl_piece_source *s) {
    (void)s;
    return false;
}

static void test_a_cut(void **state) {
    (void)state;
    const struct sl_setup_model m = model_of(1, 6);
    struct sl_err err = {""};
    struct folder dir;
    open_folder(&dir);
    far_end.source = (struct sl_piece_source){ask_until_cut, not_wanted};
    far_end.n_asked = far_end.n_came = 0;
    far_end.n_all = 6;
    far_end.late = true; /* the disk waits for nothing */
    assert_int_equal(sl_model_cache_open(dir.path, &m, &far_end.cache, &err), SL_OK);
    assert_int_equal(sl_model_cache_headers(far_end.cache, &far_end.source, &err), SL_ERR_CANCELED);
    assert_int_equal(far_end.n_asked, 6);
    sl_model_cache_close(&far_end.cache);
    far_end.late = false;
    fetch(&dir, &m, 1);
    assert_int_equal(far_end.asked[0].offset, 5 * (uint64_t)SL_PIECE_BYTES);
    fetch(&dir, &m, 0);
    close_copy(&dir);
}

/* Nothing is made for files that no model has, nor for more than are fetched. */
static void test_files_that_cannot_be(void **state) {
    (void)state;
    const uint64_t most = UINT64_C(1) << 44;
    struct sl_setup_model lies[] = {model_of(0, 0), model_of(1, 0), model_of(1, 1), model_of(1, 1),
                                    model_of(1, 1), model_of(2, 1), model_of(32, 1)};
    struct folder dir, copy;
    open_folder(&dir);
    copy_of(&dir, &copy);
    lies[2].files[0].header_bytes++;
    lies[3].files[0].size_bytes = most + 1;
    lies[4].files[0].size_bytes = UINT64_MAX;
    lies[5].files[1].size_bytes = most;
    for (uint32_t i = 0; i < lies[6].n_files; i++)
        lies[6].files[i].size_bytes = UINT64_C(1) << 51;
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        struct sl_err err = {""};
        assert_int_equal(sl_model_cache_open(dir.path, &lies[i], &far_end.cache, &err),
                         SL_ERR_PROTOCOL);
        assert_int_not_equal(access(copy.path, F_OK), 0);
    }
    close_folder(&dir);
}

/* ---- layers ---- */

static bool begins(struct sl_str name, const char *with) {
    size_t n = strlen(with);
    return name.len >= n && memcmp(name.ptr, with, n) == 0;
}

/* Of a model whose layers have embeddings of their own: what these are made of, but of the
 * projection its own layers' rows alone. */
static void test_parts_of_tensors(void **state) {
    (void)state;
    struct sl_synth_config c = sl_synth_default;
    struct folder dir;
    struct sl_model *m;
    struct sl_err err = {""};
    char path[512];
    bool need[PIECES_MOST] = {false}, have[PIECES_MOST] = {false};
    uint32_t n_need = 0;
    c.arch = "gemma4";
    c.n_layer = 8;
    c.n_embd = 2048;
    c.n_ff = 96;
    c.n_embd_layer = 512;
    c.n_vocab = 3000;
    c.n_expert = c.n_expert_used = 0;
    open_folder(&dir);
    path_in(&dir, "whole.gguf", path);
    assert_int_equal(sl_synth_write(&c, path, NULL, NULL, &err), SL_OK);
    assert_int_equal(sl_model_open(path, &m, &err), SL_OK);
    for (uint64_t i = 0; i < sl_gguf_n_tensors(m->gguf); i++) {
        const struct sl_gguf_tensor *t = sl_gguf_tensor_at(m->gguf, i);
        uint64_t from = t->offset_bytes, to = from + t->size_bytes;
        if (begins(t->name, "per_layer_model_proj")) { /* of layers 1 and 2 of 8 */
            to = from + t->size_bytes / 8 * 3;
            from += t->size_bytes / 8;
        } else if (begins(t->name, "per_layer_token_embd")) { /* all but the ends of its rows */
            from += t->size_bytes / t->ne[1] / 8;
            to -= t->size_bytes / t->ne[1] / 8 * 5;
        } else if (!begins(t->name, "blk.1.") && !begins(t->name, "blk.2.") &&
                   !begins(t->name, "token_embd") && !begins(t->name, "per_layer_proj_norm") &&
                   !begins(t->name, "rope_freqs")) {
            continue;
        }
        for (uint64_t k = from / SL_PIECE_BYTES; k <= (to - 1) / SL_PIECE_BYTES; k++) {
            assert_true(k < PIECES_MOST);
            n_need += !need[k];
            need[k] = true;
        }
    }
    const struct sl_setup_model about = model_of(1, PIECES_MOST);
    pthread_t link;
    far_end.source = (struct sl_piece_source){ask, wanted};
    far_end.n_asked = far_end.n_came = 0;
    far_end.n_all = n_need;
    assert_int_equal(sl_model_cache_open(dir.path, &about, &far_end.cache, &err), SL_OK);
    assert_int_equal(pthread_create(&link, NULL, link_main, NULL), 0);
    enum sl_status status =
        sl_model_cache_layers(far_end.cache, m, 1, 2, &far_end.source, NULL, &err);
    pthread_mutex_lock(&far_end.lock);
    far_end.n_all = far_end.n_asked; /* so that the link ends */
    pthread_mutex_unlock(&far_end.lock);
    pthread_join(link, NULL);
    if (status != SL_OK)
        fail_msg("%s", err.text);
    for (uint32_t i = 0; i < far_end.n_asked; i++)
        have[far_end.asked[i].offset / SL_PIECE_BYTES] = true;
    assert_memory_equal(have, need, sizeof need);
    assert_int_equal(far_end.n_asked, n_need);
    sl_model_cache_close(&far_end.cache);
    sl_model_close(&m);
    assert_int_equal(unlink(path), 0);
    close_copy(&dir);
}

int main(void) {
    alarm(240); /* what hangs is a failure */
    sl_cond_init(&far_end.changed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slow_disk),
        cmocka_unit_test(test_file_is_gone),
        cmocka_unit_test(test_a_cut),
        cmocka_unit_test(test_files_that_cannot_be),
        cmocka_unit_test(test_parts_of_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
