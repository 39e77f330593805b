/* How many connections are taken, also when libmicrohttpd loses some. What a start on a UNIX socket
 * makes, waits for and leaves alone. */
#include "fake_engine.c"

#include "common/clock.h"
#include "common/log.h"
#include "server/exchange/exchange.h"
#include "server/server.h"

#include "client.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

enum { MAX_CONNECTIONS = 4 };

static _Atomic uint32_t lose; /* so many of the next connections */

/* In place of libmicrohttpd's: says yes and drops the connection later, without a word, as that
 * does when it has no memory for it. */
enum MHD_Result MHD_add_connection(struct MHD_Daemon *daemon, MHD_socket fd,
                                   const struct sockaddr *addr, socklen_t len) {
    enum MHD_Result (*add)(struct MHD_Daemon *, MHD_socket, const struct sockaddr *, socklen_t);
    *(void **)&add = dlsym(RTLD_NEXT, "MHD_add_connection");
    if (!atomic_load(&lose))
        return add(daemon, fd, addr, len);
    atomic_fetch_sub(&lose, 1);
    close(fd);
    return MHD_YES;
}

static struct sl_server *server;

static int setup(void **state) {
    (void)state;
    sl_log_set_level(SL_LOG_ERROR);
    struct sl_err err;
    struct sl_server_config config = {.max_connections = MAX_CONNECTIONS};
    if (sl_server_create(&config, &server, &err) != SL_OK)
        fail_msg("%s", err.text);
    client_port = sl_server_port(server);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    sl_server_destroy(&server);
    return 0;
}

/* Whether an answer has come within so long. */
static bool answers(int fd, int ms) {
    struct timeval limit = {ms / 1000, ms % 1000 * 1000};
    char byte;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    return recv(fd, &byte, 1, MSG_PEEK) == 1;
}

static int ask(void) {
    return client_begin_on(client_connect(0), "GET", "/health", "", NULL);
}

static void waits_while_all_are_taken(void **state) {
    (void)state;
    int held[MAX_CONNECTIONS];
    for (int i = 0; i < MAX_CONNECTIONS; i++)
        held[i] = client_connect(0);
    while (atomic_load(&server->listen.n_open) < MAX_CONNECTIONS)
        usleep(1000);
    int fd = ask();
    assert_false(answers(fd, 2500)); /* longer than lost ones are waited for */
    close(held[0]);
    assert_true(answers(fd, 10000));
    close(fd);
    for (int i = 1; i < MAX_CONNECTIONS; i++)
        close(held[i]);
}

static void forgets_what_was_lost(void **state) {
    (void)state;
    for (int round = 0; round < 2; round++) {
        atomic_store(&lose, MAX_CONNECTIONS);
        for (int i = 0; i < MAX_CONNECTIONS; i++) {
            int fd = ask();
            assert_false(answers(fd, 10000));
            close(fd);
        }
        assert_int_equal(atomic_load(&lose), 0);
        int fd = ask();
        assert_true(answers(fd, 10000));
        struct reply r = client_end(fd);
        assert_int_equal(r.status, 503); /* no model is loaded */
        reply_free(&r);
    }
    assert_true(atomic_load(&server->listen.n_handed) <= 0);
}

/* ---- UNIX sockets ---- */

static char folder[] = "/tmp/sluice-listen-XXXXXX", at[64], lock_at[72];
static mode_t bound_mode;      /* as bind left it */
static const char *replace_by; /* bind's file is replaced by a link to this at once; NULL = not */

/* In place of libc's: somebody who may write to the folder is quick. */
int bind(int fd, const struct sockaddr *a, socklen_t len) {
    int (*real)(int, const struct sockaddr *, socklen_t);
    struct stat sb;
    *(void **)&real = dlsym(RTLD_NEXT, "bind");
    int rc = real(fd, a, len);
    if (rc == 0 && a->sa_family == AF_UNIX) {
        const char *path = ((const struct sockaddr_un *)a)->sun_path;
        if (lstat(path, &sb) == 0)
            bound_mode = sb.st_mode;
        if (replace_by && (unlink(path) != 0 || symlink(replace_by, path) != 0))
            return -1;
    }
    return rc;
}

