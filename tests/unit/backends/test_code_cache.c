/* Compiled kernels on disk: what is read is what was written for the same key, or nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backends/code_cache.h"
#include "tests/support/capture.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BYTES ((size_t)100003)

static char folder[PATH_MAX];
static uint8_t data[BYTES];
static const struct sl_hash128 key = {1, 2};

static struct sl_code_file found(const char *name) {
    struct sl_code_file f = {.key = key};
    assert_true(sl_code_file_find(&f, "some", name));
    return f;
}

/* Ends a capture of stderr: the log says `what`; NULL: nothing. */
static void assert_said(struct capture *c, const char *what) {
    char text[2048];
    FILE *said = capture_end(c);
    text[fread(text, 1, sizeof text - 1, said)] = 0;
    fclose(said);
    if (what ? !strstr(text, what) : *text != 0)
        fail_msg("not \"%s\", but \"%s\"", what ? what : "", text);
}

static bool reads(const struct sl_code_file *f, const void *want, size_t bytes) {
    size_t n = 0;
    uint8_t *got = sl_code_file_read(f, &n);
    bool same = got && n == bytes && memcmp(got, want, n) == 0;
    free(got);
    return same;
}

static bool is_there(const char *path) {
    return access(path, F_OK) == 0;
}

static void assert_mode(const char *path, unsigned mode) {
    struct stat about;
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_mode & 0777, mode);
}

/* Nothing else begins with this name. */
static void assert_alone(const char *name) {
    char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/sluice/some", folder);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));)
        if (strncmp(e->d_name, name, strlen(name)) == 0)
            assert_string_equal(e->d_name, name);
    closedir(dir);
}

static void written_and_read(void **state) {
    (void)state;
    char path[PATH_MAX + 32];
    struct sl_code_file f = found("a.bin");
    assert_false(reads(&f, data, BYTES));
    assert_true(sl_code_file_write(&f, data, BYTES));
    assert_true(reads(&f, data, BYTES));
    assert_true(sl_code_file_write(&f, data, 0)); /* another, and of nothing */
    assert_true(reads(&f, data, 0));
    snprintf(path, sizeof path, "%s/sluice", folder);
    assert_mode(path, 0700);
    snprintf(path, sizeof path, "%s/sluice/some", folder);
    assert_mode(path, 0700);
    assert_mode(f.path, 0600);
}

/* Of another key's file nothing is used, nor is it left to stand in the way. */
static void of_another_key(void **state) {
    (void)state;
    struct sl_code_file f = found("b.bin"), g = f;
    assert_true(sl_code_file_write(&f, data, BYTES));
    g.key.hi++;
    assert_false(reads(&g, data, BYTES));
    assert_false(is_there(f.path));
}

static void change(const char *path, off_t at) {
    uint8_t byte = 0;
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0 && pread(fd, &byte, 1, at) == 1);
    byte ^= 0x10;
    assert_true(pwrite(fd, &byte, 1, at) == 1);
    close(fd);
}

static void damaged(void **state) {
    (void)state;
    struct sl_code_file f = found("c.bin");
    struct stat about;
    assert_true(sl_code_file_write(&f, data, BYTES));
    assert_int_equal(stat(f.path, &about), 0);
    const off_t places[] = {0, 9, 30, 45, 57, about.st_size - (off_t)BYTES, about.st_size - 1};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        assert_true(sl_code_file_write(&f, data, BYTES));
        change(f.path, places[i]);
        assert_false(reads(&f, data, BYTES));
        assert_false(is_there(f.path));
    }
    for (off_t shorter = 1; shorter < about.st_size; shorter = shorter * 3 + 1) {
        assert_true(sl_code_file_write(&f, data, BYTES));
        assert_int_equal(truncate(f.path, about.st_size - shorter), 0);
        assert_false(reads(&f, data, BYTES));
        assert_false(is_there(f.path));
    }
    assert_true(sl_code_file_write(&f, data, BYTES));
    assert_int_equal(truncate(f.path, about.st_size + 1), 0);
    assert_false(reads(&f, data, BYTES));
}

