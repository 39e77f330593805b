/* Compiled kernels on disk, so that they are compiled once: files in sluice/BACKEND/ below
 * $XDG_CACHE_HOME or ~/.cache. Where neither folder exists nothing is kept.
 *
 * A file has a header (its length, a sum, and a hash of all that the code depends on) and what the
 * backend gave. It is written under a temporary name and renamed when it is whole and on disk, so
 * processes may compile the same kernels at once: the last one's file stays. A file that is damaged
 * or has another key is removed, with a line in the log, and its kernels are compiled anew. A file
 * that another user wrote, or may write to, is not read.
 *
 * Every build, driver and card has files of its own, so a write also removes from the folder what
 * no process has read for SL_CODE_UNUSED_DAYS (a read sets the time of a file's last change), and
 * what one that was killed left unfinished so long ago. Files of other programs stay. */
#ifndef SL_BACKENDS_CODE_CACHE_H
#define SL_BACKENDS_CODE_CACHE_H

#include "common/siphash.h"

#include <stdbool.h>
#include <stddef.h>

#define SL_CODE_PATH_BYTES  1024u
#define SL_CODE_MAX_BYTES   ((size_t)64 << 20) /* of one file */
#define SL_CODE_UNUSED_DAYS 30u

struct sl_code_file {
    const char *backend;   /* "vulkan": the folder's name; messages begin with it */
    struct sl_hash128 key; /* of all that the code depends on */
    char path[SL_CODE_PATH_BYTES];
};

/* Sets out->path to that of the file `name` in the backend's folder; backend and key are the
 * caller's. False, and an empty path: there is no folder for it. */
bool sl_code_file_find(struct sl_code_file *out, const char *backend, const char *name);
/* What was written, for the caller to free; NULL: there is no sound file with this key, and the log
 * says what is wrong with one that is there. */
void *sl_code_file_read(const struct sl_code_file *f, size_t *out_bytes);
/* The caller cannot use what it read: removes the file, with a line in the log. */
void sl_code_file_drop(const struct sl_code_file *f, const char *why);
/* Replaces the file in one step, or leaves it as it was; makes the folders, for this user alone.
 * False: it was not written, and the log says why, unless there is no folder for it. */
bool sl_code_file_write(const struct sl_code_file *f, const void *data, size_t bytes);

#endif
