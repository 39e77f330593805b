/* The CUDA backend's host side over a fake driver: what it says when there is no GPU, what it
 * leaves behind when something fails, and that staging memory is never reused too early. Several
 * GPUs: test_cuda_peers.c; which kernels it launches: test_cuda_kernels.c. */
#include "tests/support/capture.h"
#include "tests/support/device_memory.h"
#include "tests/unit/backends/cuda_fixture.h"

#include "common/metrics.h"
#include "common/rng.h"

#include <sys/mman.h>

static void assert_says(const char *part) {
    if (!strstr(err.text, part))
        fail_msg("\"%s\" does not say \"%s\"", err.text, part);
}

static void no_gpu(void **state) {
    (void)state;
    struct sl_device_found info[2];
    uint32_t n = 77;
    assert_int_equal(sl_cuda_enumerate("/nonexistent/libcuda.so.1", info, 2, &n, &err),
                     SL_ERR_UNSUPPORTED);
    assert_says("no NVIDIA driver here");
    assert_int_equal(sl_cuda_enumerate("libm.so.6", info, 2, &n, &err), SL_ERR_UNSUPPORTED);
    assert_says("has no cuInit: the driver is too old");
    fake->init_result = SL_CU_NO_DEVICE;
    assert_int_equal(sl_cuda_enumerate(driver_path, info, 2, &n, &err), SL_ERR_UNSUPPORTED);
    assert_says("the driver finds no GPU (FAKE_ERROR_100: as the test asked)");
    fake->init_result = CU_UNKNOWN;
    assert_int_equal(sl_cuda_enumerate(driver_path, info, 2, &n, &err), SL_ERR_UNSUPPORTED);
    assert_says("does not start (CUDA error 999)");
    fake->init_result = 0;
    fake->n_devices = 0;
    assert_int_equal(sl_cuda_enumerate(driver_path, info, 2, &n, &err), SL_ERR_UNSUPPORTED);
    assert_says("shows no GPU");
    assert_int_equal(n, 77); /* outputs are set on success only */
}

static void finds(void **state) {
    (void)state;
    struct sl_device_found found[4];
    uint32_t n = 0;
    fake->n_devices = 4;
    fake->cc[1] = 121;
    fake->cc[2] = 61;
    fake->integrated[1] = true;
    memset(found, 0x55, sizeof found);
    if (sl_cuda_enumerate(driver_path, found, 3, &n, &err))
        fail_msg("%s", err.text);
    assert_int_equal(n, 4);
    assert_string_equal(found[0].id, "cuda:0");
    assert_string_equal(found[0].model, "Fake GPU 0, sm_90");
    assert_string_equal(found[1].id, "cuda:1");
    assert_string_equal(found[1].model, "Fake GPU 1, sm_121");
    assert_int_equal(found[0].kind, SL_DEVICE_DISCRETE);
    assert_int_equal(found[1].kind, SL_DEVICE_INTEGRATED);
    assert_int_equal(found[0].memory_bytes, 1 << 30);
    assert_int_equal((unsigned char)found[3].id[0], 0x55); /* beyond max_found */
    /* What cannot be used is there all the same, and says why. */
    if (!sl_cuda_n_images) {
        assert_non_null(strstr(found[0].why_not.text, "made without nvcc"));
        return;
    }
    assert_string_equal(found[0].why_not.text, "");
    assert_non_null(strstr(found[2].why_not.text, "compute capability 6.1; 7.5 is the least"));
    assert_string_equal(found[2].model, "Fake GPU 2, sm_61");
}

/* One that does not answer takes none of the others with it. */
static void finds_others(void **state) {
    (void)state;
    struct sl_device_found found[2];
    uint32_t n = 0;
    fake->n_devices = 2;
    fake->fail_symbol = "cuDeviceTotalMem_v2"; /* of the first */
    fake->fail_result = CU_UNKNOWN;
    if (sl_cuda_enumerate(driver_path, found, 2, &n, &err))
        fail_msg("%s", err.text);
    assert_int_equal(n, 2);
    assert_non_null(strstr(found[0].why_not.text, "cuda:0: CUDA error 999"));
    assert_string_equal(found[1].model, "Fake GPU 1, sm_90");
}

static void no_kernels(void **state) {
    (void)state;
    if (sl_cuda_n_images) {
        print_message("built with nvcc\n");
        skip();
    }
    struct sl_device *d = NULL;
    assert_int_equal(open_gpu(0, 0, &d), SL_ERR_UNSUPPORTED);
    assert_says("made without nvcc");
    assert_null(d);
}

static void unusable(void **state) {
    (void)state;
    need_kernels();
    struct sl_device *d = NULL;
    assert_int_equal(open_gpu(3, 0, &d), SL_ERR_UNSUPPORTED);
    assert_says("cuda:3: there is 1 GPU, numbered from 0");
    fake->cc[0] = 61;
    assert_int_equal(open_gpu(0, 0, &d), SL_ERR_UNSUPPORTED);
    assert_says("Fake GPU 0 has compute capability 6.1; 7.5 is the least");
    fake->cc[0] = 90;
    fake->module_result = SL_CU_NO_BINARY_FOR_GPU;
    assert_int_equal(open_gpu(0, 0, &d), SL_ERR_UNSUPPORTED);
    assert_says("and this is sm 90 with a driver for CUDA 13.0");
    fake->module_result = 0;
    fake->missing_kernel = "sl_k_words"; /* uploads need it */
    assert_int_equal(open_gpu(0, 0, &d), SL_ERR_UNSUPPORTED);
    assert_says("(small) lack sl_k_words");
    assert_null(d);
    assert_int_equal(fake->live_objects, 0);
    assert_int_equal(fake->live_device_bytes, 0);
    assert_int_equal(fake->live_pinned_bytes, 0);
}

