#include "engine/layers/seq_shape.h"
#include "engine/plan/memory_plan_internal.h"

#include "common/cpus.h"
#include "common/stack.h"
#include "engine/observe/expert_map.h"
#include "engine/lane/cpu_lane.h"
#include "engine/forward/forward.h"
#include "engine/layers/layer_kind.h"
#include "engine/stage/joint_heat.h"
#include "engine/prefix/prefix_sizes.h"
#include "engine/prefix/prefix_tails.h"
#include "engine/prefix/prefix_tree.h"
#include "engine/sample/sampler.h"
#include "engine/session/session.h"
#include "engine/stage/micro_batch.h"
#include "engine/stage/stage_remote.h"
#include "engine/tables/table_store.h"
#include "engine/weights/weights.h"
#include "model/arch/model_slice.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* One page in so many has a tail page that stays when its session has gone on: with a window of 128
 * that is room for the ends that prefix_tails.h keeps of a text of any length. */
#define TAILS_SHARE 16u
/* Texts that are kept beyond that are short, many of them, and each has an end. */
#define CACHED_SHARE 8u

/* A person who reads along does not notice a pause of so long. */
#define DEFAULT_STALL_MS 300u

/* Of what is left when everything is resident, one part in so many goes to the prefix cache. */
#define CACHE_SHARE 8u

/* Touched of a stack of SL_STACK_BYTES: the scheduler's deepest calls take some 30 KiB. */
#define STACK_BYTES ((uint64_t)128 << 10)
_Static_assert(STACK_BYTES <= SL_STACK_BYTES, "a thread has what is planned for it");
/* As well as the compute threads: main, scheduler, the prefix files', three that read weights at
 * the start. */
#define OWN_THREADS 6u
/* The kernel's own: task and stack of a thread; a page table's 8 bytes for a page of 4 KiB. */
#define KERNEL_THREAD_BYTES ((uint64_t)32 << 10)
#define PAGE_TABLE_SHARE    512u
/* Rows of streamed tables that are kept, unless the configuration says how many: of what is left
 * one part in so many, and no more than this. Tokens of a language are few and its common ones
 * fewer: this holds what nearly all rows of a conversation need. */
#define TABLE_CACHE_SHARE 8u
#define TABLE_CACHE_BYTES ((uint64_t)128 << 20)
/* Gaps that malloc leaves, buffers of libc, the plan itself. Peaks seen were below 1.5 MiB. */
#define SLACK_BYTES ((uint64_t)4 << 20)

