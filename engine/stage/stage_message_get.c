/* Messages to and from stages that came from elsewhere: read with care. */
#include "engine/stage/stage_message.h"

#include "common/bytes.h"
#include "common/utf8.h"

#include <math.h>
#include <string.h>

#define N_SUMS   (sizeof(struct sl_activity_sums) / sizeof(uint64_t))
#define N_COUNTS (sizeof(struct sl_stage_counts) / sizeof(int64_t))

struct reader {
    const uint8_t *at, *end;
    bool bad;
};

/* NULL when there are not so many. */
static const uint8_t *take(struct reader *r, size_t n) {
    if (r->bad || (size_t)(r->end - r->at) < n) {
        r->bad = true;
        return NULL;
    }
    r->at += n;
    return r->at - n;
}

static uint32_t get_u8(struct reader *r) {
    const uint8_t *p = take(r, 1);
    return p ? *p : 0;
}

/* 0 or 1. */
static bool get_bool(struct reader *r) {
    uint32_t v = get_u8(r);
    r->bad |= v > 1;
    return v == 1;
}

static uint32_t get_u32(struct reader *r) {
    const uint8_t *p = take(r, 4);
    return p ? sl_get_u32(p) : 0;
}

static uint64_t get_u64(struct reader *r) {
    const uint8_t *p = take(r, 8);
    return p ? sl_get_u64(p) : 0;
}

static double get_f64(struct reader *r) {
    uint64_t bits = get_u64(r);
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static void get_bytes(struct reader *r, void *out, size_t n) {
    const uint8_t *p = take(r, n);
    if (p && n)
        memcpy(out, p, n);
}

static void get_words(struct reader *r, void *out, size_t n) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    get_bytes(r, out, 4 * n); /* as they lie */
#else
    const uint8_t *p = take(r, 4 * n);
    for (size_t i = 0; p && i < n; i++) {
        uint32_t v = sl_get_u32(p + 4 * i);
        memcpy((char *)out + 4 * i, &v, 4);
    }
#endif
}

static void get_text(struct reader *r, char *out, size_t size) {
    uint32_t n = get_u32(r);
    const uint8_t *p = n < size ? take(r, n) : NULL;
    r->bad |= !p;
    if (!p)
        return;
    sl_utf8_line(out, p, n);
    out[n] = 0;
}

enum sl_status sl_message_head(const uint8_t *bytes, size_t n, struct sl_message_head *out,
                               struct sl_err *err) {
    if (n < SL_MESSAGE_HEAD_BYTES)
        return sl_fail(err, SL_ERR_PROTOCOL, "a message of %zu bytes: the head alone has %u", n,
                       SL_MESSAGE_HEAD_BYTES);
    uint32_t version = sl_get_u16(bytes), kind = sl_get_u16(bytes + 2),
             what = sl_get_u16(bytes + 16);
    if (version != SL_MESSAGE_VERSION)
        return sl_fail(err, SL_ERR_PROTOCOL,
                       "a message of version %u: this program speaks version %u", version,
                       SL_MESSAGE_VERSION);
    if (sl_get_u32(bytes + 4) != n)
        return sl_fail(err, SL_ERR_PROTOCOL, "a message of %zu bytes that says it has %u", n,
                       sl_get_u32(bytes + 4));
    if (kind >= SL_MESSAGE_KINDS || what >= SL_STAGE_REQUESTS)
        return sl_fail(err, SL_ERR_PROTOCOL, "a message of kind %u about request %u", kind, what);
    if (kind == SL_MESSAGE_ROWS && what != SL_STAGE_STEP)
        return sl_fail(err, SL_ERR_PROTOCOL, "rows of request %u, which is no step", what);
    if (kind == SL_MESSAGE_CANCEL && (what || n != SL_MESSAGE_HEAD_BYTES))
        return sl_fail(err, SL_ERR_PROTOCOL, "a cancellation of %zu bytes", n);
    *out = (struct sl_message_head){(enum sl_message_kind)kind, (enum sl_stage_request)what,
                                    sl_get_u64(bytes + 8)};
    return SL_OK;
}

static enum sl_status malformed(const char *what, enum sl_stage_request request,
                                struct sl_err *err) {
    return sl_fail(err, SL_ERR_PROTOCOL, "%s in a message about '%s'", what,
                   sl_stage_request_name(request));
}

