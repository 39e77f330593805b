/* Blocks in a folder: what comes back, what goes, and what damaged and foreign files may do. */
#include "tests/support/folder.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/metrics.h"
#include "engine/prefix/block_folder.h"
#include "engine/prefix/block_store.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define BLOCK_BYTES 6000u
#define FILE_BYTES  (SL_BLOCK_HEAD_BYTES + BLOCK_BYTES)

static struct folder folder;

static int setup(void **state) {
    (void)state;
    open_folder(&folder);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    close_folder(&folder);
    return 0;
}

static struct sl_block_store *open_store(uint64_t disk_bytes) {
    struct sl_block_store_config c = {
        .folder = folder.path, .disk_bytes = disk_bytes, .block_bytes = BLOCK_BYTES};
    struct sl_block_store *s;
    struct sl_err err = {{0}};
    if (sl_block_store_open(&c, &s, &err) != SL_OK)
        fail_msg("%s", err.text);
    return s;
}

static struct sl_block_id id_of(uint32_t i) {
    struct sl_block_id id = {.root = {7, 7}, .key = {i * 977 + 1, i}, .parent = {i, 3}};
    for (uint32_t k = 0; k < SL_KV_PAGE_TOKENS; k++)
        id.ids[k] = i * 100 + k;
    return id;
}

static void fill(uint8_t *payload, uint32_t i) {
    for (uint32_t k = 0; k < BLOCK_BYTES; k++)
        payload[k] = (uint8_t)(k * 31 + i * 7 + k / 256);
}

static struct sl_block_buf *finished(struct sl_block_store *s) {
    struct sl_block_buf *b;
    while (!(b = sl_block_store_done(s)))
        sl_block_store_wait(s, sl_now_ns() + 1000000000u);
    return b;
}

static enum sl_status write_block(struct sl_block_store *s, uint32_t i) {
    struct sl_block_buf *b = sl_block_store_take(s);
    assert_non_null(b);
    b->id = id_of(i);
    fill(b->payload, i);
    sl_block_store_write(s, b);
    assert_ptr_equal(finished(s), b);
    enum sl_status status = b->status;
    sl_block_store_give(s, b);
    return status;
}

static enum sl_status read_block(struct sl_block_store *s, uint32_t i) {
    static uint8_t want[BLOCK_BYTES];
    struct sl_block_buf *b = sl_block_store_take(s);
    assert_non_null(b);
    b->id = id_of(i);
    memset(b->payload, 0xee, BLOCK_BYTES);
    sl_block_store_read(s, b);
    assert_ptr_equal(finished(s), b);
    enum sl_status status = b->status;
    fill(want, i);
    if (status == SL_OK)
        assert_memory_equal(b->payload, want, BLOCK_BYTES);
    sl_block_store_give(s, b);
    return status;
}

static bool has(struct sl_block_store *s, uint32_t i) {
    return sl_block_store_has(s, id_of(i).key);
}

static void what_is_written_comes_back(void **state) {
    (void)state;
    struct sl_block_store *s = open_store(1 << 20);
    assert_false(has(s, 1));
    assert_int_equal(read_block(s, 1), SL_AGAIN);
    for (uint32_t i = 1; i <= 20; i++)
        assert_int_equal(write_block(s, i), SL_OK);
    for (uint32_t i = 20; i >= 1; i--) {
        assert_true(has(s, i));
        assert_int_equal(read_block(s, i), SL_OK);
    }
    struct sl_hash128 secret = sl_block_store_secret(s);
    sl_block_store_close(&s);
    s = open_store(1 << 20); /* and in the next process */
    struct sl_hash128 again = sl_block_store_secret(s);
    assert_memory_equal(&secret, &again, sizeof secret);
    for (uint32_t i = 1; i <= 20; i++)
        assert_int_equal(read_block(s, i), SL_OK);
    assert_int_equal(sl_metric(prefix_disk_blocks), 20);
    assert_int_equal(sl_metric(prefix_disk_bytes), bytes_in(&folder, ".kv"));
    sl_block_store_close(&s);
}