static void opens_and_closes(void **state) {
    (void)state;
    need_kernels();
    int64_t device_bytes = sl_metric(device_memory_bytes);
    int64_t pinned_bytes = sl_metric(device_pinned_bytes);
    fake->n_devices = 2;
    fake->integrated[1] = true;
    struct sl_device *d = NULL;
    if (open_gpu(1, 0, &d))
        fail_msg("%s", err.text);
    assert_string_equal(d->caps.name, "cuda:1: Fake GPU 1, sm_90");
    assert_false(d->caps.host_visible);
    assert_int_equal(d->caps.memory_bytes, 1 << 30);
    assert_int_equal(d->caps.held_bytes, fake->live_device_bytes);
    assert_int_equal(d->caps.kind, SL_DEVICE_INTEGRATED);
    assert_true(d->caps.mapped_host && d->caps.graphs);
    assert_string_equal(d->caps.id, "cuda:1");
    assert_string_equal(d->caps.model, "Fake GPU 1, sm_90");
    assert_string_equal(d->caps.arithmetic_id, "cuda: Fake GPU 1, sm_90"); /* whichever number */
    assert_int_equal(d->caps.arithmetic, 0);
    assert_int_equal(d->caps.subgroup_width, 32);
    assert_true(d->caps.shared_bytes >= 48 << 10);
    assert_true(d->caps.fused_ops >> SL_FUSED_moe_sum & 1);
    struct sl_device_limits limits = {.max_tok = 16, .max_n_in = 256};
    if (sl_device_configure(d, &limits, &err))
        fail_msg("%s", err.text);
    limits.max_tok = 32; /* again: the old scratch goes */
    if (sl_device_configure(d, &limits, &err))
        fail_msg("%s", err.text);
    /* Counted by kind, and what is counted is what the driver gave. */
    assert_int_equal(sl_metric(device_memory_bytes) - device_bytes, fake->live_device_bytes);
    assert_int_equal(sl_metric(device_pinned_bytes) - pinned_bytes, fake->live_pinned_bytes);
    assert_int_equal(d->own_bytes, fake->live_device_bytes);
    sl_device_close(&d);
    assert_null(d);
    assert_int_equal(fake->live_objects, 0);
    assert_int_equal(fake->live_device_bytes, 0);
    assert_int_equal(fake->live_pinned_bytes, 0);
    assert_int_equal(sl_metric(device_memory_bytes), device_bytes);
    assert_int_equal(sl_metric(device_pinned_bytes), pinned_bytes);
    assert_false(fake->misused);
}

/* Every call of opening fails in turn: opening fails with a text and leaves nothing behind. */
static void failing_open(void **state) {
    need_kernels();
    static const int results[] = {SL_CU_OUT_OF_MEMORY, CU_UNKNOWN};
    for (size_t r = 0; r < 2; r++)
        for (uint64_t k = 1;; k++) {
            reset(state);
            fake->fail_at = k;
            fake->fail_result = results[r];
            struct sl_device *d = NULL;
            enum sl_status status = open_gpu(0, 0, &d);
            if (!status) {
                bool all = fake->n_calls < k;
                fake->fail_at = 0;
                sl_device_close(&d);
                if (all)
                    break;
                continue; /* the driver's version alone may be missing */
            }
            assert_null(d);
            assert_true(strlen(err.text) > 10);
            assert_int_equal(fake->live_objects, 0);
            assert_int_equal(fake->live_pinned_bytes, 0);
            /* A device that answers with an unknown error is given up with its memory. */
            if (results[r] == SL_CU_OUT_OF_MEMORY)
                assert_int_equal(fake->live_device_bytes, 0);
            assert_true(k < 1000);
        }
}

static void copies(void **state) {
    (void)state;
    need_kernels();
    struct sl_device *d = opened(1); /* the smallest stage there is */
    struct sl_gpu *c = (struct sl_gpu *)d;
    uint32_t segment = c->staging.segment_bytes;
    assert_int_equal(segment, 256 << 10);
    const size_t sizes[] = {1,           3,           255,         256,
                            segment - 1, segment,     segment + 1, 4 * (size_t)segment,
                            5,           2 * segment, 1234567,     9 * (size_t)segment + 77};
    struct sl_rng rng = {1};
    enum { N = 12 };
    unsigned char *data[N], *back = malloc(9 * (size_t)segment + 77);
    void *addr[N];
    int64_t waits = sl_metric(device_stage_waits_total);
    for (size_t i = 0; i < N; i++) {
        data[i] = malloc(sizes[i]);
        for (size_t j = 0; j < sizes[i]; j++)
            data[i][j] = (unsigned char)sl_rng_u64(&rng);
        assert_int_equal(mem_alloc(d, sizes[i], &addr[i]), SL_OK);
        assert_int_equal(mem_upload(d, addr[i], data[i], sizes[i]), SL_OK);
        data[i][0] ^= 0xff; /* the source is the caller's again */
        data[i][0] ^= 0xff;
    }
    assert_true(sl_metric(device_stage_waits_total) > waits); /* it was full, and waited */
    /* and took no more memory */
    assert_int_equal(fake->live_pinned_bytes, 4 * segment + SL_GPU_WORDS_BYTES);
    for (size_t i = 0; i < N; i++) {
        memset(back, 0, sizes[i]);
        assert_int_equal(mem_download(d, back, addr[i], sizes[i]), SL_OK);
        assert_memory_equal(back, data[i], sizes[i]);
        mem_free(d, addr[i]);
        free(data[i]);
    }
    free(back);
    assert_false(fake->misused);
    sl_device_close(&d);
}

