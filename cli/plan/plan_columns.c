#include "cli/plan/plan_columns.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define LABEL  24
#define COLUMN 14
/* A cell of a line that a machine has nothing in. */
#define NONE "-"

struct table {
    FILE *out;
    const struct sl_memory_plan *p;
    uint32_t first, n; /* of the machines */
    bool numbered;     /* their names are too long for a column */
};

static double mib(uint64_t bytes) {
    return (double)bytes / 0x1p20;
}

static void label(const struct table *t, const char *text) {
    fprintf(t->out, "%-*s", LABEL, text);
}

static void cell(const struct table *t, const char *text) {
    fprintf(t->out, "%*.*s", COLUMN, COLUMN - 1, text);
}

static void cell_mib(const struct table *t, uint64_t bytes) {
    char text[32];
    snprintf(text, sizeof text, "%.1f", mib(bytes));
    cell(t, bytes == UINT64_MAX ? "no limit" : text);
}

static void cell_rate(const struct table *t, double bytes_per_s) {
    char text[32];
    snprintf(text, sizeof text, "%.2f", bytes_per_s * 1e-9);
    cell(t, bytes_per_s > 0 ? text : NONE);
}

/* The k-th stage of a machine; NULL: it has fewer. */
static const struct sl_plan_stage *stage_of(const struct sl_memory_plan *p, uint32_t host,
                                            uint32_t k) {
    for (uint32_t i = 0; i < p->n_stages; i++)
        if (p->stages[i].host == host && !k--)
            return &p->stages[i];
    return NULL;
}

/* 1: of the plan's first stage, as in its rows; 0: of none, which is the process. */
static uint32_t number_of(const struct sl_memory_plan *p, const struct sl_plan_stage *s) {
    return s ? (uint32_t)(s - p->stages) + 1 : 0;
}

/* The stages, or the processes, that a part of the table is about: [n], by machine. */
struct part {
    bool there[SL_PLAN_COLUMNS];
    uint32_t stage[SL_PLAN_COLUMNS];
};

static const struct sl_plan_row *row_of(const struct table *t, const struct part *part, uint32_t i,
                                        const struct sl_plan_row *like) {
    for (uint32_t k = 0; part->there[i] && k < t->p->n_rows; k++) {
        const struct sl_plan_row *r = &t->p->rows[k];
        if (r->host == t->first + i && r->stage == part->stage[i] && r->kind == like->kind &&
            strcmp(r->what, like->what) == 0)
            return r;
    }
    return NULL;
}

/* Is it the first of its kind in this part? Then the line with all of them is printed for it. */
static bool is_first(const struct table *t, const struct part *part,
                     const struct sl_plan_row *row) {
    for (const struct sl_plan_row *r = t->p->rows; r < row; r++) {
        uint32_t i = r->host - t->first;
        if (i < t->n && part->there[i] && part->stage[i] == r->stage && r->kind == row->kind &&
            strcmp(r->what, row->what) == 0)
            return false;
    }
    return true;
}

static void print_rows(const struct table *t, const struct part *part) {
    for (uint32_t k = 0; k < t->p->n_rows; k++) {
        const struct sl_plan_row *row = &t->p->rows[k];
        uint32_t at = row->host - t->first;
        if (at >= t->n || !part->there[at] || part->stage[at] != row->stage ||
            !is_first(t, part, row))
            continue;
        char text[LABEL + 16];
        bool says_kind = t->p->reads_back && row->kind != SL_MEMORY_HOST;
        snprintf(text, sizeof text, "%s%s%s", row->what, says_kind ? ", " : "",
                 says_kind ? sl_memory_kind_name(row->kind) : "");
        label(t, text);
        for (uint32_t i = 0; i < t->n; i++) {
            const struct sl_plan_row *r = row_of(t, part, i, row);
            r ? cell_mib(t, r->bytes) : cell(t, NONE);
        }
        fputc('\n', t->out);
    }
}

/* ---- the parts ---- */

static void print_head(const struct table *t) {
    label(t, "memory, MiB");
    for (uint32_t i = 0; i < t->n; i++) {
        char text[32];
        snprintf(text, sizeof text, "machine %u", t->first + i + 1);
        cell(t, t->numbered ? text : t->p->hosts[t->first + i].name);
    }
    fputc('\n', t->out);
}