/* Real bytes of the file system never exceed the budget, and the oldest use goes first. */
static void the_budget_holds(void **state) {
    (void)state;
    uint64_t budget = 10 * 8192;
    struct sl_block_store *s = open_store(budget);
    for (uint32_t i = 1; i <= 10; i++)
        assert_int_equal(write_block(s, i), SL_OK);
    assert_int_equal(read_block(s, 1), SL_OK); /* of use again */
    sl_block_store_touch(s, id_of(2).key);
    usleep(20000); /* a file's time goes in ticks */
    for (uint32_t i = 11; i <= 14; i++) {
        assert_int_equal(write_block(s, i), SL_OK);
        assert_true(bytes_in(&folder, ".kv") <= budget);
    }
    for (uint32_t i = 1; i <= 14; i++)
        if (has(s, i) != (i <= 2 || i >= 7))
            fail_msg("block %u: %lld bytes", i, (long long)sl_metric(prefix_disk_bytes));
    sl_block_store_close(&s);
    s = open_store(4 * 8192); /* a smaller budget, and the order of use is remembered */
    assert_true(bytes_in(&folder, ".kv") <= 4 * 8192);
    for (uint32_t i = 1; i <= 10; i++)
        assert_int_equal(has(s, i), false);
    for (uint32_t i = 11; i <= 14; i++)
        assert_true(has(s, i));
    sl_block_store_close(&s);
    s = open_store(4096); /* no room for any */
    assert_int_equal(sl_metric(prefix_disk_blocks), 0);
    assert_int_equal(write_block(s, 1), SL_AGAIN);
    assert_int_equal(bytes_in(&folder, ".kv"), 0);
    sl_block_store_close(&s);
}

static void name_of(uint32_t i, char out[64]) {
    struct sl_hash128 key = id_of(i).key;
    snprintf(out, 64, "%016llx%016llx.kv", (unsigned long long)key.hi, (unsigned long long)key.lo);
}

/* Every byte of a file counts; what does not pass is removed and never used. */
static void damage_is_noticed(void **state) {
    (void)state;
    struct sl_block_store *s = open_store(1 << 20);
    char name[64], path[512], other[512];
    name_of(1, name);
    path_in(&folder, name, path);
    static const uint32_t spots[] = {0,  8,   12,  16,  32,  48,  64,  72,  76,
                                     80, 335, 336, 495, 496, 511, 512, 513, FILE_BYTES - 1};
    int64_t bad = sl_metric(prefix_disk_bad_total);
    for (uint32_t k = 0; k < sizeof spots / sizeof *spots; k++) {
        assert_int_equal(write_block(s, 1), SL_OK);
        flip_bit(&folder, name, spots[k]);
        assert_int_equal(read_block(s, 1), SL_ERR_CORRUPT);
        assert_false(has(s, 1));
        assert_int_equal(access(path, F_OK), -1);
    }
    static const uint32_t lengths[] = {0, 1, 511, 512, 600, FILE_BYTES - 1, FILE_BYTES + 1};
    for (uint32_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
        assert_int_equal(write_block(s, 1), SL_OK);
        assert_int_equal(truncate(path, lengths[k]), 0);
        assert_int_equal(read_block(s, 1), SL_ERR_CORRUPT);
        assert_int_equal(access(path, F_OK), -1);
    }
    assert_int_equal(write_block(s, 1), SL_OK); /* a sound block under another's name */
    assert_int_equal(write_block(s, 2), SL_OK);
    name_of(2, name);
    path_in(&folder, name, other);
    assert_int_equal(rename(other, path), 0);
    assert_int_equal(read_block(s, 1), SL_ERR_CORRUPT);
    assert_int_equal(read_block(s, 2), SL_AGAIN);
    assert_false(has(s, 2));
    assert_int_equal(sl_metric(prefix_disk_bad_total) - bad, 18 + 7 + 1);
    sl_block_store_close(&s);
}

static void put_file(const char *name, const char *bytes) {
    char path[512];
    path_in(&folder, name, path);
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, strlen(bytes)), strlen(bytes));
    close(fd);
}

