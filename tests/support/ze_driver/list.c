/* Command lists, queues and events. Nothing runs before somebody waits, or has asked twice. */
#include "tests/support/ze_driver/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_WAITS 4u

struct event {
    struct device *device;
    bool raised;
    uint32_t asked;
};
struct pool {
    uint32_t n;
    struct event *events;
};
struct command {
    enum { COPY, LAUNCH, RESET, BARRIER } kind;
    void *dst;
    const void *src;
    size_t bytes;
    struct launch *launch;
    struct event *raises, *waits[MAX_WAITS]; /* raises: of RESET what it resets */
    uint32_t n_waits;
    struct command *next;
};
/* An immediate list, a queue, into which lists are copied that it executes, or such a list. */
struct list {
    struct device *device;
    bool computes;
    bool is_kept, closed; /* it runs by a queue alone, when nothing can be added any more */
    struct command *first, **last;
    struct list *next;
};

static struct list *lists;

/* ---- running, with the lock ---- */

static bool is_barrier(const struct command *c) {
    return c->kind == BARRIER;
}

/* What stands before the next barrier, the last first. */
static void run_between(struct command *c) {
    if (!c || is_barrier(c))
        return;
    run_between(c->next);
    if (c->kind == RESET) {
        c->raises->raised = false;
        return;
    }
    if (c->kind == LAUNCH) {
        ze_launch_run(c->launch);
        return;
    }
    ze_must_know(c->dst, c->bytes, "a copy's destination");
    ze_must_know(c->src, c->bytes, "a copy's source");
    memcpy(c->dst, c->src, c->bytes);
    ze_counts.n_copies++;
}

static void drop_first(struct list *l) {
    struct command *c = l->first;
    l->first = c->next;
    if (!l->first)
        l->last = &l->first;
    free(c);
}

static void drop_all(struct list *l) {
    while (l->first) {
        if (l->first->launch)
            ze_launch_drop(l->first->launch);
        drop_first(l);
    }
}

static bool may_pass(const struct command *c) {
    for (uint32_t i = 0; i < c->n_waits; i++)
        if (!c->waits[i]->raised)
            return false;
    return true;
}

/* Runs what can run; whether anything did. */
static bool run_list(struct list *l) {
    bool ran = false;
    while (l->first && !l->device->lost) {
        if (!is_barrier(l->first)) {
            run_between(l->first);
            while (l->first && !is_barrier(l->first))
                drop_first(l);
            ran = true;
            continue;
        }
        if (!may_pass(l->first))
            break;
        if (l->first->raises)
            l->first->raises->raised = true;
        drop_first(l);
        ran = true;
    }
    return ran;
}

static bool run_all(void) {
    bool ran = false;
    for (struct list *l = lists; l; l = l->next)
        ran = run_list(l) || ran;
    return ran;
}

/* ---- lists ---- */

