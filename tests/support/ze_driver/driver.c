/* The driver's tables, its devices, and calls that are to fail. */
#include "tests/support/ze_driver/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

pthread_mutex_t ze_lock = PTHREAD_MUTEX_INITIALIZER;
struct ze_test_counts ze_counts;

static struct device devices[ZE_TEST_MAX_DEVICES];
static uint32_t n_devices;
static char the_driver, the_context;

#define MAX_FAULTS 8
static struct fault {
    char name[48];
    uint64_t at, calls;
    ze_result_t result;
} faults[MAX_FAULTS];

uint64_t ze_number(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

static void set_faults(const char *text) {
    memset(faults, 0, sizeof faults);
    for (uint32_t i = 0; i < MAX_FAULTS && text && *text; i++) {
        const char *comma = strchr(text, ',');
        unsigned long long at = 0;
        long long result = 0;
        if (sscanf(text, "%47[^:]:%llu:%lli", faults[i].name, &at, &result) != 3) {
            fprintf(stderr, "ze_driver: ZE_TEST_FAIL: '%s' is no NAME:N:RESULT\n", text);
            exit(3);
        }
        faults[i].at = at;
        faults[i].result = (ze_result_t)result;
        text = comma ? comma + 1 : NULL;
    }
}

__attribute__((visibility("default"))) ze_test_fail_fn ze_test_fail;
void ze_test_fail(const char *text) {
    pthread_mutex_lock(&ze_lock);
    set_faults(text);
    for (uint32_t i = 0; i < n_devices; i++)
        devices[i].lost = false;
    pthread_mutex_unlock(&ze_lock);
}

__attribute__((visibility("default"))) ze_test_counts_fn ze_test_counts;
void ze_test_counts(struct ze_test_counts *out) {
    pthread_mutex_lock(&ze_lock);
    *out = ze_counts;
    pthread_mutex_unlock(&ze_lock);
}

ze_result_t ze_enter(const char *name, struct device *d) {
    ze_result_t result = ZE_RESULT_SUCCESS;
    pthread_mutex_lock(&ze_lock);
    if (d && d->lost)
        result = ZE_RESULT_ERROR_DEVICE_LOST;
    for (uint32_t i = 0; i < MAX_FAULTS && !result; i++)
        if (strcmp(faults[i].name, name) == 0 && ++faults[i].calls == faults[i].at)
            result = faults[i].result;
    if (d && result == ZE_RESULT_ERROR_DEVICE_LOST)
        d->lost = true;
    pthread_mutex_unlock(&ze_lock);
    return result;
}

/* ---- driver ---- */

static bool kind_is(const char *kind) {
    const char *text = getenv("ZE_TEST_KIND");
    return strcmp(text && *text ? text : "discrete", kind) == 0;
}

static ze_result_t init(ze_init_flags_t flags) {
    ENTER(zeInit, NULL);
    (void)flags;
    if (n_devices)
        return ZE_RESULT_SUCCESS;
    uint64_t n = ze_number("ZE_TEST_DEVICES", 1);
    n_devices = (uint32_t)(n < ZE_TEST_MAX_DEVICES ? n : ZE_TEST_MAX_DEVICES);
    for (uint32_t i = 0; i < n_devices; i++)
        devices[i].number = i;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t driver_get(uint32_t *n, ze_driver_handle_t *out) {
    ENTER(zeDriverGet, NULL);
    if (*n && out)
        out[0] = (ze_driver_handle_t)&the_driver;
    *n = 1;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t driver_api_version(ze_driver_handle_t h, ze_api_version_t *out) {
    (void)h;
    ENTER(zeDriverGetApiVersion, NULL);
    *out = ZE_API_VERSION_1_3;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t driver_properties(ze_driver_handle_t h, ze_driver_properties_t *out) {
    (void)h;
    ENTER(zeDriverGetProperties, NULL);
    out->driverVersion = 7;
    memset(&out->uuid, 0, sizeof out->uuid);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t driver_extension(ze_driver_handle_t h, const char *name, void **out) {
    static const struct {
        const char *name;
        ze_result_t (*import)(ze_driver_handle_t, void *, size_t);
        ze_result_t (*release)(ze_driver_handle_t, void *);
    } known[] = {{"zexDriverImportExternalPointer", ze_import, NULL},
                 {"zexDriverReleaseImportedPointer", NULL, ze_release}};
    (void)h;
    ENTER(zeDriverGetExtensionFunctionAddress, NULL);
    for (size_t i = 0; i < sizeof known / sizeof *known && !ze_number("ZE_TEST_NO_IMPORT", 0); i++)
        if (strcmp(known[i].name, name) == 0) {
            if (known[i].import)
                memcpy(out, &known[i].import, sizeof *out);
            else
                memcpy(out, &known[i].release, sizeof *out);
            return ZE_RESULT_SUCCESS;
        }
    return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
}

/* ---- devices ---- */

static ze_result_t device_get(ze_driver_handle_t h, uint32_t *n, ze_device_handle_t *out) {
    (void)h;
    ENTER(zeDeviceGet, NULL);
    uint32_t room = out ? *n : 0;
    for (uint32_t i = 0; i < n_devices && i < room; i++)
        out[i] = (ze_device_handle_t)&devices[i];
    *n = room && room < n_devices ? room : n_devices;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t device_properties(ze_device_handle_t h, ze_device_properties_t *out) {
    struct device *d = (struct device *)h;
    ENTER(zeDeviceGetProperties, d);
    void *next = out->pNext;
    memset(out, 0, sizeof *out);
    out->stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES;
    out->pNext = next;
    out->type = kind_is("cpu") ? ZE_DEVICE_TYPE_CPU : ZE_DEVICE_TYPE_GPU;
    out->vendorId = 0x8086;
    out->flags = kind_is("integrated") ? ZE_DEVICE_PROPERTY_FLAG_INTEGRATED : 0;
    out->maxMemAllocSize = ze_number("ZE_TEST_MAX_ALLOC_MIB", 256) << 20;
    out->uuid.id[0] = (uint8_t)(1 + d->number);
    snprintf(out->name, sizeof out->name, "Test GPU %u", d->number);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t compute_properties(ze_device_handle_t h, ze_device_compute_properties_t *out) {
    ENTER(zeDeviceGetComputeProperties, h);
    out->maxTotalGroupSize = out->maxGroupSizeX = 1024;
    out->maxGroupSizeY = out->maxGroupSizeZ = 1024;
    out->maxGroupCountX = out->maxGroupCountY = out->maxGroupCountZ = UINT32_MAX;
    out->maxSharedLocalMemory = 65536;
    out->numSubGroupSizes = 2;
    out->subGroupSizes[0] = 8;
    out->subGroupSizes[1] = 16;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t module_properties(ze_device_handle_t h, ze_device_module_properties_t *out) {
    ENTER(zeDeviceGetModuleProperties, h);
    out->spirvVersionSupported = ZE_MAKE_VERSION(1, 2);
    bool plain = ze_number("ZE_TEST_PLAIN", 0);
    out->flags = plain ? 0 : ZE_DEVICE_MODULE_FLAG_FP16 | ZE_DEVICE_MODULE_FLAG_DP4A;
    out->fp16flags = plain ? 0
                           : ZE_DEVICE_FP_FLAG_DENORM | ZE_DEVICE_FP_FLAG_INF_NAN |
                                 ZE_DEVICE_FP_FLAG_ROUND_TO_NEAREST;
    out->fp64flags = 0;
    out->fp32flags = ZE_DEVICE_FP_FLAG_DENORM | ZE_DEVICE_FP_FLAG_INF_NAN |
                     ZE_DEVICE_FP_FLAG_ROUND_TO_NEAREST | ZE_DEVICE_FP_FLAG_FMA;
    out->maxArgumentsSize = 2048;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t memory_properties(ze_device_handle_t h, uint32_t *n,
                                     ze_device_memory_properties_t *out) {
    ENTER(zeDeviceGetMemoryProperties, h);
    if (out && *n) {
        out->flags = 0;
        out->maxClockRate = 2000;
        out->maxBusWidth = 256;
        out->totalSize = ze_number("ZE_TEST_MEMORY_MIB", 1024) << 20;
        snprintf(out->name, sizeof out->name, "HBM");
    }
    *n = 1;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t queue_groups(ze_device_handle_t h, uint32_t *n,
                                ze_command_queue_group_properties_t *out) {
    ENTER(zeDeviceGetCommandQueueGroupProperties, h);
    uint32_t there = ze_number("ZE_TEST_COPY_ENGINES", 1) ? 2 : 1;
    for (uint32_t i = 0; out && i < there && i < *n; i++) {
        out[i].flags = i ? ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY
                         : ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE |
                               ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY;
        out[i].maxMemoryFillPatternSize = 16;
        out[i].numQueues = 1;
    }
    *n = there;
    return ZE_RESULT_SUCCESS;
}

/* ---- contexts ---- */

static ze_result_t context_create(ze_driver_handle_t h, const ze_context_desc_t *desc,
                                  ze_context_handle_t *out) {
    (void)h, (void)desc;
    ENTER(zeContextCreate, NULL);
    ze_counts.n_contexts++;
    *out = (ze_context_handle_t)&the_context;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t context_destroy(ze_context_handle_t h) {
    (void)h;
    ze_counts.n_contexts--;
    return ZE_RESULT_SUCCESS;
}

/* ---- tables ----
 *
 * The loader asks for all of them before it takes a driver; what is not filled is not called. */
#define TABLE(getter, type, fill)                                                                  \
    __attribute__((visibility("default"))) ze_result_t getter(ze_api_version_t version, type *t);  \
    ze_result_t getter(ze_api_version_t version, type *t) {                                        \
        (void)version;                                                                             \
        if (!t)                                                                                    \
            return ZE_RESULT_ERROR_INVALID_NULL_POINTER;                                           \
        fill;                                                                                      \
        return ZE_RESULT_SUCCESS;                                                                  \
    }
#define EMPTY(getter, type) TABLE(getter, type, (void)0)

TABLE(zeGetGlobalProcAddrTable, ze_global_dditable_t, {
    set_faults(getenv("ZE_TEST_FAIL"));
    t->pfnInit = init;
})
TABLE(zeGetDriverProcAddrTable, ze_driver_dditable_t, {
    t->pfnGet = driver_get;
    t->pfnGetApiVersion = driver_api_version;
    t->pfnGetProperties = driver_properties;
    t->pfnGetExtensionFunctionAddress = driver_extension;
})
TABLE(zeGetDeviceProcAddrTable, ze_device_dditable_t, {
    t->pfnGet = device_get;
    t->pfnGetProperties = device_properties;
    t->pfnGetComputeProperties = compute_properties;
    t->pfnGetModuleProperties = module_properties;
    t->pfnGetMemoryProperties = memory_properties;
    t->pfnGetCommandQueueGroupProperties = queue_groups;
})
TABLE(zeGetContextProcAddrTable, ze_context_dditable_t, {
    t->pfnCreate = context_create;
    t->pfnDestroy = context_destroy;
})
TABLE(zeGetMemProcAddrTable, ze_mem_dditable_t, ze_memory_table(t))
TABLE(zeGetCommandListProcAddrTable, ze_command_list_dditable_t, ze_list_table(t))
TABLE(zeGetEventPoolProcAddrTable, ze_event_pool_dditable_t, ze_pool_table(t))
TABLE(zeGetEventProcAddrTable, ze_event_dditable_t, ze_event_table(t))
TABLE(zeGetModuleProcAddrTable, ze_module_dditable_t, ze_module_table(t))
TABLE(zeGetModuleBuildLogProcAddrTable, ze_module_build_log_dditable_t, ze_log_table(t))
TABLE(zeGetKernelProcAddrTable, ze_kernel_dditable_t, ze_kernel_table(t))
TABLE(zeGetCommandQueueProcAddrTable, ze_command_queue_dditable_t, ze_queue_table(t))
EMPTY(zeGetDeviceExpProcAddrTable, ze_device_exp_dditable_t)
EMPTY(zeGetEventExpProcAddrTable, ze_event_exp_dditable_t)
EMPTY(zeGetFabricEdgeExpProcAddrTable, ze_fabric_edge_exp_dditable_t)
EMPTY(zeGetFabricVertexExpProcAddrTable, ze_fabric_vertex_exp_dditable_t)
EMPTY(zeGetFenceProcAddrTable, ze_fence_dditable_t)
EMPTY(zeGetImageExpProcAddrTable, ze_image_exp_dditable_t)
EMPTY(zeGetImageProcAddrTable, ze_image_dditable_t)
EMPTY(zeGetKernelExpProcAddrTable, ze_kernel_exp_dditable_t)
EMPTY(zeGetPhysicalMemProcAddrTable, ze_physical_mem_dditable_t)
EMPTY(zeGetSamplerProcAddrTable, ze_sampler_dditable_t)
EMPTY(zeGetVirtualMemProcAddrTable, ze_virtual_mem_dditable_t)
EMPTY(zesGetDeviceProcAddrTable, zes_device_dditable_t)
EMPTY(zesGetDiagnosticsProcAddrTable, zes_diagnostics_dditable_t)
EMPTY(zesGetDriverProcAddrTable, zes_driver_dditable_t)
EMPTY(zesGetEngineProcAddrTable, zes_engine_dditable_t)
EMPTY(zesGetFabricPortProcAddrTable, zes_fabric_port_dditable_t)
EMPTY(zesGetFanProcAddrTable, zes_fan_dditable_t)
EMPTY(zesGetFirmwareProcAddrTable, zes_firmware_dditable_t)
EMPTY(zesGetFrequencyProcAddrTable, zes_frequency_dditable_t)
EMPTY(zesGetLedProcAddrTable, zes_led_dditable_t)
EMPTY(zesGetMemoryProcAddrTable, zes_memory_dditable_t)
EMPTY(zesGetPerformanceFactorProcAddrTable, zes_performance_factor_dditable_t)
EMPTY(zesGetPowerProcAddrTable, zes_power_dditable_t)
EMPTY(zesGetPsuProcAddrTable, zes_psu_dditable_t)
EMPTY(zesGetRasProcAddrTable, zes_ras_dditable_t)
EMPTY(zesGetSchedulerProcAddrTable, zes_scheduler_dditable_t)
EMPTY(zesGetStandbyProcAddrTable, zes_standby_dditable_t)
EMPTY(zesGetTemperatureProcAddrTable, zes_temperature_dditable_t)
EMPTY(zetGetCommandListProcAddrTable, zet_command_list_dditable_t)
EMPTY(zetGetContextProcAddrTable, zet_context_dditable_t)
EMPTY(zetGetDebugProcAddrTable, zet_debug_dditable_t)
EMPTY(zetGetDeviceProcAddrTable, zet_device_dditable_t)
EMPTY(zetGetKernelProcAddrTable, zet_kernel_dditable_t)
EMPTY(zetGetMetricGroupExpProcAddrTable, zet_metric_group_exp_dditable_t)
EMPTY(zetGetMetricGroupProcAddrTable, zet_metric_group_dditable_t)
EMPTY(zetGetMetricProcAddrTable, zet_metric_dditable_t)
EMPTY(zetGetMetricQueryPoolProcAddrTable, zet_metric_query_pool_dditable_t)
EMPTY(zetGetMetricQueryProcAddrTable, zet_metric_query_dditable_t)
EMPTY(zetGetMetricStreamerProcAddrTable, zet_metric_streamer_dditable_t)
EMPTY(zetGetModuleProcAddrTable, zet_module_dditable_t)
EMPTY(zetGetTracerExpProcAddrTable, zet_tracer_exp_dditable_t)
