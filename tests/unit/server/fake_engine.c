/* A scripted engine and a tiny tokenizer, in place of the real ones: included by the tests, so that
 * the linker finds these names first and takes nothing from the archives.
 *
 * The tokenizer: ids 0-255 are bytes, then control tokens, then the words that a test registers.
 * The engine: every request gets the script's tokens, one a step, all requests in turn; time per
 * step, prefill, failures and parking are as the test says. */
#include "common/metrics.h"
#include "engine/engine.h"
#include "engine/observe/expert_map.h"
#include "model/tokenizer/tokenizer.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FAKE_BOS = 256, FAKE_EOS, FAKE_IM_START, FAKE_IM_END, FAKE_WORDS };
#define FAKE_MAX_WORDS 64
#define FAKE_EMBD      5

struct sl_tokenizer {
    const char *words[FAKE_MAX_WORDS];
    uint32_t n_words;
    uint64_t control; /* bits: words that are control tokens */
    bool add_bos;
    unsigned char bytes[256]; /* fake_tokenizer_init */
};

__attribute__((unused)) static void fake_tokenizer_init(struct sl_tokenizer *t) {
    *t = (struct sl_tokenizer){0};
    for (int i = 0; i < 256; i++)
        t->bytes[i] = (unsigned char)i;
}

static const char *const fake_control[] = {"<s>", "</s>", "<|im_start|>", "<|im_end|>"};

__attribute__((unused)) static uint32_t fake_word(struct sl_tokenizer *t, const char *text) {
    for (uint32_t i = 0; i < t->n_words; i++)
        if (strcmp(t->words[i], text) == 0)
            return FAKE_WORDS + i;
    t->words[t->n_words] = text;
    return FAKE_WORDS + t->n_words++;
}

/* A control token with this text. */
__attribute__((unused)) static uint32_t fake_control_word(struct sl_tokenizer *t,
                                                          const char *text) {
    uint32_t id = fake_word(t, text);
    t->control |= 1ull << (id - FAKE_WORDS);
    return id;
}

uint32_t sl_tokenizer_n_vocab(const struct sl_tokenizer *t) {
    (void)t;
    return FAKE_WORDS + FAKE_MAX_WORDS;
}
uint32_t sl_tokenizer_bos(const struct sl_tokenizer *t) {
    (void)t;
    return FAKE_BOS;
}
uint32_t sl_tokenizer_eos(const struct sl_tokenizer *t) {
    (void)t;
    return FAKE_EOS;
}
/* The words that stand for them, if the test has them. */
uint32_t sl_tokenizer_fim(const struct sl_tokenizer *t, enum sl_fim mark) {
    static const char *const marks[] = {"<PRE>", "<SUF>", "<MID>", "<REP>", "<SEP>"};
    return sl_tokenizer_find(t, marks[mark], strlen(marks[mark]));
}
bool sl_tokenizer_is_eog(const struct sl_tokenizer *t, uint32_t id) {
    (void)t;
    return id == FAKE_EOS || id == FAKE_IM_END;
}
bool sl_tokenizer_is_control(const struct sl_tokenizer *t, uint32_t id) {
    if (id >= FAKE_WORDS)
        return t->control >> (id - FAKE_WORDS) & 1;
    return id >= FAKE_BOS;
}
const char *sl_tokenizer_kind(const struct sl_tokenizer *t) {
    (void)t;
    return "fake";
}

struct sl_str sl_tokenizer_piece(const struct sl_tokenizer *t, uint32_t id, bool special) {
    if (id < 256)
        return (struct sl_str){(const char *)&t->bytes[id], 1};
    if (id < FAKE_WORDS)
        return special ? (struct sl_str){fake_control[id - 256], strlen(fake_control[id - 256])}
                       : (struct sl_str){"", 0};
    if (id - FAKE_WORDS < t->n_words && (special || !sl_tokenizer_is_control(t, id)))
        return (struct sl_str){t->words[id - FAKE_WORDS], strlen(t->words[id - FAKE_WORDS])};
    return (struct sl_str){"", 0};
}

