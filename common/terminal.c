#include "common/terminal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool sl_terminal_colours(FILE *f) {
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    if (no && *no)
        return false;
    return isatty(fileno(f)) && term && *term && strcmp(term, "dumb") != 0;
}

const char *sl_style_begin(FILE *f, enum sl_style style) {
    static const char *const begin[] = {
        [SL_STYLE_DIM] = "\033[2m",     [SL_STYLE_BOLD] = "\033[1m",   [SL_STYLE_RED] = "\033[31m",
        [SL_STYLE_YELLOW] = "\033[33m", [SL_STYLE_GREEN] = "\033[32m",
    };
    return sl_terminal_colours(f) ? begin[style] : "";
}

const char *sl_style_end(FILE *f) {
    return sl_terminal_colours(f) ? "\033[0m" : "";
}

/* The bytes of the control character at s, 0: it is none. */
static size_t control_len(const unsigned char *s, size_t n) {
    if ((s[0] < 0x20 && s[0] != '\n' && s[0] != '\t') || s[0] == 0x7f)
        return 1;
    return n > 1 && s[0] == 0xc2 && s[1] < 0xa0 ? 2 : 0; /* U+0080 to U+009F */
}

void sl_terminal_put(FILE *f, const char *text, size_t len) {
    const unsigned char *s = (const unsigned char *)text;
    size_t from = 0;
    for (size_t i = 0; i < len && isatty(fileno(f));) {
        size_t n = control_len(s + i, len - i);
        if (n) {
            fwrite(text + from, 1, i - from, f);
            fputs("\xef\xbf\xbd", f);
            from = i + n;
        }
        i += n ? n : 1;
    }
    fwrite(text + from, 1, len - from, f);
}
