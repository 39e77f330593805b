#include "common/interrupt.h"

#include <signal.h>
#include <stdatomic.h>

static atomic_bool noted;

bool sl_interrupt_pending(void) {
    sigset_t pending;
    if (atomic_load_explicit(&noted, memory_order_relaxed))
        return true;
    return sigpending(&pending) == 0 &&
           (sigismember(&pending, SIGINT) == 1 || sigismember(&pending, SIGTERM) == 1);
}

void sl_interrupt_note(void) {
    atomic_store_explicit(&noted, true, memory_order_relaxed);
}
