#include "cli/serve/allowed_hosts.h"

#include "server/wire/hosts.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

static bool is_host(const char *name) {
    struct sl_authority a;
    struct in6_addr v6;
    return strcmp(name, "*") == 0 || inet_pton(AF_INET6, name, &v6) == 1 ||
           (sl_authority_read(name, strlen(name), &a) && !strchr(name, ' ') &&
            (name[0] == '[' ? name[strlen(name) - 1] == ']' : !strchr(name, ':')));
}

bool sl_allowed_hosts_read(struct sl_allowed_hosts *h, const struct sl_arg_list *words) {
    for (uint32_t i = 0; i < words->n; i++) {
        if (!(h->text[i] = strdup(words->items[i]))) {
            sl_usage_error("serve", "--allowed-hosts: out of memory");
            return false;
        }
        for (char *p = h->text[i], *name; (name = strsep(&p, ","));) {
            if (!is_host(name)) {
                sl_usage_error("serve",
                               "--allowed-hosts is '%s': must be names or addresses without a "
                               "port, such as sluice.example,10.0.0.7, or *",
                               words->items[i]);
                return false;
            }
            if (h->n == SL_MAX_ALLOWED_HOSTS) {
                sl_usage_error("serve", "--allowed-hosts: %s is one too many: at most %u", name,
                               SL_MAX_ALLOWED_HOSTS);
                return false;
            }
            h->name[h->n++] = name;
        }
    }
    return true;
}

void sl_allowed_hosts_release(struct sl_allowed_hosts *h) {
    for (uint32_t i = 0; i < SL_ARG_LIST_MAX; i++)
        free(h->text[i]);
    *h = (struct sl_allowed_hosts){0};
}
