#include "cli/options/open_engine.h"

#include "common/clock.h"

#include <stdio.h>

struct load_progress {
    struct sl_progress base;
    uint64_t shown_ns;
};

/* The engine calls this from one thread at a time. */
static bool show_loading(struct sl_progress *p, uint64_t done, uint64_t total) {
    struct load_progress *l = (struct load_progress *)p;
    uint64_t now = sl_now_ns();
    if (now - l->shown_ns > 100000000u) {
        l->shown_ns = now;
        sl_show_progress("loading %3.0f %% of %.2f GiB", 100.0 * (double)done / (double)total,
                         (double)total / 0x1p30);
    }
    return true;
}

bool sl_open_model(const char *command, const char *path, struct sl_opened *out) {
    struct sl_err err;
    *out = (struct sl_opened){0};
    if (sl_model_open(path, &out->model, &err) == SL_OK)
        return true;
    fprintf(stderr, "sluice %s: %s\n", command, err.text);
    return false;
}

bool sl_start_engine(const char *command, const struct sl_engine_options *options,
                     const struct sl_engine_config *config, struct sl_process_memory *more,
                     struct sl_opened *o) {
    struct sl_err err;
    struct load_progress progress = {.base = {show_loading}};
    struct sl_process_memory own = {.n = 0};
    struct sl_engine_config counted = *config;
    enum sl_status status = sl_use_drafts(o->model, &counted, &err);
    if (status == SL_OK)
        status = sl_cluster_use(options, o->model, &o->cluster, &counted, &err);
    sl_process_memory_apply(more ? more : &own, &counted);
    if (status == SL_OK)
        status = sl_engine_create(o->model, &counted, &progress.base, &o->engine, &err);
    sl_show_progress("%s", "");
    if (status == SL_OK)
        return true;
    fprintf(stderr, "sluice %s: %s\n", command, err.text);
    sl_cluster_say_why(&o->cluster, status, &err);
    return false;
}

void sl_close_engine(struct sl_opened *o) {
    sl_engine_destroy(&o->engine);
    sl_cluster_leave(&o->cluster);
    sl_model_close(&o->model);
}
