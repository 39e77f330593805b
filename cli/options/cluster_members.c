#include "cli/options/cluster_members.h"

#include "cluster/coordinator.h"
#include "net/address.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Longer than a list of SL_CLUSTER_MAX_WORKERS names of 253 characters. */
#define MAX_TEXT   4096u
#define MAX_HOST   256u
#define MAX_DIGITS 9u

struct members {
    char text[MAX_TEXT];
    size_t length;
    uint32_t n;
    const char *port, *self; /* self: of these names, the one that is left out; NULL: none */
    bool self_found;
};

static enum sl_status add(struct members *m, const char *host, struct sl_err *err) {
    if (m->self && strcmp(host, m->self) == 0) {
        m->self_found = true;
        return SL_OK;
    }
    if (++m->n > SL_CLUSTER_MAX_WORKERS)
        return sl_fail(err, SL_ERR_CONFIG, "there are more than %u other machines",
                       SL_CLUSTER_MAX_WORKERS);
    int n = snprintf(m->text + m->length, sizeof m->text - m->length, "%s%s:%s",
                     m->length ? "," : "", host, m->port);
    if (n < 0 || (size_t)n >= sizeof m->text - m->length)
        return sl_fail(err, SL_ERR_CONFIG, "the names of the other machines are too long");
    m->length += (size_t)n;
    return SL_OK;
}

/* ---- Slurm ---- */

/* Names are letters, digits and what hosts have between them. */
static bool is_of_name(char c) {
    return isalnum((unsigned char)c) || c == '-' || c == '.' || c == '_';
}

static enum sl_status bad_list(const char *list, struct sl_err *err) {
    return sl_fail(err, SL_ERR_CONFIG, "SLURM_JOB_NODELIST is '%.120s': not a list of nodes", list);
}

/* "07-12,3" of name[07-12,3]: every number, as wide as the first of its range is written. */
static enum sl_status add_ranges(struct members *m, const char *list, const char *prefix,
                                 const char **at, struct sl_err *err) {
    char host[MAX_HOST];
    do {
        unsigned long bounds[2];
        int width = 0;
        for (int i = 0; i < 2; i++) {
            char *end;
            ++*at;
            if (!isdigit((unsigned char)**at))
                return bad_list(list, err);
            bounds[i] = strtoul(*at, &end, 10);
            if ((size_t)(end - *at) > MAX_DIGITS)
                return bad_list(list, err);
            width = i ? width : (int)(end - *at);
            *at = end;
            if (i == 0 && **at != '-') {
                bounds[1] = bounds[0];
                break;
            }
        }
        if (bounds[1] < bounds[0] || bounds[1] - bounds[0] > SL_CLUSTER_MAX_WORKERS)
            return bad_list(list, err);
        for (unsigned long i = bounds[0]; i <= bounds[1]; i++) {
            if (snprintf(host, sizeof host, "%s%0*lu", prefix, width, i) >= (int)sizeof host)
                return bad_list(list, err);
            SL_TRY(add(m, host, err));
        }
    } while (**at == ',');
    return *(*at)++ == ']' ? SL_OK : bad_list(list, err);
}

static enum sl_status slurm(struct members *m, sl_variable_fn *variable, struct sl_err *err) {
    const char *list = variable("SLURM_JOB_NODELIST");
    m->self = variable("SLURMD_NODENAME");
    if (!list || !m->self)
        return sl_fail(err, SL_ERR_CONFIG, "%s is not set: 'slurm' is for the tasks of a job",
                       list ? "SLURMD_NODENAME" : "SLURM_JOB_NODELIST");
    const char *at = list;
    do {
        char name[MAX_HOST];
        size_t n = 0;
        for (; is_of_name(*at) && n + 1 < sizeof name; at++)
            name[n++] = *at;
        name[n] = 0;
        if (!n)
            return bad_list(list, err);
        if (*at == '[')
            SL_TRY(add_ranges(m, list, name, &at, err));
        else
            SL_TRY(add(m, name, err));
    } while (*at++ == ',');
    if (at[-1])
        return bad_list(list, err);
    if (!m->self_found)
        return sl_fail(err, SL_ERR_CONFIG, "this node, '%.120s', is not among the job's, '%.120s'",
                       m->self, list);
    return SL_OK;
}

/* ---- LeaderWorkerSet ---- */

