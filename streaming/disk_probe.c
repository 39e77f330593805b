#include "streaming/disk_probe.h"

#include "common/clock.h"
#include "common/rng.h"

#include <inttypes.h>
#include <stdlib.h>

#define EXTENTS   3u
#define AT_ONCE   32u /* experts asked for at once: more than the default queue holds */
#define MAX_ALONE 256u

struct probe {
    struct sl_reader *reader;
    struct sl_rng rng;
    struct sl_slot_layout layout;
    uint64_t total_bytes; /* of the files that are large enough */
    uint32_t extent_bytes;
    uint32_t n_flying;
    bool refill;
    enum sl_status status;
    struct sl_err *err;
    struct sl_read read[AT_ONCE];
};

/* 0: too small to be read from. */
static uint64_t usable_bytes(const struct probe *p, uint32_t file) {
    uint64_t bytes = sl_reader_file_bytes(p->reader, file);
    return bytes < 16u * (uint64_t)p->extent_bytes ? 0 : bytes;
}

static uint32_t pick_file(struct probe *p) {
    uint64_t at = sl_rng_u64(&p->rng) % p->total_bytes, bytes;
    uint32_t file = 0;
    while ((bytes = usable_bytes(p, file)) <= at) {
        at -= bytes;
        file++;
    }
    return file;
}

static void submit(struct probe *p, struct sl_read *d) {
    uint32_t file = pick_file(p);
    uint64_t places =
        (sl_reader_file_bytes(p->reader, file) - p->extent_bytes) / SL_EXTENT_ALIGN_BYTES;
    for (uint32_t i = 0; i < EXTENTS; i++) {
        d->extent[i] = (struct sl_extent){
            .file = file,
            .offset_bytes = sl_rng_u64(&p->rng) % (places + 1) * SL_EXTENT_ALIGN_BYTES,
            .size_bytes = p->extent_bytes,
            .place_bytes = p->layout.place_bytes[i],
        };
    }
    d->n_extents = EXTENTS;
    d->next = NULL;
    enum sl_status status = sl_reader_submit(p->reader, d, p->err);
    if (status == SL_OK)
        p->n_flying++;
    else if (p->status == SL_OK)
        p->status = status;
}

static void done(struct sl_read *d, enum sl_status status) {
    struct probe *p = d->user;
    p->n_flying--;
    if (status != SL_OK && p->status == SL_OK)
        p->status = status;
    if (p->refill && p->status == SL_OK)
        submit(p, d);
}

static int by_size(const void *a, const void *b) {
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static enum sl_status measure(struct probe *p, double seconds, struct sl_disk_speed *out) {
    uint64_t alone[MAX_ALONE];
    uint32_t n = 0;
    uint64_t start = sl_now_ns(), until = start + (uint64_t)(seconds * 1e9 / 3);
    while (p->status == SL_OK && n < MAX_ALONE && (n < 3 || sl_now_ns() < until)) {
        uint64_t t = sl_now_ns();
        submit(p, &p->read[0]);
        sl_reader_wait(p->reader, 1, -1);
        alone[n++] = sl_now_ns() - t;
    }
    if (p->status != SL_OK)
        return p->status;
    qsort(alone, n, sizeof *alone, by_size);
    out->expert_ns = (double)alone[n / 2];
    out->expert_bytes = EXTENTS * p->extent_bytes;

    struct sl_reader_stats a, b;
    p->refill = true;
    for (uint32_t i = 0; i < AT_ONCE && p->status == SL_OK; i++)
        submit(p, &p->read[i]);
    /* Not the first ones: they find an idle disk. */
    sl_reader_wait(p->reader, AT_ONCE, -1);
    sl_reader_get_stats(p->reader, &a);
    uint64_t t = sl_now_ns(), now = t;
    until = start + (uint64_t)(seconds * 1e9);
    do {
        sl_reader_wait(p->reader, AT_ONCE / 4, -1);
        now = sl_now_ns();
    } while (p->status == SL_OK && (now < until || now - t < 50000000u));
    sl_reader_get_stats(p->reader, &b);
    p->refill = false;
    while (p->n_flying > 0)
        sl_reader_wait(p->reader, p->n_flying, -1);
    out->bytes_per_s = (double)(b.needed_bytes - a.needed_bytes) * 1e9 / (double)(now - t);
    return p->status;
}

static enum sl_status open_files(struct probe *p, const struct sl_disk_files *files,
                                 const struct sl_slab *slab, struct sl_err *err) {
    struct sl_reader_config c = files->reader;
    c.slab = slab;
    SL_TRY(sl_reader_open(&c, &p->reader, err));
    SL_TRY(files->add(files->ctx, p->reader, err));
    for (uint32_t i = 0; i < sl_reader_n_files(p->reader); i++)
        p->total_bytes += usable_bytes(p, i);
    if (!p->total_bytes)
        return sl_fail(err, SL_ERR_INVALID,
                       "no file has the %" PRIu64 " bytes that measuring a disk takes",
                       16u * (uint64_t)p->extent_bytes);
    return SL_OK;
}

enum sl_status sl_disk_bandwidth(const struct sl_disk_files *files, uint32_t extent_bytes,
                                 double seconds, struct sl_disk_speed *out_speed,
                                 struct sl_err *err) {
    struct probe *p = calloc(1, sizeof *p);
    if (!p)
        return sl_fail(err, SL_ERR_NOMEM, "no memory to measure the disk");
    struct sl_slab slab = {0};
    p->rng.state = sl_now_ns(); /* never the same places: a disk has caches too */
    p->extent_bytes = extent_bytes ? extent_bytes : 1u << 20;
    p->err = err;
    const uint32_t sizes[EXTENTS] = {p->extent_bytes, p->extent_bytes, p->extent_bytes};
    enum sl_status status =
        sl_slot_layout_init(&p->layout, sizes, EXTENTS, SL_EXTENT_ALIGN_BYTES, err);
    if (status == SL_OK)
        status = sl_slab_init(&slab, (size_t)AT_ONCE * p->layout.slot_bytes, false, err);
    if (status == SL_OK)
        status = open_files(p, files, &slab, err);
    if (status == SL_OK) {
        for (uint32_t i = 0; i < AT_ONCE; i++) {
            p->read[i].slot = slab.base + (size_t)i * p->layout.slot_bytes;
            p->read[i].priority = SL_READ_DEMAND;
            p->read[i].done = done;
            p->read[i].user = p;
            p->read[i].err = err;
        }
        status = measure(p, seconds, out_speed);
    }
    sl_reader_close(&p->reader);
    sl_slab_release(&slab);
    free(p);
    return status;
}
