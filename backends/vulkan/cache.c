#include "backends/vulkan/cache.h"

#include "common/crc.h"
#include "common/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char magic[8] = "SLVKPC1";

struct header {
    char magic[8];
    struct sl_vk_cache_key key;
    uint32_t bytes, data_crc; /* of the data */
    uint32_t crc;             /* of the header before it */
};

/* What drivers write first. Source: Vulkan 1.3, VkPipelineCacheHeaderVersionOne. */
struct driver_header {
    uint32_t header_bytes, version, vendor, device;
    uint8_t uuid[16];
};
_Static_assert(sizeof(struct driver_header) == 32, "as the driver writes it");

static bool below(const char *folder, const char *under, const struct sl_vk_cache_key *key,
                  char out_path[SL_VK_CACHE_PATH_BYTES]) {
    char base[SL_VK_CACHE_PATH_BYTES - 96];
    struct stat about;
    int n = folder && *folder ? snprintf(base, sizeof base, "%s%s", folder, under) : -1;
    if (n < 0 || (size_t)n >= sizeof base || stat(base, &about) != 0 || !S_ISDIR(about.st_mode))
        return false;
    uint32_t id = sl_crc32c(0, key, sizeof *key);
    snprintf(out_path, SL_VK_CACHE_PATH_BYTES, "%s/sluice/vulkan/%04x-%04x-%08x.bin", base,
             key->vendor, key->device, id);
    return true;
}

bool sl_vk_cache_path(const struct sl_vk_cache_key *key, char out_path[SL_VK_CACHE_PATH_BYTES]) {
    return below(getenv("XDG_CACHE_HOME"), "", key, out_path) ||
           below(getenv("HOME"), "/.cache", key, out_path);
}

static uint32_t header_crc(const struct header *h) {
    return sl_crc32c(0, h, offsetof(struct header, crc));
}

/* What is wrong with a file; NULL: nothing. */
static const char *wrong(const struct header *h, size_t n, const struct sl_vk_cache_key *key,
                         const uint8_t *data) {
    struct driver_header d;
    if (n < sizeof *h || memcmp(h->magic, magic, sizeof magic) != 0 || h->crc != header_crc(h))
        return "it is not one of this program's";
    if (memcmp(&h->key, key, sizeof *key) != 0)
        return "it belongs to other kernels or another driver";
    if (h->bytes != n - sizeof *h || h->bytes < sizeof d ||
        h->data_crc != sl_crc32c(0, data, h->bytes))
        return "it was damaged";
    memcpy(&d, data, sizeof d);
    if (d.header_bytes < sizeof d || d.version != 1 || d.vendor != key->vendor ||
        d.device != key->device || memcmp(d.uuid, key->uuid, sizeof d.uuid) != 0)
        return "what the driver wrote is of another";
    return NULL;
}

/* All of a file, at most max bytes; NULL: it cannot be read. */
static uint8_t *read_all(const char *path, size_t max, size_t *out_bytes) {
    struct stat about;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return NULL;
    uint8_t *bytes = NULL;
    size_t n = 0;
    if (fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && about.st_size >= 0 &&
        (uint64_t)about.st_size <= max)
        bytes = malloc((size_t)about.st_size + 1);
    while (bytes && n < (size_t)about.st_size) {
        ssize_t got = read(fd, bytes + n, (size_t)about.st_size - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    close(fd);
    *out_bytes = n;
    return bytes;
}

void *sl_vk_cache_read(const char *path, const struct sl_vk_cache_key *key, size_t *out_bytes) {
    struct header h = {.bytes = 0};
    size_t n = 0;
    uint8_t *bytes = read_all(path, SL_VK_CACHE_MAX_BYTES + sizeof h, &n);
    struct stat about;
    if (!bytes) { /* no such file, or nothing that this program wrote */
        if (lstat(path, &about) == 0)
            sl_warn("vulkan: compiled kernels in %s are not used: it cannot be read", path);
        return NULL;
    }
    if (n >= sizeof h)
        memcpy(&h, bytes, sizeof h);
    const char *why = wrong(&h, n, key, bytes + sizeof h);
    if (why) {
        sl_warn("vulkan: compiled kernels in %s are thrown away: %s", path, why);
        unlink(path);
        free(bytes);
        return NULL;
    }
    memmove(bytes, bytes + sizeof h, h.bytes);
    *out_bytes = h.bytes;
    return bytes;
}

static bool write_all(int fd, const void *src, size_t n) {
    for (const char *at = src; n;) {
        ssize_t put = write(fd, at, n);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return false;
        at += put;
        n -= (size_t)put;
    }
    return true;
}

/* sluice and vulkan, the last two folders of a path. */
static void make_folders(const char *path) {
    char folder[SL_VK_CACHE_PATH_BYTES];
    snprintf(folder, sizeof folder, "%s", path);
    char *last = strrchr(folder, '/');
    *last = 0;
    char *between = strrchr(folder, '/');
    *between = 0;
    mkdir(folder, 0700); /* one that is there is fine; one that cannot be made shows in open */
    *between = '/';
    mkdir(folder, 0700);
}

void sl_vk_cache_write(const char *path, const struct sl_vk_cache_key *key, const void *data,
                       size_t bytes) {
    char other[SL_VK_CACHE_PATH_BYTES + 16];
    struct header h = {.key = *key};
    if (bytes > SL_VK_CACHE_MAX_BYTES)
        return;
    memcpy(h.magic, magic, sizeof magic);
    h.bytes = (uint32_t)bytes;
    h.data_crc = sl_crc32c(0, data, bytes);
    h.crc = header_crc(&h);
    make_folders(path);
    snprintf(other, sizeof other, "%s.XXXXXX", path);
    int fd = mkostemp(other, O_CLOEXEC);
    bool good = fd >= 0 && write_all(fd, &h, sizeof h) && write_all(fd, data, bytes);
    if (fd >= 0 && close(fd) != 0)
        good = false;
    good = good && rename(other, path) == 0;
    if (!good && fd >= 0)
        unlink(other);
    sl_debug("vulkan: %zu bytes of compiled kernels %s %s", bytes,
             good ? "written to" : "not written to", path);
}