uint32_t sl_tokenizer_find(const struct sl_tokenizer *t, const char *text, size_t len) {
    for (uint32_t id = 0; id < sl_tokenizer_n_vocab(t); id++) {
        struct sl_str s = sl_tokenizer_piece(t, id, true);
        if (len && s.len == len && memcmp(s.ptr, text, len) == 0)
            return id;
    }
    return SL_NO_TOKEN;
}

static enum sl_status fake_append(struct sl_ids *ids, uint32_t id) {
    if (ids->n == ids->cap) {
        ids->cap = ids->cap ? 2 * ids->cap : 16;
        ids->ids = realloc(ids->ids, ids->cap * sizeof *ids->ids);
        if (!ids->ids)
            abort();
    }
    ids->ids[ids->n++] = id;
    return SL_OK;
}

static bool fake_within(const struct sl_range *own, size_t n_own, size_t from, size_t to) {
    for (size_t k = 0; k < n_own; k++)
        if (own[k].from <= from && to <= own[k].to)
            return true;
    return false;
}

/* The control tokens in what was encoded last: those that are own text, and these with
 * those that begin with what is not. */
__attribute__((unused)) static _Atomic int64_t fake_encoded, fake_written;
/* Encodings that could be ended. */
__attribute__((unused)) static _Atomic uint32_t fake_n_watched;

enum sl_status sl_tokenizer_encode_own(const struct sl_tokenizer *t, const char *text, size_t len,
                                       const struct sl_range *own, size_t n_own,
                                       const struct sl_encode_watch *watch, struct sl_ids *out) {
    SL_TRY(watch ? watch->poll(watch->ctx) : SL_OK);
    if (watch)
        atomic_fetch_add(&fake_n_watched, 1);
    int64_t n_encoded = 0, n_written = 0; /* two workers may be here at once */
    bool begins[256] = {false};           /* controls: texts have millions of bytes */
    for (uint32_t id = FAKE_BOS; id < FAKE_WORDS + t->n_words; id++)
        if (sl_tokenizer_is_control(t, id))
            begins[(unsigned char)sl_tokenizer_piece(t, id, true).ptr[0]] = true;
    for (size_t i = 0; i < len;) {
        size_t n = 0;
        uint32_t n_ids = begins[(unsigned char)text[i]] ? FAKE_WORDS + t->n_words : 0;
        for (uint32_t id = FAKE_BOS; id < n_ids; id++) {
            if (!sl_tokenizer_is_control(t, id))
                continue;
            struct sl_str s = sl_tokenizer_piece(t, id, true);
            size_t l = s.len;
            if (len - i < l || memcmp(text + i, s.ptr, l) != 0)
                continue;
            bool whole = fake_within(own, n_own, i, i + l);
            n_written += whole || !fake_within(own, n_own, i, i + 1);
            if (whole) {
                fake_append(out, id);
                n_encoded++;
                n = l;
                break;
            }
        }
        if (!n) {
            fake_append(out, (unsigned char)text[i]);
            n = 1;
        }
        i += n;
    }
    atomic_store(&fake_encoded, n_encoded);
    atomic_store(&fake_written, n_written);
    return SL_OK;
}

enum sl_status sl_tokenizer_encode(const struct sl_tokenizer *t, const char *text, size_t len,
                                   unsigned flags, struct sl_ids *out) {
    const struct sl_range all = {0, len};
    if ((flags & SL_ENCODE_ADD_SPECIAL) && t->add_bos)
        fake_append(out, FAKE_BOS);
    return sl_tokenizer_encode_own(t, text, len, &all, (flags & SL_ENCODE_PARSE_SPECIAL) != 0, NULL,
                                   out);
}

enum sl_status sl_tokenizer_encode_watched(const struct sl_tokenizer *t, const char *text,
                                           size_t len, unsigned flags,
                                           const struct sl_encode_watch *watch,
                                           struct sl_ids *out) {
    enum sl_status status = watch ? watch->poll(watch->ctx) : SL_OK;
    if (watch && status == SL_OK)
        atomic_fetch_add(&fake_n_watched, 1);
    return status == SL_OK ? sl_tokenizer_encode(t, text, len, flags, out) : status;
}

void sl_ids_release(struct sl_ids *ids) {
    free(ids->ids);
    *ids = (struct sl_ids){0};
}

