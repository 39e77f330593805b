/* The names of --alias. */
#ifndef SL_CLI_ALIASES_H
#define SL_CLI_ALIASES_H

#include "cli/options/args.h"
#include "server/types/config.h"

#define SL_MAX_ALIAS_BYTES 256u

struct sl_aliases {
    char *text[SL_ARG_LIST_MAX];                 /* owned: the words, cut */
    const char *name[1 + SL_SERVER_MAX_ALIASES]; /* [n] in them */
    uint32_t n;
};

/* Reads the option's values: names separated by commas. False after an error message: one is empty,
 * too long, not UTF-8 or given twice, or there are too many. */
bool sl_aliases_read(struct sl_aliases *a, const struct sl_arg_list *words);
void sl_aliases_release(struct sl_aliases *a);

#endif
