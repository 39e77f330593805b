/* What UCX does with the messages of bench_net: there and back, one after the other (half of that
 * is a hop), four on their way in one direction, and four in both. Between two processes of this
 * machine, by UCX_TLS=tcp over loopback unless the variables say otherwise. A side that has nothing
 * to do sleeps, as the threads of links do. Built where libucx-dev is installed.
 *
 * usage: bench_net_ucx [SECONDS]   for each size and way; default 0.5 */
#include "common/clock.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#define MAX_BYTES  ((size_t)16 << 20)
#define MAX_PASSES 200000u
#define SLOTS      4u
/* Tags: what the other side is to send back. */
#define WHOLE 1u
#define WORD  2u

struct side {
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_ep_h other;
};

/* A message on its way: it has a place to come to, and is sent from there. */
struct slot {
    struct side *side;
    uint8_t *bytes;
    bool came, sent;
    size_t n; /* that came */
    uint64_t tag;
};

static void must(ucs_status_t st, const char *what) {
    if (st == UCS_OK)
        return;
    fprintf(stderr, "bench_net_ucx: %s: %s\n", what, ucs_status_string(st));
    exit(1);
}

static void has_sent(void *request, ucs_status_t st, void *arg) {
    struct slot *s = arg;
    must(st, "sending");
    s->sent = true;
    ucp_request_free(request);
}

static void has_come(void *request, ucs_status_t st, const ucp_tag_recv_info_t *about, void *arg) {
    struct slot *s = arg;
    must(st, "receiving");
    s->came = true;
    s->n = about->length;
    s->tag = about->sender_tag;
    ucp_request_free(request);
}

static void check(ucs_status_ptr_t request, const char *what) {
    if (UCS_PTR_IS_ERR(request))
        must(UCS_PTR_STATUS(request), what);
}

static void begin_receive(struct slot *s) {
    const ucp_request_param_t how = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                                     UCP_OP_ATTR_FIELD_USER_DATA |
                                                     UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
                                     .cb.recv = has_come,
                                     .user_data = s};
    s->came = false;
    check(ucp_tag_recv_nbx(s->side->worker, s->bytes, MAX_BYTES, 0, 0, &how), "receiving");
}

static void begin_send(struct slot *s, const uint8_t *bytes, size_t n, uint64_t tag) {
    const ucp_request_param_t how = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                                     UCP_OP_ATTR_FIELD_USER_DATA |
                                                     UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
                                     .cb.send = has_sent,
                                     .user_data = s};
    s->sent = false;
    check(ucp_tag_send_nbx(s->side->other, bytes, n, tag, &how), "sending");
}

/* Goes on with what is under way. Sleeps until something happens if nothing did, here or where the
 * caller looked: what is begun may be done at once. */
static void go_on(struct side *e, bool did) {
    if (!ucp_worker_progress(e->worker) && !did)
        must(ucp_worker_wait(e->worker), "waiting");
}

static void begin_slots(struct side *e, struct slot slots[SLOTS]) {
    for (uint32_t i = 0; i < SLOTS; i++) {
        slots[i] = (struct slot){.side = e, .bytes = calloc(1, MAX_BYTES), .sent = true};
        if (!slots[i].bytes)
            exit(1);
        begin_receive(&slots[i]);
    }
}

static void open_side(struct side *e) {
    ucp_config_t *config;
    const ucp_params_t what = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                               .features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP};
    const ucp_worker_params_t one = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                     .thread_mode = UCS_THREAD_MODE_SINGLE};
    must(ucp_config_read(NULL, NULL, &config), "its settings");
    must(ucp_init(&what, config, &e->context), "its start");
    ucp_config_release(config);
    must(ucp_worker_create(e->context, &one, &e->worker), "a worker");
}

/* Says where this side is, and hears where the other one is. */
static void meet(struct side *e, int from, int to) {
    ucp_address_t *here;
    size_t n_here, n_there = 0;
    must(ucp_worker_get_address(e->worker, &here, &n_here), "an address");
    uint8_t there[4096];
    if (write(to, &n_here, sizeof n_here) != sizeof n_here ||
        write(to, here, n_here) != (ssize_t)n_here || read(from, &n_there, sizeof n_there) < 1 ||
        n_there > sizeof there || read(from, there, n_there) != (ssize_t)n_there)
        exit(1);
    ucp_worker_release_address(e->worker, here);
    const ucp_ep_params_t where = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
                                   .address = (const ucp_address_t *)there};
    must(ucp_ep_create(e->worker, &where, &e->other), "a connection");
}

