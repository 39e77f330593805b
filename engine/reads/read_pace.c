#include "engine/reads/read_pace.h"

/* The longest look; and what is added to twice the time expected. */
#define LOOK_MOST_NS  1000000u
#define LOOK_LEAST_NS 50000u
/* After polling in vain this many waits do not poll; after each further time twice as many, up to:
 */
#define LOOK_REST_MOST 64u
/* Work between begin and run may delay the reads by this part of their time. */
#define HOLD_PART 0.01
/* If computing takes more than this share of the reading, the reads start at once. */
#define HOLD_COMPUTING 0.75
/* Computing is taken to be this much slower than measured: to start it early costs a longer look,
 * to start it late costs time. With a thread less it may take twice as long. */
#define CARE         1.1
#define OVERLAP_CARE 2.0
/* What is worth reading ahead at least: a drive's latency, and then some. */
#define AHEAD_BYTES 2097152.0
/* Weight of a new measurement in the mean, and how many times the mean it counts as at most. */
#define NEW_TIME 0.125
#define HICCUP   2.0

static void mean(double *m, double x) {
    if (*m > 0 && x > HICCUP * *m)
        x = HICCUP * *m;
    *m += (x - *m) * (*m > 0 ? NEW_TIME : 1);
}

/* ---- what was measured ---- */

void sl_read_pace_layer(struct sl_read_pace *p, uint64_t now_ns, uint64_t stall_ns, bool first,
                        bool counts) {
    uint64_t stall = stall_ns - p->layer_stall_ns, took = now_ns - p->layer_began_ns;
    if (p->layer_began_ns && counts && !first && took > stall)
        mean(&p->layer_ns, (double)(took - stall)); /* of the first: also the output, sampling */
    p->layer_began_ns = now_ns;
    p->layer_stall_ns = stall_ns;
}

void sl_read_pace_size(struct sl_read_pace *p, uint64_t expert_bytes, uint32_t n_requests) {
    p->request_bytes = (double)expert_bytes / n_requests;
}

void sl_read_pace_begun(struct sl_read_pace *p, uint32_t n_requests, uint64_t now_ns) {
    p->n_requests = n_requests;
    p->begun_ns = p->reading_ns = now_ns;
}

void sl_read_pace_run(struct sl_read_pace *p, bool overlap, bool counts, uint64_t now_ns) {
    if (counts)
        mean(&p->between_ns, (double)(now_ns - p->begun_ns));
    p->overlap = overlap;
}

void sl_read_pace_submitted(struct sl_read_pace *p, uint64_t now_ns) {
    p->reading_ns = now_ns;
}

void sl_read_pace_left(struct sl_read_pace *p, uint32_t n_left, uint64_t now_ns) {
    if (!p->reading_ns || n_left >= p->n_requests)
        return;
    double bytes = (p->n_requests - n_left) * p->request_bytes;
    mean(&p->byte_ns, (double)(now_ns - p->reading_ns) / bytes);
    p->reading_ns = 0;
}

void sl_read_pace_computed(struct sl_read_pace *p, uint64_t ns, uint32_t n) {
    mean(&p->mean_expert_ns, (double)ns / n);
}

/* ---- what follows from it ---- */

static double request_ns(const struct sl_read_pace *p) {
    return p->byte_ns * p->request_bytes;
}

bool sl_read_pace_known(const struct sl_read_pace *p) {
    return p->byte_ns > 0 && p->mean_expert_ns > 0;
}

bool sl_read_pace_holds(const struct sl_read_pace *p, uint32_t n_left, uint32_t n_hits,
                        uint32_t n_loading) {
    if (!n_left)
        return false;
    double reading = request_ns(p) * n_left;
    double tail = CARE * p->mean_expert_ns * ((p->overlap ? n_loading : n_hits + n_loading) - 1);
    double overlap = p->overlap ? OVERLAP_CARE * p->mean_expert_ns * n_hits : 0;
    return tail < HOLD_COMPUTING * reading && overlap < HOLD_COMPUTING * reading &&
           p->between_ns < HOLD_PART * reading;
}

double sl_read_pace_requests_ns(const struct sl_read_pace *p, uint32_t n) {
    return n * request_ns(p);
}

uint32_t sl_read_pace_to_leave(const struct sl_read_pace *p, uint32_t n) {
    if (n < 2 || !(request_ns(p) > 0))
        return 0;
    double leave = CARE * p->mean_expert_ns * (n - 1) / request_ns(p);
    return leave < 1e6 ? (uint32_t)(leave + 0.25) + 1 : 1000000;
}

uint64_t sl_read_pace_look_ns(struct sl_read_pace *p, double expected_ns) {
    if (!(expected_ns > 0) || expected_ns > LOOK_MOST_NS)
        return 0;
    if (p->rest_waits) {
        p->rest_waits--;
        return 0;
    }
    double most = 2 * expected_ns + LOOK_LEAST_NS;
    return (uint64_t)(most < LOOK_MOST_NS ? most : LOOK_MOST_NS);
}

void sl_read_pace_looked(struct sl_read_pace *p, bool seen) {
    uint32_t rest = p->rest ? 2 * p->rest : 1;
    p->rest = seen ? 0 : rest < LOOK_REST_MOST ? rest : LOOK_REST_MOST;
    p->rest_waits = p->rest;
}

uint32_t sl_read_pace_ahead(const struct sl_read_pace *p, uint64_t expert_bytes, uint32_t k) {
    double bytes = (double)expert_bytes;
    double expert_ns = p->byte_ns * bytes, least = AHEAD_BYTES / bytes;
    double n = expert_ns > 0 ? p->layer_ns / expert_ns + (least > 2 ? least : 2) : k;
    return n < k ? (uint32_t)n + 1 : k;
}