/* ---- a step ---- */

static bool all_below(const uint32_t *v, uint32_t n, uint64_t bound) {
    for (uint32_t i = 0; i < n; i++)
        if (v[i] >= bound)
            return false;
    return true;
}

static bool ascend(const uint32_t *v, uint32_t n) {
    for (uint32_t i = 1; i < n; i++)
        if (v[i] <= v[i - 1])
            return false;
    return true;
}

/* Every number that leads into an array of the stage's. */
static bool is_sound(const struct sl_step *s, const struct sl_message_limits *l) {
    uint64_t positions = (uint64_t)l->seq_pages * SL_KV_PAGE_TOKENS;
    bool ok = all_below(s->ids, s->n_rows, l->n_vocab) &&
              all_below((const uint32_t *)s->pos, s->n_rows, positions) &&
              all_below(s->slot, s->n_rows, (uint64_t)l->n_pages * SL_KV_PAGE_TOKENS) &&
              (!l->n_tails ||
               all_below(s->tail_slot, s->n_rows, (uint64_t)l->n_tails * SL_KV_PAGE_TOKENS)) &&
              all_below(s->row_seq, s->n_rows, l->n_seq) &&
              all_below(s->out_rows, s->n_out, s->n_rows) && ascend(s->out_rows, s->n_out);
    for (uint32_t i = 0; ok && i < s->n_rows; i++)
        ok = s->row_len[i] == (uint32_t)s->pos[i] + 1;
    for (uint32_t i = 0; ok && i < s->n_out; i++)
        ok = isfinite(s->sums_at[i]);
    return ok;
}

static uint32_t count_failed(const uint8_t *failed, uint32_t n, bool *out_sound) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        *out_sound &= failed[i] <= 1;
        sum += failed[i];
    }
    return sum;
}

/* Of a pool of n_pool pages. */
static enum sl_status get_pages(struct reader *r, struct sl_page_table *t, uint32_t n_pool,
                                struct sl_err *err) {
    for (uint32_t i = 0; i < t->n_seq; i++) {
        uint32_t first = get_u32(r), end = get_u32(r);
        uint32_t *pages = t->pages + (size_t)i * t->n_pages;
        if (first > end || end > t->n_pages)
            return malformed("pages of a session that has fewer", SL_STAGE_STEP, err);
        get_words(r, pages + first, end - first);
        if (!r->bad && !all_below(pages + first, end - first, n_pool))
            return malformed("a page that is not in the pool", SL_STAGE_STEP, err);
        t->changed[i] = (struct sl_page_range){first, end};
    }
    return SL_OK;
}

static enum sl_status get_step(struct reader *r, const struct sl_message_limits *l,
                               struct sl_message_arrays *into, struct sl_stage_call *c,
                               struct sl_err *err) {
    struct sl_ask_step *a = &c->ask.step;
    a->micro_batch = get_u32(r);
    a->n_rows = get_u32(r);
    a->n_decode = get_u32(r);
    a->n_out = get_u32(r);
    a->n_failed = get_u32(r);
    a->keep_all = get_bool(r);
    a->only_largest = get_bool(r);
    a->dead = get_bool(r);
    bool comes = get_bool(r), later = get_bool(r);
    a->sent = later ? SL_SENT_LATER : comes ? SL_SENT_ROWS : SL_SENT_NONE;
    a->seqno = 0;
    if (a->micro_batch >= l->n_micro_batches || !a->n_rows || a->n_rows > l->max_rows ||
        a->n_decode > a->n_rows || a->n_out > l->max_out || a->n_out > a->n_rows ||
        (comes && later))
        return malformed("numbers beyond what was planned for", SL_STAGE_STEP, err);
    if (later && !sl_stage_may_go_ahead(a))
        return malformed("a step that must not come before its rows", SL_STAGE_STEP, err);
    struct sl_step s = sl_step_lay(into->step_arrays, l->max_rows, l->max_out);
    s.n_rows = a->n_rows;
    s.n_out = a->n_out;
    get_words(r, s.ids, s.n_rows);
    get_words(r, s.pos, s.n_rows);
    get_words(r, s.slot, s.n_rows);
    if (l->n_tails)
        get_words(r, s.tail_slot, s.n_rows);
    else
        memset(s.tail_slot, 0, s.n_rows * sizeof *s.tail_slot);
    get_words(r, s.row_seq, s.n_rows);
    get_words(r, s.row_len, s.n_rows);
    get_words(r, s.out_rows, s.n_out);
    get_words(r, s.sums_at, s.n_out);
    memset(s.before, 0xff, (size_t)s.n_rows * SL_STEP_BEFORE * sizeof *s.before);
    get_words(r, s.before, (size_t)s.n_rows * l->n_before);
    get_bytes(r, into->failed, s.n_rows);
    SL_TRY(get_pages(r, &into->pages, l->n_pages, err));
    SL_TRY(get_pages(r, &into->tails, l->n_tails, err));
    if (a->sent == SL_SENT_ROWS)
        get_words(r, into->rows, (size_t)s.n_rows * l->n_row);
    bool sound = true;
    if (!r->bad &&
        (count_failed(into->failed, s.n_rows, &sound) != a->n_failed || !sound || !is_sound(&s, l)))
        return malformed("rows that cannot be", SL_STAGE_STEP, err);
    c->with = (struct sl_stage_arrays){
        .step_arrays = into->step_arrays,
        .max_rows = l->max_rows,
        .max_out = l->max_out,
        .failed = into->failed,
        .pages = &into->pages,
        .tails = &into->tails,
        .rows = a->sent == SL_SENT_ROWS ? into->rows : NULL,
    };
    return SL_OK;
}

