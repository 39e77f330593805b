/* block_entry.c, which block_folder.c and block_folder_open.c share: names, marks, whole reads and
 * writes. */
#ifndef SL_ENGINE_BLOCK_FOLDER_INTERNAL_H
#define SL_ENGINE_BLOCK_FOLDER_INTERNAL_H

#include "engine/prefix/block_folder.h"

#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

/* A name of ours for a file that is not whole yet: "sluice-<16 hex digits>.tmp", at random. */
#define SL_BLOCK_TEMP_SIZE 32u

/* The key of "<32 hex digits>.kv". */
bool sl_block_key_of(const char *name, struct sl_hash128 *out_key);
/* Is it that of a file that is not whole yet, of this version or an earlier one? */
bool sl_block_is_temp_name(const char *name);

/* Is the entry one that only this program makes: by its name, and by the mark that it begins with?
 * The lock, the key, a block, or what a process left that died while it wrote. */
enum sl_block_entry_kind {
    SL_ENTRY_FOREIGN,
    SL_ENTRY_LOCK,
    SL_ENTRY_KEY,
    SL_ENTRY_BLOCK,
    SL_ENTRY_LEFT_OVER,
};
enum sl_block_entry_kind sl_block_entry_kind(int folder, const char *name);

/* Bytes that a file takes on the disk. */
uint64_t sl_block_disk_bytes(const struct stat *about);
/* Bytes read, less than asked for at the file's end; negative: errno is set. */
ssize_t sl_block_read_all(int fd, void *to, size_t n);

/* Writes a new file of that name; with `synced` it is on the disk before it has its name. What is
 * there is replaced only if it is an entry of `kind`; else EEXIST. False with errno, and nothing of
 * it is left. */
bool sl_block_write_new(int folder, const char *name, enum sl_block_entry_kind kind,
                        const void *from, size_t n, bool synced, uint64_t *out_file_bytes);

/* block_folder_open.c. */
enum sl_status sl_block_folder_refuse(const struct sl_block_folder *f, const char *what,
                                      struct sl_err *err);

#endif
