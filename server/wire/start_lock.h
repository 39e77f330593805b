/* A lock that serialises starts on a UNIX socket: two servers that start at once must not take each
 * other's socket for one left by a killed server.
 *
 * The lock is an empty file beside the socket, PATH.lock, which only this user can open. (A lock on
 * the folder could be taken, and kept, by everybody who can read it.) The file exists only while
 * the lock is held, less than a millisecond; one left by a killed process is taken over. */
#ifndef SL_SERVER_START_LOCK_H
#define SL_SERVER_START_LOCK_H

#include "common/status.h"

#include <sys/un.h>

struct sl_start_lock {
    char path[sizeof((struct sockaddr_un *)0)->sun_path + sizeof ".lock"];
    int fd; /* -1 = not held */
};

/* socket_path: fits a sockaddr_un. Waits five seconds for another process that has the lock.
 * SL_ERR_CONFIG: it cannot be created, or is still held then; the error names the process.
 * SL_ERR_CANCELED: the start was interrupted meanwhile (common/interrupt.h).
 * Locks belong to the process: its threads must not start servers on one path at once. */
enum sl_status sl_start_lock_take(struct sl_start_lock *lock, const char *socket_path,
                                  struct sl_err *err) SL_MUST_CHECK;
/* Call it after a failure too. */
void sl_start_lock_release(struct sl_start_lock *lock);

#endif
