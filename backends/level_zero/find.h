/* What is known of a device before it is opened, and whether it can be used. */
#ifndef SL_BACKENDS_LEVEL_ZERO_FIND_H
#define SL_BACKENDS_LEVEL_ZERO_FIND_H

#include "backends/level_zero/driver.h"
#include "backends/level_zero/level_zero.h"

#define SL_LZ_NONE UINT32_MAX

/* What a device must have for that: subgroups of SL_LZ_SUBGROUP, dot products of bytes as an
 * instruction, and binary16 whose denormal numbers keep their value. */
#define SL_LZ_SUBGROUPS_NEED "subgroups of 16, dp4a and fp16"

/* Extensions of Intel's driver, which have no header: memory of the host's own becomes memory that
 * devices read and write as if the driver had allocated it. */
typedef ze_result_t sl_lz_import_fn(ze_driver_handle_t driver, void *host, size_t bytes);
typedef ze_result_t sl_lz_release_fn(ze_driver_handle_t driver, void *host);

struct sl_lz_info {
    ze_driver_handle_t driver;
    ze_device_handle_t handle;
    char name[ZE_MAX_DEVICE_NAME]; /* "Intel(R) Arc(TM) A770 Graphics" */
    uint32_t driver_version;
    enum sl_device_kind kind;
    uint64_t memory_bytes;    /* of the largest of its memories */
    uint64_t max_alloc_bytes; /* an allocation's */
    uint32_t subgroup_width;  /* the widest */
    bool subgroups;           /* it runs products by subgroups (SL_LZ_SUBGROUPS_NEED) */
    uint32_t shared_bytes;    /* of a workgroup */
    uint32_t max_group, max_groups;
    uint32_t compute_ordinal; /* group of queues that compute; SL_LZ_NONE: none */
    uint32_t copy_ordinal;    /* ... that only copy; else the same as that one */
    uint32_t n_copy_queues, n_queues;
    sl_lz_import_fn *import;
    sl_lz_release_fn *release;
};

/* The devices of all drivers, in the loader's order, at most max of them. SL_ERR_UNSUPPORTED: none.
 */
struct sl_lz_place {
    ze_driver_handle_t driver;
    ze_device_handle_t handle;
};
enum sl_status sl_lz_list(const struct sl_lz_loader *loader, struct sl_lz_place *out_places,
                          uint32_t max, uint32_t *out_n, struct sl_err *err) SL_MUST_CHECK;
/* Describes one; what it lacks is in out_why_not. */
void sl_lz_describe(const struct sl_lz_loader *loader, struct sl_lz_place place, uint32_t number,
                    struct sl_lz_info *out_info, struct sl_err *out_why_not);
/* "Intel(R) Arc(TM) A770 Graphics, driver 17002026, dp4a" (its products by subgroups) or ", plain"
 */
void sl_lz_model(const struct sl_lz_info *info, char out_model[SL_DEVICE_NAME_BYTES]);

#endif