/* Whole characters only; text here is valid UTF-8 once it is complete. */
enum sl_status sl_detok_push(struct sl_detok *d, const struct sl_tokenizer *t, uint32_t id,
                             bool special, struct sl_str *out) {
    struct sl_str p = sl_tokenizer_piece(t, id, special);
    d->buf = realloc(d->buf, p.len + 8);
    if (!d->buf)
        abort();
    memcpy(d->buf, d->pending, d->n_pending);
    memcpy(d->buf + d->n_pending, p.ptr, p.len);
    size_t n = d->n_pending + p.len, cut = n;
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        unsigned char c = (unsigned char)d->buf[n - back];
        size_t need = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;
        if (c >= 0xc0) {
            if (need > back)
                cut = n - back;
            break;
        }
        if (c < 0x80)
            break;
    }
    d->n_pending = (uint32_t)(n - cut);
    memcpy(d->pending, d->buf + cut, d->n_pending);
    *out = (struct sl_str){d->buf, cut};
    return SL_OK;
}
enum sl_status sl_detok_finish(struct sl_detok *d, struct sl_str *out) {
    *out = d->n_pending ? (struct sl_str){"\xef\xbf\xbd", 3} : (struct sl_str){"", 0};
    d->n_pending = 0;
    return SL_OK;
}
void sl_detok_release(struct sl_detok *d) {
    free(d->buf);
    *d = (struct sl_detok){0};
}

/* ------------------------------------------------------------------------------------- engine */

const struct sl_sampling sl_sampling_default = {
    .temperature = 1,
    .top_p = 1,
    .typical_p = 1,
    .repeat_penalty = 1,
    .repeat_last_n = 64,
    .dry = {.base = 1.75f, .allowed_length = 2, .last_n = UINT32_MAX}};

struct fake_session {
    struct sl_gen_request *req;
    struct fake_session *next;
    uint32_t n_prefilled, n_made, n_bound, n_told;
    bool parked;
    atomic_bool cancel, resume;
};

struct sl_engine {
    /* set by the test before it submits */
    bool binds; /* constraints may put another token before the script's next */
    const uint32_t
        *_Atomic script; /* repeated when it is shorter than the answer; NULL: the prompt */
    _Atomic uint32_t n_script;
    _Atomic uint32_t prefill_steps; /* steps before the first token */
    _Atomic long step_us;
    _Atomic uint32_t fail_at; /* tokens before SL_ERR_IO, 0 = never */
    atomic_bool not_finite;   /* hidden states */
    atomic_bool late;         /* as if the time of every request were over */
    atomic_bool failed;       /* as if the model's file had been changed */
    uint32_t queue_max;
    uint32_t ctx_tokens;

    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread;
    bool stop;
    struct fake_session *inbox;
    uint32_t n_sessions;
    struct sl_gen_request last; /* the request submitted last */
    uint32_t last_prompt[4096];
    _Atomic uint32_t n_submitted, n_finished, n_canceled, n_parked, n_pushed;
};

/* What the experts of so many tokens took. */
static struct sl_expert_use fake_use(uint32_t n) {
    return (struct sl_expert_use){.hits = 6 * (uint64_t)n,
                                  .late = 1 * (uint64_t)n,
                                  .misses = 3 * (uint64_t)n,
                                  .read_bytes = 1000 * (uint64_t)n,
                                  .stall_ns = 500000 * (uint64_t)n};
}

/* Which session a request has. A lock of its own, since callers of cancel and resume hold locks
 * that a test which holds the engine waits for. */
static pthread_mutex_t flag_lock = PTHREAD_MUTEX_INITIALIZER;