static ze_result_t make_list(ze_device_handle_t h, const ze_command_queue_desc_t *desc,
                             struct list **out) {
    if (desc->ordinal > (ze_number("ZE_TEST_COPY_ENGINES", 1) ? 1u : 0u) || desc->index)
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    if (desc->mode != ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS)
        return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
    struct list *l = calloc(1, sizeof *l);
    if (!l)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    l->device = (struct device *)h;
    l->computes = desc->ordinal == 0;
    l->last = &l->first;
    pthread_mutex_lock(&ze_lock);
    l->next = lists;
    lists = l;
    ze_counts.n_lists++;
    pthread_mutex_unlock(&ze_lock);
    *out = l;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t create_immediate(ze_context_handle_t c, ze_device_handle_t h,
                                    const ze_command_queue_desc_t *desc,
                                    ze_command_list_handle_t *out) {
    (void)c;
    ENTER(zeCommandListCreateImmediate, h);
    return make_list(h, desc, (struct list **)out);
}

static ze_result_t create_queue(ze_context_handle_t c, ze_device_handle_t h,
                                const ze_command_queue_desc_t *desc,
                                ze_command_queue_handle_t *out) {
    (void)c;
    ENTER(zeCommandQueueCreate, h);
    return make_list(h, desc, (struct list **)out);
}

static ze_result_t create_list(ze_context_handle_t c, ze_device_handle_t h,
                               const ze_command_list_desc_t *desc, ze_command_list_handle_t *out) {
    (void)c;
    ENTER(zeCommandListCreate, h);
    struct list *l = desc->commandQueueGroupOrdinal ? NULL : calloc(1, sizeof *l);
    if (!l)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    *l = (struct list){.device = (struct device *)h, .computes = true, .is_kept = true};
    l->last = &l->first;
    pthread_mutex_lock(&ze_lock);
    ze_counts.n_lists++;
    pthread_mutex_unlock(&ze_lock);
    *out = (ze_command_list_handle_t)l;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t close_list(ze_command_list_handle_t h) {
    struct list *l = (struct list *)h;
    ENTER(zeCommandListClose, l->device);
    if (!l->is_kept || l->closed)
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    l->closed = true;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t list_destroy(ze_command_list_handle_t h) {
    struct list *l = (struct list *)h, **at = &lists;
    pthread_mutex_lock(&ze_lock);
    if (l->is_kept) {
        ze_counts.n_lists--;
        drop_all(l);
        pthread_mutex_unlock(&ze_lock);
        free(l);
        return ZE_RESULT_SUCCESS;
    }
    while (*at != l)
        at = &(*at)->next;
    *at = l->next;
    ze_counts.n_lists--;
    if (l->first && !l->device->lost)
        fprintf(stderr, "ze_driver: a list is destroyed with work in it\n");
    drop_all(l);
    pthread_mutex_unlock(&ze_lock);
    free(l);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t queue_destroy(ze_command_queue_handle_t h) {
    return list_destroy((ze_command_list_handle_t)h);
}

/* Copies of the lists' commands, which run as those of an immediate list do. */
static ze_result_t execute(ze_command_queue_handle_t h, uint32_t n, ze_command_list_handle_t *kept,
                           ze_fence_handle_t fence) {
    struct list *q = (struct list *)h;
    ENTER(zeCommandQueueExecuteCommandLists, q->device);
    ze_result_t result = fence ? ZE_RESULT_ERROR_UNSUPPORTED_FEATURE : ZE_RESULT_SUCCESS;
    pthread_mutex_lock(&ze_lock);
    for (uint32_t i = 0; i < n && !result; i++) {
        const struct list *l = (const struct list *)kept[i];
        if (!l->is_kept || !l->closed)
            result = ZE_RESULT_ERROR_INVALID_ARGUMENT;
        for (const struct command *from = l->first; from && !result; from = from->next) {
            struct command *c = malloc(sizeof *c);
            if (!c) {
                result = ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
                break;
            }
            *c = *from;
            c->next = NULL;
            c->launch = from->launch ? ze_launch_again(from->launch) : NULL;
            *q->last = c;
            q->last = &c->next;
        }
    }
    ze_counts.n_replays += !result;
    pthread_mutex_unlock(&ze_lock);
    return result;
}

static ze_result_t append(struct list *l, struct command command, ze_event_handle_t raises,
                          uint32_t n_waits, ze_event_handle_t *waits) {
    struct command *c = malloc(sizeof *c);
    if (l->closed || !c || n_waits > MAX_WAITS || (command.kind < RESET && (raises || n_waits))) {
        free(c); /* the backend's come with barriers alone */
        return c ? ZE_RESULT_ERROR_UNSUPPORTED_FEATURE : ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    *c = command;
    c->raises = (struct event *)raises;
    for (c->n_waits = 0; c->n_waits < n_waits; c->n_waits++)
        c->waits[c->n_waits] = (struct event *)waits[c->n_waits];
    pthread_mutex_lock(&ze_lock);
    *l->last = c;
    l->last = &c->next;
    pthread_mutex_unlock(&ze_lock);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t append_barrier(ze_command_list_handle_t h, ze_event_handle_t raises,
                                  uint32_t n_waits, ze_event_handle_t *waits) {
    struct list *l = (struct list *)h;
    ENTER(zeCommandListAppendBarrier, l->device);
    return append(l, (struct command){.kind = BARRIER}, raises, n_waits, waits);
}

static ze_result_t append_reset(ze_command_list_handle_t h, ze_event_handle_t e) {
    struct list *l = (struct list *)h;
    ENTER(zeCommandListAppendEventReset, l->device);
    return append(l, (struct command){.kind = RESET}, e, 0, NULL);
}

static ze_result_t append_copy(ze_command_list_handle_t h, void *dst, const void *src, size_t bytes,
                               ze_event_handle_t raises, uint32_t n_waits,
                               ze_event_handle_t *waits) {
    struct list *l = (struct list *)h;
    ENTER(zeCommandListAppendMemoryCopy, l->device);
    return append(l, (struct command){.kind = COPY, .dst = dst, .src = src, .bytes = bytes}, raises,
                  n_waits, waits);
}

static ze_result_t append_launch(ze_command_list_handle_t h, ze_kernel_handle_t kernel,
                                 const ze_group_count_t *groups, ze_event_handle_t raises,
                                 uint32_t n_waits, ze_event_handle_t *waits) {
    struct list *l = (struct list *)h;
    struct launch *launch = NULL;
    ENTER(zeCommandListAppendLaunchKernel, l->device);
    if (!l->computes)
        return ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE;
    ze_result_t result = ze_launch_make(kernel, groups, &launch);
    if (!result)
        result =
            append(l, (struct command){.kind = LAUNCH, .launch = launch}, raises, n_waits, waits);
    if (result && launch)
        ze_launch_drop(launch);
    return result;
}

/* ---- events ---- */

static ze_result_t pool_create(ze_context_handle_t c, const ze_event_pool_desc_t *desc, uint32_t n,
                               ze_device_handle_t *devices, ze_event_pool_handle_t *out) {
    (void)c;
    if (n != 1)
        return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
    ENTER(zeEventPoolCreate, devices[0]);
    struct pool *p = calloc(1, sizeof *p);
    if (p)
        p->events = calloc(desc->count, sizeof *p->events);
    if (!p || !p->events) {
        free(p);
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    p->n = desc->count;
    for (uint32_t i = 0; i < p->n; i++)
        p->events[i].device = (struct device *)devices[0];
    ze_counts.n_event_pools++;
    *out = (ze_event_pool_handle_t)p;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t pool_destroy(ze_event_pool_handle_t h) {
    struct pool *p = (struct pool *)h;
    ze_counts.n_event_pools--;
    free(p->events);
    free(p);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t event_create(ze_event_pool_handle_t h, const ze_event_desc_t *desc,
                                ze_event_handle_t *out) {
    struct pool *p = (struct pool *)h;
    ENTER(zeEventCreate, NULL);
    if (desc->index >= p->n)
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    *out = (ze_event_handle_t)&p->events[desc->index];
    return ZE_RESULT_SUCCESS;
}

static ze_result_t event_destroy(ze_event_handle_t h) {
    (void)h;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t event_reset(ze_event_handle_t h) {
    struct event *e = (struct event *)h;
    ENTER(zeEventHostReset, e->device);
    pthread_mutex_lock(&ze_lock);
    for (struct list *l = lists; l; l = l->next)
        for (struct command *c = l->device->lost ? NULL : l->first; c; c = c->next)
            for (uint32_t i = 0; i < c->n_waits; i++)
                if (c->waits[i] == e) {
                    fprintf(stderr, "ze_driver: an event is reset that a list waits for\n");
                    abort();
                }
    e->raised = false;
    e->asked = 0;
    pthread_mutex_unlock(&ze_lock);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t event_query(ze_event_handle_t h) {
    struct event *e = (struct event *)h;
    ENTER(zeEventQueryStatus, e->device);
    pthread_mutex_lock(&ze_lock);
    if (!e->raised && e->asked++)
        run_all();
    ze_result_t result = e->raised         ? ZE_RESULT_SUCCESS
                         : e->device->lost ? ZE_RESULT_ERROR_DEVICE_LOST
                                           : ZE_RESULT_NOT_READY;
    pthread_mutex_unlock(&ze_lock);
    return result;
}

static ze_result_t event_wait(ze_event_handle_t h, uint64_t timeout_ns) {
    struct event *e = (struct event *)h;
    uint64_t waited_ns = 0;
    ENTER(zeEventHostSynchronize, e->device);
    for (;;) {
        pthread_mutex_lock(&ze_lock);
        while (!e->raised && run_all())
            ;
        bool raised = e->raised, lost = !raised && e->device->lost;
        pthread_mutex_unlock(&ze_lock);
        if (raised || lost)
            return raised ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_DEVICE_LOST;
        if (waited_ns >= timeout_ns)
            return ZE_RESULT_NOT_READY;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); /* another thread's work */
        waited_ns += 1000000;
    }
}

void ze_list_table(ze_command_list_dditable_t *t) {
    t->pfnCreateImmediate = create_immediate;
    t->pfnCreate = create_list;
    t->pfnClose = close_list;
    t->pfnAppendEventReset = append_reset;
    t->pfnDestroy = list_destroy;
    t->pfnAppendBarrier = append_barrier;
    t->pfnAppendMemoryCopy = append_copy;
    t->pfnAppendLaunchKernel = append_launch;
}

void ze_queue_table(ze_command_queue_dditable_t *t) {
    t->pfnCreate = create_queue;
    t->pfnDestroy = queue_destroy;
    t->pfnExecuteCommandLists = execute;
}

void ze_pool_table(ze_event_pool_dditable_t *t) {
    t->pfnCreate = pool_create;
    t->pfnDestroy = pool_destroy;
}

void ze_event_table(ze_event_dditable_t *t) {
    t->pfnCreate = event_create;
    t->pfnDestroy = event_destroy;
    t->pfnHostReset = event_reset;
    t->pfnQueryStatus = event_query;
    t->pfnHostSynchronize = event_wait;
}
