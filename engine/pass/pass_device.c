/* What the layer loop does for devices whose memory the host cannot follow: reading back logits and
 * what routers chose. On the CPU all of it lies where it is. */
#include "engine/pass/pass_internal.h"

#include "common/clock.h"
#include "common/cpus.h"
#include "common/log.h"
#include "common/metrics.h"
#include "engine/experts/expert_tiers.h"

#include <string.h>

/* ---- pinned memory ---- */

static uint64_t blocks_bytes(const struct sl_hparams *hp, const struct sl_memory_plan *p) {
    return (3 * sl_forward_blocks(hp, p->n_logit_rows) * sizeof(float) + 63) & ~(uint64_t)63;
}

/* Of one micro-batch: as on the device, what is known of blocks is right before the logits. */
static uint64_t logits_bytes(const struct sl_hparams *hp, const struct sl_memory_plan *p) {
    uint64_t bytes = (uint64_t)p->n_logit_rows * hp->n_vocab * sizeof(float);
    return blocks_bytes(hp, p) + ((bytes + 63) & ~(uint64_t)63);
}

/* What routers chose, and early routers. */
static uint64_t ids_bytes(const struct sl_hparams *hp, const struct sl_memory_plan *p) {
    uint64_t layer_rows = p->config.batch_tokens + SL_FETCH_PREDICTIONS * SL_FETCH_AHEAD_ROWS;
    uint64_t bytes = hp->n_layer * layer_rows * hp->n_expert_used * sizeof(uint32_t);
    return (bytes + 63) & ~(uint64_t)63;
}

/* What a slice without output sends, in case the next device cannot read this one's memory. */
static uint64_t sent_bytes(const struct sl_hparams *hp, const struct sl_memory_plan *p) {
    return p->n_logit_rows ? 0
                           : (uint64_t)p->n_micro_batches * p->config.batch_tokens *
                                 sl_row_elems(hp) * sizeof(float);
}

/* Rows that the CPU lane reads, and those that it computes. */
static uint64_t lane_x_bytes(const struct sl_hparams *hp, const struct sl_memory_plan *p) {
    return (uint64_t)p->lane_rows * hp->n_embd * sizeof(float);
}
static uint64_t lane_bytes(const struct sl_hparams *hp, const struct sl_memory_plan *p) {
    uint64_t bytes = lane_x_bytes(hp, p) * (1 + hp->n_expert_used);
    return (bytes + 63) & ~(uint64_t)63;
}

/* Sequence numbers that the slice before cannot send. */
static uint64_t released_bytes(const struct sl_memory_plan *p) {
    return p->stage ? (SL_MAX_STAGES * sizeof(uint32_t) + 63) & ~(uint64_t)63 : 0;
}

/* Rows that come from another process, a batch for each micro-batch. */
static uint64_t come_bytes(const struct sl_hparams *hp, const struct sl_memory_plan *p) {
    return p->remote ? (uint64_t)p->n_micro_batches * p->config.batch_tokens * sl_row_elems(hp) *
                           sizeof(float)
                     : 0;
}

uint64_t sl_forward_pinned_bytes(const struct sl_hparams *hp, const struct sl_memory_plan *p) {
    uint64_t bytes = p->n_micro_batches * logits_bytes(hp, p) + ids_bytes(hp, p) +
                     released_bytes(p) + lane_bytes(hp, p) + sent_bytes(hp, p) + come_bytes(hp, p);
    return (bytes + SL_IO_BLOCK_BYTES - 1) / SL_IO_BLOCK_BYTES * SL_IO_BLOCK_BYTES;
}

enum sl_status sl_forward_map_host(struct sl_forward *f, bool send_by_host, struct sl_err *err) {
    SL_TRY(sl_slab_init(&f->pinned, sl_forward_pinned_bytes(f->hp, f->plan), false, err));
    enum sl_status status =
        sl_device_map_host(f->dev, f->pinned.base, f->pinned.size_bytes, &f->mapped);
    if (status != SL_OK) {
        double mib = (double)f->pinned.size_bytes / 0x1p20;
        sl_slab_release(&f->pinned);
        return sl_fail(err, status, "%s cannot write to %.1f MiB of the host's memory: %s",
                       f->dev->caps.name, mib, sl_status_text(status));
    }
    char *ids = (char *)f->pinned.base + f->plan->n_micro_batches * logits_bytes(f->hp, f->plan);
    f->host_logits = (float *)(void *)f->pinned.base;
    f->host_ids = (uint32_t *)(void *)ids;
    f->host_prediction =
        f->host_ids + (size_t)f->hp->n_layer * f->plan->config.batch_tokens * f->hp->n_expert_used;
    char *released = ids + ids_bytes(f->hp, f->plan);
    if (f->plan->stage) {
        f->host_released = (_Atomic uint32_t *)(void *)released;
        f->released = sl_span_addr(sl_span_at_host(f->mapped, released, 0));
        for (uint32_t i = 0; i < SL_MAX_STAGES; i++)
            atomic_init(&f->host_released[i], 0);
    }
    char *lane = released + released_bytes(f->plan);
    if (f->plan->lane_rows) {
        f->host_x = (float *)(void *)lane;
        f->host_pair_y = (float *)(void *)(lane + lane_x_bytes(f->hp, f->plan));
    }
    char *sent = lane + lane_bytes(f->hp, f->plan);
    if (send_by_host && !f->plan->n_logit_rows)
        f->host_sent = (float *)(void *)sent;
    if (f->plan->remote)
        f->host_come = (float *)(void *)(sent + sent_bytes(f->hp, f->plan));
    return SL_OK;
}

