/* A stretch of bytes: [from, to). */
#ifndef SL_COMMON_SPAN_H
#define SL_COMMON_SPAN_H

#include <stddef.h>

struct sl_span {
    size_t from, to;
};

#endif