/* What nobody here has written is not read, and not removed. */
static void no_file(void **state) {
    (void)state;
    struct sl_code_file f = found("d.bin");
    assert_int_equal(symlink("/etc/passwd", f.path), 0);
    assert_false(reads(&f, data, BYTES));
    assert_true(sl_code_file_write(&f, data, BYTES)); /* in the link's place */
    assert_true(reads(&f, data, BYTES));
    unlink(f.path);
    assert_int_equal(mkdir(f.path, 0700), 0);
    assert_false(reads(&f, data, BYTES));
    assert_false(sl_code_file_write(&f, data, BYTES));
    rmdir(f.path);
    assert_true(sl_code_file_write(&f, data, BYTES));
    assert_int_equal(chmod(f.path, 0620), 0); /* written by whom? */
    assert_false(reads(&f, data, BYTES));
    assert_int_equal(chmod(f.path, 0600), 0);
    assert_true(reads(&f, data, BYTES));
    if (geteuid() == 0) {
        assert_int_equal(chown(f.path, 65534, 65534), 0);
        assert_false(reads(&f, data, BYTES));
    }
    unlink(f.path);
}

static void assert_unread(const struct sl_code_file *f, const char *why) {
    struct capture c = capture_begin(stderr);
    bool read = reads(f, data, BYTES);
    assert_said(&c, why);
    assert_false(read);
}

/* Why a file is not used is in the log; that there is none is not. */
static void unusable(void **state) {
    (void)state;
    struct sl_code_file f = found("g.bin");
    assert_unread(&f, NULL);
    assert_int_equal(symlink("/etc/passwd", f.path), 0);
    assert_unread(&f, "g.bin are not used, but compiled anew: Too many levels of symbolic links");
    unlink(f.path);
    assert_int_equal(mkdir(f.path, 0700), 0);
    assert_unread(&f, "it is not a regular file");
    rmdir(f.path);
    assert_true(sl_code_file_write(&f, data, BYTES));
    assert_int_equal(chmod(f.path, 0620), 0);
    assert_unread(&f, "other users may write to it");
    assert_int_equal(chmod(f.path, 0600), 0);
    assert_int_equal(truncate(f.path, (off_t)SL_CODE_MAX_BYTES + 4096), 0);
    assert_unread(&f, "it is too large");
    unlink(f.path);
}

static void assert_unwritten(const struct sl_code_file *f, const void *src, size_t bytes,
                             const char *why) {
    struct capture c = capture_begin(stderr);
    bool written = sl_code_file_write(f, src, bytes);
    assert_said(&c, why);
    assert_false(written);
}

/* Why a file is not kept is in the log; what was there before stays, and nothing else does. */
static void unwritable(void **state) {
    (void)state;
    struct rlimit was, small;
    struct sl_code_file f = found("h.bin"), g = {.key = key};
    char path[PATH_MAX + 32];
    assert_true(sl_code_file_write(&f, data, 10));
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    small = was;
    small.rlim_cur = BYTES / 2;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_unwritten(&f, data, BYTES,
                     "h.bin, so the next start compiles them again: File too large");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    assert_true(reads(&f, data, 10));
    assert_alone("h.bin");

    uint8_t *large = calloc(1, SL_CODE_MAX_BYTES + 1);
    assert_non_null(large);
    assert_unwritten(&f, large, SL_CODE_MAX_BYTES + 1, "again: File too large");
    free(large);

    snprintf(path, sizeof path, "%s/closed", folder);
    setenv("XDG_CACHE_HOME", path, 1);
    assert_int_equal(mkdir(path, 0555), 0);
    assert_int_equal(chmod(folder, 0711), 0);
    assert_true(sl_code_file_find(&g, "some", "i.bin"));
    uid_t user = geteuid();
    assert_true(user != 0 || seteuid(65534) == 0); /* root may write everywhere */
    assert_unwritten(&g, data, BYTES,
                     "/closed/sluice/some/i.bin, so the next start compiles them "
                     "again: Permission denied");
    assert_true(user != 0 || seteuid(0) == 0);
    setenv("XDG_CACHE_HOME", folder, 1);
}

/* As if nobody had read or written it for so long. */
static void set_age(const char *path, unsigned days) {
    struct timespec times[2] = {{.tv_sec = time(NULL) - (time_t)days * 24 * 3600}};
    times[1] = times[0];
    assert_int_equal(utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW), 0);
}

