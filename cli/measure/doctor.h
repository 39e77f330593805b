/* What `sluice doctor` checks: each finding gives the state of something on this machine and,
 * unless that is fine, what to do. Main thread. */
#ifndef SL_CLI_DOCTOR_H
#define SL_CLI_DOCTOR_H

#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

enum sl_health {
    SL_HEALTH_OK,
    SL_HEALTH_WARN, /* it works, but slower or with less */
    SL_HEALTH_FAIL, /* something that was asked for cannot work */
};

struct sl_finding {
    const char *name; /* "io_uring" */
    enum sl_health health;
    char text[640];     /* how it is */
    const char *advice; /* what to do; NULL: nothing */
};

#define SL_MAX_FINDINGS 96u
struct sl_findings {
    uint32_t n;
    struct sl_finding at[SL_MAX_FINDINGS];
};

/* Adds a finding; one that no longer fits is left out. */
void sl_findings_add(struct sl_findings *f, const char *name, enum sl_health health,
                     const char *advice, const char *fmt, ...) SL_PRINTF(5, 6);

/* The system (doctor_system.c). root: "" for the machine; for tests a folder that holds what is
 * read of proc/ and sys/. */
void sl_doctor_memory(struct sl_findings *f, const char *root);
/* limit_bytes: the soft limit on locked memory, UINT64_MAX: none. */
void sl_doctor_memlock(struct sl_findings *f, const char *root, uint64_t limit_bytes);
void sl_doctor_huge_pages(struct sl_findings *f, const char *root);
/* uring: whether io_uring works. */
void sl_doctor_seccomp(struct sl_findings *f, const char *root, bool uring);
void sl_doctor_files(struct sl_findings *f, uint32_t max_open);
/* Devices that compute, and cards that are on the bus and cannot be used. */
void sl_doctor_devices(struct sl_findings *f, const char *root);

/* The disk (doctor_disk.c). */
/* Whether io_uring works. */
bool sl_doctor_uring(struct sl_findings *f);
/* How the files of a model are read, and how fast. path: the model, all of whose parts are read, or
 * any file; a folder: whether its file system takes O_DIRECT, by an unnamed file of 4 KiB. Reads
 * for half a second. */
void sl_doctor_disk(struct sl_findings *f, const char *path);

#endif