/* ---- requests ---- */

static bool is_page(uint32_t page, uint32_t n) {
    return page == SL_KV_NO_PAGE || page < n;
}

static enum sl_status get_request(struct reader *r, const struct sl_message_limits *l,
                                  struct sl_message_arrays *into, struct sl_stage_call *c,
                                  struct sl_err *err) {
    struct sl_stage_ask *a = &c->ask;
    c->with = (struct sl_stage_arrays){.bytes = into->bytes};
    switch (a->what) {
    case SL_STAGE_JOIN:
        a->join.before.process = get_u64(r);
        a->join.before.number = get_u64(r);
        break;
    case SL_STAGE_LINK:
        a->link.alone = get_bool(r);
        break;
    case SL_STAGE_STEP:
        return get_step(r, l, into, c, err);
    case SL_STAGE_LOGITS:
    case SL_STAGE_HIDDEN:
        a->logits.micro_batch = get_u32(r);
        a->logits.first = get_u32(r);
        a->logits.n = get_u32(r);
        if (a->logits.micro_batch >= l->n_micro_batches || a->logits.n > l->max_out ||
            a->logits.first > l->max_rows)
            return malformed("numbers beyond what was planned for", a->what, err);
        break;
    case SL_STAGE_READ_PAGE:
    case SL_STAGE_WRITE_PAGE:
        a->page.page = get_u32(r);
        a->page.tail = get_u32(r);
        a->page.holds_tail = get_bool(r);
        c->with.n_bytes = l->page_bytes + (a->page.holds_tail ? l->tail_bytes : 0);
        if (!is_page(a->page.page, l->n_pages) || !is_page(a->page.tail, l->n_tails) ||
            (a->page.tail != SL_KV_NO_PAGE && !a->page.holds_tail))
            return malformed("a page that is not in the pool", a->what, err);
        if (a->what == SL_STAGE_WRITE_PAGE)
            get_bytes(r, into->bytes, c->with.n_bytes);
        break;
    case SL_STAGE_EXPERTS:
        c->with.n_bytes = (size_t)l->n_routed * l->n_expert;
        break;
    case SL_STAGE_HEAT:
        c->with.n_bytes = l->heat_bytes;
        break;
    case SL_STAGE_DISK_SPEED:
        a->disk_speed.seconds = get_f64(r);
        if (!(a->disk_speed.seconds > 0 && a->disk_speed.seconds <= SL_STAGE_MAX_SECONDS))
            return malformed("a time that is too long", a->what, err);
        break;
    case SL_STAGE_IDLE:
        a->idle.most_ns = get_u64(r);
        break;
    case SL_STAGE_HELLO:
    case SL_STAGE_SAVE_HEAT:
    case SL_STAGE_QUIT:
    case SL_STAGE_REQUESTS:
        break;
    }
    return SL_OK;
}

