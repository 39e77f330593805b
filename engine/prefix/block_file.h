/* A KV page as a file: 512 bytes of head, then the page's keys and values.
 *
 *   0  "SLUICEKV"          8  version u32      12  head bytes u32
 *  16  root key, 16       32  key, 16          48  parent's key, 16
 *  64  payload bytes u64  72  number of ids u32
 *  80  ids u32 each      496  SipHash-128 of all else in head and payload, 16
 *
 * Little endian. The hash is keyed with the folder's secret: what was torn, damaged, moved or
 * written by others does not pass, and nothing in a file is followed before it has passed. */
#ifndef SL_ENGINE_BLOCK_FILE_H
#define SL_ENGINE_BLOCK_FILE_H

#include "common/siphash.h"
#include "common/status.h"
#include "engine/kv/kv.h"

#define SL_BLOCK_HEAD_BYTES 512u
#define SL_BLOCK_MARK_BYTES 8u
#define SL_BLOCK_MARK       "SLUICEKV" /* what a block begins with */
#define SL_BLOCK_KEY_MARK   "SLUICEKY" /* what a folder's key begins with */
#define SL_BLOCK_KEY_BYTES  40u        /* a folder's key: mark, secret, hash of the secret */
#define SL_BLOCK_KEY_AT     32u        /* where a block has its own key */

/* What a block holds; equal in all of it, or another block. */
struct sl_block_id {
    struct sl_hash128 root, key, parent; /* engine/prefix/prefix_tree.h */
    uint32_t ids[SL_KV_PAGE_TOKENS];
};

/* Fills the head of block [SL_BLOCK_HEAD_BYTES + payload_bytes] whose payload is in place. */
void sl_block_seal(uint8_t *block, uint64_t payload_bytes, const struct sl_block_id *id,
                   struct sl_hash128 secret);
/* SL_ERR_CORRUPT and why, unless the n_bytes read are this very block. */
enum sl_status sl_block_check(const uint8_t *block, uint64_t n_bytes, uint64_t payload_bytes,
                              const struct sl_block_id *id, struct sl_hash128 secret,
                              struct sl_err *err) SL_MUST_CHECK;

#endif
