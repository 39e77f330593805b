/* The reader on real files: io_uring and pread, O_DIRECT and not, registered and not; file systems
 * that refuse O_DIRECT, systems that refuse io_uring; files that change; mirrors. */
#include "tests/unit/streaming/fixture.h"

#include "common/log.h"
#include "common/metrics.h"
#include "streaming/disk_probe.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define DATA_BYTES (((size_t)9 << 20) + 777) /* the last block is not whole */
#define N_READS    40u

static const uint32_t sizes[3] = {600000, 1u << 20, 100};
static uint8_t *data;
static char data_path[] = "/tmp/sluice-reader-XXXXXX";

static void write_file(const char *path, const uint8_t *bytes, size_t n) {
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n), n);
    assert_int_equal(fsync(fd), 0);
    close(fd);
}

static void open_rig(struct rig *g, const struct sl_reader_config *config, const char *path) {
    rig_init(g, N_READS, sizes);
    struct sl_reader_config c = *config;
    c.slab = &g->slab;
    assert_ok(sl_reader_open(&c, &g->reader, &test_err));
    uint32_t f = 9;
    assert_ok(sl_reader_add_file(g->reader, path, &f, &test_err));
    assert_int_equal(f, 0);
    assert_int_equal(sl_reader_file_bytes(g->reader, 0), DATA_BYTES);
    struct sl_rng rng = {.state = 6};
    for (uint32_t i = 0; i < N_READS; i++)
        rig_scatter(g, i, 0, DATA_BYTES, &rng);
    g->read[1].extent[0].offset_bytes = 0;
    g->read[2].extent[1].offset_bytes = DATA_BYTES - sizes[1];
    g->read[3].extent[2].offset_bytes = DATA_BYTES - sizes[2];
}

static void read_all(struct rig *g) {
    memset(g->n_done, 0, sizeof g->n_done);
    g->n_order = 0;
    rig_submit(g, 0, N_READS / 2);
    sl_reader_poll(g->reader);
    rig_submit(g, N_READS / 2, N_READS / 2);
    rig_wait_all(g);
    rig_check_ok(g, 0, N_READS, data);
}

static bool uring_here(void) {
    struct sl_reader_config c = {.kind = SL_IO_URING};
    struct sl_reader *r;
    if (sl_reader_open(&c, &r, &test_err) != SL_OK)
        return false;
    sl_reader_close(&r);
    return true;
}

static void every_way_reads_the_same(void **state) {
    (void)state;
    const struct sl_reader_config ways[] = {
        {.kind = SL_IO_AUTO},
        {.kind = SL_IO_URING},
        {.kind = SL_IO_URING, .buffered = true},
        {.kind = SL_IO_URING, .unregistered = true},
        {.kind = SL_IO_URING, .depth = 1, .request_bytes = 64 << 10},
        {.kind = SL_IO_URING, .depth = 512, .request_bytes = 1 << 20},
        {.kind = SL_IO_PREAD},
        {.kind = SL_IO_PREAD, .buffered = true},
        {.kind = SL_IO_PREAD, .depth = 3, .n_threads = 1},
        {.kind = SL_IO_PREAD, .depth = 200, .n_threads = 64, .request_bytes = 64 << 10},
    };
    bool uring = uring_here();
    uint32_t n = 0;
    for (size_t k = 0; k < sizeof ways / sizeof *ways; k++) {
        if (ways[k].kind == SL_IO_URING && !uring)
            continue;
        struct rig g;
        open_rig(&g, &ways[k], data_path);
        int64_t needed = sl_metric(disk_needed_bytes_total);
        read_all(&g);
        char text[256];
        sl_reader_describe(g.reader, text, sizeof text);
        assert_non_null(strstr(text, ways[k].buffered ? "buffered" : "O_DIRECT"));
        struct sl_reader_stats s;
        sl_reader_get_stats(g.reader, &s);
        assert_int_equal(s.reads, N_READS);
        assert_int_equal(sl_metric(disk_needed_bytes_total) - needed, s.needed_bytes);
        assert_true((double)s.read_bytes / (double)s.needed_bytes < 1.02);
        assert_int_equal(sl_metric(disk_buffered_files), ways[k].buffered);
        rig_release(&g);
        assert_int_equal(sl_metric(disk_buffered_files), 0);
        n++;
    }
    assert_true(n >= 5);
    if (!uring) {
        print_message("io_uring is refused here: %s\n", test_err.text);
        skip();
    }
}