/* Read to its end, and to nowhere else. */
static enum sl_status has_ended(const struct reader *r, enum sl_stage_request what,
                                struct sl_err *err) {
    if (r->bad)
        return malformed("too few bytes, or a number that cannot be,", what, err);
    return r->at == r->end ? SL_OK : malformed("more bytes than there are fields", what, err);
}

/* It comes first in both. */
enum sl_status sl_message_micro_batch(const uint8_t *bytes, size_t n,
                                      const struct sl_message_limits *l, uint32_t *out,
                                      struct sl_err *err) {
    struct sl_message_head h = {0};
    SL_TRY(sl_message_head(bytes, n, &h, err));
    struct reader r = {bytes + SL_MESSAGE_HEAD_BYTES, bytes + n, false};
    uint32_t at = get_u32(&r);
    if (r.bad || at >= l->n_micro_batches ||
        (h.what != SL_STAGE_STEP && !sl_stage_asks_rows(h.what)))
        return malformed("numbers beyond what was planned for", h.what, err);
    *out = at;
    return SL_OK;
}

enum sl_status sl_message_get_ask(const uint8_t *bytes, size_t n, const struct sl_message_limits *l,
                                  struct sl_message_arrays *into, struct sl_stage_call *out,
                                  struct sl_err *err) {
    struct sl_message_head h = {0};
    SL_TRY(sl_message_head(bytes, n, &h, err));
    if (h.kind != SL_MESSAGE_ASK)
        return sl_fail(err, SL_ERR_PROTOCOL, "a message of kind %u, where a request should be",
                       h.kind);
    struct reader r = {bytes + SL_MESSAGE_HEAD_BYTES, bytes + n, false};
    out->ask.what = h.what;
    enum sl_status status = get_request(&r, l, into, out, err);
    return status == SL_OK ? has_ended(&r, h.what, err) : status;
}

enum sl_status sl_message_get_rows(const uint8_t *bytes, size_t n,
                                   const struct sl_message_limits *l, const struct sl_stage_call *c,
                                   float *into, bool *out_come, struct sl_err *err) {
    struct sl_message_head h = {0};
    SL_TRY(sl_message_head(bytes, n, &h, err));
    struct reader r = {bytes + SL_MESSAGE_HEAD_BYTES, bytes + n, false};
    *out_come = get_bool(&r);
    size_t n_words = *out_come ? (size_t)c->ask.step.n_rows * l->n_row : 0;
    if (!r.bad && (size_t)(r.end - r.at) != 4 * n_words)
        return malformed("rows of another step", SL_STAGE_STEP, err);
    get_words(&r, into, n_words);
    return has_ended(&r, SL_STAGE_STEP, err);
}

/* ---- answers ---- */

static bool is_status(int32_t v) {
    return v == SL_OK || v == SL_AGAIN || (v < 0 && v > -128);
}

static void get_hello(struct reader *r, struct sl_stage_hello *h) {
    h->name.process = get_u64(r);
    h->name.number = get_u64(r);
    get_text(r, h->device, sizeof h->device);
    h->rows_alike = get_bool(r);
    h->loses_none = get_bool(r);
    h->begins_ahead = get_bool(r);
    h->arithmetic.lo = get_u64(r);
    h->arithmetic.hi = get_u64(r);
    h->first_layer = get_u32(r);
    h->n_layer = get_u32(r);
    h->n_row = get_u32(r);
    h->n_embd = get_u32(r);
    h->n_vocab = get_u32(r);
    h->n_logit_rows = get_u32(r);
    h->n_routed = get_u32(r);
    h->n_expert = get_u32(r);
    h->page_bytes = get_u64(r);
    h->tail_bytes = get_u64(r);
    h->heat_bytes = get_u64(r);
}

/* Of each row the largest logit alone: its block, the logit, where in the block it is. The other
 * blocks are left with what is never the largest. */