/* The side that answers, until it is killed. */
static void serve(int from, int to) {
    static struct side e;
    static struct slot slots[SLOTS];
    bool answers[SLOTS] = {false};
    open_side(&e);
    meet(&e, from, to);
    begin_slots(&e, slots);
    for (;;) {
        bool did = false;
        for (uint32_t i = 0; i < SLOTS; i++) {
            struct slot *s = &slots[i];
            did |= s->came && (s->sent || !answers[i]);
            if (s->came && !answers[i]) {
                answers[i] = true;
                begin_send(s, s->bytes, s->tag == WHOLE ? s->n : 1, WHOLE);
            } else if (s->came && s->sent) {
                answers[i] = false;
                begin_receive(s);
            }
        }
        go_on(&e, did);
    }
}

static int compare(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Has something come? Its place takes the next. */
static uint32_t take(struct slot slots[SLOTS]) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < SLOTS; i++)
        if (slots[i].came) {
            begin_receive(&slots[i]);
            n++;
        }
    return n;
}

/* Microseconds of a hop: the median, and what one in a hundred is above. */
static void hops(struct slot slots[SLOTS], const uint8_t *bytes, size_t n, double seconds,
                 double *out_p50, double *out_p99) {
    static uint64_t took[MAX_PASSES];
    uint64_t start = sl_now_ns();
    uint32_t passes = 0;
    while (passes < 8 || (passes < MAX_PASSES && (double)(sl_now_ns() - start) < seconds * 1e9)) {
        uint64_t from = sl_now_ns();
        bool came = false;
        begin_send(&slots[0], bytes, n, WHOLE);
        while (!came || !slots[0].sent) {
            bool more = take(slots) > 0;
            came |= more;
            if (!came || !slots[0].sent)
                go_on(slots->side, more);
        }
        took[passes++] = sl_now_ns() - from;
    }
    qsort(took, passes, sizeof *took, compare);
    *out_p50 = (double)took[passes / 2] * 0.5e-3;
    *out_p99 = (double)took[passes * 99 / 100] * 0.5e-3;
}

/* GB/s in one direction, or with WHOLE in each of the two, four messages on their way. */
static double rate(struct slot slots[SLOTS], const uint8_t *bytes, size_t n, uint64_t tag,
                   double seconds) {
    uint64_t start = sl_now_ns(), back = 0;
    uint32_t flying = 0;
    while ((double)(sl_now_ns() - start) < seconds * 1e9) {
        uint32_t came = take(slots);
        bool did = came > 0;
        back += came;
        flying -= came;
        for (uint32_t i = 0; i < SLOTS && flying < SLOTS; i++)
            if (slots[i].sent) {
                begin_send(&slots[i], bytes, n, tag);
                flying++;
                did = true;
            }
        go_on(slots->side, did);
    }
    double gbps = (double)(back * n) / (double)(sl_now_ns() - start);
    while (flying) {
        uint32_t came = take(slots);
        flying -= came;
        if (flying)
            go_on(slots->side, came > 0);
    }
    for (uint32_t i = 0; i < SLOTS; i++)
        while (!slots[i].sent)
            go_on(slots->side, false);
    return gbps;
}

int main(int argc, char **argv) {
    double seconds = argc > 1 ? strtod(argv[1], NULL) : 0.5;
    static const size_t sizes[] = {8u << 10, 32u << 10, 256u << 10, 1u << 20, 4u << 20, 16u << 20};
    static struct slot slots[SLOTS];
    struct side e;
    int there[2], back[2];
    (void)setenv("UCX_TLS", "tcp", 0);
    (void)setenv("UCX_NET_DEVICES", "lo", 0);
    if (pipe(there) != 0 || pipe(back) != 0)
        return 1;
    pid_t child = fork();
    if (child == 0)
        serve(there[0], back[1]);
    open_side(&e);
    meet(&e, back[0], there[1]);
    begin_slots(&e, slots);
    uint8_t *bytes = calloc(1, MAX_BYTES);
    printf("%-12s %9s %10s %10s %8s %8s\n", "way", "bytes", "p50 us", "p99 us", "GB/s", "both");
    for (size_t i = 0; bytes && i < sizeof sizes / sizeof *sizes; i++) {
        double p50, p99;
        hops(slots, bytes, sizes[i], seconds, &p50, &p99);
        double one = rate(slots, bytes, sizes[i], WORD, seconds);
        double both = rate(slots, bytes, sizes[i], WHOLE, seconds);
        printf("UCX %-8s %9zu %10.1f %10.1f %8.2f %8.2f\n", ucp_get_version_string(), sizes[i], p50,
               p99, one, both);
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return 0;
}
