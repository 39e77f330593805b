/* What is written to a file descriptor of this process for a while, for tests of what is said. */
#ifndef SL_TESTS_SUPPORT_CAPTURE_H
#define SL_TESTS_SUPPORT_CAPTURE_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct capture {
    FILE *stream; /* stdout or stderr */
    FILE *kept;
    int own;
};

static inline struct capture capture_begin(FILE *stream) {
    struct capture c = {stream, tmpfile(), dup(fileno(stream))};
    fflush(stream);
    if (!c.kept || c.own < 0 || dup2(fileno(c.kept), fileno(stream)) < 0)
        abort();
    return c;
}

/* What was written since, from its start: the caller closes it. */
static inline FILE *capture_end(struct capture *c) {
    fflush(c->stream);
    if (dup2(c->own, fileno(c->stream)) < 0)
        abort();
    close(c->own);
    rewind(c->kept);
    return c->kept;
}

#endif