static enum sl_status get_largest(struct reader *r, const struct sl_message_limits *l,
                                  struct sl_message_arrays *into, struct sl_stage_call *c,
                                  struct sl_err *err) {
    struct sl_answer_step *a = &c->answer.step;
    size_t n = SL_VOCAB_BLOCKS(l->n_vocab);
    a->has_max = a->has_at = true;
    c->with.out_logits = (struct sl_logits){.blocks = {.max = into->max, .at = into->at}};
    memset(into->at, 0, a->n_logits * n * sizeof *into->at);
    for (uint32_t i = 0; i < a->n_logits; i++) {
        float *max = into->max + i * n;
        for (size_t k = 0; k < n; k++)
            max[k] = -INFINITY;
        uint32_t block = get_u32(r), at;
        if (r->bad || block >= n)
            return malformed("a logit in a block that there is not", SL_STAGE_STEP, err);
        get_words(r, max + block, 1);
        at = get_u32(r);
        if (r->bad || at >= SL_VOCAB_BLOCK || isnan(max[block]))
            return malformed("a logit that is not in its block", SL_STAGE_STEP, err);
        into->at[i * n + block] = at;
    }
    return SL_OK;
}

static enum sl_status get_logits(struct reader *r, const struct sl_message_limits *l,
                                 struct sl_message_arrays *into, struct sl_stage_call *c,
                                 struct sl_err *err) {
    struct sl_answer_step *a = &c->answer.step;
    struct sl_logits *x = &c->with.out_logits;
    a->n_logits = get_u32(r);
    a->has_rows = get_bool(r);
    a->has_max = get_bool(r);
    a->has_at = get_bool(r);
    a->has_sum = get_bool(r);
    bool largest = get_bool(r),
         any = largest || a->has_rows || a->has_max || a->has_at || a->has_sum;
    /* All that the step asked for, or none; maxima come with where they are. */
    if (a->n_logits && a->n_logits != c->ask.step.n_out)
        return malformed("logits of other rows than were asked for", SL_STAGE_STEP, err);
    if (largest && (a->has_rows || a->has_max || a->has_at || a->has_sum))
        return malformed("logits twice", SL_STAGE_STEP, err);
    if (any != (a->n_logits > 0) ||
        (any && !a->has_rows && !largest && !(a->has_max && a->has_at)) ||
        ((a->has_at || a->has_sum) && !a->has_max) ||
        (any && !a->has_rows && !c->ask.step.only_largest))
        return malformed("logits of which a part is missing", SL_STAGE_STEP, err);
    size_t blocks = (size_t)a->n_logits * SL_VOCAB_BLOCKS(l->n_vocab);
    *x = (struct sl_logits){0};
    if (largest)
        return get_largest(r, l, into, c, err);
    if (a->has_rows)
        get_words(r, x->rows = into->logits, (size_t)a->n_logits * l->n_vocab);
    if (a->has_max) {
        get_words(r, into->max, blocks);
        x->blocks.max = into->max;
    }
    if (a->has_at) {
        get_words(r, into->at, blocks);
        x->blocks.at = into->at;
        if (!r->bad && !all_below(into->at, (uint32_t)blocks, SL_VOCAB_BLOCK))
            return malformed("a logit that is not in its block", SL_STAGE_STEP, err);
    }
    if (a->has_sum) {
        get_words(r, into->sum, blocks);
        x->blocks.sum = into->sum;
    }
    return SL_OK;
}

static enum sl_status get_step_answer(struct reader *r, const struct sl_message_limits *l,
                                      struct sl_message_arrays *into, struct sl_stage_call *c,
                                      struct sl_err *err) {
    struct sl_answer_step *a = &c->answer.step;
    uint32_t n = c->ask.step.n_rows;
    a->n_failed = get_u32(r);
    a->sent = (uint8_t)get_u8(r);
    a->seqno = 0;
    a->began_ns = get_u64(r);
    a->ended_ns = get_u64(r);
    get_bytes(r, into->failed, n);
    bool sound = true;
    if (!r->bad && (count_failed(into->failed, n, &sound) != a->n_failed || !sound ||
                    (a->sent != SL_SENT_NONE && a->sent != SL_SENT_ROWS)))
        return malformed("rows that cannot be", SL_STAGE_STEP, err);
    SL_TRY(get_logits(r, l, into, c, err));
    c->with.out_rows = a->sent == SL_SENT_ROWS ? into->rows : NULL;
    if (c->with.out_rows)
        get_words(r, into->rows, (size_t)n * l->n_row);
    if (c->ask.step.sent == SL_SENT_LATER) /* and none has: the stage before may be at it still */
        return a->n_failed ? malformed("rows that cannot be", SL_STAGE_STEP, err) : SL_OK;
    for (uint32_t i = 0; !r->bad && i < n; i++)
        if (into->failed[i] < c->with.failed[i])
            return malformed("a row that had failed and has not", SL_STAGE_STEP, err);
    if (!r->bad)
        memcpy(c->with.failed, into->failed, n);
    return SL_OK;
}