void sl_forward_unmap_host(struct sl_forward *f) {
    if (!f->pinned.base)
        return;
    sl_device_unmap_host(f->dev, &f->mapped);
    sl_slab_release(&f->pinned);
}

/* No expert has this number: where it stands, the device has not written yet. */
#define UNWRITTEN UINT32_MAX
/* So long the host looks at memory that the device will write, before it asks for the device. Under
 * a sanitizer devices are emulated, and most write only when they are asked. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LOOK_NS 20000u
#else
#define LOOK_NS 1000000u
#endif
/* What an early router chose comes a few kernels behind what its layer's own did. */
#define PREDICTION_LOOK_NS 50000u
/* Looks between two looks at the clock. */
#define LOOKS 64u

/* A mailbox is complete when no word is UNWRITTEN any more: cheaper by a few microseconds
 * than a point, which the driver has to wait for. */
static bool uses_mailbox(const struct sl_forward *f, uint32_t n) {
    return f->dev->caps.mailbox && n * sizeof(uint32_t) <= SL_MAILBOX_MAX_BYTES;
}

static bool all_written(const uint32_t *words, uint32_t n) {
    while (n && __atomic_load_n(&words[n - 1], __ATOMIC_ACQUIRE) != UNWRITTEN)
        n--;
    return !n;
}

static bool look(const uint32_t *words, uint32_t n, uint64_t most_ns) {
    uint64_t start = sl_now_ns();
    do {
        for (uint32_t i = 0; i < LOOKS; i++) {
            if (all_written(words, n))
                return true;
            sl_cpu_relax();
        }
    } while (sl_now_ns() - start < most_ns);
    return false;
}

static enum sl_status wait_for_ops(struct sl_device *d) {
    sl_point point;
    enum sl_status status = sl_device_mark(d, SL_QUEUE_OPS, &point);
    return status == SL_OK ? sl_device_await(d, SL_QUEUE_OPS, point) : status;
}

/* ---- what routers chose ---- */

static size_t ids_at(const struct sl_forward *f, uint32_t layer) {
    return (size_t)layer * f->step.n_rows * f->hp->n_expert_used;
}

/* Words that a layer's router chooses for n rows. */
static uint32_t n_chosen(const struct sl_forward *f, uint32_t layer, uint32_t n) {
    return n * f->layers[layer].spec->experts.n_used;
}

/* Of all layers; the last one may have fewer rows. */
static size_t n_step_ids(const struct sl_forward *f) {
    if (!f->hp->n_layer)
        return 0;
    uint32_t last = sl_answer_layers(f->hp) - 1;
    uint32_t n_rows = sl_forward_cuts(f, last) ? f->step.n_out : f->step.n_rows;
    return ids_at(f, last) + (size_t)n_rows * f->hp->n_expert_used;
}

uint32_t *sl_forward_ids(const struct sl_forward *f, uint32_t layer) {
    return f->a.expert_ids + (f->plan->reads_back ? ids_at(f, layer) : 0);
}

void sl_forward_expect_ids(struct sl_forward *f, uint32_t layer, uint32_t n) {
    uint32_t n_ids = n_chosen(f, layer, n);
    if (uses_mailbox(f, n_ids))
        memset(f->host_ids + ids_at(f, layer), 0xff, n_ids * sizeof *f->host_ids);
}

enum sl_status sl_forward_send_ids(struct sl_forward *f, uint32_t layer, uint32_t n) {
    return sl_forward_copy_back(f, f->host_ids + ids_at(f, layer), sl_forward_ids(f, layer),
                                n_chosen(f, layer, n) * sizeof *f->host_ids);
}

