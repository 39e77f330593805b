#include "cli/options/completion.h"

#include "backends/registry/registry.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *option, *words;
} choices[] = {
    {"--log-level", "error warn info debug"},
    {"--kv-type", "f16 q8_0"},
    {"--draft", "off auto 1 2 3 4"},
    {"--experts", "auto resident streamed"},
    {"--tables", "auto resident streamed"},
    {"--io", "auto uring pread buffered uring-buffered pread-buffered"},
    {"--cpu-lane", "auto on off"},
    {"--look-ahead", "on off"},
    {"--warm-up", "on off"},
    {"--overflow", "on off"},
    {"--split", "auto"},
    {"--heat-file", "off"},
    {"--history", "off"},
    {"--think", "on off minimal low medium high max"},
    {"--output", "md json"},
};

/* auto, and for each backend its devices: "cuda" and "cuda:all", "cpu". */
static void put_devices(char *buf, size_t size) {
    const struct sl_backend *b;
    size_t n = (size_t)snprintf(buf, size, "auto");
    for (uint32_t i = 0; (b = sl_backend_at(i)) && n < size; i++)
        if (!b->hidden)
            n += (size_t)snprintf(buf + n, size - n,
                                  b->kind == SL_DEVICE_HOST ? " %s" : " %s %s:all", b->name,
                                  b->name);
}

static void put_isas(char *buf, size_t size) {
    const char *const *isas = sl_backend_of_host()->isas;
    size_t n = 0;
    buf[0] = '\0';
    for (uint32_t i = 0; isas && isas[i] && n < size; i++)
        n += (size_t)snprintf(buf + n, size - n, "%s%s", i ? " " : "", isas[i]);
}

const char *sl_completion_words(const char *option, char *buf, size_t size) {
    buf[0] = '\0';
    if (strcmp(option, "--device") == 0)
        put_devices(buf, size);
    else if (strcmp(option, "--cpu-isa") == 0)
        put_isas(buf, size);
    for (uint32_t i = 0; i < SL_COUNTOF(choices); i++)
        if (strcmp(option, choices[i].option) == 0)
            snprintf(buf, size, "%s", choices[i].words);
    return buf;
}

static bool is_path(const struct sl_arg *a) {
    return a->kind == SL_ARG_INPUT || a->kind == SL_ARG_INPUTS || a->kind == SL_ARG_OUTPUT ||
           a->kind == SL_ARG_KEPT || (a->kind == SL_ARG_STRING && strcmp(a->value, "PATH") == 0);
}

static const char *what_follows(const struct sl_command *c, const struct sl_arg *a,
                                const char *words) {
    if (a->kind == SL_ARG_FLAG)
        return "none";
    if (c->model && a->out == (void *)c->model)
        return "model";
    if (a->kind == SL_ARG_FOLDER || strcmp(a->value, "DIR") == 0)
        return "folder";
    return is_path(a) ? "file" : *words ? "word" : "text";
}

/* The beginning of the option's help, up to where a first sentence or clause ends. */
static void put_about(const struct sl_command *c, const struct sl_arg *a) {
    const char *help = a->help ? a->help : c->help_of(a->name);
    size_t n = 0;
    while (help[n] && !strchr(";(", help[n]) && strncmp(help + n, ": ", 2) != 0 && n < 72)
        n++;
    if (n == 72) /* not within a word */
        while (n && !strchr(" \n", help[n]))
            n--;
    while (n && strchr(" \n,", help[n - 1]))
        n--;
    for (size_t i = 0; i < n; i++)
        putchar(help[i] == '\n' ? ' ' : help[i]);
}

void sl_completion_print(const struct sl_command *c) {
    char words[256];
    for (uint32_t i = 0; i < c->n_args; i++) {
        const struct sl_arg *a = &c->args[i];
        if (a->kind == SL_ARG_HEADING)
            continue;
        sl_completion_words(a->name, words, sizeof words);
        printf("%s\t", a->name);
        if (a->letter)
            printf("-%c\t%s\t%s\t", a->letter, what_follows(c, a, words), *words ? words : "-");
        else
            printf("-\t%s\t%s\t", what_follows(c, a, words), *words ? words : "-");
        put_about(c, a);
        putchar('\n');
    }
    printf("--help\t-h\tnone\t-\tshow the options\n");
}
