#include "backends/registry/registry.h"
#include "cli/options/args.h"
#include "cli/measure/doctor.h"
#include "engine/plan/memory_budget.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES 4096u

/* The first bytes of a file of the system, ended by a NUL. False: it is not there. */
static bool read_text(const char *root, const char *path, char *buf, size_t size) {
    char whole[PATH_BYTES];
    int n = snprintf(whole, sizeof whole, "%s%s", root, path);
    FILE *f = n > 0 && (size_t)n < sizeof whole ? fopen(whole, "re") : NULL;
    if (!f)
        return false;
    buf[fread(buf, 1, size - 1, f)] = '\0';
    fclose(f);
    return true;
}

/* The number behind "\nName:\t" in /proc/self/status; false: it is not there. */
static bool status_field(const char *root, const char *name, int base, uint64_t *out) {
    char text[8192], key[32];
    snprintf(key, sizeof key, "\n%s:", name);
    const char *at =
        read_text(root, "/proc/self/status", text, sizeof text) ? strstr(text, key) : NULL;
    if (!at)
        return false;
    *out = strtoull(at + strlen(key), NULL, base);
    return true;
}

void sl_doctor_memory(struct sl_findings *f, const char *root) {
    struct sl_memory_look look;
    struct sl_err err;
    char available[16], limit[16], left[16];
    if (sl_memory_look(root, &look, &err) != SL_OK) {
        sl_findings_add(f, "memory", SL_HEALTH_WARN, "give each command its --ram", "%s", err.text);
        return;
    }
    sl_format_bytes(look.available_bytes, available);
    sl_findings_add(f, "memory",
                    look.available_bytes < (uint64_t)1 << 30 ? SL_HEALTH_WARN : SL_HEALTH_OK,
                    "stop other programs: what is free holds experts", "%s are free", available);
    if (look.limit_bytes == SL_NO_MEMORY_LIMIT) {
        sl_findings_add(f, "cgroup memory", SL_HEALTH_OK, NULL, "no cgroup limits this process");
        return;
    }
    bool tight = look.limit_free_bytes < look.available_bytes / 2;
    sl_findings_add(f, "cgroup memory", tight ? SL_HEALTH_WARN : SL_HEALTH_OK,
                    "raise the limit (MemoryMax= of the service, --memory of the container): half "
                    "of the machine's free memory cannot be used",
                    "%s leaves %s of %s", look.limit_path,
                    sl_format_bytes(look.limit_free_bytes, left),
                    sl_format_bytes(look.limit_bytes, limit));
}

/* Source: capabilities(7). */
#define CAP_IPC_LOCK_BIT 14

void sl_doctor_memlock(struct sl_findings *f, const char *root, uint64_t limit_bytes) {
    uint64_t capabilities = 0;
    char limit[16];
    bool may =
        status_field(root, "CapEff", 16, &capabilities) && capabilities >> CAP_IPC_LOCK_BIT & 1;
    if (limit_bytes == UINT64_MAX)
        sl_findings_add(f, "memlock", SL_HEALTH_OK, NULL, "no limit on locked memory");
    else if (may)
        sl_findings_add(f, "memlock", SL_HEALTH_OK, NULL,
                        "the limit is %s, and this process may exceed it (CAP_IPC_LOCK)",
                        sl_format_bytes(limit_bytes, limit));
    else
        sl_findings_add(f, "memlock", SL_HEALTH_WARN,
                        "raise it (ulimit -l unlimited, LimitMEMLOCK=infinity, --ulimit "
                        "memlock=-1): buffers for reads are not registered with the kernel where "
                        "it is too small, which costs CPU time",
                        "locked memory is limited to %s", sl_format_bytes(limit_bytes, limit));
}

void sl_doctor_huge_pages(struct sl_findings *f, const char *root) {
    char text[128];
    static const char path[] = "/sys/kernel/mm/transparent_hugepage/enabled";
    if (!read_text(root, path, text, sizeof text)) {
        sl_findings_add(f, "huge pages", SL_HEALTH_WARN, "use a kernel that has them",
                        "this kernel has no transparent huge pages");
        return;
    }
    text[strcspn(text, "\n")] = '\0';
    bool never = strstr(text, "[never]") != NULL;
    sl_findings_add(f, "huge pages", never ? SL_HEALTH_WARN : SL_HEALTH_OK,
                    "as root: echo madvise >/sys/kernel/mm/transparent_hugepage/enabled; experts "
                    "and KV in small pages are slower",
                    "transparent huge pages: %s", text);
}