enum sl_status sl_forward_await_ids(struct sl_forward *f, uint32_t layer, uint32_t n,
                                    const uint32_t **out_ids) {
    const uint32_t *ids = f->host_ids + ids_at(f, layer), n_ids = n_chosen(f, layer, n);
    *out_ids = ids;
    enum sl_status status =
        uses_mailbox(f, n_ids) && look(ids, n_ids, LOOK_NS) ? SL_OK : wait_for_ops(f->dev);
    for (uint32_t i = 0; i < n_ids && status == SL_OK; i++)
        if (ids[i] >= f->layers[layer].spec->experts.n_expert) {
            sl_error("%s: a router chose expert %u of %u", f->dev->caps.name, ids[i],
                     f->layers[layer].spec->experts.n_expert);
            status = SL_ERR_DEVICE_LOST;
        }
    return status;
}

uint32_t sl_forward_can_predict(const struct sl_forward *f, uint32_t layer, uint32_t most) {
    uint32_t n = 0;
    while (n < most && layer + sl_fetch_prediction_ahead[n] < sl_answer_layers(f->hp) &&
           f->layers[layer + sl_fetch_prediction_ahead[n]].routed_layer != SL_NO_ROUTED_LAYER)
        n++;
    return n;
}

uint32_t sl_forward_predicted_ids(const struct sl_forward *f, uint32_t layer, uint32_t n) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += f->layers[layer + sl_fetch_prediction_ahead[i]].spec->experts.n_used;
    return sum;
}

static uint32_t *prediction_at(const struct sl_forward *f, uint32_t layer) {
    return f->host_prediction +
           (size_t)layer * SL_FETCH_PREDICTIONS * SL_FETCH_AHEAD_ROWS * f->hp->n_expert_used;
}

/* Words that the early routers of a layer of n rows tell. */
static uint32_t prediction_words(const struct sl_forward *f, uint32_t layer, uint32_t n) {
    return n * sl_forward_predicted_ids(f, layer, sl_forward_can_predict(f, layer, f->prediction));
}

void sl_forward_expect_prediction(struct sl_forward *f, uint32_t layer, uint32_t n) {
    memset(prediction_at(f, layer), 0xff,
           prediction_words(f, layer, n) * sizeof *f->host_prediction);
}

enum sl_status sl_forward_send_prediction(struct sl_forward *f, uint32_t layer, uint32_t n) {
    return sl_forward_copy_back(f, prediction_at(f, layer), f->a.next_ids,
                                prediction_words(f, layer, n) * sizeof *f->host_prediction);
}

void sl_forward_follow_prediction(struct sl_forward *f, uint32_t layer, uint32_t n) {
    const uint32_t *ids = prediction_at(f, layer);
    uint32_t n_words = prediction_words(f, layer, n);
    if (f->predicted == layer || !n_words || !look(ids, n_words, PREDICTION_LOOK_NS))
        return;
    f->predicted = layer;
    for (uint32_t i = 0; i < sl_forward_can_predict(f, layer, f->prediction); i++) {
        uint32_t of = layer + sl_fetch_prediction_ahead[i], n_ids = n_chosen(f, of, n);
        for (uint32_t j = 0; j < n_ids; j++)
            if (ids[j] >= f->layers[of].spec->experts.n_expert)
                return; /* that layer's own choice tells that something is wrong */
        sl_fetch_predict(f->fetch, i, f->layers[of].routed_layer, ids, n_ids);
        ids += n_ids;
    }
}

enum sl_status sl_forward_read_ids(struct sl_forward *f, uint32_t layer, uint32_t n,
                                   const uint32_t **out_ids) {
    sl_forward_expect_ids(f, layer, n);
    enum sl_status status = sl_forward_send_ids(f, layer, n);
    return status == SL_OK ? sl_forward_await_ids(f, layer, n, out_ids) : status;
}

/* How many bytes of routed experts the layer reads: each touched expert once. */
void sl_forward_count_routes(struct sl_forward *f, uint32_t layer, uint32_t n_rows,
                             const uint32_t *of_step, const uint32_t *ids) {
    uint64_t seen[SL_MAX_EXPERTS / 64] = {0};
    uint32_t n = n_chosen(f, layer, n_rows), touched = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t e = ids[i];
        if (e >= f->layers[layer].spec->experts.n_expert)
            continue; /* a device that has gone wrong: counts must not make it worse */
        touched += !(seen[e / 64] >> (e % 64) & 1);
        seen[e / 64] |= (uint64_t)1 << (e % 64);
    }
    f->n_experts += touched;
    if (f->fetch && f->resident)
        sl_fetch_count_hits(f->fetch, touched);
    sl_count(expert_reads_total, touched);
    sl_count(expert_read_bytes_total, touched * f->layers[layer].expert_bytes);
    if (f->routes)
        sl_route_recorder_layer(f->routes, &f->step, f->hp->first_layer + layer, n_rows, of_step,
                                ids);
}