static bool fake_finish(struct sl_engine *e, struct fake_session *s, enum sl_finish_reason why,
                        enum sl_status status) {
    struct sl_gen_result r = {.reason = why, .status = status};
    struct sl_token_sink *sink = s->req->sink;
    r.n_prompt = s->req->n_prompt;
    r.n_predicted = s->n_made;
    r.prefill_ns = 1000000;
    r.decode_ns = 2000000;
    r.experts = fake_use(s->n_made);
    if (status == SL_ERR_IO)
        sl_fail(&r.err, status, "the fake engine was told to fail");
    pthread_mutex_lock(&e->lock);
    pthread_mutex_lock(&flag_lock);
    s->req->engine_private = NULL;
    pthread_mutex_unlock(&flag_lock);
    e->n_sessions--;
    pthread_mutex_unlock(&e->lock);
    atomic_fetch_add(&e->n_finished, 1);
    if (why == SL_FINISH_CANCELED)
        atomic_fetch_add(&e->n_canceled, 1);
    free(s);
    sink->finish(sink, &r);
    return true;
}

/* True: the session is gone. */
/* The token that a constraint lets through: this one if it may. */
static uint32_t fake_bound(struct sl_constraint *c, uint32_t id) {
    float logits[FAKE_WORDS + FAKE_MAX_WORDS];
    uint32_t n = sizeof logits / sizeof *logits, best = 0;
    for (uint32_t i = 0; i < n; i++)
        logits[i] = i == id ? 1 : 0;
    if (c->mask(c, logits, n) != SL_OK)
        abort();
    for (uint32_t i = 1; i < n; i++)
        best = logits[i] > logits[best] ? i : best;
    if (c->accept(c, best) != SL_OK)
        abort();
    return best;
}

static bool fake_step(struct sl_engine *e, struct fake_session *s) {
    const struct sl_gen_request *r = s->req;
    if (atomic_load(&s->cancel))
        return fake_finish(e, s, SL_FINISH_CANCELED, SL_ERR_CANCELED);
    if (atomic_load(&e->late))
        return fake_finish(e, s, SL_FINISH_ERROR, SL_ERR_TIMEOUT);
    if (s->n_prefilled < e->prefill_steps) {
        s->n_prefilled++;
        if (r->sink->progress)
            r->sink->progress(r->sink, &(struct sl_prompt_progress){
                                           r->n_prompt * s->n_prefilled / (e->prefill_steps + 1), 0,
                                           r->n_prompt, s->n_prefilled});
        return false;
    }
    if (s->parked && !atomic_load(&s->resume))
        return false;
    for (; r->scored && s->n_told + 1 < r->n_prompt; s->n_told++) {
        struct sl_token told = {.id = r->prompt[s->n_told + 1], .n_top = r->n_top_logprobs};
        told.logprob = -0.25f * (float)(s->n_told + 1);
        for (uint32_t i = 0; i < told.n_top; i++)
            told.top[i].id = 'a' + i;
        r->scored(r->sink, s->n_told + 1, &told);
    }
    for (; r->hidden && s->n_told < r->n_prompt; s->n_told++) {
        float row[FAKE_EMBD] = {(float)r->prompt[s->n_told], 1, -2, 0, e->not_finite ? NAN : 0.5f};
        r->hidden(r->sink, s->n_told, row);
    }
    if (r->prompt_only)
        return fake_finish(e, s, SL_FINISH_LENGTH, SL_OK);
    if (e->fail_at && s->n_made == e->fail_at)
        return fake_finish(e, s, SL_FINISH_ERROR, SL_ERR_IO);
    struct sl_token t = {.logprob = -0.5f};
    if (e->script)
        t.id = e->script[(s->n_made - s->n_bound) % e->n_script];
    else
        t.id = s->n_made < r->n_prompt ? r->prompt[s->n_made] : FAKE_EOS;
    if (e->binds && r->sampling.constraint) { /* and no ring is ever full */
        uint32_t wanted = t.id;
        t.id = fake_bound(r->sampling.constraint, wanted);
        s->n_bound += t.id != wanted;
    }
    for (uint32_t i = 0; i < r->n_eog; i++)
        t.eog = t.eog || (t.id == r->eog[i] && !r->ignore_eog);
    t.n_top = r->logprobs ? r->n_top_logprobs : 0;
    for (uint32_t i = 0; i < t.n_top; i++) {
        t.top[i].id = i ? 'a' + i : t.id;
        t.top[i].logprob = -0.5f - (float)i;
    }
    atomic_store(&s->resume, false);
    struct sl_expert_use use = fake_use(s->n_made + 1);
    t.use = &use;
    enum sl_status status = r->sink->push(r->sink, &t);
    if (status == SL_AGAIN) {
        if (!s->parked)
            atomic_fetch_add(&e->n_parked, 1);
        s->parked = true;
        return false;
    }
    s->parked = false;
    if (status == SL_ERR_CANCELED)
        return fake_finish(e, s, SL_FINISH_CANCELED, status);
    s->n_made++;
    atomic_fetch_add(&e->n_pushed, 1);
    if (t.eog)
        return fake_finish(e, s, SL_FINISH_STOP, SL_OK);
    if (s->n_made == r->max_tokens || r->n_prompt + s->n_made >= e->ctx_tokens)
        return fake_finish(e, s, SL_FINISH_LENGTH, SL_OK);
    return false;
}

