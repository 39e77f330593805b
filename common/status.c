#include "common/status.h"

#include <stdarg.h>
#include <stdio.h>

const char *sl_status_text(enum sl_status status) {
    switch (status) {
    case SL_OK:
        return "ok";
    case SL_AGAIN:
        return "try again";
    case SL_ERR_INVALID:
        return "invalid request";
    case SL_ERR_CANCELED:
        return "canceled";
    case SL_ERR_CONTEXT_FULL:
        return "context full";
    case SL_ERR_TIMEOUT:
        return "out of time";
    case SL_ERR_LIMIT:
        return "past a limit";
    case SL_ERR_IO:
        return "input/output error";
    case SL_ERR_CORRUPT:
        return "corrupt file";
    case SL_ERR_DEVICE_OOM:
        return "out of device memory";
    case SL_ERR_DEVICE_LOST:
        return "device lost";
    case SL_ERR_UNSUPPORTED:
        return "unsupported";
    case SL_ERR_PEER_LOST:
        return "peer lost";
    case SL_ERR_PROTOCOL:
        return "protocol error";
    case SL_ERR_NOMEM:
        return "out of memory";
    case SL_ERR_CONFIG:
        return "bad configuration";
    }
    return "unknown status";
}

enum sl_status sl_fail(struct sl_err *err, enum sl_status status, const char *fmt, ...) {
    if (err) {
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(err->text, sizeof err->text, fmt, ap);
        va_end(ap);
    }
    return status;
}
