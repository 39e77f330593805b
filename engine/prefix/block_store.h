/* KV pages in files: a folder of blocks (block_file.h), each named by its key, under a budget.
 *
 * One thread of its own does all that may wait for the disk; whoever owns the store, the scheduler,
 * hands it buffers and takes them back, and decides what goes when space is short: the block whose
 * last use is longest ago, of whichever model. A file gets its name when it is whole, and is
 * checked whenever it is read, so that a process that dies at any moment leaves nothing that harms.
 * A folder has one user at a time, by a lock that ends with the process.
 *
 * In the folder: "lock"; "key", the secret of its hashes; blocks "<32 hex>.kv"; "sluice-<16
 * hex>.tmp" on their way. Files that have other names, or do not begin as such files do, are never
 * written or removed; a folder that is not a store's is refused (block_folder.h). */
#ifndef SL_ENGINE_BLOCK_STORE_H
#define SL_ENGINE_BLOCK_STORE_H

#include "engine/prefix/block_file.h"

struct sl_block_store;

struct sl_block_store_config {
    const char *folder;   /* made when it is not there; borrowed for open */
    uint64_t disk_bytes;  /* what the files may take, in blocks of the file system */
    uint64_t block_bytes; /* of a page's copy at most */
    /* Called on the store's thread when a buffer is done: must not block for long. */
    void (*wake)(void *ctx);
    void *ctx;
};

enum sl_block_op { SL_BLOCK_READ, SL_BLOCK_WRITE };

/* A buffer, the owner's between take or done and read, write or give. */
struct sl_block_buf {
    uint8_t *payload;       /* [block_bytes] */
    uint64_t payload_bytes; /* of which so many are the block's: all, unless the owner says less */
    enum sl_block_op op;
    struct sl_block_id id;
    void *user; /* the owner's */
    uint32_t number;

    /* When it is done: SL_OK; SL_AGAIN: there was no such file, or no space for it;
     * SL_ERR_CORRUPT: what was read is not the block, and was removed; SL_ERR_IO: it could not be
     * read or written, and what was there is as it was. Errors have been logged. */
    enum sl_status status;
    uint64_t took_ns; /* the disk and the check */

    /* the store's */
    struct sl_block_buf *next;
    uint8_t *block;
    uint32_t entry, n_victims;
    uint64_t file_bytes;
    int error; /* errno of what failed */
    struct sl_hash128 victims[8];
};

/* SL_AGAIN: another process has the folder, said in err; SL_ERR_CONFIG: it cannot be used. */
enum sl_status sl_block_store_open(const struct sl_block_store_config *config,
                                   struct sl_block_store **out_store,
                                   struct sl_err *err) SL_MUST_CHECK;
/* Ends what is under way; buffers that are done are dropped. Where the disk does not answer within
 * two seconds the store is given up: its thread, memory and lock on the folder go when the disk
 * answers, or with the process. */
void sl_block_store_close(struct sl_block_store **s);
/* What open allocates at most. */
uint64_t sl_block_store_bytes(uint64_t disk_bytes, uint64_t block_bytes);

/* The key of all hashes over what is in the folder. */
struct sl_hash128 sl_block_store_secret(const struct sl_block_store *s);

/* Is there a whole block of that name that is worth reading? Not one that the disk refused to give,
 * and none for a second after the process lacked a descriptor for a read. */
bool sl_block_store_has(const struct sl_block_store *s, struct sl_hash128 key);
/* ... or one on its way to the disk? */
bool sl_block_store_knows(const struct sl_block_store *s, struct sl_hash128 key);
/* It was of use. */
void sl_block_store_touch(struct sl_block_store *s, struct sl_hash128 key);
/* Are writes worth trying? Not for a while after one has failed. */
bool sl_block_store_writable(const struct sl_block_store *s);

/* A buffer, NULL when all are in use; n_free says how many are not. */
struct sl_block_buf *sl_block_store_take(struct sl_block_store *s);
uint32_t sl_block_store_n_free(const struct sl_block_store *s);
uint32_t sl_block_store_n_buffers(const struct sl_block_store *s);
void sl_block_store_give(struct sl_block_store *s, struct sl_block_buf *b);
/* Hands a buffer with its id over; a write with its payload. In the order of the calls. */
void sl_block_store_read(struct sl_block_store *s, struct sl_block_buf *b);
void sl_block_store_write(struct sl_block_store *s, struct sl_block_buf *b);
/* Clears `user` of all buffers that have this one. */
void sl_block_store_disown(struct sl_block_store *s, const void *user);
/* The next that is done, NULL = none yet. */
struct sl_block_buf *sl_block_store_done(struct sl_block_store *s);
/* Waits until one is done, or nothing is under way, or the monotonic clock shows until_ns. */
void sl_block_store_wait(struct sl_block_store *s, uint64_t until_ns);

#endif
