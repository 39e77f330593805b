/* Sanitizers make a program slower: ASan and UBSan some 5 times, TSan some 20 times. A test that
 * walks many combinations walks a fixed part of them there, and all of them in every other build.
 * The part is chosen by what the sanitizer can find beyond a comparison of results: under ASan each
 * path once, with the sizes that leave a rest; under TSan each pair of threads that meet once. */
#ifndef TESTS_SUPPORT_SLOW_BUILD_H
#define TESTS_SUPPORT_SLOW_BUILD_H

#if defined(__has_feature) /* clang */
#if __has_feature(thread_sanitizer)
#define UNDER_TSAN 1
#elif __has_feature(address_sanitizer)
#define UNDER_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__) && !defined(UNDER_TSAN)
#define UNDER_TSAN 1
#elif defined(__SANITIZE_ADDRESS__) && !defined(UNDER_ASAN)
#define UNDER_ASAN 1
#endif
#ifndef UNDER_TSAN
#define UNDER_TSAN 0
#endif
#ifndef UNDER_ASAN
#define UNDER_ASAN 0
#endif

#define SLOW_BUILD (UNDER_TSAN || UNDER_ASAN)

/* Built once more with every stage behind messages in bytes (mk/stages.mk), after all was walked
 * without. */
#ifdef STAGES_BEHIND_BYTES
#define BEHIND_BYTES 1
#else
#define BEHIND_BYTES 0
#endif

/* The number, setting or array length for this build. */
#define BY_BUILD(all, asan, tsan) (UNDER_TSAN ? (tsan) : UNDER_ASAN ? (asan) : (all))

#endif
