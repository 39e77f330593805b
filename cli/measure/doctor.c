/* sluice doctor: what on this machine makes Sluice slower than it could be, or keeps it from
 * running. */
#include "cli/measure/doctor.h"

#include "cli/options/args.h"
#include "cli/options/commands.h"
#include "cli/options/help.h"
#include "cli/process/process_limits.h"
#include "common/terminal.h"
#include "common/log.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

static const char *const words[] = {
    [SL_HEALTH_OK] = "ok", [SL_HEALTH_WARN] = "warn", [SL_HEALTH_FAIL] = "fail"};

void sl_findings_add(struct sl_findings *f, const char *name, enum sl_health health,
                     const char *advice, const char *fmt, ...) {
    if (f->n == SL_MAX_FINDINGS)
        return;
    struct sl_finding *one = &f->at[f->n++];
    *one = (struct sl_finding){
        .name = name, .health = health, .advice = health == SL_HEALTH_OK ? NULL : advice};
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(one->text, sizeof one->text, fmt, ap);
    va_end(ap);
}

static uint32_t count(const struct sl_findings *f, enum sl_health health) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->n; i++)
        n += f->at[i].health == health;
    return n;
}

static void print_text(const struct sl_findings *f) {
    static const enum sl_style styles[] = {SL_STYLE_GREEN, SL_STYLE_YELLOW, SL_STYLE_RED};
    for (uint32_t i = 0; i < f->n; i++) {
        const struct sl_finding *one = &f->at[i];
        printf("%s%-5s%s %-13s ", sl_style_begin(stdout, styles[one->health]), words[one->health],
               sl_style_end(stdout), one->name);
        sl_help_wrap(stdout, one->text, 20);
        if (one->advice) {
            printf("%20s", "");
            sl_help_wrap(stdout, one->advice, 20);
        }
    }
    uint32_t warnings = count(f, SL_HEALTH_WARN), failures = count(f, SL_HEALTH_FAIL);
    printf("%u ok, %u warning%s, %u failure%s\n", count(f, SL_HEALTH_OK), warnings,
           warnings == 1 ? "" : "s", failures, failures == 1 ? "" : "s");
}

/* A path or a driver may say what is not UTF-8. */
static json_t *text_json(const char *text) {
    json_t *t = text ? json_string(text) : json_null();
    return t ? t : json_string("?");
}

static bool print_json(const struct sl_findings *f) {
    json_t *list = json_array();
    for (uint32_t i = 0; i < f->n; i++) {
        const struct sl_finding *one = &f->at[i];
        json_array_append_new(list, json_pack("{s:s,s:s,s:o,s:o}", "name", one->name, "health",
                                              words[one->health], "text", text_json(one->text),
                                              "advice", text_json(one->advice)));
    }
    json_t *j = json_pack(
        "{s:o,s:I,s:I,s:I}", "findings", list, "ok", (json_int_t)count(f, SL_HEALTH_OK), "warnings",
        (json_int_t)count(f, SL_HEALTH_WARN), "failures", (json_int_t)count(f, SL_HEALTH_FAIL));
    bool ok = j && json_dumpf(j, stdout, JSON_INDENT(2)) == 0;
    json_decref(j);
    putchar('\n');
    return ok;
}

int sl_cmd_doctor(int argc, char **argv) {
    static struct sl_findings found;
    const char *path = NULL;
    bool json = false;
    const struct sl_arg args[] = {
        {SL_ARG_STRING, 'm', "--model", "PATH", &path,
         "a model, whose disk is measured, or the folder that models are in (also as\n"
         "the only argument; default: the folder this is run in)",
         false},
        {SL_ARG_FLAG, 0, "--json", NULL, &json, "print a JSON object", false},
    };
    const struct sl_command command = {
        .name = "doctor",
        .about = "Looks for what slows Sluice down on this machine or keeps it from running: "
                 "io_uring, O_DIRECT, locked memory, huge pages, memory and its cgroup, devices "
                 "and their drivers, seccomp, the disk's speed. Each line is ok, warn or fail, and "
                 "says what to do.",
        .usage = "sluice doctor [MODEL.gguf|FOLDER] [--json]",
        .notes = "Run it as the user, and in the container or unit, that will run the server. Exit "
                 "code 1: a line says fail; 0: none does, though there may be warnings.\n",
        .args = args,
        .n_args = SL_COUNTOF(args),
        .model = &path,
        .model_optional = true,
        .model_is_source = true,
    };
    int rc = sl_args_parse(&command, argc, argv);
    if (rc >= 0)
        return rc;
    sl_log_set_level(SL_LOG_ERROR); /* the findings say it */
    struct rlimit locked;
    bool known = getrlimit(RLIMIT_MEMLOCK, &locked) == 0;
    found.n = 0;
    bool uring = sl_doctor_uring(&found);
    sl_doctor_seccomp(&found, "", uring);
    sl_doctor_memlock(&found, "",
                      !known || locked.rlim_cur == RLIM_INFINITY ? UINT64_MAX : locked.rlim_cur);
    sl_doctor_huge_pages(&found, "");
    sl_doctor_memory(&found, "");
    sl_doctor_files(&found, sl_process_files_max());
    sl_doctor_devices(&found, "");
    sl_doctor_disk(&found, path ? path : ".");
    bool printed = true;
    if (json)
        printed = print_json(&found);
    else
        print_text(&found);
    return count(&found, SL_HEALTH_FAIL) > 0 || !printed;
}
