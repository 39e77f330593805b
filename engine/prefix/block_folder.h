/* The folder of a block store: who has it, its secret, its files. Everything here may wait for the
 * disk. Nothing in the folder is followed, waited for or trusted before it has been looked at. */
#ifndef SL_ENGINE_BLOCK_FOLDER_H
#define SL_ENGINE_BLOCK_FOLDER_H

#include "common/siphash.h"
#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <time.h>

/* "<32 hex digits>.kv" and its like. */
#define SL_BLOCK_NAME_SIZE 40u

struct sl_block_folder {
    char path[4096];
    int fd, lock_fd;          /* -1 = none */
    struct sl_hash128 secret; /* the key of all hashes in the folder */
};

/* A block that an earlier process left. */
struct sl_block_found {
    struct sl_hash128 key;
    uint64_t file_bytes; /* that it takes on disk */
    struct timespec used;
};

/* Makes the folder when it is not there (mode 0700), takes its lock, reads its key. When that had
 * to be made anew, *out_kept is false: no block in the folder can be read any more.
 *
 * A folder is taken if it has a key of ours, or nothing but files of ours; it must belong to this
 * user, who alone may write to it, and the key be nobody else's to read. Nothing is made in any
 * other. SL_AGAIN: another process has the folder; SL_ERR_CONFIG: it cannot be used, and what to
 * do. Close it also after a failure. */
enum sl_status sl_block_folder_open(struct sl_block_folder *f, const char *path, bool *out_kept,
                                    struct sl_err *err) SL_MUST_CHECK;
void sl_block_folder_close(struct sl_block_folder *f);
/* What open would find wrong with the folder; changes nothing. SL_OK also where there is none. */
enum sl_status sl_block_folder_check(const char *path, struct sl_err *err) SL_MUST_CHECK;

/* Lists the blocks, the longest unused first, at most `most` of them; removes what a process left
 * that died while it wrote, and with keep false all blocks. The list is the caller's to free. */
enum sl_status sl_block_folder_list(const struct sl_block_folder *f, bool keep, size_t most,
                                    struct sl_block_found **out_list, size_t *out_n,
                                    struct sl_err *err) SL_MUST_CHECK;

void sl_block_folder_name(struct sl_hash128 key, char out[SL_BLOCK_NAME_SIZE]);
/* Removes the block; a file of that name which is none stays. */
void sl_block_folder_remove(const struct sl_block_folder *f, struct sl_hash128 key);

/* Reads a file of n bytes, and makes this its last use. *out_n: the bytes that it has, n when all
 * of them were read. False with errno: it cannot be read; ENOENT: there is none. */
bool sl_block_folder_read(const struct sl_block_folder *f, struct sl_hash128 key, void *to,
                          size_t n, uint64_t *out_n);
/* Writes a file, which gets its name when it is whole. False with errno: it could not, and nothing
 * of it is left; EEXIST: there is a file of that name that is no block, which stays. */
bool sl_block_folder_write(const struct sl_block_folder *f, struct sl_hash128 key, const void *from,
                           size_t n, uint64_t *out_file_bytes);

#endif
