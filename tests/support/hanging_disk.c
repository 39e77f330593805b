/* Preloaded into a program: a disk that never answers. Whoever asks about $SLUICE_TEST_HANGS first
 * makes the file $SLUICE_TEST_HANGS.asked, for the test to see, and then waits until the process
 * ends. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef int stat_fn(const char *path, struct stat *out);

int stat(const char *path, struct stat *out) {
    const char *hangs = getenv("SLUICE_TEST_HANGS");
    if (hangs && strcmp(path, hangs) == 0) {
        char asked[4096];
        snprintf(asked, sizeof asked, "%s.asked", hangs);
        close(open(asked, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
        for (;;)
            pause();
    }
    return ((stat_fn *)dlsym(RTLD_NEXT, "stat"))(path, out);
}
