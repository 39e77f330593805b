#include "cli/run/turn_reader.h"

#include "common/terminal.h"
#include "cli/run/turn_history.h"
#include "common/log.h"
#include "common/utf8.h"

#include <errno.h>
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>
#include <wchar.h>

#define QUOTES "\"\"\""

/* Bracketed paste: a terminal puts these around what is pasted, where a program asks for it.
 * Source: XTerm Control Sequences, "Bracketed Paste Mode". */
#define PASTE_ON    "\033[?2004h"
#define PASTE_OFF   "\033[?2004l"
#define PASTE_BEGIN "\033[200~"
#define PASTE_END   L"\033[201~"

struct sl_turn_reader {
    const volatile sig_atomic_t *interrupted;
    EditLine *editor; /* NULL: lines come as they are */
    FILE *screen;     /* what shows the line that is edited */
    History *history;
    const char *history_file; /* NULL: none */
    const char *prompt;
    bool brackets;   /* the terminal takes PASTE_ON */
    bool typed_stop; /* Ctrl-C */
    struct sl_buf turn;
    char why[256];
};

/* ---- the editor ---- */

static char *prompt_of(EditLine *e) {
    struct sl_turn_reader *r;
    el_get(e, EL_CLIENTDATA, &r);
    return (char *)(uintptr_t)r->prompt;
}

static unsigned char stop_key(EditLine *e, wint_t c) {
    struct sl_turn_reader *r;
    (void)c;
    el_get(e, EL_CLIENTDATA, &r);
    r->typed_stop = true;
    return CC_NEWLINE;
}

/* libedit's own handlers give the terminal back before the process stops, and take it again. */
static unsigned char suspend_key(EditLine *e, wint_t c) {
    struct sl_turn_reader *r;
    (void)c;
    el_get(e, EL_CLIENTDATA, &r);
    fputs(r->brackets ? PASTE_OFF : "", r->screen);
    fflush(r->screen);
    raise(SIGTSTP);
    fputs(r->brackets ? PASTE_ON : "", r->screen);
    return CC_REDISPLAY;
}

/* What a paste may have in it: other control characters would be commands to the terminal that
 * shows the line. Line ends arrive as carriage returns. */
static bool may_paste(wchar_t c) {
    return c == L'\n' || c == L'\t' || (c >= 0x20 && c != 0x7f && (c < 0x80 || c >= 0xa0));
}

/* Everything up to the end of the paste, line ends too, goes into the line. */
static unsigned char paste(EditLine *e, wint_t c) {
    static const wchar_t end[] = PASTE_END;
    enum { END = sizeof end / sizeof *end - 1 };
    wchar_t text[256 + 1];
    size_t n = 0, matched = 0, total = 0;
    (void)c;
    for (wchar_t w; matched < END && el_wgetc(e, &w) == 1;) {
        if (w == end[matched]) {
            matched++;
            continue;
        }
        matched = w == end[0];
        w = w == L'\r' ? L'\n' : w;
        if (matched || !may_paste(w) || ++total > SL_MAX_TURN_BYTES / 4)
            continue;
        text[n++] = w;
        if (n == 256) {
            text[n] = L'\0';
            el_winsertstr(e, text);
            n = 0;
        }
    }
    text[n] = L'\0';
    if (n)
        el_winsertstr(e, text);
    return CC_REFRESH;
}

static void remember(void *ctx, const char *text) {
    struct sl_turn_reader *r = ctx;
    HistEvent ev;
    history(r->history, &ev, H_ENTER, text);
}

/* Wide characters as UTF-8, whatever the language is. */
static void set_locale(void) {
    if ((!setlocale(LC_CTYPE, "") || strcmp(nl_langinfo(CODESET), "UTF-8") != 0) &&
        !setlocale(LC_CTYPE, "C.UTF-8"))
        sl_warn("no locale with UTF-8 is installed: only ASCII can be typed");
}

