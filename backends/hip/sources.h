/* The kernels' sources, embedded at build time, and the headers that they include, for hipRTC.
 * Defined by a generated file (mk/hip.mk); a build without HIP kernels has none. */
#ifndef SL_BACKENDS_HIP_SOURCES_H
#define SL_BACKENDS_HIP_SOURCES_H

#include <stdint.h>

struct sl_hip_text {
    const char *name; /* of a source "matvec", of a header as it is included */
    const char *text;
};

extern const struct sl_hip_text sl_hip_sources[], sl_hip_headers[];
extern const uint64_t sl_hip_n_sources, sl_hip_n_headers;

#endif
