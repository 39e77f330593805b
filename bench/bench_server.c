/* What the server takes for a token: the engine on the null device, whose steps cost next to
 * nothing, first alone and then behind HTTP on loopback, one stream, alternating.
 *
 *   bench_server MODEL.gguf [rounds]
 *
 * alone:  tokens into a sink that counts them
 * stream: the same as server-sent events, until the client has read the last
 * The differences are the server's. CPU time is the process's less the client's thread. */
#include "backends/backend_table.h"
#include "backends/null/null.h"
#include "backends/ops/rows.h"
#include "common/clock.h"
#include "common/log.h"
#include "server/server.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CTX_TOKENS 4096u
#define N_TOKENS   4000u
#define MAX_ROUNDS 64u

static void must(bool ok, const char *what) {
    if (!ok) {
        fprintf(stderr, "bench_server: %s\n", what);
        exit(1);
    }
}

/* The null device, or one whose steps take a millisecond: then every token goes its way alone. */
struct null_source {
    struct sl_device_source base;
    bool slow;
};
static struct sl_backend_ops slow_ops;

static enum sl_status slow_embed(struct sl_device *d, const struct sl_op_embed *a) {
    (void)d, (void)a;
    usleep(1000);
    return SL_OK;
}

static enum sl_status open_null(const struct sl_device_source *source, uint32_t index,
                                struct sl_device **out, struct sl_err *err) {
    (void)index;
    enum sl_status status = sl_null_open(out, err);
    if (status == SL_OK && ((const struct null_source *)source)->slow) {
        slow_ops = *(*out)->ops;
        slow_ops.embed = slow_embed;
        (*out)->ops = &slow_ops;
    }
    return status;
}

static double seconds(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- the engine alone ---- */

struct counter {
    struct sl_token_sink sink;
    pthread_mutex_t lock;
    pthread_cond_t cond;
    uint32_t n;
    bool done;
};

static enum sl_status count_push(struct sl_token_sink *s, const struct sl_token *token) {
    (void)token;
    ((struct counter *)s)->n++;
    return SL_OK;
}

static void count_finish(struct sl_token_sink *s, const struct sl_gen_result *result) {
    struct counter *c = (struct counter *)s;
    must(result->reason == SL_FINISH_LENGTH, result->err.text);
    pthread_mutex_lock(&c->lock);
    c->done = true;
    pthread_cond_signal(&c->cond);
    pthread_mutex_unlock(&c->lock);
}

static void run_alone(struct sl_engine *e, uint32_t token) {
    struct counter c = {.sink = {count_push, NULL, count_finish}};
    pthread_mutex_init(&c.lock, NULL);
    pthread_cond_init(&c.cond, NULL);
    const struct sl_logit_bias bias = {token, 100};
    uint32_t prompt = token;
    struct sl_gen_request r = {.prompt = &prompt,
                               .n_prompt = 1,
                               .max_tokens = N_TOKENS,
                               .ignore_eog = true,
                               .sampling = sl_sampling_default,
                               .sink = &c.sink};
    r.sampling.temperature = 0;
    r.sampling.n_logit_bias = 1;
    r.sampling.logit_bias = &bias;
    struct sl_err err;
    must(sl_engine_submit(e, &r, &err) == SL_OK, "the engine refused");
    pthread_mutex_lock(&c.lock);
    while (!c.done)
        pthread_cond_wait(&c.cond, &c.lock);
    pthread_mutex_unlock(&c.lock);
    must(c.n == N_TOKENS, "tokens are missing");
    pthread_cond_destroy(&c.cond);
    pthread_mutex_destroy(&c.lock);
}

/* ---- behind HTTP ---- */

static int ask(uint16_t port, uint32_t token, uint32_t n_tokens) {
    char body[256], head[512];
    int n = snprintf(body, sizeof body,
                     "{\"prompt\":[%u],\"max_tokens\":%u,\"stream\":true,\"ignore_eos\":true,"
                     "\"temperature\":0,\"logit_bias\":{\"%u\":100}}",
                     token, n_tokens, token);
    int m = snprintf(head, sizeof head,
                     "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                     "Content-Length: %d\r\n\r\n%s",
                     n, body);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    must(fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a) == 0, "cannot connect");
    must(send(fd, head, (size_t)m, MSG_NOSIGNAL) == m, "cannot send");
    return fd;
}

/* Reads to the end; the number of events. */
static uint32_t read_events(int fd) {
    static char buf[1 << 16];
    static const char mark[] = "\ndata: {";
    uint32_t n = 0;
    size_t matched = 0;
    for (ssize_t got; (got = recv(fd, buf, sizeof buf, 0)) > 0;)
        for (ssize_t i = 0; i < got; i++) {
            matched = buf[i] == mark[matched] ? matched + 1 : buf[i] == mark[0];
            if (matched == sizeof mark - 1) {
                n++;
                matched = 0;
            }
        }
    close(fd);
    return n;
}

struct times {
    double wall_us, cpu_us; /* a token */
};

