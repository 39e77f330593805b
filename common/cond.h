/* Condition variables with deadlines in sl_now_ns time. */
#ifndef SL_COMMON_COND_H
#define SL_COMMON_COND_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

/* Uses the monotonic clock, so that setting the system's clock moves no deadline. */
static inline void sl_cond_init(pthread_cond_t *cond) {
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
}

/* pthread_cond_timedwait on one of these: 0, or ETIMEDOUT. */
static inline int sl_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock,
                                     uint64_t until_ns) {
    const struct timespec until = {(time_t)(until_ns / 1000000000u),
                                   (long)(until_ns % 1000000000u)};
    return pthread_cond_timedwait(cond, lock, &until);
}

#endif