static enum sl_status get_result(struct reader *r, const struct sl_message_limits *l,
                                 struct sl_message_arrays *into, struct sl_stage_call *c,
                                 struct sl_err *err) {
    struct sl_stage_answer *a = &c->answer;
    bool ok = a->status == SL_OK;
    switch (c->ask.what) {
    case SL_STAGE_HELLO:
        get_hello(r, &a->hello);
        break;
    case SL_STAGE_JOIN:
        a->join.reads = get_bool(r);
        break;
    case SL_STAGE_LINK:
        a->link.by_ops = get_bool(r);
        break;
    case SL_STAGE_STEP:
        return get_step_answer(r, l, into, c, err);
    case SL_STAGE_LOGITS:
        c->with.out_logits = (struct sl_logits){.rows = ok ? into->logits : NULL};
        if (c->ask.logits.n > l->max_out)
            return malformed("more logits than were planned for", c->ask.what, err);
        if (ok)
            get_words(r, into->logits, (size_t)c->ask.logits.n * l->n_vocab);
        break;
    case SL_STAGE_HIDDEN:
        c->with.out_rows = ok ? into->rows : NULL;
        if (c->ask.logits.n > l->max_rows)
            return malformed("more hidden states than were planned for", c->ask.what, err);
        if (ok)
            get_words(r, into->rows, (size_t)c->ask.logits.n * l->n_embd);
        break;
    case SL_STAGE_DISK_SPEED:
        a->disk_speed.bytes_per_s = get_f64(r);
        if (!isfinite(a->disk_speed.bytes_per_s) || a->disk_speed.bytes_per_s < 0)
            return malformed("no speed", c->ask.what, err);
        break;
    case SL_STAGE_READ_PAGE:
    case SL_STAGE_EXPERTS:
    case SL_STAGE_HEAT:
        if (ok)
            get_bytes(r, c->with.bytes, c->with.n_bytes);
        break;
    case SL_STAGE_WRITE_PAGE:
    case SL_STAGE_SAVE_HEAT:
    case SL_STAGE_IDLE:
    case SL_STAGE_QUIT:
    case SL_STAGE_REQUESTS:
        break;
    }
    return SL_OK;
}

enum sl_status sl_message_get_answer(const uint8_t *bytes, size_t n,
                                     const struct sl_message_limits *l,
                                     struct sl_message_arrays *into, struct sl_stage_call *c,
                                     struct sl_err *err) {
    struct sl_message_head h = {0};
    struct sl_stage_answer *a = &c->answer;
    uint64_t sums[N_SUMS];
    int64_t counts[N_COUNTS];
    SL_TRY(sl_message_head(bytes, n, &h, err));
    if (h.kind != SL_MESSAGE_ANSWER || h.what != c->ask.what)
        return sl_fail(err, SL_ERR_PROTOCOL,
                       "a message of kind %u about '%s', where the answer to "
                       "'%s' should be",
                       h.kind, sl_stage_request_name(h.what), sl_stage_request_name(c->ask.what));
    struct reader reader = {bytes + SL_MESSAGE_HEAD_BYTES, bytes + n, false}, *r = &reader;
    sl_stage_answer_begin(a);
    int32_t answered = (int32_t)get_u32(r);
    get_text(r, a->err.text, sizeof a->err.text);
    a->has_background = get_bool(r);
    a->heat_unsaved = get_bool(r);
    for (size_t i = 0; i < N_COUNTS; i++)
        counts[i] = (int64_t)get_u64(r);
    for (size_t i = 0; i < N_SUMS; i++)
        sums[i] = get_u64(r);
    if (!is_status(answered))
        return malformed("a status that there is not", h.what, err);
    a->status = (enum sl_status)answered;
    memcpy(&a->counts, counts, sizeof counts);
    memcpy(&a->found, sums, sizeof sums);
    enum sl_status status = get_result(r, l, into, c, err);
    return status == SL_OK ? has_ended(r, h.what, err) : status;
}