static void *fake_main(void *arg) {
    struct sl_engine *e = arg;
    struct fake_session *all = NULL;
    for (bool stop = false; !stop;) {
        pthread_mutex_lock(&e->lock);
        while (!e->inbox && !all && !e->stop)
            pthread_cond_wait(&e->wake, &e->lock);
        stop = e->stop;
        while (e->inbox) {
            struct fake_session *s = e->inbox;
            e->inbox = s->next;
            s->next = all;
            all = s;
        }
        pthread_mutex_unlock(&e->lock);
        for (struct fake_session **p = &all; *p;) {
            struct fake_session *s = *p, *next = s->next;
            if (stop)
                atomic_store(&s->cancel, true);
            if (fake_step(e, s))
                *p = next;
            else
                p = &s->next;
        }
        struct timespec ts = {0, e->step_us ? e->step_us * 1000 : 1000};
        if (!stop)
            nanosleep(&ts, NULL);
    }
    return NULL;
}

__attribute__((unused)) static struct sl_engine *fake_engine_create(void) {
    struct sl_engine *e = calloc(1, sizeof *e);
    e->queue_max = 1000;
    e->ctx_tokens = 4096;
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->wake, NULL);
    if (pthread_create(&e->thread, NULL, fake_main, e) != 0)
        abort();
    return e;
}

__attribute__((unused)) static void fake_engine_destroy(struct sl_engine *e) {
    pthread_mutex_lock(&e->lock);
    e->stop = true;
    pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->lock);
    pthread_join(e->thread, NULL);
    pthread_mutex_destroy(&e->lock);
    pthread_cond_destroy(&e->wake);
    free(e);
}

enum sl_status sl_engine_submit(struct sl_engine *e, struct sl_gen_request *r, struct sl_err *err) {
    if (r->n_prompt >= e->ctx_tokens)
        return sl_fail(err, SL_ERR_CONTEXT_FULL, "the prompt does not fit");
    struct fake_session *s = calloc(1, sizeof *s);
    if (!s)
        abort();
    s->req = r;
    pthread_mutex_lock(&e->lock);
    if (e->n_sessions >= e->queue_max) {
        pthread_mutex_unlock(&e->lock);
        free(s);
        return sl_fail(err, SL_AGAIN, "full");
    }
    e->n_sessions++;
    e->last = *r;
    for (uint32_t i = 0; i < r->n_prompt && i < 4096; i++)
        e->last_prompt[i] = r->prompt[i];
    pthread_mutex_lock(&flag_lock);
    r->engine_private = s;
    pthread_mutex_unlock(&flag_lock);
    s->next = e->inbox;
    e->inbox = s;
    pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->lock);
    atomic_fetch_add(&e->n_submitted, 1);
    return SL_OK;
}

static void fake_flag(struct sl_gen_request *r, bool cancel) {
    pthread_mutex_lock(&flag_lock);
    struct fake_session *s = r->engine_private;
    if (s)
        atomic_store(cancel ? &s->cancel : &s->resume, true);
    pthread_mutex_unlock(&flag_lock);
}
void sl_engine_cancel(struct sl_engine *e, struct sl_gen_request *r) {
    (void)e;
    fake_flag(r, true);
}
void sl_engine_resume(struct sl_engine *e, struct sl_gen_request *r) {
    (void)e;
    fake_flag(r, false);
}
uint32_t sl_engine_workers(const struct sl_engine *e, struct sl_remote_look *out) {
    (void)e;
    (void)out;
    return 0;
}

