/* For the front's own files: how a call is refused. */
#ifndef SL_BACKENDS_BACKEND_INTERNAL_H
#define SL_BACKENDS_BACKEND_INTERNAL_H

#include "common/log.h"
#include "common/status.h"

#define INVALID(...)     (sl_error(__VA_ARGS__), SL_ERR_INVALID)
#define UNSUPPORTED(...) (sl_error(__VA_ARGS__), SL_ERR_UNSUPPORTED)

#endif
