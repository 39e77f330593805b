/* How fast frames pass between two processes of this machine: there and back, one after the other
 * (half of that is a hop), four on their way in one direction, and four in both at once.
 * By plain text, TLS, the kernel's TLS where it has one, and UNIX sockets; bench_net_ucx does the
 * same by UCX, where that is installed.
 *
 * usage: bench_net [SECONDS]   for each size and way; default 0.5 */
#include "net/link.h"

#include "common/clock.h"
#include "common/log.h"
#include "net/frame.h"
#include "net/key.h"

#include <errno.h>
#include <linux/tls.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_BYTES  (16u << 20)
#define MAX_PASSES 200000u

struct end {
    struct sl_link_owner owner; /* first */
    sem_t came;
    bool echoes;
};

static enum sl_status was_received(struct sl_link_owner *o, struct sl_link *l,
                                   const struct sl_frame *f, struct sl_err *err) {
    struct end *e = (struct end *)(void *)o;
    /* Epoch 1: to be sent back whole; 2: a word is enough. */
    const struct sl_bytes_part part = {f->bytes, f->epoch == 1 ? f->n : 1};
    (void)err;
    if (e->echoes && sl_link_send(l, SL_FRAME_CALL, 0, &part, 1) != SL_OK)
        exit(1);
    sem_post(&e->came);
    return SL_OK;
}

static void was_lost(struct sl_link_owner *o, struct sl_link *l, enum sl_status status,
                     const struct sl_err *why) {
    (void)o, (void)l, (void)status, (void)why;
    exit(0);
}

static void must(enum sl_status status, const struct sl_err *err) {
    if (status == SL_OK)
        return;
    fprintf(stderr, "bench_net: %s\n", err->text);
    exit(1);
}

static struct end *new_end(bool echoes) {
    static struct end e;
    e.owner = (struct sl_link_owner){was_received, was_lost};
    e.echoes = echoes;
    sem_init(&e.came, 0, 0);
    return &e;
}

/* ---- the kernel's TLS ---- */

/* A link without a key whose socket encrypts by itself. */
static bool in_kernel;

/* NULL: this kernel has it. Its module looks at the socket, which is not connected, only after the
 * kernel has found it. */
static const char *why_no_kernel_tls(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    int rc = fd < 0 ? -1 : setsockopt(fd, IPPROTO_TCP, TCP_ULP, "tls", sizeof "tls");
    int why = rc == 0 || errno == ENOTCONN ? 0 : errno;
    if (fd >= 0)
        close(fd);
    return why ? strerror(why) : NULL;
}

/* Of the one connection that this process has, before anything passes over it. Both ends are ours,
 * so they need no handshake to agree on keys, and these keep nothing secret. */
static void encrypt_in_kernel(void) {
    const struct tls12_crypto_info_aes_gcm_128 keys = {
        .info = {.version = TLS_1_3_VERSION, .cipher_type = TLS_CIPHER_AES_GCM_128}};
    struct sockaddr_storage at = {.ss_family = AF_UNSPEC};
    int fd = 2;
    if (!in_kernel)
        return;
    while (at.ss_family != AF_INET && ++fd < 1024) {
        socklen_t n = sizeof at;
        if (getpeername(fd, (struct sockaddr *)&at, &n) != 0)
            at.ss_family = AF_UNSPEC;
    }
    if (setsockopt(fd, IPPROTO_TCP, TCP_ULP, "tls", sizeof "tls") == 0 &&
        setsockopt(fd, SOL_TLS, TLS_TX, &keys, sizeof keys) == 0 &&
        setsockopt(fd, SOL_TLS, TLS_RX, &keys, sizeof keys) == 0)
        return;
    fprintf(stderr, "bench_net: the kernel's TLS does not begin: %s\n", strerror(errno));
    exit(1);
}

static void was_accepted(struct sl_listener_owner *o, struct sl_link *l) {
    struct sl_err err;
    (void)o;
    encrypt_in_kernel();
    sl_link_own(l, &new_end(true)->owner);
    must(sl_link_start(l, &err), &err);
}

