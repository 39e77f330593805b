#include "pull/token.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum sl_status sl_pull_token(const char *file, char out[SL_PULL_TOKEN_BYTES], struct sl_err *err) {
    const char *from = file, *text;
    memset(out, 0, SL_PULL_TOKEN_BYTES);
    if (file) {
        int fd = open(file, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd >= 0 ? read(fd, out, SL_PULL_TOKEN_BYTES) : -1;
        int wrong = errno;
        if (fd >= 0)
            close(fd);
        if (n < 0)
            return sl_fail(err, SL_ERR_IO, "%.300s: %s", file, strerror(wrong));
        if (n == SL_PULL_TOKEN_BYTES)
            out[0] = '\0';
        else
            out[strcspn(out, "\r\n")] = '\0';
    } else {
        from = "SLUICE_HF_TOKEN";
        text = getenv(from);
        if (!text || !*text)
            text = getenv(from = "HF_TOKEN");
        if (!text || !*text)
            return SL_OK;
        if (strlen(text) < SL_PULL_TOKEN_BYTES)
            memcpy(out, text, strlen(text) + 1);
    }
    for (const char *c = out; *c; c++)
        if (*c <= ' ' || *c >= 0x7f)
            out[0] = '\0';
    if (!out[0])
        return sl_fail(err, SL_ERR_INVALID,
                       "%.300s: holds no token: at most %u letters, digits and signs, no spaces",
                       from, SL_PULL_TOKEN_BYTES - 1);
    return SL_OK;
}
