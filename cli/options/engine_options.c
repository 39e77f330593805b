#include "cli/options/engine_options.h"

#include "common/log.h"
#include "engine/plan/open_device.h"
#include "engine/plan/stage_split.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

struct choice {
    const char *name;
    int value;
    bool buffered;
};

/* The choice of that name, the first for NULL; NULL after an error message. */
static const struct choice *choose(const char *command, const char *option, const char *text,
                                   const struct choice *list, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (!text || strcmp(text, list[i].name) == 0)
            return &list[i];
    char names[128] = "";
    for (uint32_t i = 0; i < n; i++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s",
                 i == 0      ? ""
                 : i + 1 < n ? ", "
                             : " or ",
                 list[i].name);
    sl_usage_error(command, "%s is '%s': must be %s", option, text, names);
    return NULL;
}

static const struct choice experts[] = {
    {"auto", SL_EXPERTS_AUTO, false},
    {"resident", SL_EXPERTS_RESIDENT, false},
    {"streamed", SL_EXPERTS_STREAMED, false},
};
static const struct choice tables[] = {
    {"auto", SL_TABLES_AUTO, false},
    {"resident", SL_TABLES_RESIDENT, false},
    {"streamed", SL_TABLES_STREAMED, false},
};
static const struct choice ios[] = {
    {"auto", SL_EXPERTS_IO_AUTO, false},           {"uring", SL_EXPERTS_IO_URING, false},
    {"pread", SL_EXPERTS_IO_PREAD, false},         {"buffered", SL_EXPERTS_IO_AUTO, true},
    {"uring-buffered", SL_EXPERTS_IO_URING, true}, {"pread-buffered", SL_EXPERTS_IO_PREAD, true},
};
static const struct choice on_off[] = {{"on", 1, false}, {"off", 0, false}};

/* A variable of measurements and tests, cut to 0 to 100; false: it is not set. */
static bool percent_of(const char *variable, uint32_t *out) {
    const char *text = getenv(variable);
    int percent = text ? atoi(text) : 0;
    *out = percent < 0 ? 0 : percent > 100 ? 100 : (uint32_t)percent;
    return text;
}

/* Of the experts in host memory the CPU lane gets so many, whatever it costs; of the drafts of a
 * benchmark's given answers so many are right. */
static void force_shares(struct sl_engine_config *config) {
    config->lane_forced = percent_of("SLUICE_TEST_LANE_PERCENT", &config->lane_percent);
    config->draft_forced = percent_of("SLUICE_TEST_DRAFT_RIGHT", &config->draft_percent);
}

static const struct choice lanes[] = {
    {"off", SL_LANE_OFF, false},
    {"auto", SL_LANE_AUTO, false},
    {"on", SL_LANE_ON, false},
};

/* sluice/heat/ in the folder `cache` of `base`, if that is there and the name is not too long. */
static const char *heat_below(struct sl_engine_options *o, const char *base, const char *cache) {
    static const char heat[] = "/sluice/heat/";
    struct stat about;
    if (!base || base[0] != '/')
        return NULL;
    int n = snprintf(o->heat_folder, sizeof o->heat_folder, "%s%s", base, cache);
    if (n < 0 || (size_t)n + sizeof heat > sizeof o->heat_folder ||
        stat(o->heat_folder, &about) != 0 || !S_ISDIR(about.st_mode))
        return NULL;
    memcpy(o->heat_folder + n, heat, sizeof heat);
    return o->heat_folder;
}

/* In the user's cache folder, when that is there; else heat is not kept. The store makes the
 * folders below it. */
static const char *default_heat(struct sl_engine_options *o) {
    const char *found = heat_below(o, getenv("XDG_CACHE_HOME"), "");
    return found ? found : heat_below(o, getenv("HOME"), "/.cache");
}

/* Rejects a budget so small that its unit was probably forgotten; false after an error message. */
static bool has_unit(const char *command, const char *option, uint64_t bytes) {
    if (bytes >= 1 << 20)
        return true;
    sl_usage_error(command, "%s is %llu bytes: a size has a unit, as 2GiB or 1500M", option,
                   (unsigned long long)bytes);
    return false;
}

