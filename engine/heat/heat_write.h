/* Writing a heat file: a new one beside it, then a rename. What is there and is no heat file stays.
 */
#ifndef SL_ENGINE_HEAT_WRITE_H
#define SL_ENGINE_HEAT_WRITE_H

#include <stddef.h>
#include <stdint.h>

/* The file at path becomes these bytes, or stays as it was: NULL, or why not. What is in its place
 * is looked at just before: only an empty file or one that begins like a heat file is replaced,
 * never a symbolic link. The new file's name is unpredictable ("PATH.sluice-" and six letters), and
 * it is gone after a failure. why: room for the text that is returned. */
const char *sl_heat_write(const char *path, const uint8_t *image, size_t n_bytes, char why[256]);

/* Removes what processes left beside path that died while they wrote: files so named that hold
 * heat, or nothing, and that nobody is writing. */
void sl_heat_sweep(const char *path);

#endif
