/* Files that the program writes where the user says: a trace, a table, a model.
 *
 * A file that is not ours is never written, cut or removed. What is there already is taken over
 * only if it is empty or holds what is about to be written again, which the caller's test decides
 * on the very descriptor that is then used; anything else is refused by name. A name that is free
 * gets a new file (O_EXCL: no symbolic link is followed). A pipe, a terminal or a character device
 * is written to as it is; a block device is refused.
 *
 * Threads: none of its own; one at a time per output. */
#ifndef SL_COMMON_OUTPUT_H
#define SL_COMMON_OUTPUT_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct sl_output {
    int fd;       /* -1 = none */
    bool regular; /* a file: it can be cut and written anywhere; else only in sequence */
    dev_t dev;
    ino_t ino;
};

/* Does the file of size_bytes (above 0) hold what this output would be? fd can be read with pread.
 */
typedef bool (*sl_output_test)(int fd, uint64_t size_bytes, const void *ctx);

/* Opens path for writing, empty if it is a file. A FIFO must have a reader.
 * is_ours: NULL = nothing that is there may be replaced.
 * SL_ERR_IO: "PATH: ..." in err; nothing was changed. *out is set in any case. */
enum sl_status sl_output_open(const char *path, mode_t mode, sl_output_test is_ours,
                              const void *ctx, struct sl_output *out,
                              struct sl_err *err) SL_MUST_CHECK;

/* Takes back what was written: empties the file, and removes its name if that is still its own. A
 * pipe or device stays. Leaves fd open. */
void sl_output_discard(const struct sl_output *o, const char *path);

/* Do the file's bytes at `at` equal these n? For tests of marks. */
bool sl_file_has(int fd, uint64_t at, const void *bytes, size_t n);

#endif
