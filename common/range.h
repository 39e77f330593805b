/* A range of bytes: [from, to). */
#ifndef SL_COMMON_RANGE_H
#define SL_COMMON_RANGE_H

#include <stddef.h>

struct sl_range {
    size_t from, to;
};

#endif
