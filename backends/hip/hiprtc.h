/* hipRTC, the compiler that comes with ROCm's runtime: for cards that the build has no code for.
 *
 * It cannot be interrupted, and LLVM below it aborts the process on some errors. So it runs in a
 * process of its own, which can be killed: this program, started again with SL_HIPRTC_ORDER in its
 * environment. (After fork alone, locks that other threads of the runtime held would stay locked.)
 * Before main() that process compiles one source, and exits. Every program that links this backend
 * can be started in this way.
 *
 * Source: the HIP RTC API reference. Until ROCm 6 its functions are in libamdhip64 as well, from 7
 * on in libhiprtc alone. */
#ifndef SL_BACKENDS_HIP_HIPRTC_H
#define SL_BACKENDS_HIP_HIPRTC_H

#include "common/status.h"

#include <stdint.h>

/* "ARCH NAME LIBRARY": compile the embedded source of that name (sources.h) for that architecture.
 * The code object goes to stdout; whatever the compiler prints, and errors, to stderr. Exit code 1:
 * there is no code. */
#define SL_HIPRTC_ORDER "SLUICE_HIPRTC_ORDER"

#define SL_HIPRTC_PATH_BYTES 512u

/* Where hipRTC is, and how it is called. */
struct sl_hiprtc {
    char path[SL_HIPRTC_PATH_BYTES]; /* of the library */
    int major, minor;                /* the version that it reports; 0: it reports none */
};

/* Looks in the runtime (a dlopen handle), then in libhiprtc of the known releases.
 * SL_ERR_UNSUPPORTED: none has all that is needed; the text says what is missing, as a part of the
 * caller's sentence. */
enum sl_status sl_hiprtc_find(void *runtime, struct sl_hiprtc *out,
                              struct sl_err *err) SL_MUST_CHECK;

/* The i-th option that sources are compiled with, without the architecture's; NULL: no more. */
const char *sl_hiprtc_option(uint32_t i);

#endif
