/* What the parts of the test driver share. */
#ifndef SL_TESTS_ZE_INTERNAL_H
#define SL_TESTS_ZE_INTERNAL_H

#include "tests/support/ze_driver/ze_test.h"

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <level_zero/ze_api.h>
#include <level_zero/ze_ddi.h>
#include <level_zero/zes_api.h>
#include <level_zero/zes_ddi.h>
#include <level_zero/zet_api.h>
#include <level_zero/zet_ddi.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

struct device {
    uint32_t number;
    bool lost;
};

/* One lock over everything: this is for order and counts, not for speed. */
extern pthread_mutex_t ze_lock;
extern struct ze_test_counts ze_counts;

/* driver.c */
uint64_t ze_number(const char *name, uint64_t otherwise);
/* Counts a call; what it is to return instead of doing anything, or ZE_RESULT_SUCCESS. d: NULL
 * where it is no device's. Takes the lock. */
ze_result_t ze_enter(const char *name, struct device *d);
#define ENTER(name, d)                                                                             \
    do {                                                                                           \
        ze_result_t entered_ = ze_enter(#name, (struct device *)(d));                              \
        if (entered_)                                                                              \
            return entered_;                                                                       \
    } while (0)

/* memory.c */
void ze_memory_table(ze_mem_dditable_t *t);
ze_result_t ze_import(ze_driver_handle_t driver, void *at, size_t bytes);
ze_result_t ze_release(ze_driver_handle_t driver, void *at);
/* Ends the program if not all of it may be touched by a device. */
void ze_must_know(const void *at, size_t bytes, const char *what);

/* module.c */
struct kernel;
void ze_module_table(ze_module_dditable_t *t);
void ze_log_table(ze_module_build_log_dditable_t *t);
void ze_kernel_table(ze_kernel_dditable_t *t);
/* A launch, with the arguments as they are now. */
struct launch;
ze_result_t ze_launch_make(ze_kernel_handle_t kernel, const ze_group_count_t *groups,
                           struct launch **out_launch);
struct launch *ze_launch_again(const struct launch *launch); /* another of the same */
void ze_launch_run(struct launch *launch);                   /* and frees it */
void ze_launch_drop(struct launch *launch);

/* list.c */
void ze_list_table(ze_command_list_dditable_t *t);
void ze_queue_table(ze_command_queue_dditable_t *t);
void ze_pool_table(ze_event_pool_dditable_t *t);
void ze_event_table(ze_event_dditable_t *t);

#endif
