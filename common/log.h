/* Logging to stderr, one line per record: "HH:MM:SS.mmm level text". Any thread. On
 * a terminal with colours (common/terminal.h) warnings and errors stand out. */
#ifndef SL_COMMON_LOG_H
#define SL_COMMON_LOG_H

#include "common/status.h"

#include <stdbool.h>

enum sl_log_level { SL_LOG_ERROR, SL_LOG_WARN, SL_LOG_INFO, SL_LOG_DEBUG };

/* Records above the level are dropped. Default: info. Call before other threads start. */
void sl_log_set_level(enum sl_log_level level);
bool sl_log_enabled(enum sl_log_level level);

void sl_log(enum sl_log_level level, const char *fmt, ...) SL_PRINTF(2, 3);

#define sl_error(...) sl_log(SL_LOG_ERROR, __VA_ARGS__)
#define sl_warn(...)  sl_log(SL_LOG_WARN, __VA_ARGS__)
#define sl_info(...)  sl_log(SL_LOG_INFO, __VA_ARGS__)
#define sl_debug(...)                                                                              \
    do {                                                                                           \
        if (sl_log_enabled(SL_LOG_DEBUG))                                                          \
            sl_log(SL_LOG_DEBUG, __VA_ARGS__);                                                     \
    } while (0)

#endif
