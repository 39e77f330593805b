/* What the doctor says of systems that are not this one: folders with the files that it reads. */
#include "cli/options/args.h"
#include "cli/measure/doctor.h"

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

static char root[64];
static struct sl_findings found;

static int drop(const char *path, const struct stat *about, int kind, struct FTW *at) {
    (void)about;
    (void)kind;
    (void)at;
    return remove(path);
}

static int begin(void **state) {
    (void)state;
    strcpy(root, "/tmp/sluice-doctor-XXXXXX");
    found.n = 0;
    return mkdtemp(root) ? 0 : 1;
}

static int end(void **state) {
    (void)state;
    return nftw(root, drop, 16, FTW_DEPTH | FTW_PHYS);
}

/* With the folders above it. */
static void put(const char *path, const char *text) {
    char whole[512];
    snprintf(whole, sizeof whole, "%s%s", root, path);
    for (char *slash = whole; (slash = strchr(slash + 1, '/'));) {
        *slash = '\0';
        mkdir(whole, 0700);
        *slash = '/';
    }
    FILE *f = fopen(whole, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

/* The last finding. */
static void is(const char *name, enum sl_health health, const char *says) {
    assert_true(found.n > 0);
    const struct sl_finding *f = &found.at[found.n - 1];
    assert_string_equal(f->name, name);
    if (!strstr(f->text, says))
        fail_msg("%s: %s, not %s", name, f->text, says);
    assert_int_equal(f->health, health);
    assert_true((f->advice != NULL) == (health != SL_HEALTH_OK));
}

static void huge_pages(void **state) {
    static const char path[] = "/sys/kernel/mm/transparent_hugepage/enabled";
    (void)state;
    sl_doctor_huge_pages(&found, root);
    is("huge pages", SL_HEALTH_WARN, "has no transparent");
    put(path, "always madvise [never]\n");
    sl_doctor_huge_pages(&found, root);
    is("huge pages", SL_HEALTH_WARN, "madvise [never]");
    put(path, "always [madvise] never\n");
    sl_doctor_huge_pages(&found, root);
    is("huge pages", SL_HEALTH_OK, "[madvise]");
}

static void memlock(void **state) {
    (void)state;
    sl_doctor_memlock(&found, root, UINT64_MAX);
    is("memlock", SL_HEALTH_OK, "no limit");
    put("/proc/self/status", "Name:\tx\nCapEff:\t0000000000000000\nSeccomp:\t2\n");
    sl_doctor_memlock(&found, root, 8 << 20);
    is("memlock", SL_HEALTH_WARN, "limited to 8.00 MiB");
    put("/proc/self/status", "Name:\tx\nCapEff:\t0000000000004000\nSeccomp:\t0\n");
    sl_doctor_memlock(&found, root, 8 << 20);
    is("memlock", SL_HEALTH_OK, "CAP_IPC_LOCK");
}

static void seccomp(void **state) {
    (void)state;
    put("/proc/self/status", "Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1\n");
    sl_doctor_seccomp(&found, root, true);
    is("seccomp", SL_HEALTH_OK, "allows io_uring");
    sl_doctor_seccomp(&found, root, false);
    is("seccomp", SL_HEALTH_WARN, "io_uring does not work");
    put("/proc/self/status", "Name:\tx\nSeccomp:\t0\nSeccomp_filters:\t0\n");
    sl_doctor_seccomp(&found, root, false);
    is("seccomp", SL_HEALTH_OK, "no filter");
}

static void memory(void **state) {
    (void)state;
    sl_doctor_memory(&found, root);
    is("memory", SL_HEALTH_WARN, "");
    put("/proc/self/smaps_rollup", "");
    put("/proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n");
    put("/proc/self/cgroup", "0::/a\n");
    put("/proc/self/mountinfo", "30 1 0:1 / /cg rw - cgroup2 cgroup2 rw\n");
    put("/cg/a/memory.max", "max\n");
    put("/cg/a/memory.current", "0\n");
    sl_doctor_memory(&found, root);
    is("cgroup memory", SL_HEALTH_OK, "no cgroup");
    put("/cg/a/memory.max", "2147483648\n");
    put("/cg/a/memory.stat", "anon 0\n");
    sl_doctor_memory(&found, root);
    is("cgroup memory", SL_HEALTH_WARN, "memory.max leaves 2.00 GiB of 2.00 GiB");
    assert_int_equal(found.at[found.n - 2].health, SL_HEALTH_OK);
}

static void open_files(void **state) {
    (void)state;
    sl_doctor_files(&found, 1024);
    is("open files", SL_HEALTH_WARN, "1024");
    sl_doctor_files(&found, 65536);
    is("open files", SL_HEALTH_OK, "65536");
}

static void too_many(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 2 * SL_MAX_FINDINGS; i++)
        sl_findings_add(&found, "x", SL_HEALTH_OK, "advice", "%u", i);
    assert_int_equal(found.n, SL_MAX_FINDINGS);
    is("x", SL_HEALTH_OK, "95");
}

static void disks(void **state) {
    char path[128];
    (void)state;
    sl_doctor_disk(&found, "/no/such");
    is("model", SL_HEALTH_FAIL, "No such file");
    sl_doctor_disk(&found, "/dev/null");
    is("model", SL_HEALTH_FAIL, "no regular file");
    put("/m.gguf", "no model");
    snprintf(path, sizeof path, "%s/m.gguf", root);
    sl_doctor_disk(&found, path);
    assert_string_equal(found.at[2].name, "model");
    assert_int_equal(found.at[2].health, SL_HEALTH_FAIL);
    is("disk", SL_HEALTH_OK, "too small");
    sl_doctor_disk(&found, root);
    is("disk", SL_HEALTH_OK, "not measured");
}

int main(void) {
#define CASE(f) cmocka_unit_test_setup_teardown(f, begin, end)
    const struct CMUnitTest tests[] = {CASE(huge_pages), CASE(memlock),    CASE(seccomp),
                                       CASE(memory),     CASE(open_files), CASE(too_many),
                                       CASE(disks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
