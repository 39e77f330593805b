/* The size of every stack that the program runs on, whatever RLIMIT_STACK says.
 *
 * This is address space, not memory: the memory plan counts what is touched (memory_plan.c). 2 MiB
 * including the guard page never hold an aligned huge page, so the first touch does not take 2 MiB
 * of memory if transparent huge pages are always on. The deepest call chains are bounded and
 * tested; a chat template nested to its limit under ASan (test_small_stack) needs the most. */
#ifndef SL_COMMON_STACK_H
#define SL_COMMON_STACK_H

#include <stdint.h>

#define SL_STACK_BYTES ((uint64_t)2 << 20)

#endif