bool sl_engine_failed(struct sl_engine *e, struct sl_err *out_why) {
    bool failed = atomic_load(&e->failed);
    if (failed)
        sl_fail(out_why, SL_ERR_CORRUPT, "m.gguf: was changed while in use");
    return failed;
}
uint32_t sl_engine_slots(struct sl_engine *e, struct sl_slot_info *out, uint32_t n) {
    pthread_mutex_lock(&e->lock); /* a test that holds it holds who asks */
    pthread_mutex_unlock(&e->lock);
    static const struct sl_slot_info busy = {.state = SL_SLOT_DECODE,
                                             .task = 7,
                                             .n_prompt = 10,
                                             .n_prompt_done = 10,
                                             .n_predicted = 30,
                                             .n_max = 100,
                                             .queue_ns = 1500000,
                                             .prefill_ns = 100000000,
                                             .decode_ns = 2000000000};
    for (uint32_t i = 0; i < n && i < 4; i++)
        out[i] = i == 1 ? busy : (struct sl_slot_info){.state = SL_SLOT_FREE};
    return 4;
}
void sl_engine_info(const struct sl_engine *e, struct sl_engine_info *out) {
    *out = (struct sl_engine_info){
        .ctx_tokens = e->ctx_tokens, .parallel = 4, .queue_max = 17, .batch_tokens = 512};
    out->n_vocab = FAKE_WORDS + FAKE_MAX_WORDS;
    out->n_embd = FAKE_EMBD;
    strcpy(out->device, "fake");
    out->n_stages = 2;
    for (uint32_t i = 0; i < 2; i++)
        out->stages[i] = (struct sl_engine_stage){.device = "half \"of\" it",
                                                  .first_layer = 2 * i,
                                                  .n_layer = 2,
                                                  .n_slots = 5,
                                                  .n_device_slots = 3 + i,
                                                  .vram_total_bytes = 70 + i,
                                                  .vram_budget_bytes = 80 + i};
}
const struct sl_stage_metrics *sl_engine_stage_metrics(struct sl_engine *e, uint32_t stage) {
    static struct sl_stage_metrics shown[2];
    (void)e;
    sl_stage_gauge(&shown[stage], memory_bytes, 60 + stage);
    return &shown[stage];
}

/* Two layers of experts, one of them in the middle of the model: the first half in memory, hotter
 * from one to the next. */
enum { FAKE_LAYERS = 2, FAKE_EXPERTS = 8 };
const struct sl_expert_map_shape *sl_engine_expert_shape(const struct sl_engine *e) {
    static const uint32_t layers[FAKE_LAYERS] = {1, 3};
    static const uint32_t experts[FAKE_LAYERS] = {FAKE_EXPERTS, FAKE_EXPERTS};
    static const struct sl_expert_map_shape shape = {.n_layer = FAKE_LAYERS,
                                                     .n_expert = FAKE_EXPERTS,
                                                     .k = 2,
                                                     .model_layer = layers,
                                                     .layer_n_expert = experts,
                                                     .has_heat = true,
                                                     .computing = SL_TIER_HOST};
    (void)e;
    return &shape;
}
uint64_t sl_engine_expert_cells(struct sl_engine *e, uint8_t *out_cells) {
    (void)e;
    for (uint32_t i = 0; i < FAKE_LAYERS * FAKE_EXPERTS; i++)
        out_cells[i] = sl_expert_cell(i % FAKE_EXPERTS < 4 ? SL_TIER_HOST : SL_TIER_DISK, 4 * i);
    return 1;
}
void sl_engine_memory(const struct sl_engine *e, struct sl_engine_memory *out) {
    static const struct sl_plan_row rows[] = {
        {"weights", "all \"of\" them", 600, SL_MEMORY_HOST, 0, 0},
        {"KV cache", "", 300, SL_MEMORY_PINNED, 0, 0}};
    (void)e;
    *out = (struct sl_engine_memory){rows, 2, 900, 1000, 0, 0};
}
const char *sl_memory_kind_name(enum sl_memory_kind kind) {
    return kind == SL_MEMORY_PINNED ? "pinned" : "host";
}
