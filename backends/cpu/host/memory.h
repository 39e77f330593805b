/* Memory of the CPU device, for buffers and scratch, 64-byte aligned. Blocks of at least one huge
 * page are mapped on a huge page's boundary, so that weights and KV do not spend their time in the
 * TLB. */
#ifndef SL_BACKENDS_CPU_HOST_MEMORY_H
#define SL_BACKENDS_CPU_HOST_MEMORY_H

#include "common/status.h"

#include <stddef.h>

/* SL_ERR_NOMEM. What is in it: anything. */
enum sl_status sl_cpu_alloc(size_t bytes, void **out_addr) SL_MUST_CHECK;
/* bytes: as they were asked for. */
void sl_cpu_free(void *addr, size_t bytes);

#endif
