#include "cli/serve/aliases.h"

#include "common/utf8.h"

#include <stdlib.h>
#include <string.h>

/* Returns what is wrong with the name, or NULL. */
static const char *fault(const struct sl_aliases *a, const char *name) {
    size_t n = strlen(name);
    if (n == 0)
        return "is empty";
    if (n > SL_MAX_ALIAS_BYTES)
        return "is longer than 256 bytes";
    if (sl_utf8_valid_prefix(name, n) != n)
        return "is not UTF-8, as JSON must be";
    for (uint32_t i = 0; i < a->n; i++)
        if (strcmp(a->name[i], name) == 0)
            return "is given twice";
    return NULL;
}

bool sl_aliases_read(struct sl_aliases *a, const struct sl_arg_list *words) {
    for (uint32_t i = 0; i < words->n; i++) {
        if (!(a->text[i] = strdup(words->items[i]))) {
            sl_usage_error("serve", "--alias: out of memory");
            return false;
        }
        for (char *p = a->text[i], *name; (name = strsep(&p, ","));) {
            const char *wrong = fault(a, name);
            if (wrong) {
                sl_usage_error("serve", "--alias: the name '%.256s' %s", name, wrong);
                return false;
            }
            if (a->n == SL_COUNTOF(a->name)) {
                sl_usage_error("serve", "--alias: '%s' is one too many: at most %u names", name,
                               SL_COUNTOF(a->name));
                return false;
            }
            a->name[a->n++] = name;
        }
    }
    return true;
}

void sl_aliases_release(struct sl_aliases *a) {
    for (uint32_t i = 0; i < SL_ARG_LIST_MAX; i++)
        free(a->text[i]);
    *a = (struct sl_aliases){0};
}
