#include "cli/serve/serve_ready.h"

#include "common/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEASURE_NS 250000000u
#define MEASURE_N  8u

static bool ignore_logits(void *ctx, uint32_t pos, const float *logits) {
    (void)ctx;
    (void)pos;
    (void)logits;
    return true;
}

static int by_size(const void *a, const void *b) {
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

enum sl_status sl_serve_warm_up(struct sl_engine *engine, const atomic_bool *stop,
                                double *out_tokens_per_s, struct sl_err *err) {
    struct sl_engine_info info;
    uint64_t step_ns[MEASURE_N], spent_ns = 0;
    uint32_t id = 0, n = 0;
    *out_tokens_per_s = 0;
    sl_engine_info(engine, &info);
    SL_TRY(sl_engine_score(engine, &id, 1, ignore_logits, NULL, err));
    for (; n < MEASURE_N && spent_ns < MEASURE_NS && !atomic_load(stop); n++) {
        uint64_t before_ns = sl_now_ns();
        id = (uint32_t)((n + 1) * 2654435761u) % info.n_vocab; /* other tokens, other experts */
        SL_TRY(sl_engine_score(engine, &id, 1, ignore_logits, NULL, err));
        step_ns[n] = sl_now_ns() - before_ns;
        spent_ns += step_ns[n];
    }
    if (!n)
        return SL_OK;
    /* The median: one step may wait for something else that the machine does. */
    qsort(step_ns, n, sizeof *step_ns, by_size);
    if (step_ns[n / 2])
        *out_tokens_per_s = 1e9 / (double)step_ns[n / 2];
    return SL_OK;
}

void sl_serve_url(const struct sl_server_config *c, uint16_t port, char out[SL_SERVE_URL_BYTES]) {
    if (!c->n_hosts) {
        snprintf(out, SL_SERVE_URL_BYTES, "unix:%s", c->unix_socket);
        return;
    }
    const char *host = c->hosts[0];
    if (strcmp(host, "0.0.0.0") == 0)
        host = "127.0.0.1";
    if (strcmp(host, "::") == 0 || strcmp(host, "[::]") == 0)
        host = "[::1]";
    bool bare_v6 = strchr(host, ':') && host[0] != '[';
    snprintf(out, SL_SERVE_URL_BYTES, "%s://%s%.250s%s:%u", c->tls_cert ? "https" : "http",
             bare_v6 ? "[" : "", host, bare_v6 ? "]" : "", port);
}

void sl_serve_ready(const struct sl_engine_info *info, const char *url, const char *model,
                    double seconds, double tokens_per_s, char out[SL_SERVE_READY_BYTES]) {
    char speed[96] = "";
    if (tokens_per_s > 0)
        snprintf(speed, sizeof speed, ", about %.*f tokens/s for one request%s",
                 tokens_per_s < 10 ? 1 : 0, tokens_per_s,
                 info->streaming ? ", more once its experts are in memory" : "");
    snprintf(out, SL_SERVE_READY_BYTES,
             "ready after %.1f s: %s serves %.200s%s; %u tokens of context, %u request%s at once, "
             "on %s",
             seconds, url, model, speed, info->ctx_tokens, info->parallel,
             info->parallel == 1 ? "" : "s", info->device);
}