static uint32_t max_u32(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

const char *sl_memory_kind_name(enum sl_memory_kind kind) {
    static const char *const names[] = {
        [SL_MEMORY_HOST] = "host", [SL_MEMORY_PINNED] = "pinned", [SL_MEMORY_DEVICE] = "device"};
    return names[kind];
}

static SL_PRINTF(5, 6) void add_row(struct sl_memory_plan *p, const char *what,
                                    enum sl_memory_kind kind, uint64_t bytes, const char *fmt,
                                    ...) {
    if (!bytes)
        return;
    assert(p->n_rows < SL_PLAN_MAX_ROWS);
    struct sl_plan_row *r = &p->rows[p->n_rows++];
    r->what = what;
    r->bytes = bytes;
    r->kind = kind;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(r->detail, sizeof r->detail, fmt, ap);
    va_end(ap);
    *(kind == SL_MEMORY_DEVICE ? &p->vram_total_bytes : &p->total_bytes) += bytes;
    p->pinned_total_bytes += kind == SL_MEMORY_PINNED ? bytes : 0;
}

static enum sl_status resolve_config(const struct sl_hparams *hp, struct sl_engine_config *c,
                                     struct sl_err *err) {
    if (!c->ctx_tokens)
        c->ctx_tokens = hp->n_ctx_train && hp->n_ctx_train < 8192 ? hp->n_ctx_train : 8192;
    if (!c->parallel)
        c->parallel = 4;
    if (!c->batch_tokens)
        c->batch_tokens = 512;
    if (!c->queue_max)
        c->queue_max = 256;
    if (!c->cache_disk_bytes)
        c->cache_disk_bytes = SL_CACHE_DISK_DEFAULT;
    if (!c->max_stall_ms)
        c->max_stall_ms = DEFAULT_STALL_MS;
    if (c->kv_dtype == SL_DTYPE_F32)
        c->kv_dtype = SL_DTYPE_F16; /* a zeroed configuration */
    if (c->ctx_tokens < 2 || c->ctx_tokens > SL_MAX_CTX_TOKENS)
        return sl_fail(err, SL_ERR_CONFIG, "context of %u tokens: must be 2 to %u", c->ctx_tokens,
                       SL_MAX_CTX_TOKENS);
    if (c->parallel > SL_MAX_PARALLEL)
        return sl_fail(err, SL_ERR_CONFIG, "%u parallel sessions: at most %u", c->parallel,
                       SL_MAX_PARALLEL);
    if (c->batch_tokens > SL_MAX_BATCH_TOKENS)
        return sl_fail(err, SL_ERR_CONFIG, "batch of %u tokens: at most %u", c->batch_tokens,
                       SL_MAX_BATCH_TOKENS);
    if (c->draft_tokens > SL_MAX_DRAFT)
        return sl_fail(err, SL_ERR_CONFIG, "drafts of %u tokens: at most %u", c->draft_tokens,
                       SL_MAX_DRAFT);
    if (c->queue_max > SL_MAX_QUEUE)
        return sl_fail(err, SL_ERR_CONFIG, "queue of %u requests: at most %u", c->queue_max,
                       SL_MAX_QUEUE);
    /* Every running session must get its row into every step. */
    c->batch_tokens = max_u32(c->batch_tokens, c->parallel);
    return SL_OK;
}

/* What is planned for: the layers, those of all devices together, and the device. */
struct subject {
    const struct sl_model *model, *whole;
    const struct sl_device *dev; /* NULL = none is known */
};

/* Tail pages that a session holds at most while steps are under way: those before the page that its
 * next row is in, and those of all rows that it may have in them, and of positions that a draft
 * layer writes behind them. */
static uint32_t tails_held(const struct sl_memory_plan *p, const struct sl_seq_shape *shape) {
    uint32_t rows = p->config.batch_tokens * p->n_micro_batches + p->config.draft_tokens;
    uint32_t all = shape->tail_pages + (rows + SL_KV_PAGE_TOKENS - 2) / SL_KV_PAGE_TOKENS + 1;
    /* With gaps: the page that it goes on writing, and of each step what sl_slot_reserve() takes.
     */
    uint32_t few = shape->tail_pages + 1 + SL_TAILS_A_STEP * p->n_micro_batches;
    return shape->tail_gaps && few < all ? few : all;
}

/* ... and what it may leave of its text for others to go on from, besides. A state is as large as
 * keys and values of many positions: a session leaves no more bytes of states than it has of those,
 * but two, so that a prompt's end stays when the answer ends. */
static uint32_t tails_kept(const struct sl_memory_plan *p, const struct sl_seq_shape *shape) {
    uint32_t n = max_u32(p->session_pages / TAILS_SHARE, shape->tail_pages);
    if (!shape->tail_gaps || !shape->tail_bytes)
        return n;
    uint64_t like_pages = p->session_pages * shape->page_bytes / shape->tail_bytes;
    return like_pages < n ? max_u32((uint32_t)like_pages, n < 2 ? n : 2) : n;
}

/* A draft's row leaves the state behind it in a page of its own, so that the session can go on from
 * the last one that was right. That takes tail pages which hold states alone: whatever else were in
 * them would be in the page that the row before it has written. And the draft layer, which is given
 * rows that nobody keeps, must have no state. */
static uint32_t draft_tails(const struct sl_model *whole, const struct sl_engine_config *c,
                            const struct sl_seq_config *seq, const struct sl_seq_shape *shape) {
    const struct sl_layer *last = &whole->layers[whole->hp.n_layer - 1];
    if (!c->draft_tokens || (!c->draft_source && !whole->hp.n_draft) || !shape->tail_gaps)
        return 0;
    struct sl_seq_store stores[SL_SEQ_STORES];
    uint32_t n = last->spec.draft ? sl_seq_stores(&last->spec, seq, stores) : 0;
    for (uint32_t i = 0; i < n; i++)
        if (!stores[i].repeatable)
            return 0;
    return c->draft_tokens;
}

/* Whether stores with a limited reach have pages of their own: where that takes fewer, or drafts
 * need it. All stages decide alike, since all have the same page tables. */
static void plan_tails(const struct sl_model *whole, struct sl_memory_plan *p) {
    const struct sl_engine_config *c = &p->config;
    struct sl_seq_config seq = {c->kv_dtype, c->seq_source, true};
    struct sl_seq_shape shape = sl_seq_shape(whole, &seq);
    uint32_t each = tails_held(p, &shape) + tails_kept(p, &shape);
    p->draft_tails = draft_tails(whole, c, &seq, &shape);
    if (p->draft_tails && each > p->session_pages)
        each = p->session_pages;
    bool worth = shape.tail_bytes && (each < p->session_pages || p->draft_tails);
    p->n_tails = worth ? (each + p->draft_tails) * c->parallel : 0;
    p->tail_pages = worth ? shape.tail_pages : 0;
    p->tail_gaps = worth && shape.tail_gaps;
    p->tail_page_bytes = worth ? shape.tail_bytes : 0;
    p->page_bytes = shape.page_bytes + (worth ? 0 : shape.tail_bytes);
}

/* How many of CACHED_SHARE pages that are kept for reuse have a tail page: enough that a text of
 * CACHED_SHARE pages can be continued from its end. */
static uint32_t cached_with_tail(const struct sl_memory_plan *p) {
    uint32_t least = max_u32(p->tail_pages, p->tail_gaps ? 1 : 2);
    return !p->n_tails ? 0 : least < CACHED_SHARE ? least : CACHED_SHARE;
}

static uint32_t cache_tails(const struct sl_memory_plan *p) {
    return (uint32_t)((uint64_t)p->cache_pages * cached_with_tail(p) / CACHED_SHARE);
}

static uint64_t cache_page_bytes(const struct sl_memory_plan *p) {
    uint64_t own = p->page_bytes + sl_prefix_tree_bytes(1);
    uint64_t tail = p->tail_page_bytes + sl_tail_pages_bytes(1, 1);
    return own + (tail * cached_with_tail(p) + CACHED_SHARE - 1) / CACHED_SHARE;
}

static enum sl_status plan_kv(const struct sl_model *slice, const struct sl_model *whole,
                              struct sl_memory_plan *p, struct sl_err *err) {
    const struct sl_engine_config *c = &p->config;
    const struct sl_dtype_info *t = sl_dtype_info(c->kv_dtype);
    if (c->kv_dtype != SL_DTYPE_F16 && c->kv_dtype != SL_DTYPE_Q8_0)
        return sl_fail(err, SL_ERR_CONFIG, "KV type %s: must be f16 or q8_0",
                       sl_dtype_name(c->kv_dtype));
    for (uint32_t l = 0; l < slice->hp.n_layer; l++) {
        struct sl_seq_store stores[SL_SEQ_STORES];
        uint32_t n = sl_seq_stores(&slice->layers[l].spec,
                                   &(struct sl_seq_config){.kv_dtype = c->kv_dtype}, stores);
        for (uint32_t i = 0; i < n; i++) {
            const uint32_t *elems = stores[i].kv_elems;
            if (elems[0] % t->block_elems || elems[1] % t->block_elems)
                return sl_fail(
                    err, SL_ERR_CONFIG,
                    "KV type %s needs rows of whole blocks of %u elements, the %s of this "
                    "model have %u and %u: use KV type f16",
                    t->name, t->block_elems, stores[i].name, elems[0], elems[1]);
        }
    }
    p->session_pages = (c->ctx_tokens + SL_KV_PAGE_TOKENS - 1) / SL_KV_PAGE_TOKENS;
    plan_tails(whole, p);
    uint64_t n_pages = (uint64_t)p->session_pages * c->parallel;
    uint64_t room = n_pages * SL_KV_PAGE_TOKENS < UINT32_MAX
                        ? (UINT32_MAX - 1) / SL_KV_PAGE_TOKENS - n_pages
                        : 0;
    uint64_t given = c->cache_ram_bytes == SL_CACHE_RAM_AUTO ? 0 : c->cache_ram_bytes;
    uint64_t cached = p->pages_discrete ? 0 : given / cache_page_bytes(p);
    uint64_t copy_bytes = sl_plan_copy_bytes(p);
    p->cache_pages = (uint32_t)(cached < room ? cached : room);
    p->n_tails += cache_tails(p);
    p->ram_pages = p->pages_discrete ? sl_prefix_ram_slots(given, copy_bytes) : 0;
    p->prefix_ram_bytes = p->stage ? 0 : sl_prefix_ram_bytes(p->ram_pages, copy_bytes);
    n_pages += p->cache_pages;
    if (n_pages * SL_KV_PAGE_TOKENS >= UINT32_MAX)
        return sl_fail(
            err, SL_ERR_CONFIG,
            "%u sessions of %u tokens are more positions than can be numbered: lower one "
            "of them",
            c->parallel, c->ctx_tokens);
    p->n_pages = (uint32_t)n_pages;
    struct sl_kv_size size = sl_kv_size_of(p);
    p->kv_bytes = sl_kv_bytes(slice, &size);
    return SL_OK;
}

/* Bytes of the weights that are resident from the start. */
static enum sl_status plan_weights(const struct subject *s, bool experts, struct sl_memory_plan *p,
                                   struct sl_err *err) {
    const struct sl_weights_part part = {experts, p->streamed_tables};
    struct sl_weights_layout layout;
    SL_TRY(sl_weights_layout_make(s->model, part, s->dev, &layout, err));
    p->weight_bytes = layout.total_bytes;
    sl_weights_layout_release(&layout);
    return SL_OK;
}

/* What a block of this size takes more when it is backed by huge pages; small ones are not. */
static uint64_t huge_tail(uint64_t bytes) {
    uint64_t over = bytes % SL_HUGE_PAGE_BYTES;
    return bytes < SL_HUGE_PAGE_BYTES || !over ? 0 : SL_HUGE_PAGE_BYTES - over;
}

/* Of links: at a worker the link's and the listener's; else each link's and its keeper's, and those
 * of the stages at the other ends. */
static uint64_t n_link_threads(const struct sl_memory_plan *p) {
    const struct sl_remote_stages *r = p->stage ? NULL : p->config.remote;
    return p->remote ? 2 : r ? 2 * r->n_hosts + r->n : 0;
}

/* Of several stages each has a thread. */
static uint64_t n_stacks(const struct sl_memory_plan *p) {
    uint64_t stage = p->n_stages > 1 ? 1 : 0;
    uint64_t own = (uint64_t)p->n_threads + OWN_THREADS + n_link_threads(p);
    return !p->first_on_host ? stage : own + stage;
}

/* Messages to and from a stage are bounded as if it had all layers, so that both ends count alike.
 */
#define RECEIVED_MESSAGES 3u /* at each end, besides those that wait to be sent */

static struct sl_message_limits message_limits(const struct sl_hparams *whole,
                                               const struct sl_memory_plan *p) {
    const struct sl_stage_hello all = {.n_row = sl_row_elems(whole),
                                       .n_embd = whole->n_embd,
                                       .n_vocab = whole->n_vocab,
                                       .n_routed = whole->n_layer,
                                       .n_expert = whole->n_expert,
                                       .page_bytes = p->page_bytes,
                                       .tail_bytes = p->tail_page_bytes,
                                       .heat_bytes = sl_joint_heat_bytes(whole)};
    return sl_message_limits(p, &all);
}

static uint64_t queue_bytes(const struct sl_message_limits *l) {
    return (sl_message_max_queued(l) + RECEIVED_MESSAGES) * sl_message_max_bytes(l);
}

/* The end that asks, of each stage of another machine. */
static uint64_t asking_bytes(const struct sl_hparams *whole, const struct sl_memory_plan *p) {
    const struct sl_message_limits limits = message_limits(whole, p);
    return p->config.remote->n * sl_stage_remote_bytes(&limits);
}

/* The end that does the work. */
static uint64_t answering_bytes(const struct sl_hparams *whole, const struct sl_memory_plan *p) {
    const struct sl_message_limits limits = message_limits(whole, p);
    uint64_t rows = (uint64_t)limits.n_micro_batches * limits.max_rows * limits.n_row * 4;
    /* Where a device reads them they are pinned, and counted with that. */
    return sl_stage_server_bytes(&limits) - (p->reads_back ? rows : 0);
}

static uint64_t link_bytes(const struct sl_hparams *whole, const struct sl_memory_plan *p) {
    const struct sl_message_limits limits = message_limits(whole, p);
    uint64_t n = p->remote ? 1 : !p->stage && p->config.remote ? p->config.remote->n : 0;
    return n * queue_bytes(&limits) + (p->first_on_host ? p->config.link_bytes : 0);
}

/* What the scheduler's process has once, however many devices compute. */
static void plan_scheduler(const struct sl_hparams *whole, struct sl_memory_plan *p) {
    const struct sl_engine_config *c = &p->config;
    p->prefix_disk_bytes = c->cache_dir ? sl_prefix_disk_memory_bytes(p) : 0;
    p->host_bytes += sl_sampler_space_bytes(whole->n_vocab) + sl_prefix_tree_bytes(p->n_pages) +
                     sl_tail_pages_bytes(p->n_tails, p->n_pages) + p->prefix_disk_bytes +
                     p->prefix_ram_bytes + sl_expert_map_bytes(whole->n_layer, whole->n_expert) +
                     sl_micro_batches_bytes(p);
    if (c->remote)
        p->host_bytes += asking_bytes(whole, p);
    if (p->n_stages > 1 && c->heat_file)
        p->host_bytes += sl_joint_heat_bytes(whole);
    if (c->trace_file)
        p->host_bytes += SL_TIMELINE_MEMORY_BYTES;
    p->session_bytes = ((uint64_t)c->parallel + c->queue_max) *
                       (sizeof(struct sl_session) + 32 + (uint64_t)c->ctx_tokens * 4);
}

/* Everything but the slots, for the weights that are resident. */
static void plan_fixed(const struct subject *s, struct sl_memory_plan *p) {
    const struct sl_hparams *hp = &s->model->hp;
    const struct sl_device *dev = s->dev;
    p->table_bytes = p->table_rows = 0;
    if (p->streamed_tables) { /* two blocks of whole huge pages, the rows that land being registered
                               */
        p->table_bytes =
            sl_table_store_bytes(s->model, p->streamed_tables, p->table_cache_bytes, &p->config) *
                (SL_REGISTERED_SHARE + 1) / SL_REGISTERED_SHARE +
            2 * SL_HUGE_PAGE_BYTES;
        p->table_rows =
            sl_table_store_cached(s->model, p->streamed_tables, p->table_cache_bytes, &p->config);
    }
    p->activation_bytes = sl_forward_activation_bytes(s->model, p);
    p->scratch_bytes = dev ? sl_device_scratch_bytes(dev, &p->limits) + dev->caps.held_bytes : 0;
    p->host_bytes = sl_forward_host_bytes(s->model, p) + p->lane_bytes;
    p->pinned_bytes = p->reads_back ? sl_forward_pinned_bytes(hp, p) : 0;
    if (p->remote)
        p->host_bytes += answering_bytes(&s->whole->hp, p);
    p->link_bytes = link_bytes(&s->whole->hp, p);
    if (!p->stage)
        plan_scheduler(&s->whole->hp, p);
    bool cuts = s->whole->hp.n_embd_layer && p->n_stages > 1;
    p->load_bytes = !p->first_on_host  ? 0
                    : p->loads_by_copy ? SL_WEIGHTS_LOAD_BYTES
                    : cuts             ? SL_WEIGHTS_CUT_BYTES
                                       : 0;
    p->process_bytes = p->first_on_host ? p->config.process_bytes : 0;
    uint64_t n_threads = n_stacks(p);
    p->thread_bytes = n_threads * STACK_BYTES;
    p->slack_bytes = p->first_on_host ? SLACK_BYTES : 0;
    if (!p->discrete)
        p->slack_bytes += huge_tail(p->weight_bytes) + huge_tail(p->kv_bytes) +
                          huge_tail(p->activation_bytes) + huge_tail(p->scratch_bytes);
    p->kernel_bytes = 0;
    uint64_t mapped = sl_plan_fixed_bytes(p);
    p->kernel_bytes = n_threads * KERNEL_THREAD_BYTES + mapped / PAGE_TABLE_SHARE;
}

static bool fits_host(const struct sl_memory_plan *p) {
    return sl_plan_fixed_bytes(p) <= p->budget_bytes && p->pinned_bytes <= p->pinned_budget_bytes;
}

/* Why the host's CPU cannot compute experts alongside this device; NULL: it can. */
static const char *why_no_lane(const struct subject *s, const struct sl_memory_plan *p) {
    if (!p->discrete)
        return "the device computes in host memory";
    if (p->remote)
        return "the device is another machine's";
    if (!s->dev->caps.moe_as_host)
        return "experts have other bits on the device";
    const char *why = NULL;
    for (uint32_t i = 0; i < s->model->hp.n_layer; i++) {
        if (!sl_model_layer_is_moe(s->model, i))
            continue;
        const char *refused = sl_lane_refuses(&s->model->layers[i]);
        if (!refused)
            return NULL; /* the others are the device's alone */
        why = refused;
    }
    return why;
}

/* Each of several devices of this machine has one of its own, with a part of the CPUs. */
static void plan_lane(const struct subject *s, struct sl_memory_plan *p) {
    const struct sl_engine_config *c = &p->config;
    p->lane_why_not = c->lane == SL_LANE_OFF ? NULL : why_no_lane(s, p);
    if (c->lane == SL_LANE_OFF || p->lane_why_not)
        return;
    uint32_t n = c->lane_threads ? c->lane_threads : p->n_threads;
    p->lane_threads = n > p->n_stages ? n / p->n_stages : 1;
    p->lane_rows = c->batch_tokens < SL_LANE_ROWS ? c->batch_tokens : SL_LANE_ROWS;
    struct sl_device_limits limits = sl_lane_limits(&p->limits, s->model->hp.n_expert_used);
    p->lane_bytes = sl_lane_bytes(&limits, p->lane_threads) + sl_forward_lane_bytes(s->model);
}

/* The plan with the experts in slots. */
static enum sl_status plan_streaming(const struct subject *s, const struct sl_expert_layout *l,
                                     struct sl_memory_plan *p, struct sl_err *err) {
    p->streaming = true;
    plan_lane(s, p);
    if (p->config.lane == SL_LANE_ON && !p->lane_rows)
        return sl_fail(err, SL_ERR_CONFIG,
                       "the CPU cannot compute experts alongside %s: %s (--cpu-lane auto or off)",
                       s->dev ? s->dev->caps.name : "this device", p->lane_why_not);
    enum sl_status status = plan_weights(s, false, p, err);
    plan_fixed(s, p);
    return status == SL_OK ? sl_plan_slots(l, p, err) : status;
}

static enum sl_status refuse_resident(const struct sl_memory_plan *p, bool routed,
                                      struct sl_err *err) {
    uint64_t weights = p->discrete ? 0 : p->weight_bytes, kv = p->discrete ? 0 : p->kv_bytes;
    if (!sl_plan_fits_device(p))
        return sl_fail(err, SL_ERR_CONFIG,
                       "a budget of %.1f MiB of the device's memory is too small for the whole "
                       "model: at least %.0f MiB are needed (weights %.1f, KV cache %.1f, "
                       "activations %.1f, scratch %.1f): --vram %.0fMiB%s",
                       (double)p->vram_budget_bytes / 0x1p20, (double)p->vram_least_bytes / 0x1p20,
                       (double)p->weight_bytes / 0x1p20, (double)p->kv_bytes / 0x1p20,
                       (double)p->activation_bytes / 0x1p20, (double)p->scratch_bytes / 0x1p20,
                       (double)p->vram_least_bytes / 0x1p20,
                       !routed                 ? ""
                       : p->config.no_overflow ? "; its experts could be kept in the host's memory "
                                                 "too, but for --overflow off"
                                               : "; its experts could be streamed");
    if (p->pinned_bytes > p->pinned_budget_bytes)
        return sl_plan_refuse_pinned(p, p->pinned_bytes, err);
    return sl_fail(err, SL_ERR_CONFIG,
                   "a budget of %.1f MiB is too small for the whole model: at least %.0f MiB are "
                   "needed (weights %.1f, KV cache %.1f, the process %.1f, the rest %.1f): --ram "
                   "%.0fMiB%s",
                   (double)p->budget_bytes / 0x1p20, (double)p->least_bytes / 0x1p20,
                   (double)weights / 0x1p20, (double)kv / 0x1p20, (double)p->process_bytes / 0x1p20,
                   (double)(p->least_bytes - weights - kv - p->process_bytes) / 0x1p20,
                   (double)p->least_bytes / 0x1p20,
                   routed ? "; its experts could be streamed" : "");
}

/* Which of two plans that do not fit needs less: of the device's memory, where it is discrete. */
static bool needs_less(const struct sl_memory_plan *a, const struct sl_memory_plan *b) {
    return a->discrete ? a->vram_least_bytes < b->vram_least_bytes
                       : a->least_bytes < b->least_bytes;
}

/* Decides where the experts are. The least that would do is that of the way that needs less, where
 * both are allowed. */
static enum sl_status plan_experts(const struct subject *s, struct sl_memory_plan *p,
                                   struct sl_err *err) {
    struct sl_expert_layout l;
    struct sl_err why;
    enum sl_status status = plan_weights(s, true, p, &why);
    bool whole =
        status == SL_OK; /* else an expert tensor may be more than the device allocates at once */
    if (!whole && status != SL_ERR_UNSUPPORTED) {
        *err = why;
        return status;
    }
    plan_fixed(s, p);
    p->needed_bytes = sl_plan_fixed_bytes(p);
    p->least_bytes = sl_plan_name_least(p->needed_bytes);
    p->vram_least_bytes = p->discrete ? sl_plan_name_least(sl_plan_fixed_device_bytes(p)) : 0;
    p->pinned_least_bytes = p->pinned_bytes;
    bool fits = whole && fits_host(p) && sl_plan_fits_device(p);
    status = sl_expert_layout_make(s->model, &l, err);
    if (status != SL_OK)
        return status;
    p->n_class = l.n_class;
    p->n_experts = l.n_all;
    p->expert_bytes = l.total_bytes;
    enum sl_experts_where where = l.n_layer ? p->config.experts : SL_EXPERTS_RESIDENT;
    if (p->discrete && p->config.no_overflow && where == SL_EXPERTS_AUTO)
        where = SL_EXPERTS_RESIDENT;
    if (!whole && where == SL_EXPERTS_RESIDENT) {
        sl_expert_layout_release(&l);
        *err = why;
        return SL_ERR_UNSUPPORTED;
    }
    struct sl_memory_plan streamed = *p;
    if (where != SL_EXPERTS_RESIDENT)
        status = plan_streaming(s, &l, &streamed, err);
    bool less = where != SL_EXPERTS_RESIDENT && (!whole || needs_less(&streamed, p));
    if (where == SL_EXPERTS_STREAMED || (where == SL_EXPERTS_AUTO && !fits && less)) {
        *p = streamed;
        if (status == SL_OK && p->discrete && p->config.no_overflow &&
            p->n_device_slots < p->n_experts)
            status =
                sl_fail(err, SL_ERR_CONFIG,
                        "the device has room for %u of %u experts, and --overflow off keeps none "
                        "in the host's memory",
                        p->n_device_slots, p->n_experts);
    } else if (!fits) {
        status = refuse_resident(p, l.n_layer && where == SL_EXPERTS_RESIDENT, err);
    } else {
        status = SL_OK;
        if (less) {
            p->needed_bytes = streamed.needed_bytes;
            p->least_bytes = streamed.least_bytes;
            p->vram_least_bytes = streamed.vram_least_bytes;
        }
    }
    sl_expert_layout_release(&l);
    return status;
}

/* The plan with these tables streamed. The least that would do is that of no cache. */
static enum sl_status plan_streamed_tables(const struct subject *s, uint32_t tables,
                                           struct sl_memory_plan *p, struct sl_err *err) {
    struct sl_memory_plan least = *p;
    p->streamed_tables = least.streamed_tables = tables;
    p->streamed_table_bytes = least.streamed_table_bytes = sl_tables_bytes(s->model, tables);
    p->table_cache_bytes = least.table_cache_bytes = p->config.table_cache_bytes;
    if (p->config.table_cache_bytes)
        return plan_experts(s, p, err);
    enum sl_status status = plan_experts(s, &least, err);
    if (status == SL_OK) {
        uint64_t needed = least.streaming ? least.least_bytes : sl_plan_fixed_bytes(&least);
        uint64_t left = least.budget_bytes > needed ? least.budget_bytes - needed : 0;
        uint64_t most = p->streamed_table_bytes < TABLE_CACHE_BYTES ? p->streamed_table_bytes
                                                                    : TABLE_CACHE_BYTES;
        p->table_cache_bytes = left / TABLE_CACHE_SHARE < most ? left / TABLE_CACHE_SHARE : most;
        status = plan_experts(s, p, err);
    } else {
        *p = least;
    }
    p->needed_bytes = least.needed_bytes;
    p->least_bytes = least.least_bytes;
    p->vram_least_bytes = least.vram_least_bytes;
    return status;
}

/* Decides where tables are: resident where all else is, too. Where experts are streamed, what the
 * tables would take is worth more to them: of a table a step reads some KiB for each row, of
 * experts many MiB. */
static enum sl_status plan_tables(const struct subject *s, struct sl_memory_plan *p,
                                  struct sl_err *err) {
    uint32_t possible = sl_tables_possible(s->model), large = sl_tables_large(s->model);
    enum sl_tables_where where = p->config.tables;
    p->streamed_tables = 0;
    p->table_cache_bytes = p->streamed_table_bytes = 0;
    p->large_table_bytes = sl_tables_bytes(s->model, large);
    if (where == SL_TABLES_STREAMED && possible) {
        p->tables_why = "--tables streamed";
        return plan_streamed_tables(s, possible, p, err);
    }
    p->tables_why = !large ? NULL : "--tables resident";
    if (where != SL_TABLES_AUTO || !large)
        return plan_experts(s, p, err);
    struct sl_memory_plan resident = *p, streamed = *p;
    struct sl_err why, streamed_why;
    enum sl_status status = plan_experts(s, &resident, &why);
    enum sl_status streamed_status = plan_streamed_tables(s, large, &streamed, &streamed_why);
    resident.tables_why = "all fits with them";
    streamed.tables_why =
        status == SL_OK ? "experts get their memory" : "they do not fit beside the rest";
    bool less = needs_less(&streamed, &resident);
    bool stay = status == SL_OK ? !resident.streaming || streamed_status != SL_OK
                                : streamed_status != SL_OK && !less;
    *p = stay ? resident : streamed;
    if ((stay ? status : streamed_status) != SL_OK && err)
        *err = stay ? why : streamed_why;
    if (stay && less && streamed_status == SL_OK) {
        p->needed_bytes = streamed.needed_bytes;
        p->least_bytes = streamed.least_bytes;
        p->vram_least_bytes = streamed.vram_least_bytes;
    }
    return stay ? status : streamed_status;
}

/* Pages kept for prefixes that later requests may share, out of what the plan leaves: at most as
 * many as the sessions have. None where experts are streamed: their slots take all that is left,
 * and save more with it. */
static uint64_t spare_for_cache(const struct sl_memory_plan *p) {
    uint64_t needed = sl_plan_fixed_bytes(p);
    if (p->streaming || p->budget_bytes <= needed)
        return 0;
    uint64_t share = (p->budget_bytes - needed) / CACHE_SHARE;
    return share < p->kv_bytes ? share : p->kv_bytes;
}

static enum sl_status plan_all(const struct subject *s, struct sl_memory_plan *p,
                               struct sl_err *err) {
    enum sl_status status = plan_kv(s->model, s->whole, p, err);
    if (status == SL_OK)
        status = plan_tables(s, p, err);
    if (status != SL_OK || p->config.cache_ram_bytes != SL_CACHE_RAM_AUTO)
        return status;
    uint64_t least = p->least_bytes, needed = p->needed_bytes; /* one could do without */
    p->config.cache_ram_bytes = spare_for_cache(p);
    if (!p->config.cache_ram_bytes)
        return SL_OK;
    status = plan_all(s, p, err);
    p->least_bytes = least;
    p->needed_bytes = needed;
    return status;
}

enum sl_status sl_plan_refuse_cache(uint64_t cache_bytes, uint64_t budget_bytes,
                                    uint64_t least_bytes, uint64_t least_without_bytes,
                                    struct sl_err *err) {
    return sl_fail(err, SL_ERR_CONFIG,
                   "a budget of %.1f MiB leaves at most %.1f MiB for --cache-ram, not %.1f: lower "
                   "that, or give --ram %.0fMiB",
                   (double)budget_bytes / 0x1p20,
                   (double)(budget_bytes - least_without_bytes) / 0x1p20,
                   (double)cache_bytes / 0x1p20, (double)least_bytes / 0x1p20);
}

/* A plan begun like this one failed: would it do without the pages that were asked for? */
static enum sl_status blame_cache(const struct subject *s, struct sl_memory_plan *p,
                                  uint64_t least_bytes, struct sl_err *err) {
    struct sl_err other;
    uint64_t asked = p->config.cache_ram_bytes;
    p->config.cache_ram_bytes = 0;
    if (!asked || asked == SL_CACHE_RAM_AUTO || plan_all(s, p, &other) != SL_OK ||
        p->least_bytes > p->budget_bytes)
        return SL_ERR_CONFIG;
    return sl_plan_refuse_cache(asked, p->budget_bytes, least_bytes, p->least_bytes, err);
}

/* Of a slice: which of its weights are no layer's. */
static const char *which_weights(const struct sl_model *m) {
    static const char *const name[] = {"its layers", "its layers, embedding", "its layers, output",
                                       "its layers, embedding, output",
                                       "every layer, embedding, output"};
    bool input = sl_model_has_input(m), output = sl_model_has_output(m);
    return name[input && output ? 4 : (input || sl_model_layer_tokens(m)) + 2 * output];
}

static void add_stage_rows(struct sl_memory_plan *p, const struct sl_model *m,
                           const struct sl_device *dev) {
    const struct sl_engine_config *c = &p->config;
    enum sl_memory_kind there = p->discrete ? SL_MEMORY_DEVICE : SL_MEMORY_HOST;
    uint64_t resident_experts = p->streaming ? 0 : p->expert_bytes;
    double experts = p->n_experts ? p->n_experts : 1;
    uint64_t resident_tables = sl_tables_bytes(m, sl_tables_large(m) & ~p->streamed_tables);
    add_row(p, "dense weights", there, p->weight_bytes - resident_experts - resident_tables, "%s",
            which_weights(m));
    add_row(p, "tables", there, resident_tables, "resident: %s", p->tables_why);
    add_row(p, "streamed tables", SL_MEMORY_HOST, p->table_bytes,
            "%u rows kept, of %.0f MiB on disk: %s", p->table_rows,
            (double)p->streamed_table_bytes / 0x1p20, p->tables_why);
    add_row(p, "routed experts", there, resident_experts, "%u, all resident", p->n_experts);
    add_row(p, "device slots", there, p->device_slot_bytes, "%u for %u experts, %.0f %%",
            p->n_device_slots, p->n_experts, 100.0 * p->n_device_slots / experts);
    add_row(p, "expert slots", p->reads_back ? SL_MEMORY_PINNED : SL_MEMORY_HOST, p->slot_bytes,
            "%u for %u experts, %.0f %%", p->n_slots, p->n_experts, 100.0 * p->n_slots / experts);
    add_row(p, "slot tables", SL_MEMORY_HOST, p->stream_bytes, "expert cache and the disk's queue");
    struct sl_kv_size size = sl_kv_size_of(p), cache = size;
    cache.n_pages = p->cache_pages;
    cache.n_tails = cache_tails(p);
    cache.n_seq = 0;
    uint64_t kept = sl_kv_bytes(m, &cache);
    char tails[32] = "";
    if (p->n_tails)
        snprintf(tails, sizeof tails, ", %u of tails", size.n_tails - cache.n_tails);
    add_row(p, "KV cache", there, p->kv_bytes - kept,
            "%s, %u sessions of %u tokens, %u pages of %u%s", sl_dtype_name(c->kv_dtype),
            c->parallel, c->ctx_tokens, p->n_pages - p->cache_pages, SL_KV_PAGE_TOKENS, tails);
    add_row(p, "prefix cache", there, kept, "%u more pages, for repeated prompts", p->cache_pages);
    add_row(p, "activations", there, p->activation_bytes, "%u rows a step, %u rows of logits",
            c->batch_tokens, p->n_logit_rows);
    add_row(p, "kernel scratch", there, p->scratch_bytes, "%s", dev ? dev->caps.name : "");
    add_row(p, "read back", SL_MEMORY_PINNED, p->pinned_bytes, "logits and chosen experts%s%s",
            p->lane_rows ? ", the CPU lane's rows" : "",
            p->remote ? ", rows of the stage before" : "");
    for (uint32_t i = 0; i < p->n_rows && p->n_stages > 1; i++)
        p->rows[i].stage = p->stage + 1;
}

static void add_process_rows(struct sl_memory_plan *p) {
    const struct sl_engine_config *c = &p->config;
    add_row(p, "loading", SL_MEMORY_HOST, p->load_bytes, "weights on their way to the device");
    add_row(p, "prefix copies", SL_MEMORY_HOST, p->prefix_ram_bytes,
            "%u pages that the device gave up", p->ram_pages);
    add_row(p, "prefix files", SL_MEMORY_HOST, p->prefix_disk_bytes,
            "list and buffers for %.1f MiB on disk", (double)c->cache_disk_bytes / 0x1p20);
    add_row(p, "host tables", SL_MEMORY_HOST,
            p->host_bytes - p->prefix_disk_bytes - p->prefix_ram_bytes - p->lane_bytes,
            "step arrays, the sampler, the trace");
    add_row(p, "links", SL_MEMORY_HOST, p->link_bytes,
            "to other machines, and messages on the way");
    add_row(p, "CPU lane", SL_MEMORY_HOST, p->lane_bytes, "%u thread%s that compute experts too",
            p->lane_threads, p->lane_threads == 1 ? "" : "s");
    add_row(p, "sessions", SL_MEMORY_HOST, p->session_bytes,
            "tokens of %u running and %u waiting requests", c->parallel, c->queue_max);
    uint64_t named = 0;
    for (uint32_t i = 0; i < c->n_process_rows && !p->stage; i++) {
        add_row(p, c->process_rows[i].what, SL_MEMORY_HOST, c->process_rows[i].bytes, "%s",
                c->process_rows[i].detail);
        named += c->process_rows[i].bytes;
    }
    if (!p->stage)
        add_row(p, "driver", SL_MEMORY_HOST, c->driver_bytes, "what opening %s took",
                p->n_stages > 1 ? "the devices" : "the device");
    named += c->driver_bytes;
    if (p->process_bytes > named)
        add_row(p, "process", SL_MEMORY_HOST, p->process_bytes - named, "what the caller holds");
    add_row(p, "threads", SL_MEMORY_HOST, p->thread_bytes, "stacks of %u", (uint32_t)n_stacks(p));
    add_row(p, "kernel", SL_MEMORY_HOST, p->kernel_bytes,
            "page tables, threads, registered "
            "buffers");
    add_row(p, "slack", SL_MEMORY_HOST, p->slack_bytes, "whole huge pages, the allocator's gaps");
}

enum sl_status sl_memory_plan_make(const struct sl_model *model,
                                   const struct sl_engine_config *config,
                                   const struct sl_device *dev, struct sl_memory_plan *out_plan,
                                   struct sl_err *err) {
    const struct sl_plan_place whole = {.whole = model, .n_stages = 1, .first_on_host = true};
    return sl_memory_plan_make_stage(model, &whole, config, dev, out_plan, err);
}

static void describe_stage(const struct sl_hparams *hp, const struct sl_device *dev,
                           struct sl_memory_plan *p) {
    struct sl_plan_stage *s = &p->stages[p->stage];
    *s = (struct sl_plan_stage){.first_layer = hp->first_layer,
                                .n_layer = hp->n_layer,
                                .streaming = p->streaming,
                                .lane = p->lane_rows != 0,
                                .n_device_slots = p->n_device_slots,
                                .n_slots = p->n_slots,
                                .n_experts = p->n_experts,
                                .vram_total_bytes = p->vram_total_bytes,
                                .vram_budget_bytes = p->vram_budget_bytes,
                                .vram_least_bytes = p->vram_least_bytes,
                                .ram_bytes = p->total_bytes};
    s->discrete = p->discrete;
    s->host = p->host;
    memcpy(s->class_slots, p->class_slots, sizeof s->class_slots);
    memcpy(s->device_class_slots, p->device_class_slots, sizeof s->device_class_slots);
    if (dev) {
        memcpy(s->device, dev->caps.name, sizeof s->device);
        memcpy(s->id, dev->caps.id, sizeof s->id);
        memcpy(s->model, dev->caps.model, sizeof s->model);
    }
}

enum sl_status sl_memory_plan_make_stage(const struct sl_model *slice,
                                         const struct sl_plan_place *place,
                                         const struct sl_engine_config *config,
                                         const struct sl_device *dev,
                                         struct sl_memory_plan *out_plan, struct sl_err *err) {
    const struct sl_hparams *hp = &slice->hp;
    struct sl_memory_plan p = {.config = *config,
                               .stage = place->stage,
                               .n_stages = place->n_stages,
                               .host = place->host,
                               .first_on_host = place->first_on_host,
                               .remote = place->remote,
                               .relays = place->relays};
    struct sl_engine_config *c = &p.config;
    p.n_threads = c->n_threads ? c->n_threads : sl_cpus_allowed();
    p.n_micro_batches = max_u32(place->n_stages, 1) + (place->remote || c->remote);
    if (p.n_micro_batches > SL_MAX_STAGES)
        p.n_micro_batches = SL_MAX_STAGES; /* all that is kept of each has so many */
    SL_TRY(resolve_config(hp, c, err));
    if (dev)
        SL_TRY(sl_layers_check(slice, c->kv_dtype, dev, err));

    /* Generation asks for one row's logits per session, and for those of its drafts. */
    if (sl_model_has_output(slice)) {
        uint32_t most = max_u32(c->parallel * (1 + c->draft_tokens), SL_SCORE_ROWS);
        p.n_logit_rows = most < c->batch_tokens ? most : c->batch_tokens;
    }
    p.n_before = hp->ngram.n_head ? SL_STEP_BEFORE : 0;
    struct sl_layer_needs needs = sl_layer_needs(slice);
    p.limits = (struct sl_device_limits){
        .max_tok = c->batch_tokens,
        .max_n_in = needs.n_in,
        .max_pairs = c->batch_tokens * hp->n_expert_used,
        .max_n_embd = hp->n_embd,
        .max_n_ff = needs.n_ff_expert,
        .max_expert = hp->n_expert,
        .max_heads = needs.heads,
        .max_head_dim = needs.head_dim,
        .max_head_n = needs.head_n,
        .max_scores = needs.chosen ? (c->ctx_tokens + SL_KV_PAGE_TOKENS - 1) / SL_KV_PAGE_TOKENS *
                                         SL_KV_PAGE_TOKENS
                                   : 0,
    };
    p.reads_back = dev && !dev->caps.host_visible;
    p.discrete = dev && sl_device_is_discrete(dev);
    p.pages_discrete = p.discrete || place->any_discrete;
    p.loads_by_copy = p.reads_back || place->any_reads_back;
    uint64_t memory = dev ? dev->caps.memory_bytes : 0;
    p.budget_bytes = c->ram_bytes ? c->ram_bytes : memory && !p.discrete ? memory : UINT64_MAX;
    p.vram_budget_bytes = !p.discrete     ? 0
                          : c->vram_bytes ? c->vram_bytes
                          : memory        ? memory
                                          : UINT64_MAX;
    p.pinned_budget_bytes = c->pinned_bytes ? c->pinned_bytes : UINT64_MAX;
    const struct subject subject = {slice, place->whole, dev};
    struct sl_memory_plan begun = p;
    enum sl_status status = plan_all(&subject, &p, err);
    if (status == SL_ERR_CONFIG && place->n_stages == 1)
        status = blame_cache(&subject, &begun, p.least_bytes, err);
    if (status != SL_OK) {
        out_plan->least_bytes = p.least_bytes;
        out_plan->vram_least_bytes = p.vram_least_bytes;
        return status;
    }
    add_stage_rows(&p, slice, dev);
    add_process_rows(&p);
    for (uint32_t i = 0; i < p.n_rows; i++)
        p.rows[i].host = p.host;
    describe_stage(hp, dev, &p);
    c->process_rows = NULL; /* borrowed for this call */
    c->n_process_rows = 0;
    c->hosts = NULL; /* likewise */
    c->n_hosts = 0;
    *out_plan = p;
    return SL_OK;
}
