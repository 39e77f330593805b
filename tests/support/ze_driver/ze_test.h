/* A driver of Level Zero for tests, over OpenCL on the CPU (PoCL): the loader opens it with
 * ZE_ENABLE_ALT_DRIVERS. It has what backends/level_zero/ calls, and runs the kernels' SPIR-V,
 * which llvm-spirv turns into the form that Debian's PoCL takes.
 *
 * Commands of a list run late, when somebody waits or has asked twice, and between two barriers the
 * last comes first: the interface promises no order there. Device memory is the host's, each
 * allocation with nothing behind it, and not counted as the process's own (RssShmem, not RssAnon);
 * copies that touch anything but allocated or imported memory end the program.
 *
 * What it shows is read from variables when the driver starts:
 *   ZE_TEST_DEVICES=1          how many GPUs
 *   ZE_TEST_MEMORY_MIB=1024    memory of each
 *   ZE_TEST_MAX_ALLOC_MIB=256  the largest allocation
 *   ZE_TEST_KIND=discrete      or integrated, or cpu: no GPU at all
 *   ZE_TEST_COPY_ENGINES=1     0: all queues compute
 *   ZE_TEST_NO_IMPORT=1        it cannot use memory of the host's own
 *   ZE_TEST_FAIL=NAME:N:RESULT[,...]  the N-th call of that function (from 1) returns RESULT, a
 *                              number; ZE_RESULT_ERROR_DEVICE_LOST loses that device for good
 *   ZE_TEST_PLAIN=1            its module properties are those of a card without dp4a and fp16
 *   ZE_TEST_EMULATED=DIR       build/level_zero: modules of DIR that are in DIR/emulated too are
 * run as they are there, without subgroups, which PoCL lacks ZE_TEST_CACHE=DIR          where
 * translated kernels are kept; without: nowhere */
#ifndef SL_TESTS_ZE_TEST_H
#define SL_TESTS_ZE_TEST_H

#include <stdint.h>

#define ZE_TEST_MAX_DEVICES 8u

struct ze_test_counts {
    uint64_t device_bytes[ZE_TEST_MAX_DEVICES], host_bytes, imported_bytes; /* now */
    uint64_t n_allocs, n_launches, n_copies;                                /* ever */
    uint64_t n_replays;  /* lists that a queue was given, ever */
    uint64_t n_emulated; /* modules that were run as DIR/emulated has them, ever */
    uint32_t n_lists, n_event_pools, n_modules, n_kernels, n_contexts; /* now */
};

/* Looked up in the library by tests. */
typedef void ze_test_counts_fn(struct ze_test_counts *out);
/* As ZE_TEST_FAIL, instead of what it was; counts anew, and no device is lost any more. */
typedef void ze_test_fail_fn(const char *text);

#endif