/* Thousands of small uploads and pushes between waits: none overtakes another. */
static void many_small(void **state) {
    (void)state;
    need_kernels();
    struct sl_device *d = opened(1);
    struct sl_gpu *c = (struct sl_gpu *)d;
    enum { N = 20000, BYTES = 40 };
    struct sl_rng rng = {2};
    char *expected = malloc((size_t)N * BYTES), *back = malloc((size_t)N * BYTES);
    void *addr;
    assert_int_equal(mem_alloc(d, (size_t)N * BYTES, &addr), SL_OK);
    for (uint32_t i = 0; i < N; i++) {
        char one[BYTES];
        for (int j = 0; j < BYTES; j++)
            one[j] = (char)sl_rng_u64(&rng);
        memcpy(expected + (size_t)i * BYTES, one, BYTES);
        assert_int_equal(mem_upload(d, (char *)addr + (size_t)i * BYTES, one, BYTES), SL_OK);
        memset(one, 0, BYTES);
        if (i % 1000 == 0) { /* a push in between is read back from where it says */
            char table[5000], seen[5000];
            for (size_t j = 0; j < sizeof table; j++)
                table[j] = (char)sl_rng_u64(&rng);
            const void *at = NULL;
            assert_int_equal(sl_gpu_push(c, table, 1 + i / 5, &at), SL_OK);
            assert_int_equal((uintptr_t)at % 256, 0);
            /* Its place is no buffer's: read as the driver does. */
            const struct sl_buffer stage = {
                .device = d, .bytes = sizeof seen, .addr = (void *)(uintptr_t)at};
            assert_int_equal(sl_device_download(d, seen, sl_span(&stage, 0, 1 + i / 5)), SL_OK);
            assert_memory_equal(seen, table, 1 + i / 5);
        }
    }
    assert_int_equal(mem_download(d, back, addr, (size_t)N * BYTES), SL_OK);
    assert_memory_equal(back, expected, (size_t)N * BYTES);
    free(expected);
    free(back);
    char *large = calloc(1, c->staging.segment_bytes + 1);
    const void *at;
    assert_int_equal(sl_gpu_push(c, large, c->staging.segment_bytes, &at), SL_OK);
    assert_int_equal(sl_gpu_push(c, large, c->staging.segment_bytes + 1, &at), SL_ERR_INVALID);
    free(large);
    mem_free(d, addr);
    assert_false(fake->misused);
    sl_device_close(&d);
}

static void launches(void **state) {
    (void)state;
    need_kernels();
    struct sl_device *d = opened(0);
    struct sl_gpu *c = (struct sl_gpu *)d;
    void *addr;
    uint32_t back[1000];
    assert_int_equal(mem_alloc(d, sizeof back, &addr), SL_OK);
    uint64_t first = fake->n_launches;
    struct sl_karg_fill a = {.dst = addr, .n = 1000, .value = 0xabcd1234};
    const struct sl_dim3 grid = {4, 1, 1}, block = {256, 1, 1};
    assert_int_equal(sl_gpu_launch(c, SL_KERNEL_fill, grid, block, 0, &a, sizeof a), SL_OK);
    a.value = 0; /* copied by the launch */
    assert_int_equal(mem_download(d, back, addr, sizeof back), SL_OK);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(back[i], 0xabcd1234);
    const struct fake_cuda_launch *l = &fake->launch[first];
    assert_string_equal(l->kernel, "sl_k_fill");
    assert_int_equal(l->grid[0], 4);
    assert_int_equal(l->block[0], 256);
    assert_int_equal(l->args_bytes, sizeof a);

    /* Above 48 KiB shared memory is asked for, once; above what there is, refused here. */
    const struct sl_dim3 wide = {3, 5, 7}, tile = {32, 4, 2};
    assert_int_equal(sl_gpu_launch(c, SL_KERNEL_fill, wide, tile, 100000, &a, sizeof a), SL_OK);
    l = &fake->launch[first + 1];
    assert_int_equal(l->grid[1] * 10 + l->grid[2], 57);
    assert_int_equal(l->block[1] * 10 + l->block[2], 42);
    assert_int_equal(l->smem_bytes, 100000);
    uint64_t calls = fake->n_calls;
    assert_int_equal(sl_gpu_launch(c, SL_KERNEL_fill, wide, tile, 99999, &a, sizeof a), SL_OK);
    assert_int_equal(fake->n_calls - calls, 2); /* the context, the launch */
    assert_int_equal(sl_gpu_launch(c, SL_KERNEL_fill, wide, tile, 232449, &a, sizeof a),
                     SL_ERR_UNSUPPORTED);
    /* What the driver refuses leaves the device in use. */
    const struct sl_dim3 huge = {2048, 1, 1};
    assert_int_equal(sl_gpu_launch(c, SL_KERNEL_fill, grid, huge, 0, &a, sizeof a), SL_ERR_INVALID);
    assert_int_equal(sl_device_sync(d), SL_OK);
    mem_free(d, addr);
    assert_false(fake->misused);
    sl_device_close(&d);
}

