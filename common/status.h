/* Status codes and caller-owned error texts.
 *
 * A code names the largest thing that a failure takes down: the request, the weights being read,
 * the device, the peer, the process. The function that first detects the failure writes the text;
 * everyone above passes both on unchanged. */
#ifndef SL_COMMON_STATUS_H
#define SL_COMMON_STATUS_H

#define SL_MUST_CHECK        __attribute__((warn_unused_result))
#define SL_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

enum sl_status {
    SL_OK = 0,
    SL_AGAIN = 1, /* full or in flight: not an error */
    /* request */
    SL_ERR_INVALID = -1,
    SL_ERR_CANCELED = -2,
    SL_ERR_CONTEXT_FULL = -3,
    SL_ERR_TIMEOUT = -4,
    SL_ERR_LIMIT = -5, /* needs more work than one request may take */
    /* weights */
    SL_ERR_IO = -20,
    SL_ERR_CORRUPT = -21,
    /* device */
    SL_ERR_DEVICE_OOM = -40,
    SL_ERR_DEVICE_LOST = -41,
    SL_ERR_UNSUPPORTED = -42,
    /* worker */
    SL_ERR_PEER_LOST = -60,
    SL_ERR_PROTOCOL = -61,
    /* process */
    SL_ERR_NOMEM = -80,
    SL_ERR_CONFIG = -81,
};

/* A short lower-case phrase such as "out of memory"; never NULL. */
const char *sl_status_text(enum sl_status status);

/* What was wrong, where, and what to do; one line, no trailing newline. Owned by the caller. */
struct sl_err {
    char text[512];
};

/* Writes the text (when err is not NULL; cut at its size) and returns status, so that a failing
 * function can end in `return sl_fail(err, SL_ERR_CORRUPT, "...", ...)`. */
enum sl_status sl_fail(struct sl_err *err, enum sl_status status, const char *fmt, ...)
    SL_PRINTF(3, 4);

/* Returns the call's status from the calling function, unless it is SL_OK. */
#define SL_TRY(call)                                                                               \
    do {                                                                                           \
        enum sl_status sl_try_status = (call);                                                     \
        if (sl_try_status != SL_OK)                                                                \
            return sl_try_status;                                                                  \
    } while (0)

#endif
