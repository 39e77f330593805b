#include "engine/plan/memory_budget.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB             ((uint64_t)1 << 20)
#define RESERVE_BYTES   (512 * MIB)
#define RESERVE_PERCENT 5u
/* Kernels write "no limit" of v1 as LONG_MAX rounded down to a page. */
#define V1_NO_LIMIT ((uint64_t)1 << 62)

#define PATH_BYTES 4096u

/* ---- small files ---- */

/* Reads a file whole, NUL-terminated, cut at size. */
static bool read_text(const char *path, char *text, size_t size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    size_t have = 0;
    while (have + 1 < size) {
        ssize_t n = read(fd, text + have, size - 1 - have);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        have += (size_t)n;
    }
    close(fd);
    text[have] = 0;
    return have > 0;
}

static bool read_under(const char *root, const char *path, char *text, size_t size) {
    char full[PATH_BYTES];
    int n = snprintf(full, sizeof full, "%s%s", root, path);
    return n > 0 && n < (int)sizeof full && read_text(full, text, size);
}

/* The number after a line's key, as in "MemAvailable:   123 kB" or "active_file 123". */
static bool number_of(const char *text, const char *key, uint64_t *out) {
    size_t n = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, n) != 0 || !(line[n] == ' ' || line[n] == ':' || line[n] == '\t'))
            continue;
        const char *p = line + n;
        while (*p == ':' || *p == ' ' || *p == '\t')
            p++;
        if (!isdigit((unsigned char)*p))
            return false;
        char *end;
        *out = strtoull(p, &end, 10);
        if (strncmp(end, " kB", 3) == 0)
            *out *= 1024;
        return true;
    }
    return false;
}

/* A limit or a usage: one number, or "max". */
static bool value_of(const char *folder, const char *name, uint64_t *out) {
    char path[PATH_BYTES + 64], text[64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (!read_text(path, text, sizeof text))
        return false;
    if (strncmp(text, "max", 3) == 0)
        *out = SL_NO_MEMORY_LIMIT;
    else if (isdigit((unsigned char)text[0]))
        *out = strtoull(text, NULL, 10);
    else
        return false;
    return true;
}

/* ---- cgroups ---- */

static void take_limit(struct sl_memory_look *look, const char *folder, const char *name,
                       uint64_t limit, uint64_t used) {
    uint64_t left = limit > used ? limit - used : 0;
    if (look->limit_bytes != SL_NO_MEMORY_LIMIT && left >= look->limit_free_bytes)
        return;
    look->limit_bytes = limit;
    look->limit_free_bytes = left;
    snprintf(look->limit_path, sizeof look->limit_path, "%.200s/%s", folder, name);
}

/* What of a cgroup's usage is page cache and the like, and goes when memory is wanted. */
static uint64_t reclaimable(const char *folder, bool v2) {
    static const char *const v1_keys[] = {"total_inactive_file", "total_active_file", NULL};
    static const char *const v2_keys[] = {"inactive_file", "active_file", "slab_reclaimable", NULL};
    char path[PATH_BYTES + 64], text[8192];
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    uint64_t sum = 0, n;
    if (!read_text(path, text, sizeof text))
        return 0;
    for (const char *const *key = v2 ? v2_keys : v1_keys; *key; key++)
        sum += number_of(text, *key, &n) ? n : 0;
    return sum;
}

static void look_at_cgroup(struct sl_memory_look *look, const char *folder, bool v2) {
    static const char *const v1_limits[] = {"memory.limit_in_bytes", NULL};
    static const char *const v2_limits[] = {"memory.max", "memory.high", NULL};
    uint64_t used, limit;
    if (!value_of(folder, v2 ? "memory.current" : "memory.usage_in_bytes", &used))
        return; /* the root, or a hierarchy without the memory controller */
    uint64_t cache = reclaimable(folder, v2);
    used -= cache < used ? cache : used;
    for (const char *const *name = v2 ? v2_limits : v1_limits; *name; name++)
        if (value_of(folder, *name, &limit) && limit != SL_NO_MEMORY_LIMIT &&
            (v2 || limit < V1_NO_LIMIT))
            take_limit(look, folder, *name, limit, used);
}

/* The process's own cgroup and all above it that the mount shows. */
static void walk_up(struct sl_memory_look *look, const char *mount, const char *path, bool v2) {
    char folder[PATH_BYTES];
    size_t base = strlen(mount);
    int n = snprintf(folder, sizeof folder, "%s%s", mount, strcmp(path, "/") == 0 ? "" : path);
    if (n < 0 || n >= (int)sizeof folder)
        return;
    for (;;) {
        look_at_cgroup(look, folder, v2);
        char *slash = strrchr(folder, '/');
        if (!slash || (size_t)(slash - folder) < base)
            return;
        *slash = 0;
    }
}

/* Does a comma-separated list hold the word? */
static bool has_word(const char *list, const char *word) {
    size_t n = strlen(word);
    for (const char *p = list; *p;) {
        const char *end = strchrnul(p, ',');
        if ((size_t)(end - p) == n && strncmp(p, word, n) == 0)
            return true;
        p = *end ? end + 1 : end;
    }
    return false;
}

/* The process's path in the hierarchy: a line "0::/path" (v2) or "4:memory:/path" (v1). */
static bool own_path(const char *cgroups, bool v2, char *out, size_t size) {
    for (const char *line = cgroups; line && *line;) {
        const char *end = strchrnul(line, '\n');
        char text[PATH_BYTES];
        snprintf(text, sizeof text, "%.*s", (int)(end - line), line);
        char *list = strchr(text, ':'), *path = list ? strchr(list + 1, ':') : NULL;
        if (path) {
            *path++ = 0;
            list++;
            if (v2 ? strncmp(text, "0:", 2) == 0 && !*list : has_word(list, "memory")) {
                snprintf(out, size, "%s", path);
                return true;
            }
        }
        line = *end ? end + 1 : NULL;
    }
    return false;
}

/* mountinfo writes blanks in paths as \040 and alike. */
static void unescape(char *s) {
    char *to = s;
    for (; *s; s++) {
        if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] && s[3]) {
            *to++ = (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + (s[3] - '0'));
            s += 3;
        } else {
            *to++ = *s;
        }
    }
    *to = 0;
}