/* "20GiB", or one size for each of several devices. */
static bool apply_vram(const char *command, const char *text, struct sl_engine_config *config) {
    uint32_t n = 0;
    for (const char *at = text; at; n++) {
        char item[32];
        const char *end = strchr(at, ',');
        size_t len = end ? (size_t)(end - at) : strlen(at);
        bool sound = len < sizeof item && n < SL_MAX_STAGES;
        if (sound) {
            memcpy(item, at, len);
            item[len] = 0;
            sound = sl_parse_bytes(item, &config->vram_each[n]);
        }
        if (!sound) {
            sl_usage_error(command,
                           "--vram is '%s': must be a size such as 20GiB, or one for each of at "
                           "most %u devices, as 12GiB,24GiB",
                           text, SL_MAX_STAGES);
            return false;
        }
        if (!config->vram_each[n]) {
            sl_usage_error(command,
                           "--vram 0 leaves nothing: give a size such as 20GiB, or --device %s",
                           sl_backend_of_host()->name);
            return false;
        }
        if (!has_unit(command, "--vram", config->vram_each[n]))
            return false;
        at = end ? end + 1 : NULL;
    }
    config->vram_bytes = n ? config->vram_each[0] : 0;
    config->n_vram = n > 1 ? n : 0;
    return true;
}

const char *sl_engine_options_help(const char *option) {
    (void)option; /* --device is the only one */
    static char text[640];
    const struct sl_backend *b;
    size_t n = (size_t)snprintf(text, sizeof text, "what computes: auto");
    for (uint32_t i = 0; (b = sl_backend_at(i)); i++)
        if (!b->hidden && n < sizeof text)
            n += (size_t)snprintf(text + n, sizeof text - n,
                                  b->kind == SL_DEVICE_HOST ? ", %s (%s)" : ", %s:N (%s)", b->name,
                                  b->devices);
    char two[SL_DEVICE_NAME_BYTES];
    sl_registry_example(two, sizeof two);
    if (n < sizeof text)
        snprintf(text + n, sizeof text - n,
                 ". Several,\nas %s or %.*s:all or %.*s,%s, divide the layers among them. auto:\n"
                 "the first device that the model fits, else the CPU (default auto;\n"
                 "'sluice devices' lists what is here)",
                 two, (int)strcspn(two, ":"), two, (int)strcspn(two, ","), two,
                 sl_backend_of_host()->name);
    return text;
}

uint32_t sl_device_option_cards(const char *device) {
    struct sl_device_list list;
    struct sl_err why;
    uint32_t n = 0;
    if (!device || sl_device_list_parse(device, &list, &why) != SL_OK)
        return 0;
    for (uint32_t i = 0; i < list.n; i++) {
        const struct sl_device_item *item = &list.at[i];
        if (item->ref.backend->kind != SL_DEVICE_HOST)
            n += item->which == SL_DEVICE_ALL ? SL_MAX_STAGES : 1;
    }
    n += list.any;
    return n < SL_MAX_STAGES ? n : SL_MAX_STAGES;
}

/* Whether --device names the host and nothing else. */
static bool is_host_alone(const char *device) {
    struct sl_device_list list;
    struct sl_err why;
    return device && sl_device_list_parse(device, &list, &why) == SL_OK &&
           !sl_device_option_cards(device);
}

bool sl_engine_options_gpu(const char *command, const struct sl_engine_options *o, bool given,
                           const char *option) {
    char example[SL_DEVICE_NAME_BYTES];
    if (!given || !is_host_alone(o->device))
        return true;
    sl_registry_example(example, sizeof example);
    sl_usage_error(command,
                   "%s applies to GPUs and has no effect with --device %s: leave it out, or name "
                   "GPUs, as in --device %s",
                   option, o->device, example);
    return false;
}

/* Whether the devices have sound names, and as many as there are budgets and parts of a split. How
 * many "all" of a backend's are shows when its driver is asked. */