static void expect_file(const char *name, const char *bytes) {
    char path[512], now[64] = "";
    path_in(&folder, name, path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        fail_msg("%s is gone", name);
    assert_true(read(fd, now, sizeof now - 1) >= 0);
    close(fd);
    assert_string_equal(now, bytes);
}

static void expect_refused(const char *path, const char *says) {
    struct sl_block_store_config c = {
        .folder = path, .disk_bytes = 1 << 20, .block_bytes = BLOCK_BYTES};
    struct sl_block_store *s = NULL;
    struct sl_err err = {{0}};
    assert_int_equal(sl_block_store_open(&c, &s, &err), SL_ERR_CONFIG);
    assert_null(s);
    if (!strstr(err.text, says))
        fail_msg("%s", err.text);
    assert_int_equal(sl_block_folder_check(path, &err), SL_ERR_CONFIG);
}

/* A folder that is not a store's is not touched: nothing is made in it, and nothing goes. */
static void a_folder_of_others_is_refused(void **state) {
    (void)state;
    static char names[64][256];
    static const char *const theirs[] = {"notes.txt",
                                         "draft.tmp",
                                         "key",
                                         "lock",
                                         "0123456789abcdef0123456789abcdef.kv",
                                         "0123456789abcdef0123456789abcdef.tmp",
                                         "sluice-0123456789abcdef.tmp",
                                         "key.tmp"};
    for (uint32_t i = 0; i < sizeof theirs / sizeof *theirs; i++) {
        char path[512];
        put_file(theirs[i], "my own words");
        expect_refused(folder.path, theirs[i]);
        expect_file(theirs[i], "my own words");
        assert_int_equal(list_folder(&folder, "", names, 64), 3); /* with . and .. */
        path_in(&folder, theirs[i], path);
        unlink(path);
    }
    char path[512], target[512];
    path_in(&folder, "key", path);
    path_in(&folder, "target", target);
    /* Neither an empty key nor one of zeros makes a folder ours. */
    put_file("key", "");
    put_file("notes.txt", "my own words");
    assert_int_equal(chmod(path, 0600), 0);
    expect_refused(folder.path, "notes.txt");
    expect_file("key", "");
    assert_int_equal(truncate(path, 4096), 0);
    expect_refused(folder.path, "'key' in it is not of this program");
    unlink(path);
    path_in(&folder, "notes.txt", path);
    unlink(path);
    path_in(&folder, "key", path);
    assert_int_equal(mkdir(path, 0700), 0);
    expect_refused(folder.path, "'key' in it is not of this program");
    rmdir(path);
    assert_int_equal(symlink(target, path), 0);
    expect_refused(folder.path, "'key' in it is not of this program");
    unlink(path);
    assert_int_equal(access(target, F_OK), -1);
}

/* Foreign files in a store's folder stay, also where they have names as its own. */
static void files_of_others_stay(void **state) {
    (void)state;
    char name[64], path[512];
    name_of(7, name);
    struct sl_block_store *s = open_store(1 << 20);
    assert_int_equal(write_block(s, 1), SL_OK);
    put_file(name, "my own words"); /* in the way of a block */
    assert_int_equal(write_block(s, 7), SL_AGAIN);
    assert_false(has(s, 7));
    assert_true(sl_block_store_writable(s)); /* that says nothing about the disk */
    assert_int_equal(write_block(s, 2), SL_OK);
    sl_block_store_close(&s);
    static const char *const others[] = {"a.tmp", "key.tmp", "sluice-0123456789abcdef.tmp",
                                         "0123456789abcdef0123456789abcdef.tmp",
                                         "0123456789abcdef0123456789abcdef.kv"};
    for (uint32_t i = 0; i < 5; i++)
        put_file(others[i], "my own words");
    for (uint32_t pass = 0; pass < 3; pass++) { /* at ease, with no room, and with a lost key */
        if (pass == 2) {
            path_in(&folder, "key", path);
            assert_int_equal(truncate(path, 20), 0);
        }
        s = open_store(pass == 1 ? 4096 : 1 << 20);
        if (pass == 0) /* taken for a block until it is read */
            assert_int_equal(read_block(s, 7), SL_ERR_CORRUPT);
        sl_block_store_close(&s);
        expect_file(name, "my own words");
        for (uint32_t i = 0; i < 5; i++)
            expect_file(others[i], "my own words");
    }
    assert_int_equal(bytes_in(&folder, ".kv"), 2 * 4096); /* the blocks went */
}

/* Who else could write to the folder, or read its secret, could forge what is in it. */
static void what_others_can_reach_is_refused(void **state) {
    (void)state;
    char key[512], lock[512], deep[600];
    struct stat about;
    assert_int_equal(chmod(folder.path, 0770), 0);
    expect_refused(folder.path, "chmod go-w it");
    assert_int_equal(chmod(folder.path, 0702), 0);
    expect_refused(folder.path, "chmod go-w it");
    assert_int_equal(chmod(folder.path, 0755), 0); /* its files are nobody else's to read */
    struct sl_block_store *s = open_store(1 << 20);
    sl_block_store_close(&s);
    path_in(&folder, "key", key);
    path_in(&folder, "lock", lock);
    assert_int_equal(stat(key, &about), 0);
    assert_int_equal(about.st_mode & 07777, 0600);
    assert_int_equal(stat(lock, &about), 0);
    assert_int_equal(about.st_mode & 07777, 0600);
    assert_int_equal(chmod(key, 0640), 0);
    expect_refused(folder.path, "its key was open to others");
    assert_int_equal(chmod(key, 0600), 0);
    if (geteuid() == 0) {
        assert_int_equal(chown(key, 65534, (gid_t)-1), 0);
        expect_refused(folder.path, "its key was open to others");
        assert_int_equal(chown(key, 0, (gid_t)-1), 0);
        assert_int_equal(chown(folder.path, 65534, (gid_t)-1), 0);
        expect_refused(folder.path, "belongs to user 65534");
        assert_int_equal(chown(folder.path, 0, (gid_t)-1), 0);
    }
    /* One that is made is for this user alone, whatever the umask. */
    snprintf(deep, sizeof deep, "%s/a/b", folder.path);
    mode_t mask = umask(0);
    struct sl_block_store_config c = {
        .folder = deep, .disk_bytes = 1 << 20, .block_bytes = BLOCK_BYTES};
    struct sl_err err = {{0}};
    assert_int_equal(sl_block_store_open(&c, &s, &err), SL_OK);
    sl_block_store_close(&s);
    umask(mask);
    assert_int_equal(stat(deep, &about), 0);
    assert_int_equal(about.st_mode & 07777, 0700);
    for (uint32_t i = 0; i < 2; i++) {
        snprintf(deep, sizeof deep, "%s/a/b/%s", folder.path, i ? "key" : "lock");
        unlink(deep);
    }
    snprintf(deep, sizeof deep, "%s/a/b", folder.path);
    rmdir(deep);
    snprintf(deep, sizeof deep, "%s/a", folder.path);
    rmdir(deep);
}

/* A process without a free descriptor cannot read its blocks: they are as good as before. */
static void no_descriptors(void **state) {
    (void)state;
    struct rlimit was, none;
    struct sl_block_store *s = open_store(1 << 20);
    for (uint32_t i = 1; i <= 3; i++)
        assert_int_equal(write_block(s, i), SL_OK);
    int64_t bad = sl_metric(prefix_disk_bad_total);
    int lowest = dup(STDIN_FILENO);
    close(lowest);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    none = (struct rlimit){(rlim_t)lowest, was.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    for (uint32_t i = 1; i <= 3; i++)
        assert_int_equal(read_block(s, i), SL_ERR_IO);
    assert_int_equal(write_block(s, 4), SL_ERR_IO);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    assert_false(has(s, 1)); /* it is left alone for a moment */
    for (uint32_t i = 0; i < 2000 && !has(s, 1); i++)
        usleep(5000);
    for (uint32_t i = 1; i <= 3; i++) {
        assert_true(has(s, i));
        assert_int_equal(read_block(s, i), SL_OK);
    }
    assert_false(has(s, 4));
    assert_int_equal(sl_metric(prefix_disk_bad_total), bad);
    sl_block_store_close(&s);
}

/* Things of other kinds in a block's place neither hold nor harm. */
static void strange_things_in_the_folder(void **state) {
    (void)state;
    struct sl_block_store *s = open_store(1 << 20);
    char name[64], path[512];
    for (uint32_t i = 1; i <= 4; i++)
        assert_int_equal(write_block(s, i), SL_OK);
    name_of(1, name);
    path_in(&folder, name, path);
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(read_block(s, 1), SL_AGAIN);
    unlink(path);
    name_of(2, name);
    path_in(&folder, name, path);
    unlink(path);
    assert_int_equal(symlink("/dev/zero", path), 0);
    assert_int_equal(read_block(s, 2), SL_ERR_IO);
    name_of(3, name);
    path_in(&folder, name, path);
    unlink(path);
    assert_int_equal(read_block(s, 3), SL_AGAIN); /* somebody cleaned up */
    assert_int_equal(read_block(s, 4), SL_OK);
    sl_block_store_close(&s);

    path_in(&folder, "notes.txt", path);
    assert_int_equal(close(open(path, O_CREAT | O_WRONLY, 0600)), 0);
    path_in(&folder, "0123.kv", path);
    assert_int_equal(close(open(path, O_CREAT | O_WRONLY, 0600)), 0);
    /* Half a block, and half a key, of processes that died; made now and by earlier versions. */
    static const char *const left[] = {"0000000000000001000000000000000f.tmp", "key.tmp",
                                       "sluice-0123456789abcdef.tmp"};
    for (uint32_t i = 0; i < 3; i++)
        put_file(left[i], i == 1 ? "SLUICEKY..." : "SLUICEKV...");
    put_file("sluice-0123456789abcdee.tmp", "");
    s = open_store(1 << 20);
    static char names[64][256];
    assert_int_equal(list_folder(&folder, ".tmp", names, 64), 0);
    path_in(&folder, "notes.txt", path);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(sl_metric(prefix_disk_blocks), 1);
    sl_block_store_close(&s);
}

/* Without its key nothing in the folder can be trusted. */
static void a_lost_key_empties_the_folder(void **state) {
    (void)state;
    char path[512];
    path_in(&folder, "key", path);
    for (uint32_t pass = 0; pass < 3; pass++) {
        struct sl_block_store *s = open_store(1 << 20);
        struct sl_hash128 before = sl_block_store_secret(s);
        assert_int_equal(write_block(s, 1), SL_OK);
        sl_block_store_close(&s);
        if (pass == 0)
            unlink(path);
        else if (pass == 1)
            flip_bit(&folder, "key", 12);
        else
            assert_int_equal(truncate(path, 20), 0);
        s = open_store(1 << 20);
        struct sl_hash128 after = sl_block_store_secret(s);
        assert_memory_not_equal(&before, &after, sizeof before);
        assert_false(has(s, 1));
        assert_int_equal(bytes_in(&folder, ".kv"), 0);
        sl_block_store_close(&s);
    }
}

static void one_process_at_a_time(void **state) {
    (void)state;
    struct sl_block_store *s = open_store(1 << 20), *second = NULL;
    struct sl_block_store_config c = {
        .folder = folder.path, .disk_bytes = 1 << 20, .block_bytes = BLOCK_BYTES};
    struct sl_err err = {{0}};
    assert_int_equal(sl_block_store_open(&c, &second, &err), SL_AGAIN);
    assert_null(second);
    assert_non_null(strstr(err.text, "in use by another process"));
    sl_block_store_close(&s);
#ifndef __SANITIZE_THREAD__ /* which does not allow threads in a child */
    /* One that is killed leaves no lock behind. */
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        s = open_store(1 << 20);
        assert_int_equal(write(ready[1], "x", 1), 1);
        pause();
        _exit(1);
    }
    char x;
    assert_int_equal(read(ready[0], &x, 1), 1);
    assert_int_equal(sl_block_store_open(&c, &second, &err), SL_AGAIN);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    s = open_store(1 << 20);
    sl_block_store_close(&s);
    close(ready[0]);
    close(ready[1]);
#endif

    c.folder = "/proc/none/there";
    assert_int_equal(sl_block_store_open(&c, &second, &err), SL_ERR_CONFIG);
    assert_non_null(strstr(err.text, "--cache-dir /proc/none/there"));
}

int main(void) {
    sl_log_set_level(SL_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_written_comes_back, setup, teardown),
        cmocka_unit_test_setup_teardown(the_budget_holds, setup, teardown),
        cmocka_unit_test_setup_teardown(damage_is_noticed, setup, teardown),
        cmocka_unit_test_setup_teardown(strange_things_in_the_folder, setup, teardown),
        cmocka_unit_test_setup_teardown(a_lost_key_empties_the_folder, setup, teardown),
        cmocka_unit_test_setup_teardown(a_folder_of_others_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(files_of_others_stay, setup, teardown),
        cmocka_unit_test_setup_teardown(what_others_can_reach_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(no_descriptors, setup, teardown),
        cmocka_unit_test_setup_teardown(one_process_at_a_time, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