static int make_folder(void **state) {
    (void)state;
    sl_log_set_level(SL_LOG_ERROR);
    strcpy(folder, "/tmp/sluice-listen-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(at, sizeof at, "%s/s", folder);
    snprintf(lock_at, sizeof lock_at, "%s.lock", at);
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    replace_by = NULL;
    unlink(at);
    unlink(lock_at);
    return rmdir(folder);
}

static uint32_t n_files(void) {
    DIR *d = opendir(folder);
    uint32_t n = 0;
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static enum sl_status begin(struct sl_listen *l, unsigned mode, struct sl_err *err) {
    struct sl_server_config config = {.unix_socket = at, .unix_mode = mode, .max_connections = 4};
    return sl_listen_open(l, &config, err);
}

static void end(struct sl_listen *l) {
    sl_listen_close(l);
    sl_listen_release(l);
}

/* At no time is there a file with another mode, whatever the umask, and the umask stays. */
static void has_its_mode_from_the_beginning(void **state) {
    (void)state;
    static const mode_t masks[] = {0, 022, 077, 0777};
    struct sl_listen l;
    struct sl_err err;
    for (unsigned i = 0; i < 4; i++) {
        mode_t before = umask(masks[i]);
        enum sl_status status = begin(&l, 0660, &err);
        assert_int_equal(umask(before), masks[i]);
        if (status != SL_OK)
            fail_msg("%s", err.text);
        assert_int_equal(bound_mode, S_IFSOCK | 0660);
        assert_int_equal(n_files(), 1); /* no lock is left */
        end(&l);
        assert_int_equal(n_files(), 0);
    }
}

static void changes_nothing_that_took_its_place(void **state) {
    (void)state;
    char victim[64];
    struct sl_listen l;
    struct sl_err err;
    struct stat sb;
    snprintf(victim, sizeof victim, "%s/victim", folder);
    int fd = open(victim, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    close(fd);
    replace_by = victim;
    assert_int_equal(begin(&l, 0666, &err), SL_ERR_CONFIG);
    assert_non_null(strstr(err.text, "another program has replaced it"));
    assert_int_equal(stat(victim, &sb), 0);
    assert_int_equal(sb.st_mode & 0777, 0600);
    assert_int_equal(lstat(at, &sb), 0); /* not ours to remove */
    assert_true(S_ISLNK(sb.st_mode));
    unlink(victim);
}

/* A lock that everybody who can read the folder can have must not stop a start. */
static void does_not_wait_for_the_folder(void **state) {
    (void)state;
    struct sl_listen l;
    struct sl_err err;
    int fd = open(folder, O_RDONLY | O_DIRECTORY);
    assert_true(fd >= 0);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    alarm(60); /* else it would wait for ever */
    if (begin(&l, 0600, &err) != SL_OK)
        fail_msg("%s", err.text);
    alarm(0);
    end(&l);
    close(fd);
}

/* A process that has the lock of another start, until it is killed. */
static pid_t hold_lock(void) {
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        int fd = open(lock_at, O_RDWR | O_CREAT, 0600);
        if (fcntl(fd, F_SETLK, &all) == 0 && write(ready[1], "x", 1) == 1)
            for (;;)
                pause();
        _exit(1);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    return pid;
}

static void end_holder(pid_t pid) {
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void says_who_is_in_its_way(void **state) {
    (void)state;
    struct sl_listen l;
    struct sl_err err;
    char says[64];
    pid_t pid = hold_lock();
    assert_int_equal(begin(&l, 0600, &err), SL_ERR_CONFIG);
    snprintf(says, sizeof says, "process %d (test_listen) has held", (int)pid);
    if (!strstr(err.text, says))
        fail_msg("%s", err.text);
    end_holder(pid);
    /* What a killed process left is taken over, and removed. */
    assert_int_equal(access(lock_at, F_OK), 0);
    assert_int_equal(begin(&l, 0600, &err), SL_OK);
    assert_int_equal(n_files(), 1);
    end(&l);
}

static void is_interrupted_while_it_waits(void **state) {
    (void)state;
    static const int signals[] = {SIGTERM, SIGINT};
    struct sl_listen l;
    struct sl_err err;
    sigset_t set, before;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set, &before);
    pid_t pid = hold_lock();
    for (unsigned i = 0; i < 2; i++) {
        kill(getpid(), signals[i]);
        assert_int_equal(begin(&l, 0600, &err), SL_ERR_CANCELED);
        assert_int_equal(sigwaitinfo(&set, NULL), signals[i]); /* still there for who takes it */
    }
    end_holder(pid);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void takes_no_other_file_for_its_lock(void **state) {
    (void)state;
    struct sl_listen l;
    struct sl_err err;
    struct stat sb;
    int fd = open(lock_at, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_int_equal(write(fd, "mine", 4), 4);
    close(fd);
    assert_int_equal(begin(&l, 0600, &err), SL_ERR_CONFIG);
    assert_non_null(strstr(err.text, "another file of that name"));
    assert_int_equal(stat(lock_at, &sb), 0);
    assert_int_equal(sb.st_size, 4);
    unlink(lock_at);
    assert_int_equal(symlink("/nonexistent/file", lock_at), 0);
    assert_int_equal(begin(&l, 0600, &err), SL_ERR_CONFIG);
    unlink(lock_at);
    assert_int_equal(mkfifo(lock_at, 0600), 0);
    assert_int_equal(begin(&l, 0600, &err), SL_ERR_CONFIG);
}

#define UNIX_TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(waits_while_all_are_taken, setup, teardown),
        cmocka_unit_test_setup_teardown(forgets_what_was_lost, setup, teardown),
        UNIX_TEST(has_its_mode_from_the_beginning),
        UNIX_TEST(changes_nothing_that_took_its_place),
        UNIX_TEST(does_not_wait_for_the_folder),
        UNIX_TEST(says_who_is_in_its_way),
        UNIX_TEST(is_interrupted_while_it_waits),
        UNIX_TEST(takes_no_other_file_for_its_lock),
    };
    return cmocka_run_group_tests_name("listen", tests, NULL, NULL);
}
