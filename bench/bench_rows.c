/* bench_rows: how many rows a second the row reader passes on of what the disk gives.
 *
 * raw    io_uring by hand, O_DIRECT, as many blocks as a row takes, at random places
 * rows   the row reader without a cache: asks of 512 rows (a step of prompts), and of one row (a
 *        generated token)
 *
 * Usage: bench_rows FILE [ROW_BYTES 8160] [SECONDS 0.5 a turn] [DEPTH 256]
 * FILE should exceed what the drive caches. Disks are noisy: both are measured by turns, and only
 * figures of one run may be compared. */
#include "common/clock.h"
#include "common/rng.h"
#include "streaming/row_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TURNS 4u
#define ASK   512u

static const char *path;
static uint64_t file_bytes;
static uint32_t row_bytes = 8160, depth = SL_ROW_DEPTH;
static double seconds = 0.5;
static struct sl_rng rng = {.state = 1};
static struct sl_err err;

static void die(const char *what) {
    fprintf(stderr, "bench_rows: %s: %s\n", what, err.text[0] ? err.text : strerror(errno));
    exit(1);
}

static uint64_t end_of_turn(void) {
    return sl_now_ns() + (uint64_t)(seconds * 1e9);
}

/* Blocks of a row that begins anywhere in one, rounded to the usual. */
static uint32_t blocks_bytes(void) {
    return (row_bytes + 2 * SL_IO_BLOCK_BYTES - 2) / SL_IO_BLOCK_BYTES * SL_IO_BLOCK_BYTES;
}

/* Requests a second at this depth. */
static double raw(uint32_t n) {
    struct io_uring ring;
    int fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    uint32_t len = blocks_bytes();
    uint64_t places = file_bytes / SL_IO_BLOCK_BYTES - len / SL_IO_BLOCK_BYTES;
    uint8_t *buf = aligned_alloc(SL_IO_BLOCK_BYTES, (size_t)n * len);
    if (fd < 0 || !buf || io_uring_queue_init(n, &ring, 0) < 0)
        die(path);
    uint64_t done = 0, start = sl_now_ns(), end = end_of_turn();
    uint32_t flying = 0;
    uint32_t *free_slot = malloc(n * sizeof *free_slot), n_free = n;
    for (uint32_t i = 0; i < n; i++)
        free_slot[i] = i;
    while (sl_now_ns() < end || flying) {
        while (n_free && sl_now_ns() < end) {
            struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
            uint32_t slot = free_slot[--n_free];
            io_uring_prep_read(sqe, fd, buf + (size_t)slot * len, len,
                               sl_rng_u64(&rng) % places * SL_IO_BLOCK_BYTES);
            io_uring_sqe_set_data64(sqe, slot);
            flying++;
        }
        if (io_uring_submit_and_wait(&ring, flying ? 1 : 0) < 0)
            die("io_uring");
        struct io_uring_cqe *cqe;
        while (flying && io_uring_peek_cqe(&ring, &cqe) == 0) {
            if (cqe->res != (int)len)
                die("a raw read");
            free_slot[n_free++] = (uint32_t)cqe->user_data;
            io_uring_cqe_seen(&ring, cqe);
            flying--;
            done++;
        }
    }
    double rate = (double)done * 1e9 / (double)(sl_now_ns() - start);
    io_uring_queue_exit(&ring);
    close(fd);
    free(free_slot);
    free(buf);
    return rate;
}

/* Rows a second, asked for n at a time. */
static double rows(struct sl_row_reader *r, uint64_t n_rows, uint32_t n) {
    static struct sl_row_want want[ASK];
    static uint8_t to[ASK][SL_ROW_BYTES];
    uint64_t done = 0, start = sl_now_ns(), end = end_of_turn();
    while (sl_now_ns() < end) {
        uint32_t n_failed;
        for (uint32_t i = 0; i < n; i++)
            want[i] = (struct sl_row_want){.to = to[i], .row = sl_rng_u64(&rng) % n_rows};
        if (sl_row_reader_ask(r, want, n, &err) != SL_OK ||
            sl_row_reader_wait(r, NULL, &n_failed, &err) != SL_OK || n_failed)
            die("rows");
        done += n;
    }
    return (double)done * 1e9 / (double)(sl_now_ns() - start);
}

static struct sl_row_reader *open_rows(uint64_t n_rows) {
    struct sl_row_reader_config c = {
        .table = {{.n_rows = n_rows, .row_bytes = row_bytes, .stride_bytes = row_bytes}},
        .n_tables = 1,
        .max_wants = ASK,
        .depth = depth};
    struct sl_reader_config queue = {.kind = SL_IO_AUTO};
    struct sl_row_reader *r;
    struct sl_reader *reader;
    uint32_t file;
    if (sl_row_reader_create(&c, &r, &err) != SL_OK)
        die("create");
    sl_row_reader_queue(&c, &queue);
    queue.slab = sl_row_reader_slab(r);
    if (sl_reader_open(&queue, &reader, &err) != SL_OK ||
        sl_reader_add_file(reader, path, &file, &err) != SL_OK ||
        sl_row_reader_start(r, reader, &err) != SL_OK)
        die("open");
    char how[256];
    sl_reader_describe(reader, how, sizeof how);
    printf("%s: rows of %u bytes by %s\n", path, row_bytes, how);
    return r;
}

int main(int argc, char **argv) {
    struct stat st;
    if (argc < 2 || stat(argv[1], &st) != 0) {
        fprintf(stderr, "usage: bench_rows FILE [ROW_BYTES] [SECONDS] [DEPTH]\n");
        return 2;
    }
    path = argv[1];
    file_bytes = (uint64_t)st.st_size;
    if (argc > 2)
        row_bytes = (uint32_t)atoi(argv[2]);
    if (argc > 3)
        seconds = atof(argv[3]);
    if (argc > 4)
        depth = (uint32_t)atoi(argv[4]);
    if (!row_bytes || row_bytes > SL_ROW_BYTES || file_bytes < 1000ull * row_bytes || depth < 1 ||
        depth > 512)
        die("a row of this size in this file, at this depth");
    uint64_t n_rows = file_bytes / row_bytes;
    struct sl_row_reader *r = open_rows(n_rows);
    double sum[4] = {0};
    printf("turn   raw, depth %-3u   rows, 512 an ask   raw, depth 1   rows, 1 an ask   (per "
           "second)\n",
           depth);
    for (uint32_t t = 0; t < TURNS; t++) {
        double x[4] = {raw(depth), rows(r, n_rows, ASK), raw(1), rows(r, n_rows, 1)};
        printf("%-6u %14.0f %18.0f %14.0f %16.0f\n", t, x[0], x[1], x[2], x[3]);
        for (uint32_t i = 0; i < 4; i++)
            sum[i] += x[i] / TURNS;
    }
    printf("mean   %14.0f %18.0f %14.0f %16.0f\n", sum[0], sum[1], sum[2], sum[3]);
    printf("rows over raw: %.2f at depth %u, %.2f one by one (%.0f us a row)\n", sum[1] / sum[0],
           depth, sum[3] / sum[2], 1e6 / sum[3]);
    sl_row_reader_destroy(&r);
    return 0;
}
