/* Whether the process has been told to stop while it is still starting.
 *
 * A program that takes SIGINT and SIGTERM with sigwait keeps them blocked, so they end no wait by
 * themselves. Whatever may wait for seconds before the program listens for them asks here, every
 * SL_INTERRUPT_POLL_MS or so. Any thread. */
#ifndef SL_COMMON_INTERRUPT_H
#define SL_COMMON_INTERRUPT_H

#include <stdbool.h>

#define SL_INTERRUPT_POLL_MS 20

/* SIGINT or SIGTERM is pending, or was taken already (sl_interrupt_note). Takes nothing. */
bool sl_interrupt_pending(void);

/* A signal to stop was taken: sl_interrupt_pending is true from now on. */
void sl_interrupt_note(void);

#endif
