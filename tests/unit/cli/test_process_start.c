/* What a parent may have left behind does no harm once the process has started. */
#include "cli/process/process_start.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

/* Whether the exit code of a child arrives here. */
static int exit_code_of_child(void) {
    int how = 0;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(3);
    return waitpid(pid, &how, 0) == pid && WIFEXITED(how) ? WEXITSTATUS(how) : -1;
}

static void children_are_waited_for(void **state) {
    (void)state;
    signal(SIGCHLD, SIG_IGN);
    assert_int_equal(exit_code_of_child(), -1);
    assert_true(sl_process_start());
    assert_int_equal(exit_code_of_child(), 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(children_are_waited_for)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