/* Under load an expert costs at most a quarter of a system call. */
static void few_system_calls(void **state) {
    (void)state;
    if (!uring_here()) {
        print_message("io_uring is refused here: %s\n", test_err.text);
        skip();
    }
    struct rig g;
    struct sl_reader_config c = {.kind = SL_IO_URING};
    open_rig(&g, &c, data_path);
    struct sl_reader_stats s;
    for (uint32_t turn = 0; turn < 10; turn++) {
        memset(g.n_done, 0, sizeof g.n_done);
        g.n_order = 0;
        rig_submit(&g, 0, N_READS);
        rig_wait_all(&g);
        rig_check_ok(&g, 0, N_READS, data);
    }
    sl_reader_get_stats(g.reader, &s);
    if ((double)s.syscalls > 0.25 * (double)s.reads)
        fail_msg("%u system calls for %u experts", (unsigned)s.syscalls, (unsigned)s.reads);
    /* Polling when nothing has ended is free. */
    uint64_t before = s.syscalls;
    for (uint32_t i = 0; i < 1000; i++)
        sl_reader_poll(g.reader);
    sl_reader_get_stats(g.reader, &s);
    assert_int_equal(s.syscalls, before);
    rig_release(&g);
}

/* Memory that is not in the slab is read into as well. */
static void slots_outside_the_slab(void **state) {
    (void)state;
    struct rig g;
    struct sl_reader_config c = {0};
    open_rig(&g, &c, data_path);
    struct sl_slab other;
    assert_ok(sl_slab_init(&other, g.slab.size_bytes, false, &test_err));
    for (uint32_t i = 0; i < N_READS; i += 2)
        g.read[i].slot = other.base + (size_t)i * g.layout.slot_bytes;
    read_all(&g);
    rig_release(&g);
    sl_slab_release(&other);
}

/* The reader is opened by one thread and used by another. */
static void *use(void *arg) {
    struct rig *g = arg;
    read_all(g);
    for (uint32_t i = 0; i < 5; i++)
        sl_reader_poll(g->reader);
    return NULL;
}

static void the_first_user_owns_it(void **state) {
    (void)state;
    for (uint32_t k = 0; k < 2; k++) {
        struct rig g;
        struct sl_reader_config c = {.kind = k ? SL_IO_PREAD : SL_IO_AUTO};
        open_rig(&g, &c, data_path);
        pthread_t t;
        assert_int_equal(pthread_create(&t, NULL, use, &g), 0);
        pthread_join(t, NULL);
        rig_release(&g);
    }
}

static void close_with_reads_in_flight(void **state) {
    (void)state;
    for (uint32_t k = 0; k < 2; k++) {
        struct rig g;
        struct sl_reader_config c = {.kind = k ? SL_IO_PREAD : SL_IO_AUTO, .depth = 8};
        open_rig(&g, &c, data_path);
        rig_submit(&g, 0, N_READS);
        sl_reader_cancel(g.reader, &g.read[0]);
        sl_reader_close(&g.reader);
        for (uint32_t i = 0; i < N_READS; i++) {
            assert_int_equal(g.n_done[i], 1);
            if (g.status[i] == SL_OK)
                rig_check_bytes(&g, i, data);
            else
                assert_int_equal(g.status[i], SL_ERR_CANCELED);
        }
        rig_release(&g);
    }
}

/* ---- refused ---- */

static void what_is_no_file_is_refused(void **state) {
    (void)state;
    struct sl_reader_config c = {0};
    struct sl_reader *r;
    uint32_t f;
    assert_ok(sl_reader_open(&c, &r, &test_err));
    char fifo[] = "/tmp/sluice-fifo-XXXXXX";
    assert_true(mkstemp(fifo) >= 0);
    unlink(fifo);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    const char *const paths[] = {"/nonexistent/model.gguf", "/tmp", "/dev/zero", fifo};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(sl_reader_add_file(r, paths[i], &f, &test_err), SL_ERR_IO);
        assert_non_null(strstr(test_err.text, paths[i]));
    }
    unlink(fifo);
    sl_reader_close(&r);
}

/* Runs check in a child, whose rights and limits it may give up. 77: skipped. */
static void in_child(int (*check)(void)) {
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(check());
    int st;
    assert_int_equal(waitpid(pid, &st, 0), pid);
    if (WIFEXITED(st) && WEXITSTATUS(st) == 77)
        skip();
    if (!WIFEXITED(st) || WEXITSTATUS(st) != 0)
        fail_msg("the child ended with status %x", st);
}

