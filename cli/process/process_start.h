/* Makes the descriptors, stacks and signals that the process inherited fit for use. */
#ifndef SL_CLI_PROCESS_START_H
#define SL_CLI_PROCESS_START_H

#include <stdbool.h>

/* Call it first in main, before any file is opened and any thread started:
 * - takes closed descriptors 0, 1 and 2, so that no file opened later gets such a number and
 *   receives what is printed and logged. Reading 0 and writing 1 or 2 still fail with EBADF, as on
 *   a closed descriptor;
 * - stops ignoring SIGCHLD, where the parent ignored it: the kernel would discard how a process
 *   that compiles kernels ended, and waiting for it would fail;
 * - gives threads stacks of SL_STACK_BYTES, including those of libraries, and lets the main
 * thread's stack grow to as much, whatever RLIMIT_STACK was. False after a message if that is not
 * possible. */
bool sl_process_start(void);

#endif
