/* Whether the process has been told to stop while it is still starting.
 *
 * A program that receives SIGINT and SIGTERM with sigwait keeps them blocked, so they interrupt no
 * wait. Code that may wait for seconds before the program listens for them must call
 * sl_interrupt_pending every SL_INTERRUPT_POLL_MS or so. Any thread. */
#ifndef SL_COMMON_INTERRUPT_H
#define SL_COMMON_INTERRUPT_H

#include <stdbool.h>

#define SL_INTERRUPT_POLL_MS 20

/* SIGINT or SIGTERM is pending, or was received (sl_interrupt_note). Does not consume the signal.
 */
bool sl_interrupt_pending(void);

/* Records that a signal to stop was received: sl_interrupt_pending is true from now on. */
void sl_interrupt_note(void);

#endif