static bool open_editor(struct sl_turn_reader *r) {
    HistEvent ev;
    const char *term = getenv("TERM");
    set_locale();
    r->editor = el_init("sluice", stdin, r->screen, r->screen);
    r->history = r->editor ? history_init() : NULL;
    if (!r->history)
        return false;
    r->brackets = term && *term && strcmp(term, "dumb") != 0;
    history(r->history, &ev, H_SETSIZE, (int)SL_HISTORY_ENTRIES);
    history(r->history, &ev, H_SETUNIQUE, 1);
    if (r->history_file && !sl_history_is_ours(r->history_file)) {
        sl_warn("%s: holds something else, or cannot be read: what is typed is not kept",
                r->history_file);
        r->history_file = NULL;
    }
    if (r->history_file)
        sl_history_load(r->history_file, remember, r);
    el_set(r->editor, EL_CLIENTDATA, r);
    el_set(r->editor, EL_PROMPT, prompt_of);
    el_set(r->editor, EL_EDITOR, "emacs");
    el_set(r->editor, EL_HIST, history, r->history);
    el_set(r->editor, EL_SIGNAL, 1);
    el_source(r->editor, NULL); /* the user's own ~/.editrc; what follows holds in any case */
    el_wset(r->editor, EL_ADDFN, L"sluice-stop", L"drop the line", stop_key);
    el_wset(r->editor, EL_ADDFN, L"sluice-paste", L"insert what is pasted", paste);
    el_wset(r->editor, EL_ADDFN, L"sluice-suspend", L"stop the process", suspend_key);
    /* Ctrl-C is a key while a line is edited: a signal would not surely end the read. */
    el_set(r->editor, EL_SETTY, "-d", "-isig", NULL);
    el_set(r->editor, EL_BIND, "^C", "sluice-stop", NULL);
    el_set(r->editor, EL_BIND, "^Z", "sluice-suspend", NULL);
    el_set(r->editor, EL_BIND, PASTE_BEGIN, "sluice-paste", NULL);
    return true;
}

/* What is beyond the limit shows in the length. */
static void add(struct sl_turn_reader *r, const char *text, size_t n) {
    size_t room = SL_MAX_TURN_BYTES + 1 - r->turn.len;
    sl_buf_put(&r->turn, text, n < room ? n : room);
}

/* False: interrupted, or the end. */
static bool edit_line(struct sl_turn_reader *r, const char *prompt) {
    int n = 0;
    r->prompt = prompt;
    r->typed_stop = false;
    /* Before the prompt: what is typed when it is seen finds the editor's modes, not those in which
     * Ctrl-D is no key. */
    el_set(r->editor, EL_PREP_TERM, 1);
    if (r->brackets)
        fputs(PASTE_ON, r->screen);
    const char *line = el_gets(r->editor, &n);
    if (r->brackets)
        fputs(PASTE_OFF, r->screen);
    fflush(r->screen);
    if (r->typed_stop) {
        fputs("\n", r->screen);
        errno = EINTR;
        return false;
    }
    errno = 0;
    if (!line || n <= 0)
        return false;
    add(r, line, (size_t)n);
    return true;
}

/* False: interrupted, or the end. */
static bool read_line(struct sl_turn_reader *r) {
    char some[4096];
    size_t n = 0, total = 0;
    int c;
    errno = 0;
    while ((c = getc(stdin)) != EOF && c != '\n') {
        some[n++] = (char)c;
        total++;
        if (n == sizeof some) {
            add(r, some, n);
            n = 0;
        }
    }
    add(r, some, n);
    if (c == EOF && errno == EINTR && *r->interrupted)
        return false;
    return c == '\n' || total > 0;
}

/* ---- turns ---- */

struct sl_turn_reader *sl_turn_reader_open(const char *history,
                                           const volatile sig_atomic_t *interrupted) {
    struct sl_turn_reader *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->interrupted = interrupted;
    r->history_file = history;
    r->screen = isatty(STDERR_FILENO) ? stderr : isatty(STDOUT_FILENO) ? stdout : NULL;
    if (isatty(STDIN_FILENO) && r->screen && !open_editor(r))
        sl_turn_reader_close(&r);
    return r;
}

void sl_turn_reader_close(struct sl_turn_reader **p) {
    struct sl_turn_reader *r = *p;
    if (!r)
        return;
    if (r->editor)
        el_end(r->editor);
    if (r->history)
        history_end(r->history);
    sl_buf_release(&r->turn);
    free(r);
    *p = NULL;
}

