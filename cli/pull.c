/* sluice pull: models from repositories and URLs. */
#include "cli/options/args.h"
#include "cli/options/commands.h"
#include "cli/options/pulled_model.h"
#include "common/clock.h"
#include "pull/download.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

static const struct sl_arg_limit limits[] = {
    {"--connections", 1, SL_PULL_MAX_CONNECTIONS, NULL},
    {"--retries", 0, SL_PULL_MAX_RETRIES, NULL},
    {"--timeout-s", 1, 3600, NULL},
};

/* One object per line: at the beginning and end of a file, and once a second between. */
static void write_json(void *ctx, const struct sl_pull_progress *p) {
    static const char *const names[] = {[SL_PULL_BEGINS] = "begins",
                                        [SL_PULL_MOVES] = "moves",
                                        [SL_PULL_CHECKS] = "checks",
                                        [SL_PULL_DONE] = "done",
                                        [SL_PULL_PRESENT] = "present"};
    uint64_t *told_ns = ctx, now = sl_now_ns();
    bool between = p->event == SL_PULL_MOVES || p->event == SL_PULL_CHECKS;
    if (between && now - *told_ns < 1000000000u)
        return;
    *told_ns = now;
    json_t *o =
        json_pack("{ss ss sI sI si si}", "event", names[p->event], "path", p->path, "done_bytes",
                  (json_int_t)p->done_bytes, "size_bytes", (json_int_t)p->size_bytes, "file",
                  (int)p->file, "files", (int)p->n_files);
    if (o && p->sha256) {
        json_object_set_new(o, "sha256", json_string(p->sha256));
        json_object_set_new(o, "checked", json_boolean(p->checked));
    }
    if (o && json_dumpf(o, stdout, JSON_COMPACT) == 0)
        putchar('\n');
    fflush(stdout);
    json_decref(o);
}

int sl_cmd_pull(int argc, char **argv) {
    struct sl_pull_options o = SL_PULL_OPTIONS_DEFAULT;
    struct sl_pull_result result;
    struct sl_pull_source source;
    struct sl_err err;
    const char *text = NULL;
    bool json = false;
    uint64_t told_ns = 0;
    const struct sl_arg args[] = {
        {SL_ARG_STRING, 'm', "--model", "SOURCE", &text, "the same as the argument", false},
        {SL_ARG_FOLDER, 0, "--dir", "DIR", &o.folder,
         "where files go (default: sluice/models/OWNER/NAME/ in $XDG_CACHE_HOME or\n~/.cache)",
         false},
        {SL_ARG_STRING, 0, "--endpoint", "URL", &o.endpoint,
         "a mirror to ask instead of " SL_PULL_ENDPOINT " (or\nSLUICE_HF_ENDPOINT)", false},
        {SL_ARG_INPUT, 0, "--token-file", "FILE", &o.token_file,
         "a file with the token that gated repositories ask for (or SLUICE_HF_TOKEN)", false},
        {SL_ARG_STRING, 0, "--checksum", "HEX", &o.sha256,
         "the SHA-256 that the file must have, if the server does not say", false},
        {SL_ARG_U32, 0, "--connections", "N", &o.connections,
         "parts of a file to fetch at once (default 4)", false},
        {SL_ARG_U32, 0, "--retries", "N", &o.retries,
         "give up after this many failures in a row, without a byte between them (default 8)",
         false},
        {SL_ARG_U32, 0, "--timeout-s", "S", &o.timeout_s,
         "drop a connection that has brought no byte for this long (default 60)", false},
        {SL_ARG_FLAG, 0, "--json", NULL, &json, "progress and result as lines of JSON on stdout",
         false},
    };
    const struct sl_command command = {
        .name = "pull",
        .about = "Downloads a model from a repository or a URL, and checks it.",
        .usage = "sluice pull OWNER/NAME[:FILE] [options]\n"
                 "       sluice pull https://HOST/PATH/MODEL.gguf [options]",
        .notes =
            "FILE is a file of the repository, or a quantisation such as Q4_K_M. All parts of a\n"
            "model that is split are pulled. Without FILE: the only model there, or Q4_K_M. The "
            "last line on stdout is the path for -m. Other commands can pull, too:\n"
            "  sluice serve -m hf:OWNER/NAME:Q4_K_M\n\n"
            "If it is interrupted, run it again: it resumes where it stopped. A file gets its name "
            "once it is complete and its sum is right; until then it is NAME.part.\n"
            "Proxies are taken from https_proxy and http_proxy.\n",
        .args = args,
        .n_args = SL_COUNTOF(args),
        .limits = limits,
        .n_limits = SL_COUNTOF(limits),
        .model = &text,
        .model_optional = true,
        .model_is_source = true,
    };
    int rc = sl_args_parse(&command, argc, argv);
    if (rc >= 0)
        return rc;
    if (!text)
        return sl_usage_error("pull", "no model given; say which as OWNER/NAME[:FILE] or a URL");
    if (sl_pull_source_parse(text, &source, &err) != SL_OK)
        return sl_usage_error("pull", "%s", err.text);
    if (o.sha256 && !sl_pull_is_hex(o.sha256, 64))
        return sl_usage_error("pull", "--checksum is '%s': must be 64 hexadecimal digits",
                              o.sha256);
    o.progress = json ? write_json : sl_pull_draw;
    o.ctx = &told_ns;
    enum sl_status status = sl_pull(&source, &o, &result, &err);
    if (status != SL_OK)
        return sl_pull_report("pull", status, &err);
    if (!json) {
        printf("%s\n", result.path);
        return 0;
    }
    json_t *last = json_pack("{ss ss}", "event", "model", "path", result.path);
    json_dumpf(last, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(last);
    return 0;
}