static bool check_devices(const char *command, const struct sl_engine_config *config) {
    struct sl_split split;
    struct sl_device_list list;
    struct sl_device_names names;
    struct sl_err err;
    bool all = false;
    enum sl_status status = sl_split_parse(config->split, 0, &split, &err);
    if (status == SL_OK && split.none_at_first)
        status = sl_fail(&err, SL_ERR_CONFIG,
                         "--split %.60s: only with --workers can this machine be without layers",
                         config->split);
    if (status == SL_OK)
        status = sl_device_list_parse(config->device, &list, &err);
    for (uint32_t i = 0; status == SL_OK && i < list.n; i++)
        all |= list.at[i].which == SL_DEVICE_ALL;
    if (status == SL_OK && !all)
        status = sl_device_names(config, SL_MAX_STAGES, split.n, &names, &err);
    if (status != SL_OK)
        sl_usage_error(command, "%s", err.text);
    return status == SL_OK;
}

/* Options that concern GPUs, where there may be some. */
static bool apply_gpu(const char *command, const struct sl_engine_options *o,
                      struct sl_engine_config *config) {
    bool reserve = o->vram_reserve_mib != UINT32_MAX;
    if (!sl_engine_options_gpu(command, o, o->split && !o->workers, "--split") ||
        !sl_engine_options_gpu(command, o, o->vram, "--vram") ||
        !sl_engine_options_gpu(command, o, reserve, "--vram-reserve-mib") ||
        !sl_engine_options_gpu(command, o, o->overflow, "--overflow"))
        return false;
    if (!sl_engine_options_gpu(command, o, o->cpu_lane && strcmp(o->cpu_lane, "off") != 0,
                               "--cpu-lane") ||
        !sl_engine_options_gpu(command, o, o->cpu_lane_threads, "--cpu-lane-threads"))
        return false;
    if (o->cpu_lane_threads > SL_DEVICE_MAX_THREADS)
        return sl_usage_error(command, "--cpu-lane-threads is %u: must be 1 to %u",
                              o->cpu_lane_threads, SL_DEVICE_MAX_THREADS) == 0;
    config->lane_threads = o->cpu_lane_threads;
    config->split = o->split;
    config->vram_reserve_bytes = reserve ? (uint64_t)o->vram_reserve_mib << 20 : 0;
    return apply_vram(command, o->vram, config) &&
           (o->workers || check_devices(command, config)); /* how many they have is not known yet */
}

/* What --cpu-isa may be is the host backend's to say, and who takes it is among the devices. */
static bool check_isa(const char *command, const char *isa, const char *device) {
    struct choice list[8];
    struct sl_device_list devices = {.any = true};
    struct sl_err why;
    const char *const *isas = sl_backend_of_host()->isas;
    uint32_t n = 0;
    if (!isa)
        return true;
    for (; isas[n] && n < SL_COUNTOF(list); n++)
        list[n] = (struct choice){isas[n], 0, false};
    if (!choose(command, "--cpu-isa", isa, list, n))
        return false;
    bool taken = !device || sl_device_list_parse(device, &devices, &why) != SL_OK || devices.any;
    for (uint32_t i = 0; i < devices.n; i++)
        taken |= devices.at[i].ref.backend->kind == SL_DEVICE_HOST;
    if (!taken)
        sl_usage_error(command,
                       "--cpu-isa applies to the CPU and has no effect with --device %s: leave one "
                       "of them out",
                       device);
    return taken;
}

static bool apply_kv_type(const char *command, const char *text, struct sl_engine_config *config) {
    if (!text || strcasecmp(text, "f16") == 0)
        config->kv_dtype = SL_DTYPE_F16;
    else if (strcasecmp(text, "q8_0") == 0)
        config->kv_dtype = SL_DTYPE_Q8_0;
    else
        return sl_usage_error(command, "--kv-type is '%s': must be f16 or q8_0", text) == 0;
    return true;
}

static bool apply_draft(const char *command, const struct sl_engine_options *o,
                        struct sl_engine_config *config) {
    const char *text = o->draft;
    bool automatic = text && strcmp(text, "auto") == 0;
    bool off = !text || strcmp(text, "off") == 0 || (automatic && o->workers);
    config->draft_auto = !off && automatic;
    config->draft_tokens = config->draft_auto;
    if (off || config->draft_auto)
        return true;
    if (text[0] < '1' || text[0] > '0' + (int)SL_MAX_DRAFT || text[1])
        return sl_usage_error(command, "--draft is '%s': must be off, auto, or 1 to %u", text,
                              SL_MAX_DRAFT) == 0;
    config->draft_tokens = (uint32_t)(text[0] - '0');
    return true;
}

