/* Command-line options from a table: parsing, --help, and a suggestion for a mistyped flag. */
#ifndef SL_CLI_ARGS_H
#define SL_CLI_ARGS_H

#include "cli/options/terminal.h"
#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

enum sl_arg_kind {
    SL_ARG_FLAG,    /* bool: --x sets true */
    SL_ARG_STRING,  /* const char *, not empty */
    SL_ARG_TEXT,    /* the same, may be empty */
    SL_ARG_SECRET,  /* as STRING; no variable has it, for others would inherit it */
    SL_ARG_INPUT,   /* const char *, not empty: a file to read */
    SL_ARG_INPUTS,  /* struct sl_arg_list of files, or folders with files named like the model's */
    SL_ARG_OUTPUT,  /* const char *, not empty: a file to write, compared with all others
                       (outputs.h) */
    SL_ARG_KEPT,    /* const char *, not empty: a file or folder of ours that is read and replaced;
                       off: none */
    SL_ARG_FOLDER,  /* const char *, not empty: a folder that only we use */
    SL_ARG_U32,     /* uint32_t, decimal */
    SL_ARG_U64,     /* uint64_t, decimal or 0x */
    SL_ARG_F32,     /* float */
    SL_ARG_BYTES,   /* uint64_t: 512, 64KiB, 2GiB, 1.5G (binary units with or without iB) */
    SL_ARG_LIST,    /* struct sl_arg_list: may be given several times */
    SL_ARG_HEADING, /* a heading in --help; name is its text */
};

#define SL_ARG_LIST_MAX 3u
struct sl_arg_list {
    const char *items[SL_ARG_LIST_MAX];
    uint32_t n;
};

struct sl_arg {
    enum sl_arg_kind kind;
    char letter;       /* -m, 0 = none */
    const char *name;  /* "--model" */
    const char *value; /* placeholder in the help: "FILE" */
    void *out;         /* written only when the option is given */
    const char *help;  /* is wrapped; NULL: the command's help_of gives it */
    bool required;
};

/* The numbers that an option accepts, if not all of its kind. */
struct sl_arg_limit {
    const char *name;   /* "--ctx" */
    double least, most; /* both included; INFINITY: no upper bound */
    const char *zero;   /* what 0 means although it is below least; NULL = it is refused too */
};
/* For least: any number above 0. */
#define SL_ARG_ABOVE_0 1e-30

struct sl_command {
    const char *name;  /* "serve" */
    const char *about; /* one line */
    const char *usage; /* "sluice serve -m MODEL [options]" */
    const char *notes; /* printed at the end of --help, wrapped but for lines that begin with a
                          space; may be NULL */
    const struct sl_arg *args;
    uint32_t n_args;
    const struct sl_arg_limit *limits; /* [n_limits], may name options that the command lacks */
    uint32_t n_limits;
    const char **model; /* where -m writes, and the one argument that is not an option; NULL: the
                           command takes none */
    bool model_optional;
    bool model_is_source; /* it is where a model comes from: no file, and nothing is pulled */
    const char *(*help_of)(const char *option); /* for options whose help is only known at run time;
                                                   NULL: there are none */
};

/* Parses argv[1..]; "--x value" and "--x=value" both work, "--" ends the options. What is not given
 * is taken from the environment (args_env.h), a list as if it had been given once.
 * Returns -1 to go on; otherwise the exit code: 0 after --help, 2 after an error message. A model
 * hf:OWNER/NAME[:FILE] is pulled, if it is not there, and becomes the path of its file: 1 or 130
 * if that fails or is interrupted.
 *
 * Exit codes of all commands: 2 for what is wrong on the command line itself, found before anything
 * is opened; 1 for what fails afterwards, including a named file that does not exist. */
int sl_args_parse(const struct sl_command *command, int argc, char **argv);

/* Stores the value of one of the command's options that take one, as if it had been given. name:
 * what the error calls it. False: nothing changed, and err says what is allowed. */
bool sl_args_set(const struct sl_command *command, const char *option, const char *name,
                 const char *text, struct sl_err *err);

/* The candidate nearest to word by edit distance, or NULL if none is close. */
const char *sl_args_nearest(const char *word, const char *const *candidates, uint32_t n);

#define SL_COUNTOF(a) ((uint32_t)(sizeof(a) / sizeof *(a)))

#endif
