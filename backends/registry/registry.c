#include "backends/registry/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A backend joins by a line here. The first that has a device for a model is preferred. */
#define BACKENDS(X)                                                                                \
    X(cuda)                                                                                        \
    X(hip)                                                                                         \
    X(level_zero)                                                                                  \
    X(vulkan)                                                                                      \
    X(cpu)                                                                                         \
    X(null)

#define DECLARE(name) extern const struct sl_backend sl_##name##_backend;
BACKENDS(DECLARE)
#undef DECLARE

#define ENTRY(name) &sl_##name##_backend,
static const struct sl_backend *const backends[] = {BACKENDS(ENTRY)};
#undef ENTRY
#define N_BACKENDS (sizeof backends / sizeof *backends)

const struct sl_backend *sl_backend_at(uint32_t i) {
    return i < N_BACKENDS ? backends[i] : NULL;
}

const struct sl_backend *sl_backend_for_plans(void) {
    for (uint32_t i = 0; i < N_BACKENDS; i++)
        if (backends[i]->planned && backends[i]->kind != SL_DEVICE_HOST)
            return backends[i];
    return NULL;
}

const struct sl_backend *sl_backend_of_host(void) {
    uint32_t i = 0;
    while (backends[i]->kind != SL_DEVICE_HOST)
        i++;
    return backends[i];
}

static const struct sl_backend *backend_named(const char *name, size_t len) {
    for (uint32_t i = 0; i < N_BACKENDS; i++)
        if (strlen(backends[i]->name) == len && memcmp(backends[i]->name, name, len) == 0)
            return backends[i];
    return NULL;
}

/* ---- lists ---- */

static enum sl_status refuse_text(const char *text, struct sl_err *err) {
    char names[224] = "", here[160];
    for (uint32_t i = 0; i < N_BACKENDS; i++) {
        const char *name = backends[i]->name;
        size_t n = strlen(names);
        if (backends[i]->hidden)
            continue;
        if (backends[i]->kind == SL_DEVICE_HOST)
            snprintf(names + n, sizeof names - n, ", %s", name);
        else
            snprintf(names + n, sizeof names - n, ", %s, %s:N, %s:N,M, %s:all", name, name, name,
                     name);
    }
    sl_registry_list(here, sizeof here);
    return sl_fail(err, SL_ERR_CONFIG,
                   "--device is '%.60s': must be auto%s, or several of these with commas between, "
                   "at most %u devices; here are %s",
                   text, names, SL_DEVICE_LIST_MAX, here);
}

/* A number that ends at end; SL_DEVICE_MAX_NUMBER + 1 for anything else. */
static uint32_t parse_number(const char *at, const char *end) {
    uint32_t n = 0;
    const char *p = at;
    for (; p < end && *p >= '0' && *p <= '9' && n <= SL_DEVICE_MAX_NUMBER; p++)
        n = n * 10 + (uint32_t)(*p - '0');
    return p == end && p > at && n <= SL_DEVICE_MAX_NUMBER ? n : SL_DEVICE_MAX_NUMBER + 1;
}

/* One item, [at, end). numbered: the backend of the item before it, if that had a number. */
static bool parse_item(const char *at, const char *end, const struct sl_backend *numbered,
                       struct sl_device_item *out) {
    const char *colon = memchr(at, ':', (size_t)(end - at));
    const char *number = colon ? colon + 1 : NULL;
    *out = (struct sl_device_item){.which = SL_DEVICE_FIRST};
    if (!colon && numbered && at < end && *at >= '0' && *at <= '9') {
        out->ref.backend = numbered;
        number = at;
    } else {
        out->ref.backend = backend_named(at, (size_t)((colon ? colon : end) - at));
    }
    if (!out->ref.backend)
        return false;
    if (!number)
        return true;
    if (end - number == 3 && memcmp(number, "all", 3) == 0) {
        out->which = SL_DEVICE_ALL;
        return true;
    }
    out->which = SL_DEVICE_NUMBER;
    out->ref.number = parse_number(number, end);
    return out->ref.number <= SL_DEVICE_MAX_NUMBER;
}

enum sl_status sl_device_list_parse(const char *text, struct sl_device_list *out_list,
                                    struct sl_err *err) {
    struct sl_device_list list = {.any = strcmp(text, "auto") == 0};
    const struct sl_backend *numbered = NULL;
    for (const char *at = text; at && !list.any; list.n++) {
        const char *comma = strchr(at, ','), *end = comma ? comma : at + strlen(at);
        if (list.n == SL_DEVICE_LIST_MAX || !parse_item(at, end, numbered, &list.at[list.n]))
            return refuse_text(text, err);
        const struct sl_device_item *item = &list.at[list.n];
        numbered = item->which == SL_DEVICE_NUMBER ? item->ref.backend : NULL;
        at = comma ? comma + 1 : NULL;
    }
    *out_list = list;
    return SL_OK;
}

/* ---- devices ---- */

enum sl_status sl_registry_open(struct sl_device_ref ref, const struct sl_device_options *options,
                                struct sl_device **out_device, struct sl_err *err) {
    return ref.backend->open(options, ref.number, out_device, err);
}

enum sl_status sl_registry_open_id(const char *id, const struct sl_device_options *options,
                                   struct sl_device **out_device, struct sl_err *err) {
    struct sl_device_item item;
    if (!parse_item(id, id + strlen(id), NULL, &item) || item.which == SL_DEVICE_ALL)
        return sl_fail(err, SL_ERR_CONFIG, "'%.60s' is no device's id", id);
    return sl_registry_open(item.ref, options, out_device, err);
}

static void add(char *out, size_t size, const char *id) {
    size_t n = strlen(out);
    snprintf(out + n, size - n, "%s%s", n ? ", " : "", id);
}

void sl_registry_list(char *out, size_t size) {
    struct sl_device_found *found = calloc(SL_DEVICE_MAX_NUMBER + 1, sizeof *found);
    out[0] = 0;
    for (uint32_t i = 0; i < N_BACKENDS && found; i++) {
        struct sl_err why;
        uint32_t n = 0;
        if (backends[i]->hidden ||
            backends[i]->enumerate(found, SL_DEVICE_MAX_NUMBER + 1, &n, &why) != SL_OK)
            continue;
        for (uint32_t k = 0; k < n && k <= SL_DEVICE_MAX_NUMBER; k++)
            if (!found[k].why_not.text[0])
                add(out, size, found[k].id);
    }
    free(found);
}

void sl_registry_list_planned(char *out, size_t size) {
    out[0] = 0;
    for (uint32_t i = 0; i < N_BACKENDS; i++)
        if (!backends[i]->hidden && backends[i]->planned)
            add(out, size, backends[i]->name);
}

void sl_registry_example(char *out, size_t size) {
    snprintf(out, size, "%s", sl_backend_of_host()->name);
    for (uint32_t i = 0; i < N_BACKENDS; i++)
        if (!backends[i]->hidden && backends[i]->kind != SL_DEVICE_HOST) {
            snprintf(out, size, "%s:0,1", backends[i]->name);
            return;
        }
}
