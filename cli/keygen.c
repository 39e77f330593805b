/* sluice keygen: a new key for machines that serve one model together. */
#include "cli/options/args.h"
#include "cli/options/commands.h"
#include "net/key.h"

#include <stdio.h>
#include <string.h>

static const struct sl_command command = {
    .name = "keygen",
    .about = "Prints a new key for 'sluice worker' and its coordinator.",
    .usage = "umask 077; sluice keygen > cluster.key",
    .notes = "Copy the file to each machine. Whoever has it can use the machines' devices to "
             "compute steps of the model that they have, and nothing else.\n",
};

int sl_cmd_keygen(int argc, char **argv) {
    char text[SL_NET_KEY_TEXT_BYTES];
    struct sl_err err;
    int rc = sl_args_parse(&command, argc, argv);
    if (rc >= 0)
        return rc;
    if (sl_net_key_generate(text, &err) != SL_OK) {
        fprintf(stderr, "sluice keygen: %s\n", err.text);
        return 1;
    }
    rc = printf("%s\n", text) < 0 || fflush(stdout) != 0;
    explicit_bzero(text, sizeof text);
    return rc;
}
