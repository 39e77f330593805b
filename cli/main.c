#include "cli/options/args.h"
#include "cli/options/commands.h"
#include "cli/options/completion.h"
#include "cli/process/process_limits.h"
#include "cli/process/process_memory.h"
#include "cli/process/process_start.h"
#include "common/version.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static int version(int argc, char **argv) {
    static const struct sl_command command = {
        .name = "version", .about = "Prints the version.", .usage = "sluice version"};
    int rc = sl_args_parse(&command, argc, argv);
    if (rc < 0)
        puts("sluice " SL_VERSION);
    return rc < 0 ? 0 : rc;
}

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *about;
} commands[] = {
    {"serve", sl_cmd_serve, "serve a model over HTTP (OpenAI's, Anthropic's, Ollama's APIs)"},
    {"worker", sl_cmd_worker, "compute layers of a model for a coordinator on another machine"},
    {"keygen", sl_cmd_keygen, "make a key for workers and their coordinator"},
    {"pull", sl_cmd_pull, "download a model from a repository or a URL, and check it"},
    {"run", sl_cmd_run, "chat with a model in the terminal"},
    {"plan", sl_cmd_plan, "show what a memory budget gives: slots, speed, the smallest budget"},
    {"doctor", sl_cmd_doctor, "say what slows Sluice down on this machine, and what to do"},
    {"devices", sl_cmd_devices, "list this machine's CPUs and GPUs, and why one cannot be used"},
    {"inspect", sl_cmd_inspect, "show what is in a GGUF file"},
    {"tokenize", sl_cmd_tokenize, "turn text into token ids"},
    {"score", sl_cmd_score, "perplexity and log-probabilities of a text"},
    {"bench", sl_cmd_bench, "measure prompt and decode speed"},
    {"synth", sl_cmd_synth, "write a synthetic model file"},
    {"health", sl_cmd_health, "ask a running server whether it is ready, for health checks"},
    {"version", version, "print the version"},
};

static void print_usage(FILE *out) {
    fprintf(out, "sluice " SL_VERSION
                 ": serves Mixture-of-Experts models that are larger than memory\n\n"
                 "usage: sluice COMMAND [options]\n"
                 "       sluice --version\n\n");
    for (uint32_t i = 0; i < SL_COUNTOF(commands); i++)
        fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].about);
    fprintf(out, "\n'sluice COMMAND --help' says more. Start with:\n"
                 "  sluice doctor             is this machine ready?\n"
                 "  sluice run MODEL.gguf     chat in the terminal\n"
                 "  sluice serve MODEL.gguf   http://127.0.0.1:8080\n");
}

/* A command's exit code, or 1 if its output could not be written. */
static int end(int rc) {
    if (fflush(stdout) == 0 && !ferror(stdout))
        return rc;
    fprintf(stderr, "sluice: standard output cannot be written: %s\n", strerror(errno));
    return rc ? rc : 1;
}

int main(int argc, char **argv) {
    if (!sl_process_start())
        return 1;
    sl_process_limits_set();
    sl_process_memory_tune();
    if (argc < 2) {
        print_usage(stderr);
        return 2;
    }
    bool help = strcmp(argv[1], "help") == 0;
    if (help && argc > 2) { /* `help COMMAND` is `COMMAND --help` */
        static char option[] = "--help";
        argv[1] = argv[2];
        argv[2] = option;
        argc = 3;
    } else if (help || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_usage(stdout);
        return end(0);
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
        puts("sluice " SL_VERSION);
        return end(0);
    }
    if (strcmp(argv[1], SL_LIST_COMMANDS) == 0) {
        for (uint32_t i = 0; i < SL_COUNTOF(commands); i++)
            printf("%s\t%s\n", commands[i].name, commands[i].about);
        return end(0);
    }
    const char *names[SL_COUNTOF(commands)];
    for (uint32_t i = 0; i < SL_COUNTOF(commands); i++) {
        if (strcmp(argv[1], commands[i].name) == 0)
            return end(commands[i].run(argc - 1, argv + 1));
        names[i] = commands[i].name;
    }
    const char *near = sl_args_nearest(argv[1], names, SL_COUNTOF(names));
    return sl_usage_error(NULL, "unknown %s '%s'%s%s%s", argv[1][0] == '-' ? "option" : "command",
                          argv[1], near ? "; did you mean '" : "", near ? near : "",
                          near ? "'?" : "");
}