bool sl_turn_reader_edits(const struct sl_turn_reader *r) {
    return r->editor != NULL;
}

static struct sl_turn wrong(struct sl_turn_reader *r, const char *why) {
    snprintf(r->why, sizeof r->why, "%s", why);
    return (struct sl_turn){.event = SL_TURN_FAILED, .text = r->why, .len = strlen(r->why)};
}

static bool is_line_end(char c) {
    return c == '\n' || c == '\r';
}

/* A line without its end, appended to the turn. */
static enum sl_turn_event add_line(struct sl_turn_reader *r, const char *prompt) {
    size_t from = r->turn.len;
    if (!(r->editor ? edit_line(r, prompt) : read_line(r))) {
        bool stopped = errno == EINTR;
        clearerr(stdin);
        return stopped ? SL_TURN_INTERRUPTED : SL_TURN_END;
    }
    while (r->turn.len > from && is_line_end(r->turn.ptr[r->turn.len - 1]))
        r->turn.len--;
    return SL_TURN_TEXT;
}

/* Where a text in quotation marks begins: at the start, or behind a command. Else NULL. */
static const char *opening(const struct sl_buf *b) {
    const char *at = b->ptr, *end = b->ptr + b->len;
    if (at < end && *at == '/') {
        while (at < end && *at != ' ')
            at++;
        while (at < end && *at == ' ')
            at++;
    }
    return end - at >= 3 && memcmp(at, QUOTES, 3) == 0 ? at : NULL;
}

/* Takes the quotation marks out; false: the closing ones have not come yet. */
static bool unquote(struct sl_buf *b, size_t open) {
    size_t end = b->len;
    while (end > open + 3 && (b->ptr[end - 1] == ' ' || b->ptr[end - 1] == '\t'))
        end--;
    if (end < open + 6 || memcmp(b->ptr + end - 3, QUOTES, 3) != 0)
        return false;
    end -= 3;
    size_t from = open + 3;
    from += from < end && b->ptr[from] == '\n';
    end -= end > from && b->ptr[end - 1] == '\n';
    memmove(b->ptr + open, b->ptr + from, end - from);
    b->len = open + end - from;
    return true;
}

static void keep_in_history(struct sl_turn_reader *r) {
    if (!r->editor || !r->turn.len)
        return;
    remember(r, r->turn.ptr);
    if (r->history_file && !sl_history_add(r->history_file, r->turn.ptr)) {
        sl_warn("%s: what is typed cannot be kept there: %s", r->history_file, strerror(errno));
        r->history_file = NULL;
    }
}

struct sl_turn sl_turn_reader_next(struct sl_turn_reader *r) {
    sl_buf_clear(&r->turn);
    enum sl_turn_event event = add_line(r, "> ");
    if (event != SL_TURN_TEXT)
        return (struct sl_turn){.event = event};
    const char *at = r->turn.len ? opening(&r->turn) : NULL;
    size_t open = at ? (size_t)(at - r->turn.ptr) : 0;
    while (at && !unquote(&r->turn, open)) {
        sl_buf_puts(&r->turn, "\n");
        event = add_line(r, ". ");
        if (event == SL_TURN_END)
            return wrong(r, "the text that began with \"\"\" has no \"\"\" at its end");
        if (event == SL_TURN_INTERRUPTED)
            return (struct sl_turn){.event = event};
    }
    sl_buf_put(&r->turn, "", 1); /* its end */
    if (r->turn.failed) {
        sl_buf_release(&r->turn);
        return wrong(r, "out of memory");
    }
    r->turn.len--;
    if (r->turn.len > SL_MAX_TURN_BYTES)
        return wrong(r, "a turn may have 64 MiB; this one is longer");
    if (strlen(r->turn.ptr) < r->turn.len)
        return wrong(r, "there is a NUL byte in the text");
    if (sl_utf8_valid_prefix(r->turn.ptr, r->turn.len) < r->turn.len)
        return wrong(r, "the text is not UTF-8");
    keep_in_history(r);
    return (struct sl_turn){.event = SL_TURN_TEXT,
                            .command = r->turn.ptr[0] == '/' && (!at || open > 0),
                            .text = r->turn.ptr,
                            .len = r->turn.len};
}
