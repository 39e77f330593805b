/* No file that a command writes may be one that it reads, or that it writes for another option. */
#ifndef SL_CLI_OUTPUTS_H
#define SL_CLI_OUTPUTS_H

#include "cli/args.h"

/* Compares each output with the model and all its parts, mirrors, other inputs and other outputs:
 * by device and inode where a file is there, else by folder and name. An output in a folder that
 * the command keeps for itself is refused too. A heat file is compared by its words alone, since
 * its disk may hang; whoever writes it looks at what is there.
 *
 * This finds slips before anything is opened. That no foreign file is replaced does not rest on it
 * (common/output.h).
 * -1, or the exit code after an error message. */
int sl_outputs_check(const struct sl_command *command);

#endif
