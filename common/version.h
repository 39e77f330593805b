#ifndef SL_COMMON_VERSION_H
#define SL_COMMON_VERSION_H

/* Semantic version of the program; also part of system_fingerprint. */
#define SL_VERSION "0.1.0"

#endif