/* Like read_all, for a child: cmocka's assertions belong to the parent. 0: all right. */
static int child_reads(const struct sl_reader_config *config, const char *path,
                       const char *expect) {
    static struct rig g;
    memset(&g, 0, sizeof g);
    struct sl_reader_config c = *config;
    if (sl_slot_layout_init(&g.layout, sizes, 3, 1, &test_err) != SL_OK ||
        sl_slab_init(&g.slab, (size_t)8 * g.layout.slot_bytes, true, &test_err) != SL_OK)
        return 2;
    c.slab = &g.slab;
    uint32_t f;
    if (sl_reader_open(&c, &g.reader, &test_err) != SL_OK ||
        sl_reader_add_file(g.reader, path, &f, &test_err) != SL_OK)
        return 3;
    char text[256];
    sl_reader_describe(g.reader, text, sizeof text);
    if (!strstr(text, expect)) {
        fprintf(stderr, "\"%s\" lacks \"%s\"\n", text, expect);
        return 4;
    }
    struct sl_rng rng = {.state = 6};
    for (uint32_t i = 0; i < 8; i++) {
        g.read[i] = (struct sl_read){.n_extents = 3,
                                     .slot = g.slab.base + (size_t)i * g.layout.slot_bytes,
                                     .done = rig_done,
                                     .user = &g};
        for (uint32_t e = 0; e < 3; e++) {
            g.read[i].extent[e].size_bytes = sizes[e];
            g.read[i].extent[e].place_bytes = g.layout.place_bytes[e];
        }
        rig_scatter(&g, i, f, DATA_BYTES, &rng);
        g.read[i].next = i > 0 ? &g.read[i - 1] : NULL;
    }
    if (sl_reader_submit(g.reader, &g.read[7], &test_err) != SL_OK)
        return 5;
    sl_reader_wait(g.reader, 8, -1);
    for (uint32_t i = 0; i < 8; i++) {
        if (g.n_done[i] != 1 || g.status[i] != SL_OK)
            return 6;
        for (uint32_t e = 0; e < 3; e++) {
            const struct sl_extent *x = &g.read[i].extent[e];
            if (memcmp(g.read[i].slot + sl_slot_payload_bytes(&g.layout, e, x->offset_bytes),
                       data + x->offset_bytes, x->size_bytes) != 0)
                return 7;
        }
    }
    sl_reader_close(&g.reader);
    sl_slab_release(&g.slab);
    return 0;
}

/* In a child: says why it cannot be tested. */
static int cannot(const char *why) {
    fprintf(stderr, "%s: %s\n", why, strerror(errno));
    return 77;
}

/* As Docker's default profile does. */
static int refuse_uring(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog prog = {.len = sizeof code / sizeof *code, .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) != 0)
        return cannot("no seccomp filter can be set here");
    struct sl_reader_config c = {.kind = SL_IO_URING};
    struct sl_reader *r;
    if (sl_reader_open(&c, &r, &test_err) != SL_ERR_UNSUPPORTED ||
        !strstr(test_err.text, "seccomp") || sl_metric(disk_without_uring) != 0)
        return 10;
    c.kind = SL_IO_AUTO;
    int rc = child_reads(&c, data_path, "pread by 32 threads, O_DIRECT");
    return rc ? rc : sl_metric(disk_without_uring) == 1 ? 0 : 11;
}

static void without_io_uring(void **state) {
    (void)state;
    in_child(refuse_uring);
}

static int with_little_memlock(void) {
    if (!uring_here())
        return cannot("io_uring is refused here");
    struct rlimit little = {.rlim_cur = 64 << 10, .rlim_max = 64 << 10};
    if (setrlimit(RLIMIT_MEMLOCK, &little) != 0 || (getuid() == 0 && setuid(65534) != 0))
        return cannot("the limit of locked memory cannot be set here");
    struct sl_reader_config c = {.kind = SL_IO_URING};
    /* The kernel gives back what this user's closed rings had locked a little later than close().
     */
    int rc = 3;
    for (uint32_t i = 0; rc == 3 && i < 100; i++) {
        if (i > 0)
            usleep(20000);
        rc = child_reads(&c, data_path, "plain buffers, O_DIRECT");
    }
    return rc;
}

#define MEMORY_BYTES ((size_t)512 << 20)

