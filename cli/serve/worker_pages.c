#include "cli/serve/worker_pages.h"

#include "cluster/worker.h"
#include "common/log.h"
#include "common/version.h"
#include "net/address.h"
#include "server/observe/process_metrics.h"
#include "server/wire/status_pages.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct sl_worker_pages {
    struct sl_worker *worker;
    struct sl_worker_look look; /* the pages' thread's */
    struct sl_status_pages *served;
    int64_t started_s;
};

/* Ready as soon as a coordinator can connect, since that is what a coordinator waits for. Nothing
 * here names a coordinator, a file or a model. */
static unsigned write_health(void *ctx, FILE *out) {
    struct sl_worker_pages *p = ctx;
    struct sl_worker_look *w = &p->look;
    sl_worker_look(p->worker, w);
    bool starting = w->state == SL_WORKER_STARTING;
    fprintf(out, "{\"status\":\"%s\",\"state\":\"%s\",\"version\":\"" SL_VERSION "\"",
            starting ? "starting" : "ok", sl_worker_state_name(w->state));
    if (w->state == SL_WORKER_LOADING)
        fprintf(out, ",\"progress\":%.4f",
                w->total_bytes ? (double)w->done_bytes / (double)w->total_bytes : 0.0);
    fputs(",\"stages\":[", out);
    for (uint32_t i = 0; i < w->n_stages; i++)
        fprintf(out, "%s{\"stage\":%u,\"device\":\"%s\",\"first_layer\":%u,\"layers\":%u}",
                i ? "," : "", w->stages[i].stage + 1, w->stages[i].device, w->stages[i].first_layer,
                w->stages[i].n_layer);
    fputs("]}\n", out);
    return starting ? 503 : 200;
}

static void write_link(FILE *out, const struct sl_link_stats *l) {
    sl_gauge_write(out, "sluice_coordinator_sent_bytes",
                   "Bytes sent over the current link to the coordinator", l->sent_bytes);
    sl_gauge_write(out, "sluice_coordinator_received_bytes",
                   "Bytes received over the current link from the coordinator", l->received_bytes);
    sl_gauge_write(out, "sluice_coordinator_queued_bytes", "Bytes queued for the coordinator",
                   l->queued_bytes);
    fprintf(out,
            "# HELP sluice_coordinator_round_trip_seconds Round-trip time of the last heartbeat "
            "to the coordinator\n"
            "# TYPE sluice_coordinator_round_trip_seconds gauge\n"
            "sluice_coordinator_round_trip_seconds %.9f\n",
            (double)l->round_trip_ns * 1e-9);
}

static unsigned write_metrics(void *ctx, FILE *out) {
    struct sl_worker_pages *p = ctx;
    struct sl_worker_look *w = &p->look;
    struct sl_stage_shown shown[SL_MAX_STAGES];
    sl_worker_look(p->worker, w);
    fputs("# HELP sluice_worker_state What a worker does: one of its states is 1\n"
          "# TYPE sluice_worker_state gauge\n",
          out);
    for (uint32_t i = 0; i < SL_WORKER_STATES; i++)
        fprintf(out, "sluice_worker_state{state=\"%s\"} %d\n",
                sl_worker_state_name((enum sl_worker_state)i), w->state == (enum sl_worker_state)i);
    fprintf(out,
            "# HELP sluice_coordinator_connections_total Coordinators that have connected\n"
            "# TYPE sluice_coordinator_connections_total counter\n"
            "sluice_coordinator_connections_total %" PRIu64 "\n",
            w->n_coordinators);
    write_link(out, &w->link);
    for (uint32_t i = 0; i < w->n_stages; i++)
        shown[i] = (struct sl_stage_shown){w->stages[i].stage + 1, w->stages[i].device,
                                           &w->stages[i].metrics};
    if (w->n_stages)
        sl_stage_metrics_write(out, shown, w->n_stages);
    sl_process_metrics_write(out, p->started_s);
    return 200;
}

static const struct sl_status_page pages[] = {
    {"/health", "application/json", write_health},
    {"/metrics", "text/plain; version=0.0.4; charset=utf-8", write_metrics},
};

enum sl_status sl_worker_pages_start(const char *address, struct sl_worker *worker,
                                     struct sl_worker_pages **out_pages, struct sl_err *err) {
    struct sl_net_address at[SL_NET_ADDRESSES];
    char text[128];
    size_t n = 0;
    struct sl_err why;
    SL_TRY(sl_net_resolve(address, true, at, &n, err));
    if (!n || at[0].any.sa_family == AF_UNIX)
        return sl_fail(err, SL_ERR_CONFIG, "--http %.200s: it must be HOST:PORT or [V6]:PORT",
                       address);
    struct sl_worker_pages *p = calloc(1, sizeof *p);
    if (!p)
        return sl_fail(err, SL_ERR_NOMEM, "no memory for pages");
    p->worker = worker;
    p->started_s = (int64_t)time(NULL);
    enum sl_status status = sl_status_pages_start(
        &at[0].any, at[0].n, pages, sizeof pages / sizeof *pages, p, &p->served, &why);
    if (status != SL_OK) {
        free(p);
        return sl_fail(err, status, "--http %.200s: %.200s", address, why.text);
    }
    sl_net_address_text(&at[0], text, sizeof text);
    char *colon = strrchr(text, ':');
    if (colon)
        *colon = '\0';
    sl_info("/health and /metrics are at http://%s:%u", text, sl_status_pages_port(p->served));
    *out_pages = p;
    return SL_OK;
}

void sl_worker_pages_stop(struct sl_worker_pages **pp) {
    struct sl_worker_pages *p = *pp;
    if (!p)
        return;
    sl_status_pages_stop(&p->served);
    free(p);
    *pp = NULL;
}
