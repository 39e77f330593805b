/* A router trace or a heat file from a stranger: read all of it, and work on with what it held. */
#include "expert_cache/heat.h"
#include "expert_cache/trace.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_trace(const uint8_t *data, size_t size) {
    struct sl_err err = {""};
    struct sl_trace_reader r;
    struct sl_trace_record rec;
    enum sl_status status = sl_trace_open(&r, data, size, &err);
    uint64_t n = 0;
    for (bool end = false; status == SL_OK;) {
        status = sl_trace_next(&r, &rec, &end, &err);
        if (status != SL_OK || end)
            break;
        n++;
        for (uint32_t i = 0; i < r.shape.k; i++)
            if (rec.layer >= r.shape.n_layer || rec.ids[i] >= r.shape.n_expert)
                abort();
    }
    if (status == SL_OK ? n != r.n_records : !err.text[0])
        abort();
}

static void read_heat(const uint8_t *data, size_t size) {
    /* The shape of the fixed corpus. */
    static const struct sl_heat_config c = {.n_layer = 2, .n_expert = 5, .k = 2, .fingerprint = 7};
    struct sl_err err = {""};
    struct sl_heat *h = NULL;
    if (sl_heat_create(&c, &h, &err) != SL_OK)
        abort();
    if (sl_heat_import(h, data, size, &err) != SL_OK && !err.text[0])
        abort();
    static const uint16_t ids[2] = {4, 1};
    for (uint16_t l = 0; l < c.n_layer; l++) {
        sl_heat_route(h, l, ids, 1, 2, SL_PHASE_DECODE);
        for (uint16_t e = 0; e < c.n_expert; e++) {
            float p = sl_heat_probability(h, (struct sl_expert_id){l, e});
            if (!(p > 0 && p <= 1))
                abort();
        }
    }
    sl_heat_destroy(&h);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    read_trace(data, size);
    read_heat(data, size);
    return 0;
}