static bool write_text(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return ok;
}

/* Of a memory cgroup, v1 or v2; 0: not known. */
static size_t charged_bytes(const char *folder) {
    static const char *const names[] = {"memory.usage_in_bytes", "memory.current"};
    char path[256], text[32] = "";
    for (uint32_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            continue;
        (void)!read(fd, text, sizeof text - 1);
        close(fd);
    }
    return strtoull(text, NULL, 10);
}

static char cgroup[128];

static void *read_and_unregister(void *reader) {
    struct sl_reader *r = reader;
    sl_reader_poll(r); /* from here on it is this thread's */
    sl_reader_unregister(r);
    return NULL;
}

/* What a reader's slots were in memory is free when both are closed, not some time later: also
 * where another thread closes it than read. */
static int frees_at_once(void) {
    char path[160];
    snprintf(path, sizeof path, "%s/cgroup.procs", cgroup);
    if (!uring_here() || !write_text(path, "0"))
        return cannot("no io_uring, or no memory cgroup can be made here");
    struct sl_slab slab;
    if (sl_slab_init(&slab, MEMORY_BYTES, false, &test_err) != SL_OK)
        return 3;
    for (uint32_t i = 0; i < sl_slab_n_regions(&slab); i++) {
        size_t n;
        void *region = sl_slab_region(&slab, i, &n);
        memset(region, 1, n);
    }
    struct sl_reader_config c = {.kind = SL_IO_URING, .slab = &slab};
    struct sl_reader *r;
    if (sl_reader_open(&c, &r, &test_err) != SL_OK)
        return 4;
    pthread_t thread;
    if (pthread_create(&thread, NULL, read_and_unregister, r) != 0)
        return 6;
    pthread_join(thread, NULL);
    size_t before = charged_bytes(cgroup);
    sl_reader_close(&r);
    sl_slab_release(&slab);
    size_t after = charged_bytes(cgroup);
    if (before < MEMORY_BYTES)
        return cannot("the cgroup does not count this process's memory");
    fprintf(stderr, "# %zu MiB charged, then %zu\n", before >> 20, after >> 20);
    return after < MEMORY_BYTES / 4 ? 0 : 5;
}

static void memory_is_free_at_once(void **state) {
    (void)state;
    bool v1 = access("/sys/fs/cgroup/memory/memory.limit_in_bytes", F_OK) == 0;
    snprintf(cgroup, sizeof cgroup, "/sys/fs/cgroup/%ssluice-reader-%d", v1 ? "memory/" : "",
             (int)getpid());
    if (!v1) /* children have the controller only if their parent hands it down */
        (void)!write_text("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
    (void)!mkdir(cgroup, 0755);
    in_child(frees_at_once);
}

static int remove_cgroup(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 50 && rmdir(cgroup) != 0 && errno == EBUSY; i++)
        usleep(20000);
    return 0;
}

static void without_locked_memory(void **state) {
    (void)state;
    in_child(with_little_memlock);
}

/* ramfs refuses O_DIRECT when the file is opened. */
static int on_ramfs(void) {
    char dir[] = "/tmp/sluice-ramfs-XXXXXX", path[64];
    if (!mkdtemp(dir))
        return cannot("no folder can be made in /tmp");
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", dir, "ramfs", 0, NULL) != 0) {
        int rc = cannot("no ramfs can be mounted here (it takes root, not in a chroot)");
        rmdir(dir);
        return rc;
    }
    snprintf(path, sizeof path, "%s/model", dir);
    int fd = open(path, O_CREAT | O_WRONLY, 0644);
    int rc = fd >= 0 && write(fd, data, DATA_BYTES) == (ssize_t)DATA_BYTES ? 0 : 20;
    close(fd);
    for (uint32_t k = 0; k < 2 && rc == 0; k++) {
        struct sl_reader_config c = {.kind = k ? SL_IO_PREAD : SL_IO_AUTO};
        rc = child_reads(&c, path, "buffered");
    }
    /* A ring lets go of its files a little after it was closed. */
    if (umount2(dir, MNT_DETACH) != 0 || rmdir(dir) != 0)
        rc = rc ? rc : 21;
    return rc;
}

static void without_o_direct(void **state) {
    (void)state;
    in_child(on_ramfs);
}

