#include "cli/process/process_start.h"

#include "common/stack.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Uses write and static memory: the stack may be all but exhausted. */
static bool refuse(int n, char *text) {
    ssize_t put = write(STDERR_FILENO, text, (size_t)n);
    (void)put;
    return false;
}

/* The lowest free number is what open gives. Opened the wrong way round: /dev/null would take all
 * that is written, and a command whose output is lost must not end with 0. */
static bool fill_descriptors(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF &&
            open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd) {
            static char text[] = "sluice: /dev/null cannot be opened, which must stand in for a "
                                 "closed stdin, stdout or stderr\n";
            return refuse((int)sizeof text - 1, text);
        }
    return true;
}

static bool size_stacks(void) {
    static char text[256];
    struct rlimit r;
    if (getrlimit(RLIMIT_STACK, &r) == 0 && r.rlim_cur < SL_STACK_BYTES) {
        /* The kernel looks at the limit when the stack grows, and leaves far more room below it. */
        rlim_t was = r.rlim_cur;
        r.rlim_cur = r.rlim_max < SL_STACK_BYTES ? r.rlim_max : SL_STACK_BYTES;
        if (r.rlim_cur < SL_STACK_BYTES || setrlimit(RLIMIT_STACK, &r) != 0)
            return refuse(snprintf(text, sizeof text,
                                   "sluice: the stack is limited to %llu KiB; at least %llu are "
                                   "needed: raise the limit (ulimit -s 8192, LimitSTACK=8M)\n",
                                   (unsigned long long)(was >> 10),
                                   (unsigned long long)(SL_STACK_BYTES >> 10)),
                          text);
    }
    /* Set once here for every thread: libraries start some too. */
    pthread_attr_t attr;
    int rc = pthread_attr_init(&attr);
    if (rc == 0) {
        rc = pthread_attr_setstacksize(&attr, SL_STACK_BYTES);
        if (rc == 0)
            rc = pthread_setattr_default_np(&attr);
        pthread_attr_destroy(&attr);
    }
    if (rc != 0)
        return refuse(snprintf(text, sizeof text,
                               "sluice: the size of the threads' stacks cannot be set: %s\n",
                               strerror(rc)),
                      text);
    return true;
}

bool sl_process_start(void) {
    signal(SIGCHLD, SIG_DFL);
    return fill_descriptors() && size_stacks();
}
