/* sluice devices: the devices that this build finds, and why it would not use one. */
#include "backends/registry/registry.h"
#include "cli/options/args.h"
#include "cli/options/commands.h"
#include "common/log.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A device, opened briefly: this shows its free memory, and faults that only opening reveals. */
struct device {
    const struct sl_backend *backend;
    struct sl_device_found found;
    struct sl_device_caps caps;       /* zero where it did not open */
    uint64_t free_bytes, total_bytes; /* 0 = unknown */
};

struct survey {
    struct device *devices;
    uint32_t n;
    struct {
        const struct sl_backend *backend;
        struct sl_err why; /* it found nothing */
    } missing[16];
    uint32_t n_missing;
};

static void try_open(struct device *d, uint32_t number) {
    const struct sl_device_options options = {.n_threads = 1};
    struct sl_device *dev = NULL;
    if (d->found.why_not.text[0] || sl_registry_open((struct sl_device_ref){d->backend, number},
                                                     &options, &dev, &d->found.why_not) != SL_OK)
        return;
    d->caps = dev->caps;
    if (sl_device_memory(dev, &d->free_bytes, &d->total_bytes) != SL_OK)
        d->free_bytes = d->total_bytes = 0;
    sl_device_close(&dev);
}

static bool look(const struct sl_backend *b, struct survey *s) {
    struct sl_device_found *found = calloc(SL_DEVICE_MAX_NUMBER + 1, sizeof *found);
    struct sl_err why;
    uint32_t n = 0;
    if (!found)
        return false;
    if (b->enumerate(found, SL_DEVICE_MAX_NUMBER + 1, &n, &why) != SL_OK) {
        if (s->n_missing < SL_COUNTOF(s->missing)) {
            s->missing[s->n_missing].backend = b;
            s->missing[s->n_missing++].why = why;
        }
        n = 0;
    }
    n = n > SL_DEVICE_MAX_NUMBER + 1 ? SL_DEVICE_MAX_NUMBER + 1 : n;
    struct device *grown = realloc(s->devices, (s->n + n + 1) * sizeof *grown);
    s->devices = grown ? grown : s->devices;
    for (uint32_t i = 0; grown && i < n; i++) {
        grown[s->n] = (struct device){.backend = b, .found = found[i]};
        try_open(&grown[s->n++], i);
    }
    free(found);
    return grown != NULL;
}

static bool is_usable(const struct device *d) {
    return !d->found.why_not.text[0];
}

/* ---- text ---- */

static void print_mib(uint64_t bytes) {
    if (bytes)
        printf(" %12.1f", (double)bytes / 0x1p20);
    else
        printf(" %12s", "-");
}

static void print_text(const struct survey *s) {
    printf("%-12s %-10s %12s %12s  %s\n", "device", "kind", "memory, MiB", "free", "what it is");
    for (uint32_t i = 0; i < s->n; i++) {
        const struct device *d = &s->devices[i];
        printf("%-12s %-10s", d->found.id, sl_device_found_kind_name(&d->found));
        print_mib(d->found.memory_bytes);
        print_mib(d->free_bytes);
        printf("  %s\n", d->found.model);
        if (!is_usable(d))
            printf("%12s not used: %s\n", "", d->found.why_not.text);
    }
    for (uint32_t i = 0; i < s->n_missing; i++) {
        const char *name = s->missing[i].backend->name, *why = s->missing[i].why.text;
        size_t len = strlen(name); /* most texts begin with it, as in a log */
        bool said = strncmp(why, name, len) == 0 && strncmp(why + len, ": ", 2) == 0;
        printf("%-12s none: %s\n", name, said ? why + len + 2 : why);
    }
}

/* ---- JSON ---- */

/* A driver may say what is not UTF-8. */
static json_t *text_json(const char *text) {
    json_t *t = json_string(text);
    return t ? t : json_string("?");
}

static json_t *fused_json(uint32_t ops) {
    json_t *list = json_array();
    const char *name;
    for (uint32_t i = 0; (name = sl_fused_name(i)); i++)
        if (ops >> i & 1)
            json_array_append_new(list, json_string(name));
    return list;
}

static json_t *device_json(const struct device *d) {
    const struct sl_device_caps *c = &d->caps;
    return json_pack("{s:s,s:s,s:s,s:o,s:b,s:o,s:I,s:I,s:I,s:I,s:I,s:I,s:o}", "id", d->found.id,
                     "backend", d->backend->name, "kind", sl_device_found_kind_name(&d->found),
                     "name", text_json(d->found.model), "usable", (int)is_usable(d), "why_not",
                     text_json(d->found.why_not.text), "memory_bytes",
                     (json_int_t)d->found.memory_bytes, "free_bytes", (json_int_t)d->free_bytes,
                     "max_alloc_bytes", (json_int_t)c->max_alloc_bytes, "memory_bytes_per_s",
                     (json_int_t)c->memory_bytes_per_s, "subgroup_width",
                     (json_int_t)c->subgroup_width, "shared_bytes", (json_int_t)c->shared_bytes,
                     "fused_ops", fused_json(c->fused_ops));
}

static int print_json(const struct survey *s) {
    json_t *devices = json_array(), *missing = json_array();
    for (uint32_t i = 0; i < s->n; i++)
        json_array_append_new(devices, device_json(&s->devices[i]));
    for (uint32_t i = 0; i < s->n_missing; i++)
        json_array_append_new(missing,
                              json_pack("{s:s,s:o}", "backend", s->missing[i].backend->name, "why",
                                        text_json(s->missing[i].why.text)));
    json_t *j = json_pack("{s:o,s:o}", "devices", devices, "missing", missing);
    int rc = !j || json_dumpf(j, stdout, JSON_INDENT(2)) != 0;
    json_decref(j);
    putchar('\n');
    return rc;
}

/* ---- the command ---- */

int sl_cmd_devices(int argc, char **argv) {
    bool json = false;
    const struct sl_arg args[] = {
        {SL_ARG_FLAG, 0, "--json", NULL, &json, "print a JSON object", false},
    };
    const struct sl_command command = {
        .name = "devices",
        .about = "Lists the devices that can compute on this machine: their ids for --device, "
                 "their memory, and why one cannot be used.",
        .usage = "sluice devices [--json]",
        .notes = "Devices are listed in the order in which --device auto looks at them. Each is\n"
                 "opened for a moment, which takes a second or so for a GPU. 0 in the JSON means "
                 "none, or unknown.\n",
        .args = args,
        .n_args = SL_COUNTOF(args),
    };
    int rc = sl_args_parse(&command, argc, argv);
    if (rc >= 0)
        return rc;
    sl_log_set_level(SL_LOG_WARN);
    struct survey s = {.n = 0};
    const struct sl_backend *b;
    bool ok = true;
    for (uint32_t i = 0; ok && (b = sl_backend_at(i)); i++)
        if (!b->hidden)
            ok = look(b, &s);
    if (!ok)
        fprintf(stderr, "sluice devices: no memory for a list of devices\n");
    else if (json)
        ok = print_json(&s) == 0;
    else
        print_text(&s);
    free(s.devices);
    return !ok || fflush(stdout) != 0;
}
