/* What a terminal is shown: colours, and nothing of a model's that commands it. */
#include "common/terminal.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include <cmocka.h>

/* A pseudo terminal that passes bytes on as they are. */
static FILE *open_terminal(int *out_master) {
    struct termios raw;
    *out_master = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(*out_master >= 0);
    assert_int_equal(grantpt(*out_master), 0);
    assert_int_equal(unlockpt(*out_master), 0);
    FILE *f = fopen(ptsname(*out_master), "r+");
    assert_non_null(f);
    assert_int_equal(tcgetattr(fileno(f), &raw), 0);
    cfmakeraw(&raw);
    assert_int_equal(tcsetattr(fileno(f), TCSANOW, &raw), 0);
    return f;
}

static const char text[] = "a\033]0;x\007b\r\n\tc\x7f"
                           "d\xc2\x9bz \xc2\xa0 \xe2\x82\xac \xf0\x9f\x98\x80\x1b";
static const char shown[] = "a\xef\xbf\xbd]0;x\xef\xbf\xbd"
                            "b\xef\xbf\xbd\n\tc\xef\xbf\xbd"
                            "d\xef\xbf\xbdz \xc2\xa0 \xe2\x82\xac \xf0\x9f\x98\x80\xef\xbf\xbd";

static void a_model_does_not_command_the_terminal(void **state) {
    (void)state;
    char got[128];
    int master;
    FILE *f = open_terminal(&master);
    sl_terminal_put(f, text, sizeof text - 1);
    sl_terminal_put(f, "", 0);
    assert_int_equal(fflush(f), 0);
    /* A terminal gives what it has in as many parts as it likes. */
    for (size_t n = 0; n < sizeof shown - 1;) {
        ssize_t part = read(master, got + n, sizeof got - n);
        assert_true(part > 0);
        n += (size_t)part;
    }
    assert_memory_equal(got, shown, sizeof shown - 1);
    fclose(f);
    close(master);
}

static void elsewhere_bytes_are_as_they_are(void **state) {
    (void)state;
    char got[128];
    FILE *f = tmpfile();
    assert_non_null(f);
    sl_terminal_put(f, text, sizeof text - 1);
    rewind(f);
    assert_int_equal(fread(got, 1, sizeof got, f), sizeof text - 1);
    assert_memory_equal(got, text, sizeof text - 1);
    assert_string_equal(sl_style_begin(f, SL_STYLE_RED), "");
    assert_string_equal(sl_style_end(f), "");
    fclose(f);
}

static void colours(void **state) {
    (void)state;
    static const struct {
        const char *term, *no_color;
        bool wanted;
    } cases[] = {
        {"xterm", NULL, true}, {"xterm", "", true}, {"xterm", "1", false},
        {"dumb", NULL, false}, {"", NULL, false},   {NULL, NULL, false},
    };
    int master;
    FILE *f = open_terminal(&master);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cases[i].term ? setenv("TERM", cases[i].term, 1) : unsetenv("TERM");
        cases[i].no_color ? setenv("NO_COLOR", cases[i].no_color, 1) : unsetenv("NO_COLOR");
        assert_int_equal(sl_terminal_colours(f), cases[i].wanted);
        assert_int_equal(sl_style_begin(f, SL_STYLE_DIM)[0] == '\033', cases[i].wanted);
    }
    fclose(f);
    close(master);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_does_not_command_the_terminal),
        cmocka_unit_test(elsewhere_bytes_are_as_they_are),
        cmocka_unit_test(colours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
