/* Which files an output takes over, and which it leaves as they are. */
#include "tests/support/folder.h"

#include "common/output.h"

#include <errno.h>

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

static const char *put(const char *name, const char *bytes) {
    static char paths[4][512], *path;
    static uint32_t turn;
    path = paths[turn++ % 4];
    path_in(&folder, name, path);
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, strlen(bytes)), strlen(bytes));
    close(fd);
    return path;
}

static void expect(const char *path, const char *bytes) {
    char now[64] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_true(read(fd, now, sizeof now - 1) >= 0);
    close(fd);
    assert_string_equal(now, bytes);
}

static bool is_marked(int fd, uint64_t size_bytes, const void *ctx) {
    assert_true(size_bytes > 0);
    return sl_file_has(fd, 0, ctx, strlen(ctx));
}

static enum sl_status open_at(const char *path, struct sl_output *o, struct sl_err *err) {
    return sl_output_open(path, 0640, is_marked, "MARK", o, err);
}

static void accepted(const char *path) {
    struct sl_output o;
    struct sl_err err = {{0}};
    if (open_at(path, &o, &err) != SL_OK)
        fail_msg("%s", err.text);
    assert_true(o.regular);
    expect(path, "");
    assert_int_equal(write(o.fd, "MARK new", 8), 8);
    close(o.fd);
    expect(path, "MARK new");
}

static void refused(const char *path, const char *says) {
    struct sl_output o;
    struct sl_err err = {{0}};
    assert_int_equal(open_at(path, &o, &err), SL_ERR_IO);
    assert_int_equal(o.fd, -1);
    assert_ptr_equal(strstr(err.text, path), err.text);
    if (!strstr(err.text, says))
        fail_msg("%s", err.text);
}

static void files(void **state) {
    (void)state;
    char path[512], other[512];
    struct stat about;
    path_in(&folder, "new", path);
    accepted(path);
    accepted(path);
    accepted(put("empty", ""));
    accepted(put("ours", "MARK and a longer text"));
    const char *theirs = put("theirs", "my own words");
    refused(theirs, "it is there already and does not hold what this option writes");
    refused(put("short", "MAR"), "it is there already");
    expect(theirs, "my own words");
    path_in(&folder, "hard", other);
    assert_int_equal(link(theirs, other), 0);
    refused(other, "it is there already");
    path_in(&folder, "soft", other);
    assert_int_equal(symlink("theirs", other), 0);
    refused(other, "it is there already");
    expect(theirs, "my own words");
    /* A link to one of ours is followed and stays. */
    unlink(other);
    assert_int_equal(symlink("ours", other), 0);
    accepted(other);
    assert_int_equal(lstat(other, &about), 0);
    assert_true(S_ISLNK(about.st_mode));
    unlink(other);
    assert_int_equal(symlink("nowhere", other), 0);
    refused(other, "a symbolic link to a file that is not there");
    path_in(&folder, "nowhere", path);
    assert_int_equal(access(path, F_OK), -1);
    struct sl_output o;
    struct sl_err err;
    assert_int_equal(sl_output_open(put("ours", "MARK"), 0600, NULL, NULL, &o, &err), SL_ERR_IO);
}

static void what_is_no_file(void **state) {
    (void)state;
    char path[512], text[8] = "";
    struct sl_output o;
    struct sl_err err;
    refused(folder.path, "Is a directory");
    refused("/no/such/folder/file", "No such file");
    assert_int_equal(open_at("/dev/null", &o, &err), SL_OK);
    assert_false(o.regular);
    sl_output_discard(&o, "/dev/null");
    close(o.fd);
    assert_int_equal(access("/dev/null", F_OK), 0);
    path_in(&folder, "fifo", path);
    assert_int_equal(mkfifo(path, 0600), 0);
    refused(path, "nobody reads from it"); /* and does not wait */
    int reader = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    assert_int_equal(open_at(path, &o, &err), SL_OK);
    assert_false(o.regular);
    assert_int_equal(fcntl(o.fd, F_GETFL) & O_NONBLOCK, 0);
    assert_int_equal(write(o.fd, "text", 4), 4);
    assert_int_equal(read(reader, text, sizeof text), 4);
    close(o.fd);
    close(reader);
    if (geteuid() == 0) {
        path_in(&folder, "block", path);
        if (mknod(path, S_IFBLK | 0600, 0) == 0)
            refused(path, "it is a block device");
    }
}

static void taking_it_back(void **state) {
    (void)state;
    char path[512], other[512];
    struct sl_output o;
    struct sl_err err;
    path_in(&folder, "out", path);
    path_in(&folder, "link", other);
    assert_int_equal(open_at(path, &o, &err), SL_OK);
    assert_int_equal(write(o.fd, "half", 4), 4);
    sl_output_discard(&o, path);
    close(o.fd);
    assert_int_equal(access(path, F_OK), -1);
    /* Through a link: the link stays, what it names is empty. */
    put("target", "");
    assert_int_equal(symlink("target", other), 0);
    assert_int_equal(open_at(other, &o, &err), SL_OK);
    assert_int_equal(write(o.fd, "half", 4), 4);
    sl_output_discard(&o, other);
    close(o.fd);
    expect(other, "");
    /* Another file has the name by now. */
    assert_int_equal(open_at(path, &o, &err), SL_OK);
    unlink(path);
    put("out", "my own words");
    sl_output_discard(&o, path);
    close(o.fd);
    expect(path, "my own words");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(files, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_no_file, setup, teardown),
        cmocka_unit_test_setup_teardown(taking_it_back, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
