#include "engine/forward/arithmetic.h"

#include "common/version.h"

#include <gnu/libc-version.h>
#include <string.h>
#include <sys/stat.h>

static void add_u64(struct sl_siphash *h, uint64_t v) {
    sl_siphash_add(h, &v, sizeof v);
}

static void add_text(struct sl_siphash *h, const char *text) {
    sl_siphash_add(h, text, strlen(text) + 1);
}

static void add_program(struct sl_siphash *h) {
    struct stat about;
    add_text(h, SL_VERSION);
    if (stat("/proc/self/exe", &about) != 0)
        return;
    add_u64(h, (uint64_t)about.st_size);
    add_u64(h, (uint64_t)about.st_mtim.tv_sec);
    add_u64(h, (uint64_t)about.st_mtim.tv_nsec);
}

struct sl_hash128 sl_arithmetic_hash(const struct sl_device *dev) {
    struct sl_siphash h;
    sl_siphash_init(&h, (struct sl_hash128){UINT64_C(0x736c756963652d61), 1});
    add_text(&h, dev->caps.arithmetic_id);
    add_u64(&h, dev->caps.arithmetic);
    add_text(&h, gnu_get_libc_version());
    if (!dev->caps.arithmetic)
        add_program(&h);
    return sl_siphash_end(&h);
}

bool sl_devices_alike(const struct sl_device *a, const struct sl_device *b) {
    return a->caps.arithmetic == b->caps.arithmetic &&
           strcmp(a->caps.arithmetic_id, b->caps.arithmetic_id) == 0;
}