/* The leader is SET-GROUP.SERVICE.NAMESPACE, and worker i SET-GROUP-i.SERVICE.NAMESPACE. */
static enum sl_status lws(struct members *m, sl_variable_fn *variable, struct sl_err *err) {
    const char *leader = variable("LWS_LEADER_ADDRESS"), *size = variable("LWS_GROUP_SIZE");
    const char *index = variable("LWS_WORKER_INDEX");
    char host[MAX_HOST], *end;
    if (!leader || !size)
        return sl_fail(err, SL_ERR_CONFIG,
                       "%s is not set: 'lws' is for the pods of a LeaderWorkerSet",
                       leader ? "LWS_GROUP_SIZE" : "LWS_LEADER_ADDRESS");
    if (index && strcmp(index, "0") != 0)
        return sl_fail(err, SL_ERR_CONFIG,
                       "LWS_WORKER_INDEX is %.20s: this pod is a worker, and 'lws' is the leader's",
                       index);
    unsigned long n = isdigit((unsigned char)*size) ? strtoul(size, &end, 10) : 0;
    if (!n || *end || n - 1 > SL_CLUSTER_MAX_WORKERS)
        return sl_fail(err, SL_ERR_CONFIG, "LWS_GROUP_SIZE is '%.20s': must be 2 to %u", size,
                       SL_CLUSTER_MAX_WORKERS + 1);
    size_t label = strcspn(leader, ".");
    for (const char *c = leader; *c; c++)
        if (!is_of_name(*c))
            return sl_fail(err, SL_ERR_CONFIG, "LWS_LEADER_ADDRESS is '%.120s': not a host's name",
                           leader);
    for (unsigned long i = 1; i < n; i++) {
        if (snprintf(host, sizeof host, "%.*s-%lu%s", (int)label, leader, i, leader + label) >=
            (int)sizeof host)
            return sl_fail(err, SL_ERR_CONFIG, "LWS_LEADER_ADDRESS is too long");
        SL_TRY(add(m, host, err));
    }
    return SL_OK;
}

/* ---- a name with several addresses ---- */

static int by_bytes(const void *a, const void *b) {
    return memcmp(a, b, sizeof(struct sl_net_address));
}

static enum sl_status dns(struct members *m, const char *name, struct sl_err *err) {
    struct sl_net_address found[SL_NET_ADDRESSES];
    size_t n;
    memset(found, 0, sizeof found);
    if (strncmp(name, "unix:", 5) == 0)
        return sl_fail(err, SL_ERR_CONFIG, "--workers dns: '%.120s' is no host", name);
    SL_TRY(sl_net_resolve_machines(name, found, &n, err));
    qsort(found, n, sizeof *found, by_bytes);
    for (size_t i = 0; i < n; i++) {
        char text[MAX_HOST];
        sl_net_address_text(&found[i], text, sizeof text);
        char *port = strrchr(text, ':');
        m->port = port ? port + 1 : SL_WORKER_PORT;
        if (port)
            *port = 0;
        SL_TRY(add(m, text, err));
    }
    return SL_OK;
}

/* "slurm" or "slurm:7071": the port is what comes behind. */
static bool is(const char *text, const char *word, const char **out_port) {
    size_t n = strlen(word);
    if (strncmp(text, word, n) != 0 || (text[n] && text[n] != ':'))
        return false;
    *out_port = text[n] ? text + n + 1 : SL_WORKER_PORT;
    return true;
}

enum sl_status sl_cluster_members(const char *text, sl_variable_fn *variable, char **out,
                                  struct sl_err *err) {
    struct members m = {.length = 0};
    enum sl_status status = SL_OK;
    *out = NULL;
    if (is(text, "slurm", &m.port)) {
        status = slurm(&m, variable, err);
    } else if (is(text, "lws", &m.port)) {
        status = lws(&m, variable, err);
    } else if (strncmp(text, "dns:", 4) == 0) {
        status = dns(&m, text + 4, err);
    } else {
        *out = strdup(text);
        return *out ? SL_OK : sl_fail(err, SL_ERR_NOMEM, "no memory for addresses");
    }
    if (status == SL_OK && !m.n)
        status = sl_fail(err, SL_ERR_CONFIG, "there are no other machines");
    if (status != SL_OK)
        return status;
    *out = strdup(m.text);
    return *out ? SL_OK : sl_fail(err, SL_ERR_NOMEM, "no memory for addresses");
}