static struct times since(double wall, double process, double thread) {
    return (struct times){(seconds(CLOCK_MONOTONIC) - wall) * 1e6 / N_TOKENS,
                          (seconds(CLOCK_PROCESS_CPUTIME_ID) - process -
                           (seconds(CLOCK_THREAD_CPUTIME_ID) - thread)) *
                              1e6 / N_TOKENS};
}

static int by_wall(const void *a, const void *b) {
    double x = ((const struct times *)a)->wall_us, y = ((const struct times *)b)->wall_us;
    return (x > y) - (x < y);
}

static struct times median(struct times *t, uint32_t n) {
    qsort(t, n, sizeof *t, by_wall);
    return t[n / 2];
}

static struct times measure(struct sl_engine *e, uint16_t port, uint32_t token, bool http) {
    double wall = seconds(CLOCK_MONOTONIC), process = seconds(CLOCK_PROCESS_CPUTIME_ID),
           thread = seconds(CLOCK_THREAD_CPUTIME_ID);
    if (http)
        must(read_events(ask(port, token, N_TOKENS)) >= N_TOKENS, "events are missing");
    else
        run_alone(e, token);
    return since(wall, process, thread);
}

/* From the request's last byte to the answer's end, for one token: the median of many. */
static double one_token_us(uint16_t port, uint32_t token) {
    enum { N = 501 };
    static struct times t[N];
    for (int i = 0; i < N; i++) {
        int fd = ask(port, token, 1);
        double start = seconds(CLOCK_MONOTONIC);
        must(read_events(fd) >= 1, "no event");
        t[i].wall_us = (seconds(CLOCK_MONOTONIC) - start) * 1e6;
    }
    return median(t, N).wall_us;
}

static void compare(const char *path, struct sl_model *model, const struct sl_tokenizer *tok,
                    bool slow, uint32_t rounds) {
    struct sl_err err = {""};
    struct sl_engine *engine;
    struct sl_server *server;
    const struct null_source source = {{open_null}, slow};
    struct sl_engine_config config = {.ctx_tokens = CTX_TOKENS,
                                      .parallel = 1,
                                      .batch_tokens = 64,
                                      .queue_max = 4,
                                      .kv_dtype = SL_DTYPE_F16,
                                      .device_source = &source.base};
    must(sl_engine_create(model, &config, NULL, &engine, &err) == SL_OK, err.text);
    must(sl_server_create(&(struct sl_server_config){.port = 0}, &server, &err) == SL_OK, err.text);
    struct sl_server_model m = {
        .engine = engine, .tokenizer = tok, .id = "m", .path = path, .arch = "null"};
    must(sl_server_attach(server, &m, &err) == SL_OK, err.text);
    struct sl_ids ids = {0};
    must(sl_tokenizer_encode(tok, " a", 2, 0, &ids) == SL_OK && ids.n, "no token");

    uint16_t port = sl_server_port(server);
    struct times alone[MAX_ROUNDS], stream[MAX_ROUNDS];
    measure(engine, port, ids.ids[0], true);
    for (uint32_t i = 0; i < rounds; i++) {
        alone[i] = measure(engine, 0, ids.ids[0], false);
        stream[i] = measure(engine, port, ids.ids[0], true);
    }
    struct times a = median(alone, rounds), s = median(stream, rounds);
    printf("%s, %u rounds of %u tokens, medians, us a token:\n",
           slow ? "steps of 1 ms" : "steps that cost nothing", rounds, N_TOKENS);
    printf("  engine on the null device, alone   wall %7.1f  cpu %6.1f\n", a.wall_us, a.cpu_us);
    printf("  streamed over HTTP                 wall %7.1f  cpu %6.1f\n", s.wall_us, s.cpu_us);
    printf("  the server                         wall %7.1f  cpu %6.1f\n", s.wall_us - a.wall_us,
           s.cpu_us - a.cpu_us);
    if (!slow)
        printf("  a request for one token, on a new connection: %.0f us\n",
               one_token_us(port, ids.ids[0]));
    sl_ids_release(&ids);
    sl_server_destroy(&server);
    sl_engine_destroy(&engine);
}

int main(int argc, char **argv) {
    must(argc == 2 || argc == 3, "usage: bench_server MODEL.gguf [rounds]");
    uint32_t rounds = argc == 3 ? (uint32_t)strtoul(argv[2], NULL, 10) : 5;
    must(rounds > 0 && rounds <= MAX_ROUNDS, "1 to 64 rounds");
    sl_log_set_level(SL_LOG_ERROR);
    struct sl_err err = {""};
    struct sl_model *model;
    struct sl_tokenizer *tok;
    must(sl_model_open(argv[1], &model, &err) == SL_OK, err.text);
    must(sl_tokenizer_create(model->gguf, &tok, &err) == SL_OK, err.text);
    compare(argv[1], model, tok, false, rounds);
    compare(argv[1], model, tok, true, rounds);
    sl_tokenizer_destroy(&tok);
    sl_model_close(&model);
    return 0;
}
