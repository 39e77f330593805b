/* The names of --allowed-hosts. */
#ifndef SL_CLI_ALLOWED_HOSTS_H
#define SL_CLI_ALLOWED_HOSTS_H

#include "cli/options/args.h"

#define SL_MAX_ALLOWED_HOSTS 32u

struct sl_allowed_hosts {
    char *text[SL_ARG_LIST_MAX];            /* owned: the words, cut */
    const char *name[SL_MAX_ALLOWED_HOSTS]; /* [n] in them */
    uint32_t n;
};

/* Reads the option's values: names or addresses separated by commas, or *. False after an error
 * message: one is neither, such as a URL, or there are too many. */
bool sl_allowed_hosts_read(struct sl_allowed_hosts *h, const struct sl_arg_list *words);
void sl_allowed_hosts_release(struct sl_allowed_hosts *h);

#endif
