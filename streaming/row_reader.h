/* Rows of tables from disk: thousands of reads of a few KiB, where experts (reader.h) are a few
 * reads of MiB.
 *
 * A table is a matrix in a file of which a step needs single rows, by number. Whoever needs some
 * asks for all of them at once, says where each is to go, does something else, and waits:
 *
 *     sl_row_reader_ask(r, wants, n);     copies what the cache has, starts reading the others
 *     ...
 *     sl_row_reader_wait(r, NULL, &err);  ends when every row is in its place, or has failed
 *
 * A row that is wanted more than once is read once. It lands in a place of its own, since O_DIRECT
 * reads whole blocks, and is copied from there to where it is wanted and into the cache: a row of
 * some KiB is copied in less time than the reader takes for its request. There are as many landing
 * places as the reader has requests in flight.
 *
 * What is where never shows: a row's bytes are those of the file, whatever the cache's size.
 *
 * Threads: one, the reader's owner. Memory: allocated by create, none later. */
#ifndef SL_STREAMING_ROW_READER_H
#define SL_STREAMING_ROW_READER_H

#include "streaming/reader.h"
#include "streaming/slab.h"

#define SL_ROW_TABLES 8u          /* at most */
#define SL_ROW_BYTES  (64u << 10) /* of a row at most */

struct sl_row_table {
    uint64_t offset_bytes; /* of row 0 in the file */
    uint64_t n_rows;
    uint32_t row_bytes;    /* 1..SL_ROW_BYTES */
    uint32_t stride_bytes; /* row_bytes at least; row i begins i * stride_bytes behind row 0 */
    uint32_t file;         /* the reader's index */
};

struct sl_row_reader_config {
    struct sl_row_table table[SL_ROW_TABLES];
    uint32_t n_tables;
    uint64_t cache_bytes; /* rows kept of all tables together: of each the same number */
    uint32_t max_wants;   /* of one ask */
    uint32_t depth;       /* reads in flight; 0 = SL_ROW_DEPTH; more than 512 are not possible */
};

/* A drive gives its most requests a second with this many in flight; see docs/STREAMING.md. */
#define SL_ROW_DEPTH 256u

/* A row that is wanted. */
struct sl_row_want {
    uint8_t *to; /* [row_bytes] of the table; written until the wait has ended */
    uint64_t row;
    uint32_t table;
    /* Set by the wait: SL_OK, the row is there; else it could not be read, and nothing was written.
     */
    enum sl_status status;
    uint32_t same; /* the reader's own: the next want of the same row */
};

struct sl_row_reader_stats {
    uint64_t wants;      /* rows that were asked for */
    uint64_t hits;       /* ... found in the cache, or wanted before in the same ask */
    uint64_t reads;      /* ... read from disk, failed ones included */
    uint64_t failed;     /* reads that failed */
    uint64_t disk_bytes; /* whole blocks of these reads */
    uint64_t wait_ns;    /* in sl_row_reader_wait, while something was missing */
};

struct sl_row_reader;

/* Everything that create allocates but the cache's rows and the landing places; those. */
uint64_t sl_row_reader_table_bytes(const struct sl_row_reader_config *config);
uint64_t sl_row_reader_landing_bytes(const struct sl_row_reader_config *config);
/* What all of it takes, with the reader's queue. */
uint64_t sl_row_reader_size_bytes(const struct sl_row_reader_config *config,
                                  const struct sl_reader_config *queue);
/* Rows of each table that the cache has room for. */
uint32_t sl_row_reader_cached(const struct sl_row_reader_config *config);
/* Completes a reader's configuration, whose slab becomes the landing places. */
void sl_row_reader_queue(const struct sl_row_reader_config *config,
                         struct sl_reader_config *in_out_queue);

/* config is copied. SL_ERR_INVALID: no tables or too many, or a row of no or too many bytes;
 * SL_ERR_NOMEM. */
enum sl_status sl_row_reader_create(const struct sl_row_reader_config *config,
                                    struct sl_row_reader **out_rows,
                                    struct sl_err *err) SL_MUST_CHECK;
/* The landing places, for the reader to register. Until destroy. */
const struct sl_slab *sl_row_reader_slab(const struct sl_row_reader *r);
/* Takes a reader over, with its files, once and before the first ask. SL_ERR_CORRUPT: a table does
 * not lie in its file; the reader stays the caller's. */
enum sl_status sl_row_reader_start(struct sl_row_reader *r, struct sl_reader *reader,
                                   struct sl_err *err) SL_MUST_CHECK;
/* For the thread that reads, before it ends: gives up what is asked for, waits for what the disk
 * still writes, and frees the reader's registrations. Nothing is asked for after it. */
void sl_row_reader_quit(struct sl_row_reader *r);
/* Closes the reader. By the thread that reads, whose reads it waits for; by any thread after quit.
 */
void sl_row_reader_destroy(struct sl_row_reader **r);

/* Wants [n] are borrowed until the wait that follows, n at most max_wants. An ask that nobody has
 * waited for is given up. SL_ERR_INVALID: a row or a table that does not exist; then nothing is
 * asked for. */
enum sl_status sl_row_reader_ask(struct sl_row_reader *r, struct sl_row_want *wants, uint32_t n,
                                 struct sl_err *err) SL_MUST_CHECK;

/* Asked while the disk reads, true gives the wants up. */
struct sl_row_abort {
    bool (*asked)(void *ctx);
    void *ctx;
};
/* Ends an ask; without one it does nothing. *out_n_failed: wants whose status is not SL_OK, with
 * the reason of the first in err. SL_ERR_CANCELED: given up, and nothing is written to any place
 * from here on; it does not wait for a disk that hangs. */
enum sl_status sl_row_reader_wait(struct sl_row_reader *r, const struct sl_row_abort *give_up,
                                  uint32_t *out_n_failed, struct sl_err *err) SL_MUST_CHECK;

/* Empties the cache: the files have changed. Not between ask and wait. */
void sl_row_reader_forget(struct sl_row_reader *r);
void sl_row_reader_get_stats(const struct sl_row_reader *r, struct sl_row_reader_stats *out_stats);
struct sl_reader *sl_row_reader_reader(const struct sl_row_reader *r);

#endif
