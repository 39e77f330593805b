/* hipRTC knows no headers of the C library, and must not be given those of a machine that has them:
 * this stands for each that is included (mk/hip.mk), and for what kernels use of math.h. Of the
 * integers some of its releases have types of their own, not those that hipcc has, and others have
 * none; so these are macros. */
#ifndef SL_BACKENDS_KERNELS_HIPRTC_H
#define SL_BACKENDS_KERNELS_HIPRTC_H

typedef __INT8_TYPE__ sl_rtc_int8;
typedef __INT16_TYPE__ sl_rtc_int16;
typedef __INT32_TYPE__ sl_rtc_int32;
typedef __INT64_TYPE__ sl_rtc_int64;
typedef __INTPTR_TYPE__ sl_rtc_intptr;
typedef __UINT8_TYPE__ sl_rtc_uint8;
typedef __UINT16_TYPE__ sl_rtc_uint16;
typedef __UINT32_TYPE__ sl_rtc_uint32;
typedef __UINT64_TYPE__ sl_rtc_uint64;
typedef __UINTPTR_TYPE__ sl_rtc_uintptr;
#define int8_t    sl_rtc_int8
#define int16_t   sl_rtc_int16
#define int32_t   sl_rtc_int32
#define int64_t   sl_rtc_int64
#define intptr_t  sl_rtc_intptr
#define uint8_t   sl_rtc_uint8
#define uint16_t  sl_rtc_uint16
#define uint32_t  sl_rtc_uint32
#define uint64_t  sl_rtc_uint64
#define uintptr_t sl_rtc_uintptr

#undef INT32_MIN
#undef INT32_MAX
#undef UINT32_MAX
#undef UINT64_MAX
#undef INFINITY
#undef NAN
#undef NULL
#define INT32_MIN  (-__INT32_MAX__ - 1)
#define INT32_MAX  __INT32_MAX__
#define UINT32_MAX __UINT32_MAX__
#define UINT64_MAX __UINT64_MAX__
#define INFINITY   __builtin_inff()
#define NAN        __builtin_nanf("")
#define NULL       0
#define memcpy     __builtin_memcpy

#endif
