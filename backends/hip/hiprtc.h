/* hipRTC, the compiler that ROCm's runtime brings along: for cards that the build has no code for.
 *
 * It cannot be interrupted, and what it is made of was written to end with its process. So it runs
 * in a process of its own, which can be killed: this very program, started once more with
 * SL_HIPRTC_ORDER in its environment. A child by fork alone would hold whatever locks the runtime's
 * other threads had just then. Before main() such a process compiles one source, and ends. Any
 * program that has this backend can be started so.
 *
 * Source: the HIP RTC API reference. Until ROCm 6 its functions are in libamdhip64 as well, from 7
 * on in libhiprtc alone. */
#ifndef SL_BACKENDS_HIP_HIPRTC_H
#define SL_BACKENDS_HIP_HIPRTC_H

#include "common/status.h"

#include <stdint.h>

/* "ARCH NAME LIBRARY": compile the embedded source of that name (sources.h) for that architecture.
 * The code object is written to stdout, what is wrong to stderr, with exit code 1. */
#define SL_HIPRTC_ORDER "SLUICE_HIPRTC_ORDER"

#define SL_HIPRTC_PATH_BYTES 512u

/* Where hipRTC is, and how it is called. */
struct sl_hiprtc {
    char path[SL_HIPRTC_PATH_BYTES]; /* of the library */
    int major, minor;                /* its version, as it says */
};

/* Looks in the runtime (a dlopen handle), then in libhiprtc of the releases that are known.
 * SL_ERR_UNSUPPORTED: none has all that is needed; the text is what is missing, to be put in a
 * sentence. */
enum sl_status sl_hiprtc_find(void *runtime, struct sl_hiprtc *out,
                              struct sl_err *err) SL_MUST_CHECK;

/* The i-th option that sources are compiled with, but for the architecture; NULL: no more. */
const char *sl_hiprtc_option(uint32_t i);

#endif
