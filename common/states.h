/* Tables of states: which may follow which, and their names. What has such a table keeps its state
 * in an enum of its own, and gives its functions by those here. */
#ifndef SL_COMMON_STATES_H
#define SL_COMMON_STATES_H

#include <stdbool.h>

struct sl_states {
    const char *what;         /* "a worker" */
    unsigned n;               /* at most 8 */
    const char *const *names; /* [n]: "waiting"; for logs */
    const unsigned char *to;  /* [n]: a bit for each that may follow */
};

/* False for what is no state, too. */
bool sl_states_may(const struct sl_states *t, unsigned from, unsigned to);
/* "unknown" for what is no state. */
const char *sl_states_name(const struct sl_states *t, unsigned state);
/* A change that the table lacks is our mistake: it aborts where SL_STRICT is defined, and is logged
 * otherwise. id (0: none): whose, as requests are logged. */
void sl_states_check(const struct sl_states *t, unsigned from, unsigned to, unsigned long long id);

#endif
