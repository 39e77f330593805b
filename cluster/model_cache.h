/* A worker's local copy of a model whose files it lacks: the headers and those pieces of tensors
 * that it needs, in a folder for each model. Files have their full size and holes. What has been
 * fetched is listed beside them, so that a later start goes on where an earlier one was cut.
 *
 * Threads: one at a time, but for sl_model_cache_take(), which another may call while one fetches
 * headers or layers. */
#ifndef SL_CLUSTER_MODEL_CACHE_H
#define SL_CLUSTER_MODEL_CACHE_H

#include "cluster/setup.h"
#include "model/arch/model.h"

#define SL_PIECE_BYTES      (4u << 20)
#define SL_PIECE_HEAD_BYTES 16u /* file, offset, CRC */

struct sl_model_cache;

/* How pieces are requested. */
struct sl_piece_source {
    /* Sends a request; the piece comes by sl_model_cache_take(). */
    enum sl_status (*ask)(struct sl_piece_source *s, const struct sl_setup_fetch *what);
    /* False: give up. Called several times a second. */
    bool (*wanted)(struct sl_piece_source *s);
};

/* The copy of that model below dir, made if it is not there. SL_ERR_IO: the folder cannot be used;
 * SL_ERR_CONFIG: another worker uses it, or its name is too long; SL_ERR_PROTOCOL: no model is as
 * the description says, or none that can be fetched (16 TiB), and nothing is written. */
enum sl_status sl_model_cache_open(const char *dir, const struct sl_setup_model *model,
                                   struct sl_model_cache **out_cache,
                                   struct sl_err *err) SL_MUST_CHECK;
void sl_model_cache_close(struct sl_model_cache **c);
/* Its first file, to open the model with when the headers are there. */
const char *sl_model_cache_path(const struct sl_model_cache *c);

/* Fetches the headers; the tensors of layers [first, first + n) with what the stage needs besides
 * them. progress may be NULL. SL_ERR_CANCELED: not wanted any more, the rest is kept; SL_ERR_IO:
 * the disk is full or fails, with how much is missing. */
enum sl_status sl_model_cache_headers(struct sl_model_cache *c, struct sl_piece_source *source,
                                      struct sl_err *err) SL_MUST_CHECK;
enum sl_status sl_model_cache_layers(struct sl_model_cache *c, const struct sl_model *model,
                                     uint32_t first, uint32_t n, struct sl_piece_source *source,
                                     struct sl_progress *progress,
                                     struct sl_err *err) SL_MUST_CHECK;
/* A PIECE of n bytes has arrived. SL_ERR_PROTOCOL: it was not requested, or its bytes are not what
 * was sent. A disk that fails is reported by the fetching thread. */
enum sl_status sl_model_cache_take(struct sl_model_cache *c, const uint8_t *bytes, size_t n,
                                   struct sl_err *err) SL_MUST_CHECK;

#endif