/* Of all layers at once, when nobody had to know them earlier. */
static void count_routes(struct sl_forward *f) {
    const struct sl_step *s = &f->step;
    for (uint32_t i = 0; i < sl_answer_layers(f->hp); i++) {
        if (f->layers[i].routed_layer == SL_NO_ROUTED_LAYER)
            continue;
        bool cut = sl_forward_cuts(f, i);
        sl_forward_count_routes(f, i, cut ? s->n_out : s->n_rows, cut ? s->out_rows : NULL,
                                f->host_ids + ids_at(f, i));
    }
}

/* ---- the beginning of a step ---- */

/* Writes the device's table of where experts are. */
static enum sl_status upload_refs(struct sl_forward *f, const struct sl_tiers *tiers) {
    struct sl_expert_ref refs[SL_MAX_EXPERTS];
    for (uint32_t i = 0; i < f->hp->n_layer; i++) {
        const struct sl_layer_weights *w = &f->layers[i];
        size_t bytes = w->spec->experts.n_expert * sizeof refs[0];
        if (w->routed_layer == SL_NO_ROUTED_LAYER)
            continue;
        if (tiers)
            sl_tiers_refs(tiers, w->routed_layer, refs);
        SL_TRY(sl_forward_upload(f, f->a.refs + (size_t)i * f->hp->n_expert,
                                 tiers ? refs : w->experts, bytes));
    }
    return SL_OK;
}

enum sl_status sl_forward_place(struct sl_forward *f) {
    const struct sl_tiers *tiers = f->fetch ? sl_fetch_tiers(f->fetch) : NULL;
    f->resident = !f->fetch || (tiers && sl_tiers_complete(tiers));
    if (!f->resident || !f->plan->reads_back)
        return SL_OK;
    uint32_t version = tiers ? sl_tiers_version(tiers) : 1;
    if (version == f->refs_version)
        return SL_OK;
    enum sl_status status = upload_refs(f, tiers);
    if (status == SL_OK)
        f->refs_version = version;
    return status;
}

bool sl_forward_wants_graph(const struct sl_forward *f) {
    return f->plan->reads_back && f->dev->caps.graphs && !f->no_graphs &&
           sl_forward_is_few(&f->step, SL_FORWARD_GRAPHS);
}

/* ---- the end of a step ---- */

/* The n rows and what is known of their blocks; or, of that, the maxima and where they are. */
static enum sl_status send_logits(struct sl_forward *f, const float *logits, uint32_t n,
                                  struct sl_logits *out) {
    size_t n_blocks = sl_forward_has_blocks(f) ? sl_forward_blocks(f->hp, n) : 0;
    char *micro_batch = (char *)f->host_logits + f->step.micro_batch * logits_bytes(f->hp, f->plan);
    float *rows = (float *)(void *)(micro_batch + blocks_bytes(f->hp, f->plan));
    bool largest = n_blocks && f->step.only_largest;
    size_t before = (largest ? 2 : 3) * n_blocks, behind = largest ? 0 : (size_t)n * f->hp->n_vocab;
    *out = (struct sl_logits){.rows = largest ? NULL : rows};
    if (n_blocks)
        out->blocks = (struct sl_vocab_blocks){.max = rows - n_blocks,
                                               .at = (uint32_t *)(rows - 2 * n_blocks),
                                               .sum = largest ? NULL : rows - 3 * n_blocks};
    return sl_forward_copy_back(f, rows - before, logits - before,
                                (before + behind) * sizeof(float));
}

enum sl_status sl_forward_read_back(struct sl_forward *f, bool routes, float *logits, uint32_t n,
                                    struct sl_logits *out_logits) {
    enum sl_status status = SL_OK;
    *out_logits = (struct sl_logits){.rows = logits};
    routes = routes && f->plan->reads_back && f->resident && f->hp->n_expert;
    if (routes && n_step_ids(f))
        status = sl_forward_copy_back(f, f->host_ids, f->a.expert_ids,
                                      n_step_ids(f) * sizeof *f->host_ids);
    if (status == SL_OK && f->plan->reads_back && logits)
        status = send_logits(f, logits, n, out_logits);
    if (status == SL_OK)
        status = wait_for_ops(f->dev);
    if (status == SL_OK && routes)
        count_routes(f);
    return status;
}

/* The room for logits has some for them too: of as many rows, and few models have more numbers in a
 * row than tokens. */
enum sl_status sl_forward_read_hidden(struct sl_forward *f, const float *h, uint32_t n,
                                      const float **out_rows) {
    size_t bytes = (size_t)n * f->hp->n_embd * sizeof *h, room = logits_bytes(f->hp, f->plan);
    enum sl_status status = SL_OK;
    *out_rows = h;
    if (f->plan->reads_back) {
        if (bytes > room)
            return SL_ERR_UNSUPPORTED;
        char *host = (char *)f->host_logits + f->step.micro_batch * room;
        status = sl_forward_copy_back(f, host, h, bytes);
        *out_rows = (const float *)(void *)host;
    }
    return status == SL_OK ? wait_for_ops(f->dev) : status;
}