/* A few whole words are carried by a kernel, up from the stage and down to mapped memory; the rest
 * by the copy engine. */
static void words(void **state) {
    (void)state;
    need_kernels();
    struct sl_device *d = opened(0);
    size_t page = 4096;
    uint32_t *host = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint32_t sent[1024];
    void *addr, *mapped;
    for (uint32_t i = 0; i < 1024; i++)
        sent[i] = 7 * i + 1;
    assert_int_equal(mem_map_host(d, host, page, &mapped), SL_OK);
    assert_int_equal(mem_alloc(d, sizeof sent, &addr), SL_OK);
    static const struct {
        size_t at, bytes;
        bool up, down; /* by a kernel? */
    } cases[] = {{0, 4, true, true},
                 {8, SL_MAILBOX_MAX_BYTES, true, true},
                 {0, 3, false, false},
                 {2, 8, false, false},
                 {0, sizeof sent, true, true}};
    /* While a model is loaded, nothing is launched for it. */
    uint64_t before = fake->n_launches;
    assert_int_equal(mem_upload(d, addr, sent, 4), SL_OK);
    assert_int_equal(fake->n_launches, before);
    const struct sl_op_silu_mul op = {addr, addr, addr, 1};
    assert_int_equal(sl_op_silu_mul(d, &op), SL_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t at = cases[i].at, bytes = cases[i].bytes;
        uint64_t launches = fake->n_launches, copies = fake->n_to_device;
        memset(host, 0, page);
        assert_int_equal(mem_upload(d, (char *)addr + at, (char *)sent + at, bytes), SL_OK);
        assert_int_equal(fake->n_launches - launches, cases[i].up);
        assert_int_equal(fake->n_to_device - copies, !cases[i].up);
        launches = fake->n_launches;
        assert_int_equal(mem_copy(d, SL_QUEUE_OPS, (char *)host + at, (char *)addr + at, bytes),
                         SL_OK);
        assert_int_equal(fake->n_launches - launches, cases[i].down);
        assert_int_equal(sl_device_sync(d), SL_OK);
        assert_memory_equal((char *)host + at, (char *)sent + at, bytes);
    }
    /* What is uploaded may be read as soon as a kernel runs, so the next one starts after it. */
    static const bool early[] = {true, false, true, true}; /* an upload, three ops */
    ((struct sl_gpu *)d)->early_start = true;              /* also without kernels that may */
    uint64_t first = fake->n_launches;
    assert_int_equal(mem_upload(d, addr, sent, 4), SL_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(sl_op_silu_mul(d, &op), SL_OK);
    for (uint64_t i = 0; i < 4; i++)
        assert_int_equal(fake->launch[(first + i) % FAKE_CUDA_MAX_LAUNCHES].early, early[i]);
    /* Ops that were recorded for a graph that came to nothing did not follow the upload. */
    struct sl_graph *graph = NULL;
    assert_int_equal(mem_upload(d, addr, sent, 4), SL_OK);
    assert_int_equal(sl_device_record(d), SL_OK);
    assert_int_equal(sl_op_silu_mul(d, &op), SL_OK);
    fake->fail_symbol = "cuGraphInstantiateWithFlags";
    fake->fail_result = SL_CU_OUT_OF_MEMORY;
    assert_int_equal(sl_device_recorded(d, &graph), SL_ERR_DEVICE_OOM);
    first = fake->n_launches;
    assert_int_equal(sl_op_silu_mul(d, &op), SL_OK);
    assert_false(fake->launch[first % FAKE_CUDA_MAX_LAUNCHES].early);
    assert_int_equal(sl_device_sync(d), SL_OK);
    /* Only the queue of the ops has kernels. */
    uint64_t launches = fake->n_launches;
    assert_int_equal(mem_copy(d, SL_QUEUE_DOWN, host, addr, 16), SL_OK);
    assert_int_equal(fake->n_launches, launches);
    mem_free(d, addr);
    mem_unmap_host(d, host);
    munmap(host, page);
    assert_false(fake->misused);
    sl_device_close(&d);
}

static void out_of_memory(void **state) {
    (void)state;
    need_kernels();
    struct sl_device *d = opened(0);
    int64_t device_bytes = sl_metric(device_memory_bytes);
    void *addr = &err;
    assert_int_equal(mem_alloc(d, (size_t)2 << 30, &addr), SL_ERR_DEVICE_OOM);
    assert_ptr_equal(addr, &err);
    assert_int_equal(sl_metric(device_memory_bytes), device_bytes);
    /* Still in use. */
    assert_int_equal(mem_alloc(d, 1000, &addr), SL_OK);
    mem_free(d, addr);
    /* Scratch that does not fit says how much was wanted, and the old one stays. */
    struct sl_device_limits limits = {.max_tok = 8, .max_n_in = 256};
    if (sl_device_configure(d, &limits, &err))
        fail_msg("%s", err.text);
    void *scratch = ((struct sl_gpu *)d)->scratch;
    fake->fail_symbol = "cuMemAlloc_v2";
    fake->fail_result = SL_CU_OUT_OF_MEMORY;
    assert_int_equal(sl_device_configure(d, &limits, &err), SL_ERR_DEVICE_OOM);
    assert_says("MiB of scratch");
    assert_ptr_equal(((struct sl_gpu *)d)->scratch, scratch);
    sl_device_close(&d);
    assert_int_equal(fake->live_device_bytes, 0);
}

/* After a fault every call is refused at once, without the driver, and closing still works. */
static void check_lost(struct sl_device *d) {
    struct sl_gpu *c = (struct sl_gpu *)d;
    uint64_t calls = fake->n_calls;
    char byte = 1;
    void *addr = &byte;
    const void *at;
    struct sl_karg_fill a = {0};
    const struct sl_dim3 one = {1, 1, 1};
    assert_int_equal(sl_device_sync(d), SL_ERR_DEVICE_LOST);
    assert_int_equal(mem_alloc(d, 1, &addr), SL_ERR_DEVICE_LOST);
    const struct sl_buffer b = {.device = d, .bytes = 1, .addr = c->counters};
    assert_int_equal(sl_device_upload(d, sl_span_all(&b), &byte), SL_ERR_DEVICE_LOST);
    assert_int_equal(sl_device_download(d, &byte, sl_span_all(&b)), SL_ERR_DEVICE_LOST);
    assert_int_equal(sl_gpu_push(c, &byte, 1, &at), SL_ERR_DEVICE_LOST);
    assert_int_equal(sl_gpu_launch(c, SL_KERNEL_fill, one, one, 0, &a, sizeof a),
                     SL_ERR_DEVICE_LOST);
    assert_int_equal(fake->n_calls, calls);
    sl_device_close(&d);
    assert_int_equal(fake->live_objects, 0);
}

static void lost(void **state) {
    need_kernels();
    static const char *const where[] = {"cuLaunchKernel", "cuMemcpyHtoDAsync_v2",
                                        "cuMemcpyDtoHAsync_v2", "cuStreamSynchronize",
                                        "cuMemAlloc_v2"};
    for (size_t i = 0; i < sizeof where / sizeof where[0]; i++) {
        reset(state);
        struct sl_device *d = opened(0);
        struct sl_gpu *c = (struct sl_gpu *)d;
        void *addr;
        char bytes[64] = {0};
        assert_int_equal(mem_alloc(d, sizeof bytes, &addr), SL_OK);
        struct sl_karg_fill a = {.dst = addr, .n = 16, .value = 1};
        const struct sl_dim3 one = {1, 1, 1}, block = {32, 1, 1};
        fake->fail_symbol = where[i];
        fake->fail_result = CU_ILLEGAL_ADDRESS;
        fake->sticky = true;
        enum sl_status status =
            i == 0   ? sl_gpu_launch(c, SL_KERNEL_fill, one, block, 0, &a, sizeof a)
            : i == 1 ? mem_upload(d, addr, bytes, sizeof bytes - 1) /* no whole words */
            : i == 2 ? mem_download(d, bytes, addr, sizeof bytes)
            : i == 3 ? sl_device_sync(d)
                     : mem_alloc(d, 64, &addr);
        assert_int_equal(status, SL_ERR_DEVICE_LOST);
        check_lost(d);
    }
}

/* A kernel that faults is seen where somebody waits, and what it was to write is not handed out. */
static void kernel_fault(void **state) {
    (void)state;
    need_kernels();
    struct sl_device *d = opened(0);
    void *addr;
    uint32_t back = 5;
    assert_int_equal(mem_alloc(d, 4, &addr), SL_OK);
    struct sl_karg_fill a = {.dst = addr, .n = 1, .value = 1};
    const struct sl_dim3 one = {1, 1, 1};
    fake->kernel_fault = CU_ILLEGAL_ADDRESS;
    assert_int_equal(sl_gpu_launch((struct sl_gpu *)d, SL_KERNEL_fill, one, one, 0, &a, sizeof a),
                     SL_OK);
    assert_int_equal(mem_download(d, &back, addr, 4), SL_ERR_DEVICE_LOST);
    assert_int_equal(back, 5);
    check_lost(d);
}

static void *pages(size_t bytes) {
    void *p = aligned_alloc(4096, bytes);
    assert_non_null(p);
    memset(p, 0, bytes);
    return p;
}

/* Mapped memory is registered in pieces of 1 GiB, which no copy of the driver's may cross. */
static void copies_over_pieces(void **state) {
    (void)state;
    need_kernels();
    struct sl_device *d = opened(0);
    size_t piece = (size_t)1 << 30, bytes = piece + 8192;
    char *host = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    char back[64], sent[64];
    void *seen, *dev;
    assert_true(host != MAP_FAILED);
    assert_int_equal(mem_map_host(d, host, bytes, &seen), SL_OK);
    assert_int_equal(mem_alloc(d, sizeof sent, &dev), SL_OK);
    for (uint32_t i = 0; i < sizeof sent; i++)
        host[piece - 24 + i] = sent[i] = (char)(i * 7 + 1);
    assert_int_equal(mem_copy(d, SL_QUEUE_UP, dev, host + piece - 24, sizeof sent), SL_OK);
    assert_int_equal(sl_device_sync(d), SL_OK);
    assert_int_equal(mem_download(d, back, dev, sizeof back), SL_OK);
    assert_memory_equal(back, sent, sizeof back);
    memset(host + piece - 24, 0, sizeof sent);
    assert_int_equal(mem_copy(d, SL_QUEUE_DOWN, host + piece - 24, dev, sizeof sent), SL_OK);
    assert_int_equal(sl_device_sync(d), SL_OK);
    assert_memory_equal(host + piece - 24, sent, sizeof sent);
    assert_false(fake->misused);
    mem_unmap_host(d, host);
    munmap(host, bytes);
    mem_free(d, dev);
    sl_device_close(&d);
}

/* Copies that overlap the ops, and who waits for whom. */
static void queues(void **state) {
    (void)state;
    need_kernels();
    struct sl_device *d = opened(0);
    uint32_t *host = pages(8192), *mapped = NULL, *dev = NULL;
    void *addr = NULL, *seen = NULL;
    assert_int_equal(mem_map_host(d, host, 8192, &seen), SL_OK);
    mapped = seen;
    assert_ptr_not_equal(mapped, host); /* the fake's device sees it elsewhere */
    assert_int_equal(sl_metric(device_mapped_bytes), 8192);
    assert_int_equal(mem_map_host(d, host, 4096, &seen), SL_ERR_INVALID); /* already */
    assert_int_equal(mem_map_host(d, (char *)host + 1, 4096, &seen), SL_ERR_INVALID);
    assert_int_equal(mem_map_host(d, host, 100, &seen), SL_ERR_INVALID);
    assert_int_equal(mem_alloc(d, 64, &addr), SL_OK);
    dev = addr;

    /* Up, a kernel after that, down after that: nobody waits until the end. */
    sl_point up, ops, down;
    uint64_t waits = fake->n_waits;
    host[0] = 7, host[1] = 8, host[2] = 0;
    assert_int_equal(mem_copy(d, SL_QUEUE_UP, dev, host, 8), SL_OK);
    assert_int_equal(sl_device_mark(d, SL_QUEUE_UP, &up), SL_OK);
    assert_int_equal(sl_device_passed(d, SL_QUEUE_UP, up), SL_AGAIN);
    assert_int_equal(sl_device_after(d, SL_QUEUE_OPS, SL_QUEUE_UP, up), SL_OK);
    fill(d, dev, 9); /* over what came up */
    assert_int_equal(sl_device_mark(d, SL_QUEUE_OPS, &ops), SL_OK);
    assert_int_equal(sl_device_after(d, SL_QUEUE_DOWN, SL_QUEUE_OPS, ops), SL_OK);
    assert_int_equal(mem_copy(d, SL_QUEUE_DOWN, host + 2, dev, 8), SL_OK);
    assert_int_equal(sl_device_mark(d, SL_QUEUE_DOWN, &down), SL_OK);
    assert_int_equal(fake->n_waits, waits);
    assert_int_equal(sl_device_passed(d, SL_QUEUE_DOWN, down), SL_AGAIN);
    assert_int_equal(sl_device_await(d, SL_QUEUE_DOWN, down), SL_OK);
    assert_int_equal(host[2], 9);
    assert_int_equal(host[3], 8);
    for (int q = 0; q < SL_QUEUES; q++)
        assert_int_equal(sl_device_passed(d, (enum sl_queue)q, 1), SL_OK);
    /* A kernel takes mapped memory's address, a copy within the device both of its own. */
    fill(d, mapped, 77);
    assert_int_equal(mem_copy(d, SL_QUEUE_OPS, dev + 4, dev, 4), SL_OK);
    assert_int_equal(sl_device_sync(d), SL_OK);
    assert_int_equal(host[0], 77);
    /* 0 has always passed; what was never marked is a mistake, as is a queue that is none. */
    assert_int_equal(sl_device_passed(d, SL_QUEUE_UP, 0), SL_OK);
    assert_int_equal(sl_device_passed(d, SL_QUEUE_UP, up + 1), SL_ERR_INVALID);
    assert_int_equal(sl_device_await(d, SL_QUEUES, 0), SL_ERR_INVALID);
    assert_int_equal(mem_copy(d, SL_QUEUE_UP, NULL, host, 8), SL_ERR_INVALID);
    assert_false(fake->misused);

    /* Memory that is not mapped cannot be named. */
    uint32_t loose = 1;
    assert_int_equal(mem_copy(d, SL_QUEUE_UP, dev, &loose, 4), SL_ERR_INVALID);
    fake->misused = false;
    mem_unmap_host(d, host);
    assert_int_equal(sl_metric(device_mapped_bytes), 0);
    assert_int_equal(fake->live_mapped_bytes, 0);
    free(host);
    mem_free(d, addr);
    sl_device_close(&d);
    assert_int_equal(fake->live_objects, 0);
    assert_false(fake->misused);
}

/* More points than events: marking waits for the oldest, and none is mistaken for another. */
static void points(void **state) {
    (void)state;
    need_kernels();
    struct sl_device *d = opened(0);
    void *addr;
    enum { N = 3 * SL_QUEUE_POINTS + 5 };
    static sl_point point[N];
    assert_int_equal(mem_alloc(d, 4, &addr), SL_OK);
    int64_t objects = fake->live_objects;
    for (uint32_t i = 0; i < N; i++) {
        fill(d, addr, i);
        assert_int_equal(sl_device_mark(d, SL_QUEUE_OPS, &point[i]), SL_OK);
        if (i >= SL_QUEUE_POINTS)
            assert_int_equal(sl_device_passed(d, SL_QUEUE_OPS, point[i - SL_QUEUE_POINTS]), SL_OK);
        assert_int_equal(sl_device_passed(d, SL_QUEUE_OPS, point[i]), SL_AGAIN);
    }
    assert_int_equal(fake->live_objects - objects, SL_QUEUE_POINTS); /* bounded */
    assert_int_equal(sl_device_await(d, SL_QUEUE_OPS, point[N - 3]), SL_OK);
    assert_int_equal(sl_device_passed(d, SL_QUEUE_OPS, point[N - 2]), SL_AGAIN);
    assert_int_equal(sl_device_passed(d, SL_QUEUE_OPS, point[0]), SL_OK);
    mem_free(d, addr);
    sl_device_close(&d);
    assert_int_equal(fake->live_objects, 0);
    assert_false(fake->misused);
}

/* Mapping that fails half way leaves nothing registered. */
static void mapping_fails(void **state) {
    need_kernels();
    static const struct {
        const char *symbol;
        int result;
        enum sl_status status;
    } cases[] = {{"cuMemHostRegister_v2", SL_CU_OUT_OF_MEMORY, SL_ERR_NOMEM},
                 {"cuMemHostGetDevicePointer_v2", CU_UNKNOWN, SL_ERR_DEVICE_LOST}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        reset(state);
        struct sl_device *d = opened(0);
        void *host = pages(4096), *addr = &err;
        int64_t mapped = sl_metric(device_mapped_bytes);
        fake->fail_symbol = cases[i].symbol;
        fake->fail_result = cases[i].result;
        assert_int_equal(mem_map_host(d, host, 4096, &addr), cases[i].status);
        assert_ptr_equal(addr, &err);
        assert_int_equal(sl_metric(device_mapped_bytes), mapped);
        if (i == 0)
            assert_int_equal(fake->live_mapped_bytes, 0);
        sl_device_close(&d);
        free(host);
    }
    reset(state);
    fake->cannot_map = true;
    struct sl_device *d = opened(0);
    void *host = pages(4096), *addr;
    assert_false(d->caps.mapped_host);
    assert_int_equal(mem_map_host(d, host, 4096, &addr), SL_ERR_UNSUPPORTED);
    assert_int_equal(fake->n_mapped, 0);
    sl_device_close(&d);
    free(host);
}

static void graphs(void **state) {
    (void)state;
    need_kernels();
    struct sl_device *d = opened(0);
    uint32_t *host = pages(4096), back[2];
    struct sl_graph *graph = NULL;
    sl_point point;
    void *addr, *mapped;
    assert_int_equal(mem_alloc(d, 8, &addr), SL_OK);
    assert_int_equal(mem_map_host(d, host, 4096, &mapped), SL_OK);
    assert_int_equal(sl_device_recorded(d, &graph), SL_ERR_INVALID);
    assert_int_equal(sl_device_replay(d, NULL), SL_ERR_INVALID);
    fill(d, addr, 1);
    host[1] = 2;
    assert_int_equal(sl_device_record(d), SL_OK);
    assert_int_equal(sl_device_record(d), SL_ERR_INVALID);
    assert_int_equal(mem_copy(d, SL_QUEUE_OPS, addr, host + 1, 4), SL_OK);
    assert_int_equal(mem_copy(d, SL_QUEUE_OPS, (char *)addr + 4, host, 4), SL_OK);
    /* What would wait for kept ops, or lie among them, is refused, and spoils nothing. */
    uint64_t calls = fake->n_calls;
    assert_int_equal(mem_upload(d, addr, back, 4), SL_ERR_INVALID);
    assert_int_equal(mem_download(d, back, addr, 4), SL_ERR_INVALID);
    assert_int_equal(sl_device_sync(d), SL_ERR_INVALID);
    assert_int_equal(sl_device_mark(d, SL_QUEUE_OPS, &point), SL_ERR_INVALID);
    assert_int_equal(sl_device_after(d, SL_QUEUE_OPS, SL_QUEUE_UP, 0), SL_ERR_INVALID);
    assert_int_equal(sl_device_replay(d, (struct sl_graph *)&err), SL_ERR_INVALID);
    assert_int_equal(fake->n_calls, calls);
    assert_int_equal(sl_device_mark(d, SL_QUEUE_UP, &point), SL_OK); /* another queue is free */
    assert_int_equal(sl_device_recorded(d, &graph), SL_OK);
    assert_int_equal(mem_download(d, back, addr, 8), SL_OK);
    assert_int_equal(back[0], 1); /* kept, not run */
    for (uint32_t i = 10; i < 13; i++) {
        host[0] = i; /* read by the replay */
        fill(d, addr, 5);
        assert_int_equal(sl_device_replay(d, graph), SL_OK);
        assert_int_equal(mem_download(d, back, addr, 8), SL_OK);
        assert_int_equal(back[0], 2);
        assert_int_equal(back[1], i);
    }
    sl_graph_free(d, &graph);
    assert_null(graph);
    sl_graph_free(d, &graph);

    /* Dropped; spoiled on the way; and no memory for it: the device is as it was. */
    assert_int_equal(sl_device_record(d), SL_OK);
    assert_int_equal(mem_copy(d, SL_QUEUE_OPS, addr, host, 4), SL_OK);
    assert_int_equal(sl_device_recorded(d, NULL), SL_OK);
    static const struct {
        const char *symbol;
        int result;
        enum sl_status status;
    } cases[] = {{"cuMemcpyHtoDAsync_v2", SL_CU_OUT_OF_MEMORY, SL_ERR_DEVICE_OOM},
                 {"cuStreamEndCapture", SL_CU_CAPTURE_FIRST + 1, SL_ERR_INVALID},
                 {"cuGraphInstantiateWithFlags", SL_CU_OUT_OF_MEMORY, SL_ERR_DEVICE_OOM}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(sl_device_record(d), SL_OK);
        assert_int_equal(mem_copy(d, SL_QUEUE_OPS, addr, host, 3), SL_OK); /* no whole words */
        fake->fail_symbol = cases[i].symbol;
        fake->fail_result = cases[i].result;
        assert_int_equal(sl_device_recorded(d, &graph), cases[i].status);
        assert_null(graph);
    }
    assert_int_equal(mem_download(d, back, addr, 4), SL_OK);
    assert_int_equal(back[0], 2);
    mem_unmap_host(d, host);
    mem_free(d, addr);
    free(host);
    sl_device_close(&d);
    assert_int_equal(fake->live_objects, 0);
    assert_false(fake->misused);
}

static void free_memory(void **state) {
    (void)state;
    need_kernels();
    struct sl_device *d = opened(0);
    uint64_t free_bytes, total_bytes;
    assert_int_equal(sl_device_memory(d, &free_bytes, &total_bytes), SL_OK);
    assert_int_equal(total_bytes, fake->memory_bytes[0]);
    assert_int_equal(free_bytes, fake->memory_bytes[0] - (size_t)fake->live_device_bytes);
    sl_device_close(&d);
}

/* What opening a GPU of this compute capability logs. */
static void opening_says(uint32_t cc, char *said, size_t size) {
    fake->cc[0] = (int)cc;
    struct sl_device *d = NULL;
    struct capture c = capture_begin(stderr);
    enum sl_status status = open_gpu(0, 0, &d);
    sl_device_close(&d);
    FILE *kept = capture_end(&c);
    said[fread(said, 1, size - 1, kept)] = '\0';
    fclose(kept);
    assert_int_equal(status, SL_OK);
}

static void kernels_of_another_generation(void **state) {
    (void)state;
    char said[1024];
    need_kernels();
    opening_says((uint32_t)strtoul(sl_cuda_image_archs, NULL, 10), said, sizeof said);
    assert_null(strstr(said, "CUDA_ARCHS"));
    opening_says(255, said, sizeof said);
    assert_non_null(strstr(said, "not for sm_255"));
    assert_non_null(strstr(said, "CUDA_ARCHS=255"));
}

static void memory_rate(void **state) {
    (void)state;
    need_kernels();
    struct sl_device *d = opened(0);
    assert_true(d->caps.memory_bytes_per_s == UINT64_C(1024000000000));
    sl_device_close(&d);
    fake->no_memory_rate = true;
    d = opened(0);
    assert_int_equal(d->caps.memory_bytes_per_s, 0);
    sl_device_close(&d);
}

int main(int argc, char **argv) {
    (void)argc;
    if (!find_driver(argv[0]))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(no_gpu, reset),
        cmocka_unit_test_setup(finds, reset),
        cmocka_unit_test_setup(finds_others, reset),
        cmocka_unit_test_setup(no_kernels, reset),
        cmocka_unit_test_setup(unusable, reset),
        cmocka_unit_test_setup(opens_and_closes, reset),
        cmocka_unit_test_setup(failing_open, reset),
        cmocka_unit_test_setup(copies, reset),
        cmocka_unit_test_setup(many_small, reset),
        cmocka_unit_test_setup(launches, reset),
        cmocka_unit_test_setup(words, reset),
        cmocka_unit_test_setup(out_of_memory, reset),
        cmocka_unit_test_setup(lost, reset),
        cmocka_unit_test_setup(kernel_fault, reset),
        cmocka_unit_test_setup(copies_over_pieces, reset),
        cmocka_unit_test_setup(queues, reset),
        cmocka_unit_test_setup(points, reset),
        cmocka_unit_test_setup(mapping_fails, reset),
        cmocka_unit_test_setup(graphs, reset),
        cmocka_unit_test_setup(free_memory, reset),
        cmocka_unit_test_setup(kernels_of_another_generation, reset),
        cmocka_unit_test_setup(memory_rate, reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