static void on_tmpfs(void **state) {
    (void)state;
    char path[] = "/dev/shm/sluice-reader-XXXXXX";
    int fd = mkstemp(path);
    if (fd < 0) {
        print_message("no file can be made in /dev/shm: %s\n", strerror(errno));
        skip();
    }
    close(fd);
    write_file(path, data, DATA_BYTES);
    for (uint32_t k = 0; k < 2; k++) {
        struct rig g;
        struct sl_reader_config c = {.kind = k ? SL_IO_PREAD : SL_IO_AUTO};
        open_rig(&g, &c, path); /* O_DIRECT or not, as this kernel likes */
        read_all(&g);
        rig_release(&g);
    }
    unlink(path);
}

/* ---- files that change, mirrors ---- */

static void a_truncated_file_is_named(void **state) {
    (void)state;
    for (uint32_t k = 0; k < 2; k++) {
        char path[] = "/tmp/sluice-reader-XXXXXX";
        close(mkstemp(path));
        write_file(path, data, DATA_BYTES);
        struct rig g;
        struct sl_reader_config c = {.kind = k ? SL_IO_PREAD : SL_IO_AUTO};
        open_rig(&g, &c, path);
        assert_ok(sl_reader_check_files(g.reader, &test_err));
        assert_int_equal(truncate(path, DATA_BYTES / 2 + 100), 0);
        rig_submit(&g, 0, N_READS);
        rig_wait_all(&g);
        uint32_t bad = 0;
        for (uint32_t i = 0; i < N_READS; i++) {
            assert_int_equal(g.n_done[i], 1);
            bool inside = true;
            for (uint32_t e = 0; e < 3; e++)
                inside &= g.read[i].extent[e].offset_bytes + sizes[e] <= DATA_BYTES / 2 + 100;
            assert_int_equal(g.status[i], inside ? SL_OK : SL_ERR_IO);
            if (inside) {
                rig_check_bytes(&g, i, data);
            } else {
                bad++;
                assert_non_null(strstr(g.err[i].text, path));
                assert_non_null(strstr(g.err[i].text, "was cut from"));
            }
        }
        assert_true(bad > 0 && bad < N_READS);
        assert_int_equal(sl_reader_check_files(g.reader, &test_err), SL_ERR_CORRUPT);
        assert_non_null(strstr(test_err.text, path));
        rig_release(&g);
        unlink(path);
    }
}

static void mirrors_are_compared(void **state) {
    (void)state;
    char path[] = "/tmp/sluice-mirror-XXXXXX";
    close(mkstemp(path));
    struct rig g;
    struct sl_reader_config c = {0};
    open_rig(&g, &c, data_path);
    assert_int_equal(sl_reader_add_mirror(g.reader, 0, "/nonexistent", &test_err), SL_ERR_IO);
    assert_int_equal(sl_reader_add_mirror(g.reader, 1, path, &test_err), SL_ERR_INVALID);
    write_file(path, data, DATA_BYTES - 1);
    assert_int_equal(sl_reader_add_mirror(g.reader, 0, path, &test_err), SL_ERR_CORRUPT);
    assert_non_null(strstr(test_err.text, "9437960"));
    uint8_t *other = malloc(DATA_BYTES);
    assert_non_null(other);
    /* The last byte; the first; a copy whose second half was never written. */
    for (uint32_t k = 0; k < 3; k++) {
        memcpy(other, data, DATA_BYTES);
        if (k == 2)
            memset(other + DATA_BYTES / 2, 0, DATA_BYTES / 2);
        else
            other[k ? 0 : DATA_BYTES - 1] ^= 1;
        write_file(path, other, DATA_BYTES);
        assert_int_equal(sl_reader_add_mirror(g.reader, 0, path, &test_err), SL_ERR_CORRUPT);
        assert_non_null(strstr(test_err.text, path));
    }
    free(other);
    write_file(path, data, DATA_BYTES);
    assert_ok(sl_reader_add_mirror(g.reader, 0, path, &test_err));
    for (uint32_t turn = 0; turn < 4; turn++)
        read_all(&g);
    assert_true(sl_reader_copy_bytes(g.reader, 0, 0) > 0);
    assert_true(sl_reader_copy_bytes(g.reader, 0, 1) > 0);
    assert_ok(sl_reader_check_files(g.reader, &test_err));

    /* Cut off while in use: its reads come from the other, and it is dropped. */
    assert_int_equal(truncate(path, 4096), 0);
    struct sl_reader_stats s;
    for (uint32_t turn = 0; turn < 4; turn++)
        read_all(&g);
    sl_reader_get_stats(g.reader, &s);
    assert_int_equal(s.dropped_copies, 1);
    assert_int_equal(s.failed, 0);
    assert_ok(sl_reader_check_files(g.reader, &test_err));
    rig_release(&g);

    /* Found by looking, before a read does. */
    write_file(path, data, DATA_BYTES);
    open_rig(&g, &c, data_path);
    assert_ok(sl_reader_add_mirror(g.reader, 0, path, &test_err));
    usleep(20000); /* the file system's clock ticks coarsely */
    write_file(path, data, DATA_BYTES);
    assert_ok(sl_reader_check_files(g.reader, &test_err));
    sl_reader_get_stats(g.reader, &s);
    assert_int_equal(s.dropped_copies, 1);
    read_all(&g);
    assert_int_equal(sl_reader_copy_bytes(g.reader, 0, 1), 0);
    rig_release(&g);
    unlink(path);
}