enum sl_status sl_use_drafts(struct sl_model *model, struct sl_engine_config *config,
                             struct sl_err *err) {
    struct sl_err why;
    if (!config->draft_tokens || model->hp.n_draft)
        return SL_OK;
    if (config->record_routes && !config->draft_auto)
        return sl_fail(err, SL_ERR_CONFIG, "--draft and --record-routes exclude each other");
    bool several =
        config->split ||
        (config->device && (strchr(config->device, ',') || strstr(config->device, ":all")));
    if (config->draft_auto && (several || config->record_routes)) {
        sl_info("no tokens are drafted: %s",
                several ? "the layers are divided over devices" : "routes are recorded");
    } else {
        enum sl_status status = sl_model_add_drafts(model, &why);
        if (status == SL_OK)
            return SL_OK;
        if (!config->draft_auto || status == SL_ERR_NOMEM)
            return sl_fail(err, status, "%s: leave --draft out", why.text);
        sl_info("no tokens are drafted: %s", why.text);
    }
    config->draft_auto = false;
    config->draft_tokens = 0;
    return SL_OK;
}

bool sl_engine_options_apply(const char *command, struct sl_engine_options *o,
                             struct sl_engine_config *config) {
    if (o->ram_bytes == 0) {
        sl_usage_error(command,
                       "--ram 0 leaves nothing: give a size such as 2GiB, or omit it to use "
                       "what is free");
        return false;
    }
    if (!has_unit(command, "--ram", o->ram_bytes) ||
        (o->table_cache_bytes && !has_unit(command, "--table-cache", o->table_cache_bytes)) ||
        !apply_kv_type(command, o->kv_type, config) || !apply_draft(command, o, config))
        return false;
    const struct choice *where =
        choose(command, "--experts", o->experts, experts, SL_COUNTOF(experts));
    const struct choice *rows =
        where ? choose(command, "--tables", o->tables, tables, SL_COUNTOF(tables)) : NULL;
    const struct choice *io = rows ? choose(command, "--io", o->io, ios, SL_COUNTOF(ios)) : NULL;
    const struct choice *ahead =
        io ? choose(command, "--look-ahead", o->look_ahead, on_off, SL_COUNTOF(on_off)) : NULL;
    const struct choice *warm =
        ahead ? choose(command, "--warm-up", o->warm_up, on_off, SL_COUNTOF(on_off)) : NULL;
    const struct choice *overflow =
        warm ? choose(command, "--overflow", o->overflow, on_off, SL_COUNTOF(on_off)) : NULL;
    const struct choice *lane =
        overflow ? choose(command, "--cpu-lane", o->cpu_lane, lanes, SL_COUNTOF(lanes)) : NULL;
    if (!lane)
        return false;
    config->device = o->device ? o->device : "auto";
    if (!apply_gpu(command, o, config) || !check_isa(command, config->cpu_isa, o->device))
        return false;
    config->ram_bytes = o->ram_bytes == UINT64_MAX ? 0 : o->ram_bytes;
    config->experts = (enum sl_experts_where)where->value;
    config->tables = (enum sl_tables_where)rows->value;
    config->table_cache_bytes = o->table_cache_bytes;
    config->io = (enum sl_experts_io)io->value;
    config->io_buffered = io->buffered;
    config->mirrors = o->mirrors.items;
    config->n_mirrors = o->mirrors.n;
    config->no_lookahead = !ahead->value;
    config->no_warm_up = !warm->value;
    config->no_overflow = !overflow->value;
    config->lane = (enum sl_lane_use)lane->value;
    force_shares(config);
    if (!o->heat_file)
        config->heat_file = default_heat(o);
    else
        config->heat_file = strcmp(o->heat_file, "off") == 0 ? NULL : o->heat_file;
    return true;
}
