#include "cli/options/cluster_options.h"

#include "cli/options/cluster_members.h"
#include "cluster/coordinator.h"
#include "net/key.h"

#include <stdlib.h>
#include <string.h>

#define KEY_VARIABLE "SLUICE_CLUSTER_KEY"
/* Longer than a step takes that reads hundreds of GiB from a slow disk. */
#define ANSWER_NS 600000000000u

enum sl_status sl_cluster_key(const struct sl_engine_options *o, struct sl_net_key **out_key,
                              struct sl_err *err) {
    const char *text = getenv(KEY_VARIABLE);
    *out_key = NULL;
    if (o->plain && o->key_file)
        return sl_fail(err, SL_ERR_CONFIG, "--plain means no key: leave out --key-file, or it");
    if (o->plain)
        return SL_OK;
    if (o->key_file)
        return sl_net_key_read(o->key_file, out_key, err);
    if (text)
        return sl_net_key_parse(text, "the variable " KEY_VARIABLE, out_key, err);
    return sl_fail(err, SL_ERR_CONFIG,
                   "there is no key: make one with 'sluice keygen > cluster.key', copy it to each "
                   "machine, and give it with --key-file cluster.key");
}

/* "a:1,b:2" in place; the number of them, more than there is room for if there are too many. */
static uint32_t divide(char *text, const char *out[SL_CLUSTER_MAX_WORKERS]) {
    uint32_t n = 0;
    for (char *at = text, *comma; at; at = comma) {
        comma = strchr(at, ',');
        if (comma)
            *comma++ = 0;
        if (n < SL_CLUSTER_MAX_WORKERS)
            out[n] = at;
        n++;
    }
    return n;
}

static const char *variable(const char *name) {
    return getenv(name);
}

enum sl_status sl_cluster_use(const struct sl_engine_options *o, const struct sl_model *model,
                              struct sl_cluster_use *use, struct sl_engine_config *config,
                              struct sl_err *err) {
    const char *workers[SL_CLUSTER_MAX_WORKERS], *spares[SL_CLUSTER_MAX_WORKERS];
    if (!o->workers && o->spares)
        return sl_fail(err, SL_ERR_CONFIG, "--spare is for workers: --workers names none");
    if (!o->workers)
        return SL_OK;
    SL_TRY(sl_cluster_members(o->workers, variable, &use->addresses, err));
    uint32_t n = divide(use->addresses, workers);
    if (n > SL_CLUSTER_MAX_WORKERS)
        return sl_fail(err, SL_ERR_CONFIG, "--workers names %u machines: at most %u", n,
                       SL_CLUSTER_MAX_WORKERS);
    use->spares = strdup(o->spares ? o->spares : "");
    if (!use->spares)
        return sl_fail(err, SL_ERR_NOMEM, "no memory for addresses");
    uint32_t n_spares = o->spares ? divide(use->spares, spares) : 0;
    if (n_spares > SL_CLUSTER_MAX_WORKERS)
        return sl_fail(err, SL_ERR_CONFIG, "--spare names %u machines: at most %u", n_spares,
                       SL_CLUSTER_MAX_WORKERS);
    SL_TRY(sl_cluster_key(o, &use->key, err));
    const struct sl_cluster_config c = {.workers = workers,
                                        .n_workers = n,
                                        .spares = spares,
                                        .n_spares = n_spares,
                                        .key = use->key,
                                        .wait_ns = o->worker_wait_s * 1000000000ull,
                                        .answer_ns = ANSWER_NS};
    SL_TRY(sl_cluster_open(&c, model, &use->cluster, err));
    config->remote = sl_cluster_stages(use->cluster);
    config->link_bytes = sl_cluster_link_bytes(use->cluster);
    return SL_OK;
}

void sl_cluster_say_why(struct sl_cluster_use *use, enum sl_status status,
                        const struct sl_err *why) {
    sl_cluster_tell(use->cluster, status, why);
}

void sl_cluster_leave(struct sl_cluster_use *use) {
    sl_cluster_close(&use->cluster);
    sl_net_key_free(&use->key);
    free(use->addresses);
    free(use->spares);
    use->addresses = use->spares = NULL;
}