/* A write removes what no start has read for long, an unfinished file too; nothing else. */
static void unused(void **state) {
    (void)state;
    const unsigned old = SL_CODE_UNUSED_DAYS + 1, recent = SL_CODE_UNUSED_DAYS - 1;
    struct sl_code_file gone = found("j.bin"), used = found("k.bin"), young = found("l.bin"),
                        unfinished = found("m.bin.abcdef"), link = found("n.bin"),
                        other = found("notes.txt"), written = found("o.bin");
    struct sl_code_file *made[] = {&gone, &used, &young, &unfinished};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++)
        assert_true(sl_code_file_write(made[i], data, BYTES));
    assert_int_equal(truncate(unfinished.path, 100), 0);
    assert_int_equal(symlink("j.bin", link.path), 0);
    int fd = open(other.path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0 && write(fd, "SLCODE is not this\n", 19) == 19);
    close(fd);
    set_age(gone.path, old);
    set_age(used.path, old);
    set_age(young.path, recent);
    set_age(unfinished.path, old);
    set_age(link.path, old);
    set_age(other.path, old);
    assert_true(reads(&used, data, BYTES)); /* which no write has looked at yet */
    assert_true(is_there(gone.path));
    assert_true(sl_code_file_write(&written, data, BYTES));
    assert_false(is_there(gone.path));
    assert_false(is_there(unfinished.path));
    assert_true(reads(&used, data, BYTES));
    assert_true(reads(&young, data, BYTES));
    assert_true(reads(&written, data, BYTES));
    assert_true(is_there(other.path));
    struct stat about;
    assert_int_equal(lstat(link.path, &about), 0);
}

static void *write_often(void *file) {
    for (int i = 0; i < 50; i++)
        if (!sl_code_file_write(file, data, BYTES))
            return file;
    return NULL;
}

/* Whoever reads meanwhile reads all of one, and nothing else stays behind. */
static void at_once(void **state) {
    (void)state;
    pthread_t writers[3];
    struct sl_code_file f = found("e.bin");
    assert_true(sl_code_file_write(&f, data, BYTES));
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&writers[i], NULL, write_often, &f), 0);
    for (int i = 0; i < 100; i++)
        assert_true(reads(&f, data, BYTES));
    for (int i = 0; i < 3; i++) {
        void *failed;
        pthread_join(writers[i], &failed);
        assert_null(failed);
    }
    assert_alone("e.bin");
}

static void nowhere(void **state) {
    (void)state;
    struct sl_code_file f = {.key = key};
    char cache[PATH_MAX + 32];
    snprintf(cache, sizeof cache, "%s/.cache", folder);
    setenv("XDG_CACHE_HOME", "/nowhere/at/all", 1);
    setenv("HOME", folder, 1);
    assert_false(sl_code_file_find(&f, "some", "f.bin"));
    assert_string_equal(f.path, "");
    assert_false(sl_code_file_write(&f, data, BYTES));
    assert_false(reads(&f, data, BYTES));
    assert_int_equal(mkdir(cache, 0700), 0);
    assert_true(sl_code_file_find(&f, "some", "f.bin"));
    assert_true(sl_code_file_write(&f, data, BYTES));
    assert_true(reads(&f, data, BYTES));
    setenv("XDG_CACHE_HOME", folder, 1);
}

int main(void) {
    char command[PATH_MAX + 32];
    snprintf(folder, sizeof folder, "/tmp/sluice-code-cache-XXXXXX");
    if (!mkdtemp(folder))
        return 1;
    setenv("XDG_CACHE_HOME", folder, 1);
    for (size_t i = 0; i < BYTES; i++)
        data[i] = (uint8_t)(i * 2654435761u >> 8);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_and_read), cmocka_unit_test(of_another_key),
        cmocka_unit_test(damaged),          cmocka_unit_test(no_file),
        cmocka_unit_test(unusable),         cmocka_unit_test(unwritable),
        cmocka_unit_test(unused),           cmocka_unit_test(at_once),
        cmocka_unit_test(nowhere),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) ? 1 : failed;
}
