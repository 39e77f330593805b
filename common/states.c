#include "common/states.h"

#include "common/log.h"

#include <stdio.h>
#include <stdlib.h>

bool sl_states_may(const struct sl_states *t, unsigned from, unsigned to) {
    return from < t->n && to < t->n && t->to[from] >> to & 1;
}

const char *sl_states_name(const struct sl_states *t, unsigned state) {
    return state < t->n ? t->names[state] : "unknown";
}

void sl_states_check(const struct sl_states *t, unsigned from, unsigned to, unsigned long long id) {
    char whose[40] = "";
    if (sl_states_may(t, from, to))
        return;
    if (id)
        snprintf(whose, sizeof whose, "request %llu: ", id);
    sl_error("%s%s that is %s cannot become %s (a bug in the program)", whose, t->what,
             sl_states_name(t, from), sl_states_name(t, to));
#ifdef SL_STRICT
    abort();
#endif
}
