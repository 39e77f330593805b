/* The engine of faulty.h over a disk that is made up, whose faults are scripted. */
#ifndef TESTS_FAULT_FAULTY_DISK_H
#define TESTS_FAULT_FAULTY_DISK_H

#include "tests/fault/faulty.h"

#include "streaming/fake.h"

#include <errno.h>

struct disk {
    struct sl_reader_source base;
    struct sl_fake_clock clock;
    struct sl_reader *reader;
    struct sl_fake_fault faults[4];
    uint32_t n_faults, n_copies;
    uint64_t reorder_seed;
    bool absent; /* refuses to open */
};

static inline enum sl_status open_disk(const struct sl_reader_source *source,
                                       const struct sl_reader_config *config,
                                       struct sl_reader **out_reader, struct sl_err *err) {
    struct disk *d = (struct disk *)(uintptr_t)source;
    struct sl_fake_drive drive = {.bytes_per_s = 1000000000, .latency_ns = 100000};
    struct sl_fake_config c = {.reader = *config,
                               .clock = &d->clock,
                               .drive = {drive, drive},
                               .reorder_seed = d->reorder_seed,
                               .reorder_ns = 5000000};
    if (d->absent)
        return sl_fail(err, SL_ERR_IO, "the disk is absent");
    c.reader.request_bytes = 64u << 10;
    enum sl_status status = sl_fake_open(&c, &d->reader, err);
    uint32_t file = SL_READER_FILES;
    for (uint32_t i = 0; i < d->n_copies && status == SL_OK; i++)
        status = sl_fake_add_file(d->reader, file, model_bytes, model_size, &file, err);
    if (status == SL_OK)
        sl_fake_set_faults(d->reader, d->faults, d->n_faults);
    *out_reader = d->reader;
    return status;
}

static inline struct disk new_disk(void) {
    return (struct disk){.base = {open_disk}, .n_copies = 1};
}

static inline struct sl_engine *engine_on(struct disk *d, uint32_t percent) {
    struct sl_engine_config c = streamed_config(percent);
    c.reader_source = &d->base;
    return new_engine(&model, &c);
}

/* On the scheduler's thread, which owns the reader. */
static inline void heal(struct run *r) {
    struct disk *d = r->user;
    sl_fake_set_faults(d->reader, NULL, 0);
}

static inline void inject(struct run *r) {
    struct disk *d = r->user;
    sl_fake_set_faults(d->reader, d->faults, d->n_faults);
}

/* A fault that touches one extent of one expert. */
static inline struct sl_fake_fault at_expert(uint32_t layer, uint32_t expert, uint32_t extent) {
    const struct sl_routed_layer *l = &layout.layers[layer];
    uint64_t first =
        l->extent[extent].offset_bytes + (uint64_t)expert * l->extent[extent].size_bytes;
    /* Within its own blocks: those at its ends hold bytes of its neighbours too. */
    return (struct sl_fake_fault){.first_byte = first + 8192,
                                  .last_byte = first + l->extent[extent].size_bytes - 8192};
}

static inline struct sl_fake_fault everywhere(void) {
    return (struct sl_fake_fault){.last_byte = UINT64_MAX};
}

#endif