/* One line of mountinfo: "36 35 98:0 /root /mount options... - type source super". */
static void look_at_mount(struct sl_memory_look *look, const char *root, char *line,
                          const char *cgroups) {
    char *dash = strstr(line, " - "), *save, *field[5] = {0};
    if (!dash)
        return;
    *dash = 0;
    char *super = dash + 3, *rest, *type = strtok_r(super, " ", &rest);
    bool v2 = type && strcmp(type, "cgroup2") == 0;
    if (!v2) {
        char *options = type ? strtok_r(NULL, " ", &rest) : NULL; /* the source */
        options = options ? strtok_r(NULL, " ", &rest) : NULL;
        if (!options || strcmp(type, "cgroup") != 0 || !has_word(options, "memory"))
            return;
    }
    field[0] = strtok_r(line, " ", &save);
    for (uint32_t i = 1; i < 5 && field[i - 1]; i++)
        field[i] = strtok_r(NULL, " ", &save);
    char path[PATH_BYTES], mount[PATH_BYTES];
    if (!field[4] || !own_path(cgroups, v2, path, sizeof path))
        return;
    unescape(field[3]);
    unescape(field[4]);
    int n = snprintf(mount, sizeof mount, "%s%s", root, field[4]);
    if (n < 0 || n >= (int)sizeof mount)
        return;
    /* A mount may show a part of the hierarchy; a process outside it sees paths with "..". */
    size_t skip = strcmp(field[3], "/") == 0 ? 0 : strlen(field[3]);
    bool inside = strncmp(path, field[3], skip) == 0 && (path[skip] == '/' || !path[skip]);
    const char *below = inside && path[skip] ? path + skip : "/";
    walk_up(look, mount, strstr(below, "..") ? "/" : below, v2);
}

