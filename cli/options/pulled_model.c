#include "cli/options/pulled_model.h"

#include "cli/options/args.h"
#include "cli/options/terminal.h"
#include "common/clock.h"

#include <stdio.h>
#include <string.h>

/* Of the file that is coming. */
static struct { uint64_t begun_ns, begun_bytes; } pace;

static const char *time_left(const struct sl_pull_progress *p, double rate, char *buf,
                             size_t size) {
    double s = rate > 0 ? (double)(p->size_bytes - p->done_bytes) / rate : 0;
    if (rate <= 0 || s > 359999)
        snprintf(buf, size, "?");
    else
        snprintf(buf, size, "%u:%02u:%02u", (unsigned)s / 3600, (unsigned)s / 60 % 60,
                 (unsigned)s % 60);
    return buf;
}

void sl_pull_draw(void *ctx, const struct sl_pull_progress *p) {
    char done[16], all[16], speed[16], left[24], part[32] = "";
    const char *name = sl_pull_base_name(p->path);
    (void)ctx;
    if (p->n_files > 1)
        snprintf(part, sizeof part, "%u of %u, ", p->file, p->n_files);
    sl_format_bytes(p->size_bytes, all);
    if (p->event == SL_PULL_BEGINS) {
        pace.begun_ns = sl_now_ns();
        pace.begun_bytes = p->done_bytes;
    } else if (p->event == SL_PULL_MOVES) {
        double s = (double)(sl_now_ns() - pace.begun_ns) / 1e9;
        uint64_t came = p->done_bytes > pace.begun_bytes ? p->done_bytes - pace.begun_bytes : 0;
        double rate = s > 0.2 ? (double)came / s : 0;
        sl_show_progress(
            "%s%.40s: %s of %s, %s/s, %s left", part, name, sl_format_bytes(p->done_bytes, done),
            all, sl_format_bytes((uint64_t)rate, speed), time_left(p, rate, left, sizeof left));
    } else if (p->event == SL_PULL_CHECKS) {
        sl_show_progress("%s%.40s: checking, %3.0f %%", part, name,
                         100.0 * (double)p->done_bytes / (double)p->size_bytes);
    } else {
        sl_show_progress("%s", "");
        fprintf(stderr, "%s%s: %s, %s%s\n", part, name, all,
                p->event == SL_PULL_PRESENT ? "is here" : "pulled",
                p->checked                    ? ", sum is right"
                : p->event == SL_PULL_PRESENT ? ""
                                              : ", no sum to check it by");
    }
}

int sl_pull_report(const char *command, enum sl_status status, const struct sl_err *err) {
    sl_show_progress("%s", "");
    if (status == SL_ERR_CANCELED) {
        fprintf(stderr, "sluice %s: interrupted; run it again and it resumes where it stopped\n",
                command);
        return 130;
    }
    fprintf(stderr, "sluice %s: %s\n", command, err->text);
    return 1;
}

int sl_pulled_model(const char *command, const char **model) {
    static struct sl_pull_result result;
    struct sl_pull_options options = SL_PULL_OPTIONS_DEFAULT;
    struct sl_pull_source source;
    struct sl_err err;
    if (!*model || strncmp(*model, "hf:", 3) != 0)
        return -1;
    if (sl_pull_source_parse(*model, &source, &err) != SL_OK)
        return sl_usage_error(command, "--model is '%s': %s", *model, err.text);
    options.present = true;
    options.progress = sl_pull_draw;
    enum sl_status status = sl_pull(&source, &options, &result, &err);
    if (status != SL_OK)
        return sl_pull_report(command, status, &err);
    *model = result.path;
    return -1;
}
