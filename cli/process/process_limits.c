#include "cli/process/process_limits.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

#define MOST_FILES 1048576u
/* Descriptors come lowest first: a start has none above, but for what a parent left open. */
#define LOOKED_AT 4096u

void sl_process_limits_set(void) {
    struct rlimit r;
    signal(SIGXFSZ, SIG_IGN);
    if (getrlimit(RLIMIT_NOFILE, &r) != 0 || r.rlim_cur >= r.rlim_max)
        return;
    rlim_t most = r.rlim_max < MOST_FILES ? r.rlim_max : MOST_FILES;
    if (most <= r.rlim_cur)
        return;
    r.rlim_cur = most;
    setrlimit(RLIMIT_NOFILE, &r);
}

uint32_t sl_process_files_max(void) {
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) != 0 || r.rlim_cur > MOST_FILES)
        return MOST_FILES;
    return (uint32_t)r.rlim_cur;
}

uint32_t sl_process_files_free(void) {
    uint32_t max = sl_process_files_max(), n_open = 0;
    for (uint32_t fd = 0; fd < max && fd < LOOKED_AT; fd++)
        n_open += fcntl((int)fd, F_GETFD) >= 0;
    return max - n_open;
}
