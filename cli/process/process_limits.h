/* The system's limits on what this process may open and write. */
#ifndef SL_CLI_PROCESS_LIMITS_H
#define SL_CLI_PROCESS_LIMITS_H

#include <stdint.h>

/* Raises the limit on open files to the hard one, and makes a write past the limit on file sizes
 * fail (EFBIG) instead of ending the process. Call it early in main. */
void sl_process_limits_set(void);

/* The limit on open files, and how many more can be opened. */
uint32_t sl_process_files_max(void);
uint32_t sl_process_files_free(void);

#endif
