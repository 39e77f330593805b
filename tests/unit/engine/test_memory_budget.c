/* What is free: MemAvailable and memory cgroups of both versions, on made-up machines. */
#include "tests/unit/engine/fixture.h"

#include "engine/plan/memory_budget.h"

#include <errno.h>
#include <ftw.h>
#include <sys/stat.h>

#define MIB ((uint64_t)1 << 20)

static char root[64];

static int remove_one(const char *path, const struct stat *about, int kind, struct FTW *where) {
    (void)about;
    (void)kind;
    (void)where;
    return remove(path);
}

/* Writes a file below the made-up root, with its folders. */
static void put(const char *path, const char *text) {
    char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *at = strchr(full + strlen(root) + 1, '/'); at; at = strchr(at + 1, '/')) {
        *at = 0;
        assert_true(mkdir(full, 0700) == 0 || errno == EEXIST);
        *at = '/';
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static int new_machine(void **state) {
    (void)state;
    snprintf(root, sizeof root, "/tmp/sluice-budget-%ld", (long)getpid());
    nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    assert_int_equal(mkdir(root, 0700), 0);
    put("/proc/meminfo", "MemTotal:       16777216 kB\nMemFree:         1048576 kB\n"
                         "MemAvailable:    8388608 kB\n");
    put("/proc/self/smaps_rollup", "00400000-7fff r-xp 00000000 00:00 0 [rollup]\n"
                                   "Rss:               20480 kB\nPss:               15000 kB\n"
                                   "Anonymous:         12288 kB\n");
    put("/proc/self/maps", "00400000-00500000 r-xp 00000000 fd:00 42 /usr/bin/sluice\n"
                           "00500000-00580000 rw-p 00000000 00:00 0 [heap]\n"
                           "7f0000000000-7f0000200000 r--p 00000000 fd:00 43 /usr/lib/libc.so.6\n");
    return 0;
}

static int end_machine(void **state) {
    (void)state;
    nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    return 0;
}

static struct sl_memory_look look(void) {
    struct sl_memory_look l;
    assert_ok(sl_memory_look(root, &l, &test_err));
    return l;
}

static void no_cgroup(void **state) {
    (void)state;
    struct sl_memory_look l = look();
    assert_int_equal(l.available_bytes, 8192 * MIB);
    assert_true(l.limit_bytes == SL_NO_MEMORY_LIMIT);
    assert_int_equal(l.anonymous_bytes, 12 * MIB);
    assert_int_equal(l.mapped_file_bytes, 3 * MIB);
    assert_int_equal(sl_memory_base_bytes(&l), 15 * MIB);
    struct sl_memory_budget b;
    sl_memory_budget(&l, &b);
    assert_false(b.by_cgroup);
    assert_int_equal(b.reserve_bytes, 512 * MIB); /* more than 5 % of 8 GiB */
    assert_int_equal(b.budget_bytes, (8192 - 512 + 12) * MIB);
    l.available_bytes = 100 * 1024 * MIB;
    sl_memory_budget(&l, &b);
    assert_int_equal(b.reserve_bytes / MIB, 5 * 1024);
    l.available_bytes = 1000 * MIB; /* a small machine: not half of it */
    sl_memory_budget(&l, &b);
    assert_int_equal(b.reserve_bytes, 250 * MIB);
    l.available_bytes = 0;
    sl_memory_budget(&l, &b);
    assert_int_equal(b.budget_bytes, 12 * MIB);
}

static void statm_where_smaps_is_missing(void **state) {
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s/proc/self/smaps_rollup", root);
    assert_int_equal(unlink(path), 0);
    put("/proc/self/statm", "9000 5000 2000 300 0 4000 0\n");
    assert_int_equal(look().anonymous_bytes, 3000 * (uint64_t)sysconf(_SC_PAGESIZE));
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    assert_int_equal(unlink(path), 0);
    struct sl_memory_look l;
    assert_int_equal(sl_memory_look(root, &l, &test_err), SL_ERR_UNSUPPORTED);
    assert_non_null(strstr(test_err.text, "--ram"));
}

static void v2(const char *folder, const char *max, const char *high, const char *current,
               const char *stat) {
    char path[256];
    const char *const names[] = {"memory.max", "memory.high", "memory.current", "memory.stat"};
    const char *const texts[] = {max, high, current, stat};
    for (uint32_t i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        if (texts[i])
            put(path, texts[i]);
    }
}

static void v2_limits(void **state) {
    (void)state;
    put("/proc/self/cgroup", "0::/system.slice/sluice.service\n");
    put("/proc/self/mountinfo", "24 1 0:22 / /proc rw - proc proc rw\n"
                                "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 "
                                "rw,nsdelegate\n");
    /* 4 GiB, 3 used, half of that page cache. */
    const char *stat = "anon 1610612736\nfile 1610612736\ninactive_file 1073741824\n"
                       "active_file 268435456\nslab_reclaimable 268435456\nslab 999999999\n";
    v2("/sys/fs/cgroup/system.slice/sluice.service", "4294967296\n", "max\n", "3221225472\n", stat);
    struct sl_memory_look l = look();
    assert_int_equal(l.limit_bytes, 4096 * MIB);
    assert_int_equal(l.limit_free_bytes, 2560 * MIB);
    assert_non_null(strstr(l.limit_path, "sluice.service/memory.max"));
    struct sl_memory_budget b;
    sl_memory_budget(&l, &b);
    assert_true(b.by_cgroup);
    assert_int_equal(b.budget_bytes, (2560 - 512 + 12) * MIB);
    /* memory.high throttles before memory.max kills. */
    v2("/sys/fs/cgroup/system.slice/sluice.service", NULL, "3221225472\n", NULL, NULL);
    assert_int_equal(look().limit_free_bytes, 1536 * MIB);
    /* What is above counts too: 1.9 GiB, nearly all used. */
    v2("/sys/fs/cgroup/system.slice", "2040109466\n", "max\n", "2000000000\n",
       "inactive_file 0\nactive_file 0\n");
    l = look();
    assert_int_equal(l.limit_free_bytes, 40109466);
    assert_non_null(strstr(l.limit_path, "system.slice/memory.max"));
    /* Above its limit already: nothing is free. */
    v2("/sys/fs/cgroup/system.slice", NULL, NULL, "2100000000\n", NULL);
    assert_int_equal(look().limit_free_bytes, 0);
}

static void v2_namespaces(void **state) {
    (void)state;
    /* A container's mount shows a part of the hierarchy, its path is within that part. */
    put("/proc/self/cgroup", "0::/docker/abc/inner\n");
    put("/proc/self/mountinfo",
        "30 24 0:26 /docker/abc /sys/fs/a\\040cgroup ro - cgroup2 cgroup rw\n");
    v2("/sys/fs/a cgroup/inner", "max\n", "max\n", "1048576\n", "");
    v2("/sys/fs/a cgroup", "536870912\n", NULL, "1048576\n", "");
    assert_int_equal(look().limit_free_bytes, 511 * MIB);
    /* A path outside of the namespace: the mount's top is what can be seen. */
    put("/proc/self/cgroup", "0::/../../elsewhere\n");
    put("/proc/self/mountinfo", "30 24 0:26 / /sys/fs/a\\040cgroup ro - cgroup2 cgroup rw\n");
    assert_int_equal(look().limit_free_bytes, 511 * MIB);
    /* Folders whose names only begin alike. */
    put("/proc/self/cgroup", "0::/docker/abcdef\n");
    put("/proc/self/mountinfo",
        "30 24 0:26 /docker/abc /sys/fs/a\\040cgroup ro - cgroup2 cgroup rw\n");
    assert_int_equal(look().limit_free_bytes, 511 * MIB);
}

static void v1_limits(void **state) {
    (void)state;
    put("/proc/self/cgroup", "11:cpu,cpuacct:/a\n10:memory:/jobs/7\n0::/\n");
    put("/proc/self/mountinfo",
        "30 24 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup rw\n"
        "31 24 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
        "32 24 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "20000000000\n");
    put("/sys/fs/cgroup/memory/jobs/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/memory/jobs/memory.usage_in_bytes", "20000000000\n");
    assert_true(look().limit_bytes == SL_NO_MEMORY_LIMIT);
    put("/sys/fs/cgroup/memory/jobs/7/memory.limit_in_bytes", "1073741824\n");
    put("/sys/fs/cgroup/memory/jobs/7/memory.usage_in_bytes", "943718400\n");
    put("/sys/fs/cgroup/memory/jobs/7/memory.stat",
        "cache 838860800\ninactive_file 1\ntotal_inactive_file 734003200\n"
        "total_active_file 104857600\n");
    struct sl_memory_look l = look();
    assert_int_equal(l.limit_bytes, 1024 * MIB);
    assert_int_equal(l.limit_free_bytes, (1024 - 900 + 800) * MIB);
    assert_non_null(strstr(l.limit_path, "jobs/7/memory.limit_in_bytes"));
}

/* Files that are cut, empty or not what they should be leave no limit, and nothing worse. */
static void nonsense(void **state) {
    (void)state;
    put("/proc/self/cgroup", "0\n::\n0::\nmemory\n:memory:\n4:memory:/x");
    put("/proc/self/mountinfo", "\n - \n30 - cgroup2\n30 24 0:26 - cgroup2 a b\n1 2 3 / - cgroup\n"
                                "1 2 3 / /sys - cgroup x memory\n1 2 3 / /two - cgroup2 x y\n");
    put("/sys/x/memory.limit_in_bytes", "abc\n");
    put("/sys/x/memory.usage_in_bytes", "-5\n");
    put("/two/memory.current", "");
    put("/two/memory.max", "12");
    put("/proc/self/maps", "nonsense\n-\n1-2\n");
    struct sl_memory_look l = look();
    assert_true(l.limit_bytes == SL_NO_MEMORY_LIMIT);
    assert_int_equal(l.mapped_file_bytes, 0);
}

static void this_machine(void **state) {
    (void)state;
    struct sl_memory_look l, later;
    assert_ok(sl_memory_look("", &l, &test_err));
    assert_true(l.available_bytes > 0);
    assert_true(l.anonymous_bytes > 64 * 1024);
    assert_true(l.mapped_file_bytes > 512 * 1024);
    char *block = malloc(64 * MIB);
    assert_non_null(block);
    memset(block, 1, 64 * MIB);
    assert_ok(sl_memory_look("", &later, &test_err));
    assert_true(later.anonymous_bytes >= l.anonymous_bytes + 63 * MIB);
#if defined(__SANITIZE_THREAD__)
    uint64_t most = 8 * 64 * MIB; /* four bytes of shadow for each, and what it keeps beside them */
#elif defined(__SANITIZE_ADDRESS__)
    uint64_t most = 130 * MIB; /* shadow memory */
#else
    uint64_t most = 66 * MIB;
#endif
    assert_true(later.anonymous_bytes <= l.anonymous_bytes + most);
    free(block);
}

int main(void) {
    sl_log_set_level(SL_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(no_cgroup, new_machine, end_machine),
        cmocka_unit_test_setup_teardown(statm_where_smaps_is_missing, new_machine, end_machine),
        cmocka_unit_test_setup_teardown(v2_limits, new_machine, end_machine),
        cmocka_unit_test_setup_teardown(v2_namespaces, new_machine, end_machine),
        cmocka_unit_test_setup_teardown(v1_limits, new_machine, end_machine),
        cmocka_unit_test_setup_teardown(nonsense, new_machine, end_machine),
        cmocka_unit_test(this_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