/* All of these files, each with its mirror where it has one. */
struct probed {
    const char *path[3], *mirror[3];
    uint32_t n;
};

static enum sl_status add_probed(void *ctx, struct sl_reader *reader, struct sl_err *err) {
    const struct probed *p = ctx;
    enum sl_status status = SL_OK;
    for (uint32_t i = 0; i < p->n && status == SL_OK; i++) {
        uint32_t file;
        status = sl_reader_add_file(reader, p->path[i], &file, err);
        if (status == SL_OK && p->mirror[i])
            status = sl_reader_add_mirror(reader, file, p->mirror[i], err);
    }
    return status;
}

static enum sl_status probe(struct probed *p, enum sl_io_kind kind, uint32_t extent_bytes,
                            struct sl_disk_speed *out) {
    return sl_disk_bandwidth(
        &(struct sl_disk_files){.reader = {.kind = kind}, .add = add_probed, .ctx = p},
        extent_bytes, 0.15, out, &test_err);
}

static void the_probe_measures(void **state) {
    (void)state;
    struct sl_disk_speed s = {0};
    struct probed one = {.path = {data_path}, .n = 1};
    assert_ok(probe(&one, SL_IO_AUTO, 128 << 10, &s));
    assert_int_equal(s.expert_bytes, 3 * (128 << 10));
    assert_true(s.bytes_per_s > 1e6 && s.expert_ns > 1000);
    /* Too small a part of a model is left out; a mirror is read, too. */
    char small[600];
    snprintf(small, sizeof small, "%s.small", data_path);
    write_file(small, data, 4096);
    struct probed parts = {.path = {small, data_path, small}, .mirror = {NULL, data_path}, .n = 3};
    assert_ok(probe(&parts, SL_IO_AUTO, 128 << 10, &s));
    assert_true(s.bytes_per_s > 1e6);
    struct probed none = {.path = {small}, .n = 1};
    assert_int_equal(probe(&none, SL_IO_AUTO, 128 << 10, &s), SL_ERR_INVALID);
    unlink(small);
    assert_int_equal(probe(&one, SL_IO_AUTO, 1 << 20, &s), SL_ERR_INVALID);
    struct probed missing = {.path = {"/nonexistent"}, .n = 1};
    assert_int_equal(probe(&missing, SL_IO_PREAD, 0, &s), SL_ERR_IO);
}

static int setup(void **state) {
    (void)state;
    data = make_data(DATA_BYTES, 42);
    close(mkstemp(data_path));
    write_file(data_path, data, DATA_BYTES);
    chmod(data_path, 0644);         /* one child gives up being root */
    sl_log_set_level(SL_LOG_ERROR); /* the warnings are meant here */
    return 0;
}

static int teardown(void **state) {
    (void)state;
    unlink(data_path);
    free(data);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_way_reads_the_same),
        cmocka_unit_test(few_system_calls),
        cmocka_unit_test(slots_outside_the_slab),
        cmocka_unit_test(the_first_user_owns_it),
        cmocka_unit_test(close_with_reads_in_flight),
        cmocka_unit_test(what_is_no_file_is_refused),
        cmocka_unit_test(without_io_uring),
        cmocka_unit_test(without_locked_memory),
        cmocka_unit_test(without_o_direct),
        cmocka_unit_test(on_tmpfs),
        cmocka_unit_test(a_truncated_file_is_named),
        cmocka_unit_test(mirrors_are_compared),
        cmocka_unit_test(the_probe_measures),
        cmocka_unit_test_teardown(memory_is_free_at_once, remove_cgroup),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
