/* Files that the program writes where the user says: a trace, a table, a model.
 *
 * A file that is not ours is never written, truncated or removed. An existing file is replaced only
 * if it is empty or holds what this output wrote before. The caller's test decides that, on the
 * very descriptor that is then used; any other file is refused by name. A name that does not exist
 * gets a new file (O_EXCL: no symbolic link is followed). Pipes, terminals and character devices
 * are written to as they are; block devices are refused.
 *
 * Threads: creates none; one at a time per output. */
#ifndef SL_COMMON_OUTPUT_H
#define SL_COMMON_OUTPUT_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct sl_output {
    int fd;       /* -1 = none */
    bool regular; /* a regular file: can be truncated and written anywhere; else only in sequence */
    dev_t dev;
    ino_t ino;
};

/* Does the file of size_bytes (above 0) hold what this output would write? fd can be read with
 * pread. */
typedef bool (*sl_output_test)(int fd, uint64_t size_bytes, const void *ctx);

/* Opens path for writing; a regular file is truncated. A FIFO must have a reader.
 * is_ours: NULL = no existing file may be replaced.
 * SL_ERR_IO: "PATH: ..." in err; nothing was changed. *out is set in any case. */
enum sl_status sl_output_open(const char *path, mode_t mode, sl_output_test is_ours,
                              const void *ctx, struct sl_output *out,
                              struct sl_err *err) SL_MUST_CHECK;

/* Undoes what was written: empties the file, and removes its name if the name is still this file's.
 * A pipe or device is left alone. Leaves fd open. */
void sl_output_discard(const struct sl_output *o, const char *path);

/* Do the n bytes of the file at `at` equal these? For tests of marks. */
bool sl_file_has(int fd, uint64_t at, const void *bytes, size_t n);

#endif
