/* Gets a range of memory its pages now, so that no page fault or lack of memory comes later. */
#ifndef SL_COMMON_POPULATE_H
#define SL_COMMON_POPULATE_H

#include <stddef.h>

/* [base, base + size_bytes) of a private mapping that may be written; its contents stay. Clearing
 * pages is what takes the time: a few threads share it where there are CPUs. 0, or an errno. */
int sl_populate(void *base, size_t size_bytes);

#endif
