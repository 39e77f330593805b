/* No file that a command writes may be one that it reads, or that it writes for another option. */
#ifndef SL_CLI_OUTPUTS_H
#define SL_CLI_OUTPUTS_H

#include "cli/options/args.h"

/* Compares each output with the model and all its parts, mirrors, other inputs and other outputs:
 * by device and inode if the file exists, else by folder and name. An output in a folder that the
 * command keeps for itself is refused too. A heat file is compared only by its path as given, since
 * its disk may hang; the writer checks what is there.
 *
 * This finds mistakes before anything is opened. The promise that no foreign file is replaced does
 * not depend on it (common/output.h).
 * -1, or the exit code after an error message. */
int sl_outputs_check(const struct sl_command *command);

#endif
