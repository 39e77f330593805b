#include "server/request/samplers.h"

#include <string.h>

#define NAME "samplers"

/* At temperature 0 the likeliest token is taken, whatever the filters. */
static bool filters(const struct sl_sampling *s) {
    return s->temperature > 0;
}

static bool penalties_on(const struct sl_sampling *s) {
    return s->repeat_last_n &&
           (s->repeat_penalty != 1 || s->presence_penalty != 0 || s->frequency_penalty != 0);
}
static void penalties_off(struct sl_sampling *s) {
    s->repeat_penalty = 1;
    s->presence_penalty = s->frequency_penalty = 0;
}
static bool dry_on(const struct sl_sampling *s) {
    return s->dry.multiplier > 0 && s->dry.last_n;
}
static void dry_off(struct sl_sampling *s) {
    s->dry.multiplier = 0;
}
static bool sigma_on(const struct sl_sampling *s) {
    return filters(s) && s->top_n_sigma > 0;
}
static void sigma_off(struct sl_sampling *s) {
    s->top_n_sigma = 0;
}
static bool top_k_on(const struct sl_sampling *s) {
    return filters(s) && s->top_k;
}
static void top_k_off(struct sl_sampling *s) {
    s->top_k = 0;
}
static bool typical_on(const struct sl_sampling *s) {
    return filters(s) && s->typical_p < 1;
}
static void typical_off(struct sl_sampling *s) {
    s->typical_p = 1;
}
static bool top_p_on(const struct sl_sampling *s) {
    return filters(s) && s->top_p < 1;
}
static void top_p_off(struct sl_sampling *s) {
    s->top_p = 1;
}
static bool min_p_on(const struct sl_sampling *s) {
    return filters(s) && s->min_p > 0;
}
static void min_p_off(struct sl_sampling *s) {
    s->min_p = 0;
}
static bool xtc_on(const struct sl_sampling *s) {
    return filters(s) && s->xtc_probability > 0 && s->xtc_threshold <= 0.5f;
}
static void xtc_off(struct sl_sampling *s) {
    s->xtc_probability = 0;
}
static bool temperature_on(const struct sl_sampling *s) {
    return s->temperature != 1;
}
static void temperature_off(struct sl_sampling *s) {
    s->temperature = 1;
}

static const struct step {
    const char *name;
    char letter;
    bool (*is_on)(const struct sl_sampling *s);
    void (*switch_off)(struct sl_sampling *s);
} steps[] = {
    {"penalties", 'e', penalties_on, penalties_off},
    {"dry", 'd', dry_on, dry_off},
    {"top_n_sigma", 's', sigma_on, sigma_off},
    {"top_k", 'k', top_k_on, top_k_off},
    {"typ_p", 'y', typical_on, typical_off},
    {"top_p", 'p', top_p_on, top_p_off},
    {"min_p", 'm', min_p_on, min_p_off},
    {"xtc", 'x', xtc_on, xtc_off},
    {"temperature", 't', temperature_on, temperature_off},
};
#define N_STEPS  ((uint32_t)(sizeof steps / sizeof *steps))
#define MAX_LIST 32u

/* Steps that are never on here: the fields that would turn them on are refused. */
#define NO_STEP (N_STEPS + 1)
static const char *const no_steps[] = {"tfs_z", "adaptive_p"};

static uint32_t step_of(const char *name) {
    for (uint32_t i = 0; name && i < N_STEPS; i++)
        if (strcmp(name, steps[i].name) == 0)
            return i;
    for (size_t i = 0; name && i < sizeof no_steps / sizeof *no_steps; i++)
        if (strcmp(name, no_steps[i]) == 0)
            return NO_STEP;
    return name && strcmp(name, "typical_p") == 0 ? step_of("typ_p") : N_STEPS;
}

static uint32_t step_of_letter(char c) {
    for (uint32_t i = 0; i < N_STEPS; i++)
        if (steps[i].letter == c)
            return i;
    return N_STEPS;
}

/* Of names, or of their letters. False: e is set. */
static bool read_list(const json_t *v, uint32_t *at, size_t *out_n, struct sl_http_error *e) {
    bool letters = json_is_string(v);
    size_t n = letters ? json_string_length(v) : json_array_size(v);
    if ((!letters && !json_is_array(v)) || n > MAX_LIST)
        return sl_http_bad(e, NAME, "'" NAME "' must be an array of at most %u names, not %s",
                           MAX_LIST, n > MAX_LIST ? "a longer one" : sl_json_kind(v));
    for (size_t i = 0; i < n; i++) {
        at[i] = letters ? step_of_letter(json_string_value(v)[i])
                        : step_of(json_string_value(json_array_get(v, i)));
        if (at[i] == N_STEPS)
            return sl_http_bad(e, NAME,
                               "'" NAME "[%zu]' must be penalties, dry, top_n_sigma, top_k, typ_p, "
                               "top_p, min_p, xtc or temperature",
                               i);
    }
    *out_n = n;
    return true;
}

bool sl_samplers_read(const json_t *body, struct sl_sampling *s, struct sl_http_error *e) {
    const json_t *v = json_object_get(body, NAME);
    uint32_t at[MAX_LIST], last = N_STEPS;
    bool named[N_STEPS] = {false};
    size_t n = 0;
    if (!v || json_is_null(v))
        return true;
    if (!read_list(v, at, &n, e))
        return false;
    for (size_t i = 0; i < n; i++)
        if (at[i] < N_STEPS)
            named[at[i]] = true;
    for (uint32_t i = 0; i < N_STEPS; i++)
        if (!named[i])
            steps[i].switch_off(s);
    for (size_t i = 0; i < n; i++) {
        if (at[i] >= N_STEPS || !steps[at[i]].is_on(s))
            continue;
        if (at[i] == last)
            return sl_http_bad(e, NAME, "'" NAME "' has '%s' twice", steps[last].name);
        if (last < N_STEPS && at[i] < last)
            return sl_http_bad(e, NAME,
                               "'" NAME "' has '%s' after '%s': this server applies penalties, "
                               "dry, top_n_sigma, top_k, typ_p, top_p, min_p, xtc and temperature "
                               "in this order",
                               steps[at[i]].name, steps[last].name);
        last = at[i];
    }
    return true;
}
