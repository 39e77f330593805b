/* What the process is given by whoever starts it, made fit to be used. */
#ifndef SL_CLI_PROCESS_START_H
#define SL_CLI_PROCESS_START_H

#include <stdbool.h>

/* First of all in main, before any file is opened and any thread started:
 * - descriptors 0, 1 and 2 that are closed are taken, so that no file that is opened later gets the
 *   number, and with it what is printed and logged. Reading 0 and writing 1 or 2 still fail, with
 *   EBADF, as on a closed one;
 * - threads get stacks of SL_STACK_BYTES, those of libraries included, and the main thread's may
 *   grow to as much, whatever RLIMIT_STACK was.
 * False, after a message, where that cannot be. */
bool sl_process_start(void);

#endif
