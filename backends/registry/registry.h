/* The registry: which backends this build has, which devices they find, and opening one by its id.
 *
 * Code outside backends/ knows devices by id and capabilities; it names none (make check-layers).
 *
 * A backend is added by a struct sl_backend (backends/backend_entry.h) in its own folder and one
 * line in registry.c.
 *
 * Any thread may call; enumerating and opening may start a driver, which takes up to a second. */
#ifndef SL_BACKENDS_REGISTRY_REGISTRY_H
#define SL_BACKENDS_REGISTRY_REGISTRY_H

#include "backends/backend_entry.h"

/* The most devices in one list. */
#define SL_DEVICE_LIST_MAX 8u

/* The i-th backend in order of preference, hidden ones included; NULL beyond the last. */
const struct sl_backend *sl_backend_at(uint32_t i);
/* The first backend that has planned devices with memory of their own; NULL: none has. */
const struct sl_backend *sl_backend_for_plans(void);
/* The backend of the host's CPU, which always exists. */
const struct sl_backend *sl_backend_of_host(void);

/* What a text such as --device asks for. */
enum sl_device_which {
    SL_DEVICE_NUMBER, /* "cuda:1": that one */
    SL_DEVICE_FIRST,  /* "cuda": the first, or as many as the context asks for */
    SL_DEVICE_ALL,    /* "cuda:all" */
};
struct sl_device_list {
    bool any; /* "auto": the caller chooses; n is 0 */
    uint32_t n;
    struct sl_device_item {
        struct sl_device_ref ref;
        enum sl_device_which which;
    } at[SL_DEVICE_LIST_MAX];
};
/* Parses "auto", or items separated by commas: BACKEND, BACKEND:N, BACKEND:all; a number alone
 * belongs to the backend before it, as in "cuda:0,1,cpu". Looks for no device. SL_ERR_CONFIG: the
 * text is not valid, with what would be. */
enum sl_status sl_device_list_parse(const char *text, struct sl_device_list *out_list,
                                    struct sl_err *err) SL_MUST_CHECK;

/* Opens a device; its caps.id is set. */
enum sl_status sl_registry_open(struct sl_device_ref ref, const struct sl_device_options *options,
                                struct sl_device **out_device, struct sl_err *err) SL_MUST_CHECK;
/* The same by id. SL_ERR_CONFIG: not an id. */
enum sl_status sl_registry_open_id(const char *id, const struct sl_device_options *options,
                                   struct sl_device **out_device, struct sl_err *err) SL_MUST_CHECK;

/* "cuda:0, cuda:1, cpu": ids of the devices that can be used here, without hidden ones; truncated
 * if it is longer than out. */
void sl_registry_list(char *out, size_t size);
/* "cuda, cpu": the backends whose devices can be planned with from elsewhere. */
void sl_registry_list_planned(char *out, size_t size);
/* "cuda:0,1": a list of two devices that this build knows, for messages. */
void sl_registry_example(char *out, size_t size);

#endif
