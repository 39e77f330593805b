/* Commands to `sluice run` itself: lines that begin with '/'. */
#include "cli/run/run_chat.h"
#include "common/terminal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A command has its argument, "" without one. False: it could not be done, and why was printed. */
struct command {
    const char *name, *argument, *about;
    bool (*run)(struct sl_run_chat *c, const char *argument);
};

static SL_PRINTF(1, 2) bool wrong(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    fputs("sluice run: ", stderr);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    return false;
}

/* ---- settings ---- */

/* Those of the command line that can be changed between turns. */
static const char *const settings[] = {"temp",           "top-p", "top-k",     "min-p",
                                       "repeat-penalty", "seed",  "max-tokens"};

static void print_settings(const struct sl_run_chat *c) {
    const struct sl_sampling *s = &c->sampling;
    fprintf(stderr,
            "temp %g\ntop-p %g\ntop-k %u\nmin-p %g\nrepeat-penalty %g\nseed %llu\n"
            "max-tokens %u\n",
            (double)s->temperature, (double)s->top_p, s->top_k, (double)s->min_p,
            (double)s->repeat_penalty, (unsigned long long)s->seed, c->max_tokens);
}

static bool set(struct sl_run_chat *c, const char *argument) {
    char name[32], option[40];
    struct sl_err err;
    size_t len = strcspn(argument, " ");
    const char *value = argument + len + strspn(argument + len, " ");
    if (!*argument) {
        print_settings(c);
        return true;
    }
    snprintf(name, sizeof name, "%.*s", (int)(len < sizeof name ? len : sizeof name - 1), argument);
    for (uint32_t i = 0; i < SL_COUNTOF(settings); i++)
        if (strcmp(name, settings[i]) == 0) {
            snprintf(option, sizeof option, "--%s", name);
            return sl_args_set(c->command, option, name, value, &err) || wrong("%s", err.text);
        }
    const char *near = sl_args_nearest(name, settings, SL_COUNTOF(settings));
    return wrong("there is no setting '%s'%s%s%s; /set lists them", name,
                 near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static bool think(struct sl_run_chat *c, const char *argument) {
    static char word[16];
    if (!*argument) {
        fprintf(stderr, "think %s\n", c->think ? c->think : "auto");
        return true;
    }
    if (strcmp(argument, "auto") == 0) {
        c->think = NULL;
        return true;
    }
    if (!sl_run_is_think(argument))
        return wrong("/think is '%.40s': must be on, off, minimal, low, medium, high, max or auto",
                     argument);
    if (!c->thinks)
        return wrong("this model does not write down its thinking: there is nothing to set");
    snprintf(word, sizeof word, "%s", argument);
    c->think = word;
    return true;
}

/* ---- the conversation ---- */

static bool set_system(struct sl_run_chat *c, const char *argument) {
    const char *is = sl_run_system(c);
    if (!*argument) {
        fprintf(stderr, "%s\n", is ? is : "[no system message]");
        return true;
    }
    bool none = strcmp(argument, "none") == 0;
    return sl_run_set_system(c, none ? NULL : argument) || wrong("out of memory");
}

static bool clear(struct sl_run_chat *c, const char *argument) {
    (void)argument;
    sl_run_clear(c);
    return true;
}

static bool again(struct sl_run_chat *c, const char *argument) {
    (void)argument;
    return sl_run_again(c) != SL_RUN_FAILED;
}

/* "~/x" as shells write it. False: there is no argument, or it is too long. */
static bool path_of(const char *command, const char *argument, char *out, size_t size) {
    const char *home = strncmp(argument, "~/", 2) == 0 ? getenv("HOME") : NULL;
    int n = snprintf(out, size, "%s%s", home ? home : "", argument + (home ? 1 : 0));
    if (!*argument)
        return wrong("%s needs the name of a file", command);
    return (n > 0 && (size_t)n < size) || wrong("%s: the name is too long", command);
}

static bool save(struct sl_run_chat *c, const char *argument) {
    char path[4096];
    struct sl_err err;
    if (!path_of("/save", argument, path, sizeof path))
        return false;
    if (!json_array_size(c->messages))
        return wrong("/save: nothing has been said yet");
    if (!sl_run_save(c, path, &err))
        return wrong("%s", err.text);
    fprintf(stderr, "[saved to %s]\n", path);
    return true;
}

static bool load(struct sl_run_chat *c, const char *argument) {
    char path[4096];
    struct sl_err err;
    if (!path_of("/load", argument, path, sizeof path))
        return false;
    if (!sl_run_load(c, path, &err))
        return wrong("%s", err.text);
    fprintf(stderr, "[%zu messages loaded from %s]\n", json_array_size(c->messages), path);
    return true;
}

/* ---- the list ---- */

static bool help(struct sl_run_chat *c, const char *argument);

static const struct command commands[] = {
    {"/help", "", "this list", help},
    {"/bye", "", "ends, as Ctrl-D does", NULL},
    {"/clear", "", "forgets all but the system message", clear},
    {"/regenerate", "", "answers again, with the next seed", again},
    {"/system", "[TEXT|none]", "shows, sets or removes the system message", set_system},
    {"/set", "[NAME VALUE]", "shows the settings or changes one, as /set temp 0.2", set},
    {"/think", "[on|off|low|...]", "whether, or how much, the model thinks", think},
    {"/save", "FILE", "writes the conversation, as a request to a server", save},
    {"/load", "FILE", "continues a saved conversation", load},
};

static bool help(struct sl_run_chat *c, const char *argument) {
    (void)c;
    (void)argument;
    for (uint32_t i = 0; i < SL_COUNTOF(commands); i++)
        fprintf(stderr, "%s%s%s %-*s %s\n", sl_style_begin(stderr, SL_STYLE_BOLD), commands[i].name,
                sl_style_end(stderr), (int)(27 - strlen(commands[i].name)), commands[i].argument,
                commands[i].about);
    fputs("\"\"\"                          begins and ends a text of several lines; a paste\n"
          "                             is one turn in any case\n"
          "A line that begins with a space and '/' goes to the model.\n",
          stderr);
    return true;
}

/* "/set temp 1": what stands in front of the first space, if it looks like a command and no path.
 */
static size_t name_len(const char *line) {
    size_t n = 1 + strspn(line + 1, "abcdefghijklmnopqrstuvwxyz?");
    return line[n] == ' ' || line[n] == '\0' ? n : 0;
}

static const char *nearest(const char *name) {
    const char *names[SL_COUNTOF(commands)];
    for (uint32_t i = 0; i < SL_COUNTOF(commands); i++)
        names[i] = commands[i].name;
    return sl_args_nearest(name, names, SL_COUNTOF(names));
}

bool sl_run_command(struct sl_run_chat *c, const char *line, bool *out_failed) {
    size_t len = name_len(line);
    char name[32];
    snprintf(name, sizeof name, "%.*s", (int)(len < sizeof name ? len : sizeof name - 1), line);
    if (strcmp(name, "/?") == 0)
        strcpy(name, "/help");
    if (strcmp(name, "/exit") == 0 || strcmp(name, "/quit") == 0)
        strcpy(name, "/bye");
    const char *argument = line + len + strspn(line + len, " ");
    *out_failed = false;
    for (uint32_t i = 0; i < SL_COUNTOF(commands); i++) {
        if (strcmp(name, commands[i].name) != 0)
            continue;
        if (*argument && !commands[i].argument[0])
            *out_failed = !wrong("%s takes nothing after it", name);
        else if (commands[i].run)
            *out_failed = !commands[i].run(c, argument);
        return commands[i].run || *out_failed;
    }
    const char *near = nearest(name);
    *out_failed = true;
    (void)wrong("there is no command '%s'%s%s%s; /help lists them", name,
                near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    return true;
}

bool sl_run_is_command(const char *line) {
    return line[0] == '/' && name_len(line) > 0;
}