static void look_at_cgroups(struct sl_memory_look *look, const char *root) {
    /* Mounts may be many; lines are read one at a time. */
    char cgroups[8192], full[PATH_BYTES];
    if (!read_under(root, "/proc/self/cgroup", cgroups, sizeof cgroups))
        return;
    int n = snprintf(full, sizeof full, "%s/proc/self/mountinfo", root);
    FILE *f = n > 0 && n < (int)sizeof full ? fopen(full, "re") : NULL;
    if (!f)
        return;
    char *line = NULL;
    size_t cap = 0;
    while (getline(&line, &cap, f) > 0) {
        line[strcspn(line, "\n")] = 0;
        look_at_mount(look, root, line, cgroups);
    }
    free(line);
    fclose(f);
}

/* ---- this process ---- */

/* Lines of maps that name a file: "from-to perms offset dev inode path". */
static uint64_t mapped_files(const char *root) {
    char full[PATH_BYTES];
    int n = snprintf(full, sizeof full, "%s/proc/self/maps", root);
    FILE *f = n > 0 && n < (int)sizeof full ? fopen(full, "re") : NULL;
    if (!f)
        return 0;
    char *line = NULL;
    size_t cap = 0;
    uint64_t sum = 0;
    while (getline(&line, &cap, f) > 0) {
        unsigned long long from, to, inode = 0;
        if (sscanf(line, "%llx-%llx %*s %*s %*s %llu", &from, &to, &inode) == 3 && inode)
            sum += to - from;
    }
    free(line);
    fclose(f);
    return sum;
}

/* smaps_rollup is exact; statm, where it is missing, counts in batches and has no "anonymous" but
 * resident less shared. */
static void look_at_self(struct sl_memory_look *look, const char *root) {
    char text[4096];
    if (!read_under(root, "/proc/self/smaps_rollup", text, sizeof text) ||
        !number_of(text, "Anonymous", &look->anonymous_bytes)) {
        unsigned long long resident, shared;
        if (read_under(root, "/proc/self/statm", text, sizeof text) &&
            sscanf(text, "%*u %llu %llu", &resident, &shared) == 2 && resident >= shared)
            look->anonymous_bytes = (resident - shared) * (uint64_t)sysconf(_SC_PAGESIZE);
    }
    look->mapped_file_bytes = mapped_files(root);
}

enum sl_status sl_memory_look(const char *root, struct sl_memory_look *out_look,
                              struct sl_err *err) {
    struct sl_memory_look look = {.limit_bytes = SL_NO_MEMORY_LIMIT,
                                  .limit_free_bytes = SL_NO_MEMORY_LIMIT};
    char text[8192];
    if (!read_under(root, "/proc/meminfo", text, sizeof text) ||
        (!number_of(text, "MemAvailable", &look.available_bytes) &&
         !number_of(text, "MemFree", &look.available_bytes)))
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "%s/proc/meminfo does not say how much memory is free: give a budget with "
                       "--ram",
                       root);
    look_at_cgroups(&look, root);
    look_at_self(&look, root);
    *out_look = look;
    return SL_OK;
}

void sl_memory_budget(const struct sl_memory_look *look, struct sl_memory_budget *out_budget) {
    struct sl_memory_budget b = {.free_bytes = look->available_bytes};
    b.by_cgroup = look->limit_free_bytes < look->available_bytes;
    if (b.by_cgroup)
        b.free_bytes = look->limit_free_bytes;
    uint64_t part = b.free_bytes / 100 * RESERVE_PERCENT;
    b.reserve_bytes = part > RESERVE_BYTES ? part : RESERVE_BYTES;
    if (b.reserve_bytes > b.free_bytes / 4)
        b.reserve_bytes = b.free_bytes / 4;
    /* Program and libraries that are resident are not free any more; what of them is not resident
     * yet is: counting none of them as held is the careful side. */
    b.budget_bytes = b.free_bytes - b.reserve_bytes + look->anonymous_bytes;
    *out_budget = b;
}
