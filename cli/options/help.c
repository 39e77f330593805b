#include "cli/options/help.h"

#include "cli/options/args_env.h"
#include "common/terminal.h"

#include <string.h>

#define TEXT_COLUMN 30

void sl_help_wrap(FILE *f, const char *text, int at) {
    int column = at;
    for (const char *word = text + strspn(text, " \n"); *word; word += strspn(word, " \n")) {
        int n = (int)strcspn(word, " \n");
        bool first = column == at;
        if (!first && column + 1 + n > SL_HELP_COLUMNS) {
            fprintf(f, "\n%*s", at, "");
            column = at;
            first = true;
        }
        fprintf(f, "%s%.*s", first ? "" : " ", n, word);
        column += n + !first;
        word += n;
    }
    fputc('\n', f);
}

/* How much of text is one paragraph: up to a line that is empty or begins with a space. */
static size_t paragraph_len(const char *text) {
    size_t n = 0;
    while (text[n]) {
        n += strcspn(text + n, "\n");
        n += text[n] == '\n';
        if (!text[n] || text[n] == '\n' || text[n] == ' ')
            break;
    }
    return n;
}

void sl_help_paragraphs(FILE *f, const char *text) {
    char one[2048];
    while (*text) {
        if (*text == '\n' || *text == ' ') {
            size_t n = strcspn(text, "\n");
            fprintf(f, "%.*s\n", (int)n, text);
            text += n + (text[n] == '\n');
            continue;
        }
        size_t n = paragraph_len(text);
        snprintf(one, sizeof one, "%.*s", (int)n, text);
        sl_help_wrap(f, one, 0);
        text += n;
    }
}

static void print_option(const struct sl_command *c, const struct sl_arg *a) {
    char left[64];
    int n = a->letter ? snprintf(left, sizeof left, "  -%c, %s", a->letter, a->name)
                      : snprintf(left, sizeof left, "      %s", a->name);
    if (a->value && n > 0 && (size_t)n < sizeof left)
        snprintf(left + n, sizeof left - (size_t)n, " %s", a->value);
    if (strlen(left) < TEXT_COLUMN - 1) /* two spaces at least part it from its text */
        printf("%-*s", TEXT_COLUMN, left);
    else
        printf("%s\n%*s", left, TEXT_COLUMN, "");
    sl_help_wrap(stdout, a->help ? a->help : c->help_of(a->name), TEXT_COLUMN);
}

/* The variables, by an option with a hyphen where there is one; those that have none. */
static void print_variables(const struct sl_command *c) {
    const struct sl_arg *example = NULL;
    char variable[SL_VARIABLE_BYTES], text[640];
    for (uint32_t i = 0; i < c->n_args; i++) {
        const struct sl_arg *a = &c->args[i];
        if (sl_args_variable(a, variable) && (!example || !strchr(example->name + 2, '-')))
            example = a;
    }
    if (!example)
        return;
    sl_args_variable(example, variable);
    int n = snprintf(text, sizeof text,
                     "Options can also be set by environment variables: %s for %s, and so on; 1 or "
                     "0 for one without a value. The command line takes precedence.",
                     variable, example->name);
    for (uint32_t i = 0; i < c->n_args && n > 0 && (size_t)n < sizeof text; i++)
        if (c->args[i].kind == SL_ARG_SECRET)
            n +=
                snprintf(text + n, sizeof text - (size_t)n,
                         " %s has none: other programs would inherit the secret.", c->args[i].name);
    putchar('\n');
    sl_help_wrap(stdout, text, 0);
}

void sl_help_print(const struct sl_command *c) {
    const char *bold = sl_style_begin(stdout, SL_STYLE_BOLD), *plain = sl_style_end(stdout);
    sl_help_paragraphs(stdout, c->about);
    printf("\nusage: %s\n", c->usage);
    for (uint32_t i = 0; i < c->n_args; i++) {
        const struct sl_arg *a = &c->args[i];
        if (a->kind == SL_ARG_HEADING) {
            printf("\n%s%s%s\n", bold, a->name, plain);
            continue;
        }
        print_option(c, a);
    }
    printf("  -h, --help                  this text\n");
    if (c->notes) {
        putchar('\n');
        sl_help_paragraphs(stdout, c->notes);
    }
    print_variables(c);
}
