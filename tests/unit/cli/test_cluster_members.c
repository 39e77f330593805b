/* --workers slurm, lws and dns:NAME:PORT. */
#include "cli/options/cluster_members.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <netdb.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *names[4], *values[4];

static const char *variable(const char *name) {
    for (int i = 0; i < 4; i++)
        if (names[i] && strcmp(names[i], name) == 0)
            return values[i];
    return NULL;
}

static void set(int i, const char *name, const char *value) {
    names[i] = value ? name : NULL;
    values[i] = value;
}

/* wanted: the addresses, or NULL and a part of the refusal. */
static void check(const char *text, const char *wanted, const char *refusal) {
    struct sl_err err = {.text = ""};
    char *out;
    enum sl_status status = sl_cluster_members(text, variable, &out, &err);
    if (wanted) {
        if (status != SL_OK)
            fail_msg("%s: %s", text, err.text);
        assert_string_equal(out, wanted);
    } else {
        assert_int_not_equal(status, SL_OK);
        assert_null(out);
        if (!strstr(err.text, refusal))
            fail_msg("%s: '%s' does not say '%s'", text, err.text, refusal);
    }
    free(out);
}

/* The resolver: knows one name, and passes on what is none. */
#define N_KNOWN 18
static struct {
    const char *name, *address[N_KNOWN];
    struct addrinfo list[N_KNOWN];
    struct sockaddr_storage at[N_KNOWN];
} known;

/* An address with the port, as the resolver gives it. */
static struct addrinfo address(const char *text, const char *port, struct sockaddr_storage *at) {
    bool v6 = strchr(text, ':') != NULL;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    struct sockaddr_in6 b = {.sin6_family = AF_INET6, .sin6_port = a.sin_port};
    void *to = v6 ? (void *)&b.sin6_addr : (void *)&a.sin_addr;
    assert_int_equal(inet_pton(v6 ? AF_INET6 : AF_INET, text, to), 1);
    memcpy(at, v6 ? (void *)&b : (void *)&a, v6 ? sizeof b : sizeof a);
    return (struct addrinfo){.ai_family = v6 ? AF_INET6 : AF_INET,
                             .ai_addrlen = v6 ? sizeof b : sizeof a,
                             .ai_addr = (struct sockaddr *)(void *)at};
}

static void *next(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    assert_non_null(found);
    return found;
}

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **out) {
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    if (!known.name || !node || strcmp(node, known.name) != 0) {
        void *found = next("getaddrinfo");
        memcpy(&real, &found, sizeof real);
        return real(node, service, hints, out);
    }
    assert_int_equal(hints->ai_socktype, SOCK_STREAM); /* else each address comes for each type */
    for (size_t i = 0; i < N_KNOWN && known.address[i]; i++) {
        known.list[i] = address(known.address[i], service, &known.at[i]);
        if (i)
            known.list[i - 1].ai_next = &known.list[i];
    }
    *out = known.list;
    return 0;
}

void freeaddrinfo(struct addrinfo *list) {
    void (*real)(struct addrinfo *);
    if (list == known.list)
        return;
    void *found = next("freeaddrinfo");
    memcpy(&real, &found, sizeof real);
    real(list);
}

static void plain(void **state) {
    (void)state;
    check("a:7070,b:7071", "a:7070,b:7071", NULL);
    check("slurmish:1", "slurmish:1", NULL);
}

