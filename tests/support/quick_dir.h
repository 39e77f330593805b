/* Where tests keep models that they read again and again for bits, not for what a disk does: with
 * a disk that answers at once they take a fraction of the time. */
#ifndef TESTS_SUPPORT_QUICK_DIR_H
#define TESTS_SUPPORT_QUICK_DIR_H

#include <stdlib.h>
#include <string.h>

/* $SLUICE_TEST_QUICK_DIR (mk/test.mk), or /tmp. */
static inline const char *quick_dir(void) {
    const char *dir = getenv("SLUICE_TEST_QUICK_DIR");
    return dir && *dir && strlen(dir) < 24 ? dir : "/tmp";
}

#endif
