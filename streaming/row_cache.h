/* Rows of a table that were read before, by their number. The one that was used longest ago goes
 * first.
 *
 * Rows lie packed, so a row's address suits the ops as it would in the file. It reads nothing and
 * knows no clock: row_reader.h fills it. Threads: one. */
#ifndef SL_STREAMING_ROW_CACHE_H
#define SL_STREAMING_ROW_CACHE_H

#include "common/status.h"

#include <stddef.h>
#include <stdint.h>

struct sl_row_cache {
    uint8_t *rows; /* [n, row_bytes] the caller's */
    uint32_t row_bytes, n, n_used;
    uint32_t n_heads;           /* a power of two */
    uint32_t *head;             /* [n_heads] the first of each chain */
    struct sl_cached_row *info; /* [n] */
    uint32_t newest, oldest;
};

/* Of the tables for n rows: the rows themselves are the caller's. */
size_t sl_row_cache_table_bytes(uint32_t n);
/* rows is borrowed until release. n 0: nothing is ever found. SL_ERR_NOMEM. */
enum sl_status sl_row_cache_init(struct sl_row_cache *c, uint8_t *rows, uint32_t n,
                                 uint32_t row_bytes) SL_MUST_CHECK;
void sl_row_cache_release(struct sl_row_cache *c);

/* The row, which becomes the newest; NULL: it is not there. Valid until the next add. */
const uint8_t *sl_row_cache_find(struct sl_row_cache *c, uint64_t row);
/* A place for a row that is not there, in the place of the oldest: the caller writes all of it.
 * NULL: there is no room for any. */
uint8_t *sl_row_cache_add(struct sl_row_cache *c, uint64_t row);
/* Empties it. */
void sl_row_cache_forget(struct sl_row_cache *c);

#endif