static void in_slurm(void **state) {
    (void)state;
    static const struct {
        const char *list, *self, *wanted, *refusal;
    } cases[] = {
        {"d1,d2", "d1", "d2:7070", NULL},
        {"n[1-3]", "n2", "n1:7070,n3:7070", NULL},
        {"gpu-[008-010,15],login", "gpu-010", "gpu-008:7070,gpu-009:7070,gpu-15:7070,login:7070",
         NULL},
        {"a[1,3].x", "a1", NULL, "not a list"}, /* nothing comes behind a range */
        {"one", "one", NULL, "no other machines"},
        {"n[1-3]", "m1", NULL, "is not among the job's"},
        {"n[1-9]", "n1", NULL, "not a list"}, /* more than can take part */
        {"n[1-4],m[1-5]", "n1", NULL, "more than 7"},
        {"n[4-2]", "n2", NULL, "not a list"},
        {"n[1-", "n1", NULL, "not a list"},
        {"n[", "n", NULL, "not a list"},
        {"n[1", "n1", NULL, "not a list"},
        {"n[99999999999999999999]", "n1", NULL, "not a list"},
        {"n[0000000000001]", "n1", NULL, "not a list"},
        {"n,,m", "n", NULL, "not a list"},
        {"n;rm", "n", NULL, "not a list"},
        {"", "n", NULL, "not a list"},
        {"n[1]", NULL, NULL, "SLURMD_NODENAME is not set"},
        {NULL, "n", NULL, "SLURM_JOB_NODELIST is not set"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        set(0, "SLURM_JOB_NODELIST", cases[i].list);
        set(1, "SLURMD_NODENAME", cases[i].self);
        check("slurm", cases[i].wanted, cases[i].refusal);
    }
    set(0, "SLURM_JOB_NODELIST", "d[1-2]");
    set(1, "SLURMD_NODENAME", "d1");
    check("slurm:9000", "d2:9000", NULL);
}

static void in_a_leader_worker_set(void **state) {
    (void)state;
    static const struct {
        const char *leader, *size, *index, *wanted, *refusal;
    } cases[] = {
        {"sluice-0.sluice.default", "3", "0",
         "sluice-0-1.sluice.default:7070,sluice-0-2.sluice.default:7070", NULL},
        {"sluice-12", "2", NULL, "sluice-12-1:7070", NULL},
        {"sluice-0.s", "3", "1", NULL, "this pod is a worker"},
        {"sluice-0.s", "1", "0", NULL, "no other machines"},
        {"sluice-0.s", "9", "0", NULL, "must be 2 to 8"},
        {"sluice-0.s", "-1", "0", NULL, "must be 2 to 8"},
        {"sluice-0.s", "3x", "0", NULL, "must be 2 to 8"},
        {"a,b", "3", "0", NULL, "not a host's name"},
        {"sluice-0.s", NULL, "0", NULL, "LWS_GROUP_SIZE is not set"},
        {NULL, "3", "0", NULL, "LWS_LEADER_ADDRESS is not set"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        set(0, "LWS_LEADER_ADDRESS", cases[i].leader);
        set(1, "LWS_GROUP_SIZE", cases[i].size);
        set(2, "LWS_WORKER_INDEX", cases[i].index);
        check("lws", cases[i].wanted, cases[i].refusal);
    }
}

/* Numbers need no resolver. */
static void by_name(void **state) {
    (void)state;
    check("dns:127.0.0.1:7070", "127.0.0.1:7070", NULL);
    check("dns:[::1]:7070", "[::1]:7070", NULL);
    check("dns:127.0.0.1", NULL, "127.0.0.1");
    check("dns:", NULL, "");
    check("dns:unix:/tmp/x", NULL, "is no host");
}

/* A headless service: every pod's address, in an order that does not change from start to start. */
static void of_several_addresses(void **state) {
    (void)state;
    static const char *const given[] = {"10.0.0.200", "10.0.0.9", "9.1.0.4", "10.0.0.10",
                                        "10.0.1.1",   "10.0.2.1", "10.0.3.1"};
    known.name = "sluice-worker.default";
    for (size_t i = 0; i < sizeof given / sizeof *given; i++)
        known.address[i] = given[i];
    check("dns:sluice-worker.default:7071",
          "9.1.0.4:7071,10.0.0.9:7071,10.0.0.10:7071,10.0.0.200:7071,10.0.1.1:7071,10.0.2.1:7071,"
          "10.0.3.1:7071",
          NULL);
    known.address[7] = "10.0.4.1";
    check("dns:sluice-worker.default:7071", NULL, "more than 7");
    known.address[8] = "10.0.5.1";
    check("dns:sluice-worker.default:7071", NULL, "more than 7");
    known.name = NULL;
}

static void know(const char *const *given, size_t n) {
    memset(&known, 0, sizeof known);
    known.name = "sluice-worker.default";
    for (size_t i = 0; i < n; i++)
        known.address[i] = given[i];
}

/* A service of both kinds of addresses: each pod has two, and is one machine. */
static void of_two_kinds_of_addresses(void **state) {
    (void)state;
    static const char *const two[] = {"fd00::2", "10.0.0.9", "fd00::1", "10.0.0.8"};
    /* As many as there may be, and the resolver gives those first that are not used. */
    static const char *const seven[] = {"fd00::1",  "fd00::2",  "fd00::3",  "fd00::4",  "fd00::5",
                                        "fd00::6",  "fd00::7",  "10.0.0.1", "10.0.0.2", "10.0.0.3",
                                        "10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.7"};
    static const char *const v6[] = {"fd00::2", "fd00::1"};
    know(two, 4);
    check("dns:sluice-worker.default:7071", "10.0.0.8:7071,10.0.0.9:7071", NULL);
    know(seven, 14);
    check("dns:sluice-worker.default:7071",
          "10.0.0.1:7071,10.0.0.2:7071,10.0.0.3:7071,10.0.0.4:7071,10.0.0.5:7071,10.0.0.6:7071,"
          "10.0.0.7:7071",
          NULL);
    know(v6, 2);
    check("dns:sluice-worker.default:7071", "[fd00::1]:7071,[fd00::2]:7071", NULL);
    known.name = NULL;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(plain),
                                       cmocka_unit_test(in_slurm),
                                       cmocka_unit_test(in_a_leader_worker_set),
                                       cmocka_unit_test(by_name),
                                       cmocka_unit_test(of_several_addresses),
                                       cmocka_unit_test(of_two_kinds_of_addresses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
