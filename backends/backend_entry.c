#include "backends/backend_entry.h"

#include <stdio.h>
#include <string.h>

/* ---- ids ---- */

/* "cuda:1", or "cpu" of a backend's only device. */
static void write_id(const char *backend, uint32_t number, bool only,
                     char out_id[SL_DEVICE_ID_BYTES]) {
    if (only && !number)
        snprintf(out_id, SL_DEVICE_ID_BYTES, "%s", backend);
    else
        snprintf(out_id, SL_DEVICE_ID_BYTES, "%.11s:%u", backend, number % 1000);
}

void sl_device_ref_id(struct sl_device_ref ref, char out_id[SL_DEVICE_ID_BYTES]) {
    bool only = ref.backend->kind == SL_DEVICE_HOST || ref.backend->hidden;
    write_id(ref.backend->name, ref.number, only, out_id);
}

void sl_device_caps_set_id(struct sl_device_caps *caps, const char *backend, uint32_t number,
                           bool only) {
    write_id(backend, number, only, caps->id);
    snprintf(caps->name, sizeof caps->name, "%s: %.*s", caps->id,
             (int)(sizeof caps->name - 3 - strlen(caps->id)), caps->model);
}

/* ---- names of capabilities ---- */

const char *sl_device_kind_name(enum sl_device_kind kind) {
    switch (kind) {
    case SL_DEVICE_DISCRETE:
        return "discrete";
    case SL_DEVICE_INTEGRATED:
        return "integrated";
    case SL_DEVICE_HOST:
        return "host";
    }
    return "";
}

const char *sl_device_found_kind_name(const struct sl_device_found *found) {
    return found->software ? "software" : sl_device_kind_name(found->kind);
}

const char *sl_fused_name(uint32_t i) {
    static const char *const names[] = {
#define SL_FUSED(name) #name,
#include "backends/fused.def"
    };
    return i < sizeof names / sizeof *names ? names[i] : NULL;
}