static int compare(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void send_one(struct sl_link *l, uint32_t epoch, const uint8_t *bytes, size_t n) {
    const struct sl_bytes_part part = {bytes, n};
    while (sl_link_send(l, SL_FRAME_CALL, epoch, &part, 1) == SL_AGAIN)
        usleep(20);
}

/* Microseconds of a hop: the median, and what one in a hundred is above. */
static void hops(struct end *e, struct sl_link *l, const uint8_t *bytes, size_t n, double seconds,
                 double *out_p50, double *out_p99) {
    static uint64_t took[MAX_PASSES];
    uint64_t start = sl_now_ns();
    uint32_t passes = 0;
    while (passes < 8 || (passes < MAX_PASSES && (double)(sl_now_ns() - start) < seconds * 1e9)) {
        uint64_t from = sl_now_ns();
        send_one(l, 1, bytes, n);
        sem_wait(&e->came);
        took[passes++] = sl_now_ns() - from;
    }
    qsort(took, passes, sizeof *took, compare);
    *out_p50 = (double)took[passes / 2] * 0.5e-3;
    *out_p99 = (double)took[passes * 99 / 100] * 0.5e-3;
}

/* GB/s in one direction (epoch 2), or in each of the two (1), four frames on their way. */
static double rate(struct end *e, struct sl_link *l, uint32_t epoch, const uint8_t *bytes, size_t n,
                   double seconds) {
    uint64_t start = sl_now_ns(), sent = 0, back = 0;
    while ((double)(sl_now_ns() - start) < seconds * 1e9) {
        for (; sent - back < 4; sent++)
            send_one(l, epoch, bytes, n);
        sem_wait(&e->came);
        back++;
    }
    double gbps = (double)(back * n) / (double)(sl_now_ns() - start);
    for (; back < sent; back++)
        sem_wait(&e->came);
    return gbps;
}

static void measure(const char *name, const char *address, const struct sl_net_key *key,
                    double seconds) {
    const struct sl_link_config c = {.key = key,
                                     .connect_ns = 5000000000u,
                                     .heartbeat_ns = 1000000000u,
                                     .silence_ns = 10000000000u,
                                     .max_payload_bytes = MAX_BYTES,
                                     .queue_bytes = 5 * MAX_BYTES};
    struct sl_listener_owner owner = {was_accepted};
    struct sl_listener *listener;
    struct sl_link *l;
    struct sl_err err;
    int where[2];
    char at[128] = "";
    if (pipe(where) != 0)
        exit(1);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        must(sl_listener_open(address, &c, &owner, &listener, &err), &err);
        snprintf(at, sizeof at, "%s", sl_listener_address(listener));
        (void)!write(where[1], at, sizeof at);
        pause();
        exit(0);
    }
    if (read(where[0], at, sizeof at) <= 0)
        exit(1);
    struct end *e = new_end(false);
    must(sl_link_connect(at, &c, &e->owner, NULL, &l, &err), &err);
    encrypt_in_kernel();
    must(sl_link_start(l, &err), &err);
    uint8_t *bytes = calloc(1, MAX_BYTES);
    static const size_t sizes[] = {8u << 10, 32u << 10, 256u << 10, 1u << 20, 4u << 20, 16u << 20};
    for (size_t i = 0; bytes && i < sizeof sizes / sizeof *sizes; i++) {
        double p50, p99;
        hops(e, l, bytes, sizes[i], seconds, &p50, &p99);
        double one = rate(e, l, 2, bytes, sizes[i], seconds);
        double both = rate(e, l, 1, bytes, sizes[i], seconds);
        printf("%-12s %9zu %10.1f %10.1f %8.2f %8.2f\n", name, sizes[i], p50, p99, one, both);
    }
    free(bytes);
    sl_link_close(l, 0);
    waitpid(child, NULL, 0);
    close(where[0]);
    close(where[1]);
}

int main(int argc, char **argv) {
    double seconds = argc > 1 ? strtod(argv[1], NULL) : 0.5;
    char text[SL_NET_KEY_TEXT_BYTES], path[64];
    struct sl_net_key *key;
    struct sl_err err;
    sl_log_set_level(SL_LOG_ERROR);
    must(sl_net_key_generate(text, &err), &err);
    must(sl_net_key_parse(text, "here", &key, &err), &err);
    printf("%-12s %9s %10s %10s %8s %8s\n", "way", "bytes", "p50 us", "p99 us", "GB/s", "both");
    measure("tcp", "127.0.0.1:0", NULL, seconds);
    measure("tcp, TLS", "127.0.0.1:0", key, seconds);
    const char *none = why_no_kernel_tls();
    in_kernel = !none;
    if (none)
        printf("%-12s %9s this kernel has none: %s\n", "kernel TLS", "-", none);
    else
        measure("kernel TLS", "127.0.0.1:0", NULL, seconds);
    in_kernel = false;
    snprintf(path, sizeof path, "unix:/tmp/bench-net-%d", (int)getpid());
    measure("unix", path, NULL, seconds);
    sl_net_key_free(&key);
    return 0;
}