void sl_doctor_seccomp(struct sl_findings *f, const char *root, bool uring) {
    uint64_t mode = 0;
    if (!status_field(root, "Seccomp", 10, &mode) || mode == 0)
        sl_findings_add(f, "seccomp", SL_HEALTH_OK, NULL, "no filter of system calls");
    else
        sl_findings_add(f, "seccomp", uring ? SL_HEALTH_OK : SL_HEALTH_WARN,
                        "let the filter allow io_uring_setup, io_uring_enter and "
                        "io_uring_register, as deploy/container/seccomp.json does",
                        uring ? "a filter of system calls allows io_uring"
                              : "a filter of system calls is active, and io_uring does not work");
}

void sl_doctor_files(struct sl_findings *f, uint32_t max_open) {
    sl_findings_add(f, "open files", max_open < 4096 ? SL_HEALTH_WARN : SL_HEALTH_OK,
                    "raise it (ulimit -Hn, LimitNOFILE=): connections beyond it wait",
                    "this process may open %u", max_open);
}

/* ---- devices ---- */

/* Makers of cards that a backend computes with. Source: the PCI ID repository. */
static bool is_card(const char *root, const char *device) {
    char path[512], text[32];
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%.128s/vendor", device);
    if (!read_text(root, path, text, sizeof text) || strtoul(text, NULL, 16) != 0x10de)
        return false;
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%.128s/class", device);
    return read_text(root, path, text, sizeof text) &&
           strtoul(text, NULL, 16) >> 16 ==
               0x03; /* display controllers, with or without a screen */
}

static uint32_t count_cards(const char *root) {
    char path[PATH_BYTES];
    uint32_t n = 0;
    snprintf(path, sizeof path, "%s/sys/bus/pci/devices", root);
    DIR *d = opendir(path);
    for (const struct dirent *e; d && (e = readdir(d));)
        n += e->d_name[0] != '.' && is_card(root, e->d_name);
    if (d)
        closedir(d);
    return n;
}

/* Opens it briefly, which finds more than enumerating does. */
static void add_device(struct sl_findings *f, const struct sl_backend *b,
                       struct sl_device_found *found, uint32_t number) {
    const struct sl_device_options options = {.n_threads = 1};
    struct sl_device *dev = NULL;
    uint64_t free_bytes = 0, total_bytes = 0;
    char memory[16];
    if (!found->why_not.text[0] && sl_registry_open((struct sl_device_ref){b, number}, &options,
                                                    &dev, &found->why_not) == SL_OK) {
        if (sl_device_memory(dev, &free_bytes, &total_bytes) != SL_OK)
            free_bytes = 0;
        sl_device_close(&dev);
    }
    if (found->why_not.text[0] && b->named_only)
        sl_findings_add(f, "device", SL_HEALTH_OK, NULL, "%s, %s, is not used: %s", found->id,
                        found->model, found->why_not.text);
    else if (found->why_not.text[0])
        sl_findings_add(f, "device", SL_HEALTH_FAIL,
                        "fix what it names; until then the other devices compute", "%s, %s: %s",
                        found->id, found->model, found->why_not.text);
    else if (found->kind == SL_DEVICE_HOST || !free_bytes)
        sl_findings_add(f, "device", SL_HEALTH_OK, NULL, "%s: %s", found->id, found->model);
    else
        sl_findings_add(f, "device", SL_HEALTH_OK, NULL, "%s: %s, %s are free", found->id,
                        found->model, sl_format_bytes(free_bytes, memory));
}

void sl_doctor_devices(struct sl_findings *f, const char *root) {
    const struct sl_backend *b;
    struct sl_device_found *found = calloc(SL_DEVICE_MAX_NUMBER + 1, sizeof *found);
    struct sl_err why = {"none found"};
    uint32_t cards = count_cards(root);
    bool told = false; /* that a backend computes on cards, or that the cards are idle */
    for (uint32_t i = 0; found && (b = sl_backend_at(i)); i++) {
        uint32_t n = 0;
        if (b->hidden)
            continue;
        bool none = b->enumerate(found, SL_DEVICE_MAX_NUMBER + 1, &n, &why) != SL_OK || n == 0;
        for (uint32_t k = 0; !none && k < n && k <= SL_DEVICE_MAX_NUMBER; k++) {
            add_device(f, b, &found[k], k);
            told = told || (found[k].kind != SL_DEVICE_HOST && !found[k].software);
        }
        bool idle = none && cards && !told && !b->named_only;
        told = told || idle;
        if (idle)
            sl_findings_add(f, "device", SL_HEALTH_WARN,
                            "install the driver, or a build with kernels for these cards: the "
                            "server then computes on them",
                            "%u card%s on the bus, and none can be used: %s", cards,
                            cards == 1 ? " is" : "s are", why.text);
        else if (none)
            sl_findings_add(f, "device", SL_HEALTH_OK, NULL, "no %s here: %s", b->devices,
                            why.text);
    }
    free(found);
}
