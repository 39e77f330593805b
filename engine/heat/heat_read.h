/* Reads a heat file on a thread of its own, so that a hanging disk blocks nobody for good. */
#ifndef SL_ENGINE_HEAT_READ_H
#define SL_ENGINE_HEAT_READ_H

#include "expert_cache/heat.h"

#include <stdbool.h>
#include <stddef.h>

/* What a file is to hold, and what it held. */
struct sl_heat_image {
    char path[4096];     /* of the file, also where there is none yet */
    uint8_t *bytes;      /* [size_bytes], the caller's to free */
    size_t size_bytes;   /* sl_heat_image_bytes of the shape */
    size_t have_bytes;   /* as many were read; 0 with error */
    int error;           /* errno of what failed, ENOENT if there is no file; 0: it was read */
    const char *foreign; /* not NULL: what is there is no heat file, and why; never write to it */
    bool named;          /* the path was the file's; else the file was looked for in a folder */
};

/* given: the file, or a folder with one file per model (its fingerprint is the name).
 * make_folders: make those that lead to it.
 * SL_AGAIN: the disk did not answer within five seconds; the thread and its memory go when it does,
 *   or with the process. SL_ERR_CANCELED: the start was interrupted (common/interrupt.h) while the
 *   disk was waited for, and the same holds. SL_ERR_INVALID: too long a path. SL_ERR_NOMEM.
 * out_image is set with SL_OK alone. */
enum sl_status sl_heat_read(const char *given, const struct sl_heat_config *shape,
                            bool make_folders, struct sl_heat_image *out_image) SL_MUST_CHECK;

#endif