static void print_device_budgets(const struct table *t, const struct part *part) {
    static const char *const names[] = {"all of the device's", "  its budget", "  its least",
                                        "its memory, GB/s", "its link, GB/s"};
    bool any = false;
    for (uint32_t i = 0; i < t->n; i++)
        any |= part->there[i] && t->p->stages[part->stage[i] - 1].discrete;
    for (uint32_t k = 0; any && k < 5; k++) {
        label(t, names[k]);
        for (uint32_t i = 0; i < t->n; i++) {
            const struct sl_plan_stage *s =
                part->there[i] ? &t->p->stages[part->stage[i] - 1] : NULL;
            if (s && s->discrete && k >= 3)
                cell_rate(t, k == 3 ? s->memory_bytes_per_s : s->link_bytes_per_s);
            else if (s && s->discrete)
                cell_mib(t, k == 0   ? s->vram_total_bytes
                            : k == 1 ? s->vram_budget_bytes
                                     : s->vram_least_bytes);
            else
                cell(t, NONE);
        }
        fputc('\n', t->out);
    }
}

/* The k-th device of each. */
static void print_devices(const struct table *t, uint32_t k) {
    struct part part = {{0}, {0}};
    for (uint32_t i = 0; i < t->n; i++) {
        const struct sl_plan_stage *s = stage_of(t->p, t->first + i, k);
        part.there[i] = s != NULL;
        part.stage[i] = number_of(t->p, s);
    }
    fputc('\n', t->out);
    label(t, k ? "next device" : "device");
    for (uint32_t i = 0; i < t->n; i++)
        cell(t, part.there[i] ? t->p->stages[part.stage[i] - 1].id : NONE);
    fputc('\n', t->out);
    label(t, "layers");
    for (uint32_t i = 0; i < t->n; i++) {
        char text[32] = NONE;
        const struct sl_plan_stage *s = part.there[i] ? &t->p->stages[part.stage[i] - 1] : NULL;
        if (s && s->n_layer == 1)
            snprintf(text, sizeof text, "%u", s->first_layer);
        else if (s && s->n_layer)
            snprintf(text, sizeof text, "%u to %u", s->first_layer,
                     s->first_layer + s->n_layer - 1);
        cell(t, s && !s->n_layer ? "none" : text);
    }
    fputc('\n', t->out);
    print_rows(t, &part);
    print_device_budgets(t, &part);
}

static void print_processes(const struct table *t) {
    struct part part = {{0}, {0}};
    for (uint32_t i = 0; i < t->n; i++)
        part.there[i] = true; /* stage 0: of none */
    fputs("\nthe process\n", t->out);
    print_rows(t, &part);
}

static void print_hosts(const struct table *t) {
    static const char *const names[] = {"all of its RAM", "  its budget",  "  its least",
                                        "  pinned",       "its RAM, GB/s", "its disk, GB/s"};
    fputc('\n', t->out);
    for (uint32_t k = 0; k < 6; k++) {
        label(t, names[k]);
        for (uint32_t i = 0; i < t->n; i++) {
            const struct sl_plan_host *h = &t->p->hosts[t->first + i];
            if (k >= 4)
                cell_rate(t, k == 4 ? h->ram_bytes_per_s : h->disk_bytes_per_s);
            else
                cell_mib(t, k == 0   ? h->ram_total_bytes
                            : k == 1 ? h->ram_budget_bytes
                            : k == 2 ? h->ram_least_bytes
                                     : h->pinned_total_bytes);
        }
        fputc('\n', t->out);
    }
}

void sl_plan_columns_print(FILE *out, const struct sl_memory_plan *p) {
    struct table t = {.out = out, .p = p};
    uint32_t most = 0;
    for (uint32_t h = 0; h < p->n_hosts; h++) {
        t.numbered |= strlen(p->hosts[h].name) >= COLUMN;
        most = p->hosts[h].n_stages > most ? p->hosts[h].n_stages : most;
    }
    for (uint32_t h = 0; t.numbered && h < p->n_hosts; h++)
        fprintf(out, "machine %u is %s\n", h + 1, p->hosts[h].name);
    if (t.numbered)
        fputc('\n', out);
    for (; t.first < p->n_hosts; t.first += SL_PLAN_COLUMNS) {
        uint32_t left = p->n_hosts - t.first;
        t.n = left < SL_PLAN_COLUMNS ? left : SL_PLAN_COLUMNS;
        if (t.first)
            fputc('\n', out);
        print_head(&t);
        for (uint32_t k = 0; k < most; k++)
            print_devices(&t, k);
        print_processes(&t);
        print_hosts(&t);
    }
}
