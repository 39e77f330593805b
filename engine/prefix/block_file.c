#include "engine/prefix/block_file.h"

#include <string.h>

#define VERSION 1u

struct head {
    char magic[8];
    uint32_t version, head_bytes;
    struct sl_hash128 root, key, parent;
    uint64_t payload_bytes;
    uint32_t n_ids, zero;
    uint32_t ids[SL_KV_PAGE_TOKENS];
    uint8_t zeros[160];
    struct sl_hash128 check;
};
_Static_assert(offsetof(struct head, key) == SL_BLOCK_KEY_AT, "the head's layout is the file's");
_Static_assert(sizeof(struct head) == SL_BLOCK_HEAD_BYTES, "the head's layout is the file's");

static struct head make_head(uint64_t payload_bytes, const struct sl_block_id *id) {
    struct head h = {.magic = SL_BLOCK_MARK, /* without its NUL */
                     .version = VERSION,
                     .head_bytes = SL_BLOCK_HEAD_BYTES,
                     .root = id->root,
                     .key = id->key,
                     .parent = id->parent,
                     .payload_bytes = payload_bytes,
                     .n_ids = SL_KV_PAGE_TOKENS};
    memcpy(h.ids, id->ids, sizeof h.ids);
    return h;
}

static struct sl_hash128 check_of(const struct head *h, const uint8_t *payload, uint64_t n_bytes,
                                  struct sl_hash128 secret) {
    struct sl_siphash s;
    sl_siphash_init(&s, secret);
    sl_siphash_add(&s, h, offsetof(struct head, check));
    sl_siphash_add(&s, payload, n_bytes);
    return sl_siphash_end(&s);
}

void sl_block_seal(uint8_t *block, uint64_t payload_bytes, const struct sl_block_id *id,
                   struct sl_hash128 secret) {
    struct head h = make_head(payload_bytes, id);
    h.check = check_of(&h, block + sizeof h, payload_bytes, secret);
    memcpy(block, &h, sizeof h);
}

enum sl_status sl_block_check(const uint8_t *block, uint64_t n_bytes, uint64_t payload_bytes,
                              const struct sl_block_id *id, struct sl_hash128 secret,
                              struct sl_err *err) {
    struct head h, want = make_head(payload_bytes, id);
    if (n_bytes != sizeof h + payload_bytes)
        return sl_fail(err, SL_ERR_CORRUPT, "it has %llu bytes instead of %llu",
                       (unsigned long long)n_bytes, (unsigned long long)(sizeof h + payload_bytes));
    memcpy(&h, block, sizeof h);
    if (memcmp(h.magic, want.magic, sizeof h.magic) != 0)
        return sl_fail(err, SL_ERR_CORRUPT, "it is no file of KV pages");
    if (h.version != VERSION)
        return sl_fail(err, SL_ERR_CORRUPT, "it has version %u, this program writes %u", h.version,
                       VERSION);
    if (memcmp(&h, &want, offsetof(struct head, check)) != 0)
        return sl_fail(err, SL_ERR_CORRUPT, "it holds another text or another model's");
    struct sl_hash128 check = check_of(&h, block + sizeof h, payload_bytes, secret);
    if (memcmp(&check, &h.check, sizeof check) != 0)
        return sl_fail(err, SL_ERR_CORRUPT, "its checksum is wrong");
    return SL_OK;
}
