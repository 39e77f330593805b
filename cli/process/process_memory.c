#include "cli/process/process_memory.h"

#include "common/log.h"
#include "engine/plan/memory_budget.h"

#include <malloc.h>
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Where /proc does not say: program, libraries and a large vocabulary. */
#define UNKNOWN_BASE_BYTES ((uint64_t)128 << 20)

void sl_process_memory_add(struct sl_process_memory *m, const char *what, uint64_t bytes,
                           const char *fmt, ...) {
    if (!bytes)
        return;
    assert(m->n < SL_PROCESS_ROWS);
    struct sl_plan_row *r = &m->rows[m->n++];
    r->what = what;
    r->bytes = bytes;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(r->detail, sizeof r->detail, fmt, ap);
    va_end(ap);
    m->bytes += bytes;
}

void sl_process_memory_apply(struct sl_process_memory *m, struct sl_engine_config *config) {
    struct sl_memory_look look;
    struct sl_err why;
    malloc_trim(0); /* what opening the model took and gave back */
    if (sl_memory_look("", &look, &why) == SL_OK) {
        sl_process_memory_add(m, "process", sl_memory_base_bytes(&look),
                              "model file's header and vocabulary %.1f MiB, program %.1f MiB",
                              (double)look.anonymous_bytes / 0x1p20,
                              (double)look.mapped_file_bytes / 0x1p20);
    } else {
        sl_warn("the process's own memory is not known (%s): counted as %.0f MiB", why.text,
                (double)UNKNOWN_BASE_BYTES / 0x1p20);
        sl_process_memory_add(m, "process", UNKNOWN_BASE_BYTES, "an estimate");
    }
    config->process_bytes = m->bytes;
    config->process_rows = m->rows;
    config->n_process_rows = m->n;
}

uint64_t sl_process_memory_room(uint64_t ram_bytes) {
    struct sl_memory_look look;
    struct sl_err why;
    if (!ram_bytes)
        return UINT64_MAX;
    uint64_t base = UNKNOWN_BASE_BYTES;
    if (sl_memory_look("", &look, &why) == SL_OK)
        base = sl_memory_base_bytes(&look);
    base += (uint64_t)16 << 20; /* stacks and page tables */
    return ram_bytes > base ? ram_bytes - base : 0;
}

void sl_process_memory_tune(void) {
    /* Each arena keeps what its threads gave back; two are enough for threads that seldom ask.
     * Large blocks come from the system and go back to it at once: unset, the threshold grows with
     * what is freed, up to 32 MiB, and bodies would stay in the heap. */
    mallopt(M_ARENA_MAX, 2);
    mallopt(M_MMAP_THRESHOLD, 128 << 10);
    mallopt(M_TRIM_THRESHOLD, 256 << 10);
    mallopt(M_TOP_PAD, 64 << 10);
}
