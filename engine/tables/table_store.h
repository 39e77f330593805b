/* Streamed tables of a stage: the model's files open for reading rows (streaming/row_reader.h), and
 * the rows that a step's tokens need on their way.
 *
 * Used by the stage's thread alone. */
#ifndef SL_ENGINE_TABLE_STORE_H
#define SL_ENGINE_TABLE_STORE_H

#include "engine/tables/table_layout.h"
#include "engine/trace/timeline.h"
#include "engine/types/plan.h"
#include "streaming/row_reader.h"

struct sl_table_store;

/* For the plan: host memory for reading these tables by row with so many bytes of cache, and how
 * many rows of each that keeps. */
uint64_t sl_table_store_bytes(const struct sl_model *model, uint32_t tables, uint64_t cache_bytes,
                              const struct sl_engine_config *config);
uint32_t sl_table_store_cached(const struct sl_model *model, uint32_t tables, uint64_t cache_bytes,
                               const struct sl_engine_config *config);

/* Opens the files and allocates what the plan counted. model, plan and timeline (NULL: no trace)
 * are borrowed until destroy. */
enum sl_status sl_table_store_create(const struct sl_model *model,
                                     const struct sl_memory_plan *plan,
                                     struct sl_timeline *timeline,
                                     struct sl_table_store **out_store,
                                     struct sl_err *err) SL_MUST_CHECK;
void sl_table_store_destroy(struct sl_table_store **store);

/* The rows of n tokens: of table t rows[t], sl_table_token_rows() of each token, the i-th of which
 * goes to to[t] + i * its bytes, until wait has returned. Only streamed tables' rows[t] and to[t]
 * are read. A row that a table does not have: SL_ERR_INVALID. */
enum sl_status sl_table_store_ask(struct sl_table_store *s, const uint32_t *const rows[SL_TABLES],
                                  uint32_t n, uint8_t *const to[SL_TABLES],
                                  struct sl_err *err) SL_MUST_CHECK;
/* Ends an ask. failed [n]: set to 1 where a row could not be read; *out_n_failed: how many were set
 * that were not, and err says why, of the first. SL_ERR_CANCELED: given up. */
enum sl_status sl_table_store_wait(struct sl_table_store *s, const struct sl_row_abort *give_up,
                                   uint8_t *failed, uint32_t *out_n_failed,
                                   struct sl_err *err) SL_MUST_CHECK;

/* Whether the files are still what was opened: as sl_store_verify() (engine/experts). */
enum sl_status sl_table_store_verify(struct sl_table_store *s, struct sl_err *err) SL_MUST_CHECK;
/* The same where nothing may have changed yet: SL_ERR_CORRUPT if it has. */
enum sl_status sl_table_store_check_files(struct sl_table_store *s,
                                          struct sl_err *err) SL_MUST_CHECK;
/* Before the end of the thread that reads: waits for reads that a canceled step has left. */
void sl_table_store_quit(struct sl_table_store *s);

#endif
