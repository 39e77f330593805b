/* The layout of a module: Khronos, SPIR-V Specification, 2.3 and 2.4. Capabilities come first, and
 * execution modes right behind the entry points. */
#include "backends/vulkan/spirv.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC             0x07230203u
#define HEADER_WORDS      5u
#define OP_ENTRY_POINT    15u
#define OP_EXECUTION_MODE 16u
#define OP_CAPABILITY     17u
#define FLOAT_BITS        32u

size_t sl_vk_spirv_declare(const uint32_t *words, size_t n_words, struct sl_vk_float_modes modes,
                           uint32_t *out) {
    const struct {
        bool wanted;
        uint32_t mode, capability;
    } all[] = {{modes.denormals, 4459, 4464},     /* DenormPreserve */
               {modes.inf_nan_zero, 4461, 4466},  /* SignedZeroInfNanPreserve */
               {modes.nearest_even, 4462, 4467}}; /* RoundingModeRTE */
    const size_t n_all = sizeof all / sizeof *all;
    size_t n = HEADER_WORDS;
    if (n_words < HEADER_WORDS || words[0] != MAGIC)
        return 0;
    memcpy(out, words, HEADER_WORDS * sizeof *words);
    for (size_t i = 0; i < n_all; i++)
        if (all[i].wanted) {
            out[n++] = 2u << 16 | OP_CAPABILITY;
            out[n++] = all[i].capability;
        }
    for (size_t at = HEADER_WORDS; at < n_words;) {
        uint32_t op = words[at] & 0xffff, length = words[at] >> 16;
        if (!length || length > n_words - at)
            return 0;
        memcpy(out + n, words + at, length * sizeof *words);
        n += length;
        for (size_t i = 0; op == OP_ENTRY_POINT && length > 2 && i < n_all; i++)
            if (all[i].wanted) {
                out[n++] = 4u << 16 | OP_EXECUTION_MODE;
                out[n++] = words[at + 2];
                out[n++] = all[i].mode;
                out[n++] = FLOAT_BITS;
            }
        at += length;
    }
    return n;
}

/* ---- cooperative matrices ---- */

enum {
    OP_EXTENSION = 10,
    OP_TYPE_INT = 21,
    OP_TYPE_FLOAT = 22,
    OP_CONSTANT_TRUE = 41,
    OP_CONSTANT_FALSE = 42,
    OP_CONSTANT = 43,
    OP_SPEC_CONSTANT_OP = 52,
    OP_NV_TYPE = 5358,
    OP_NV_LOAD = 5359,
    OP_NV_STORE = 5360,
    OP_NV_MUL_ADD = 5361,
    OP_NV_LENGTH = 5362,
    OP_KHR_TYPE = 4456,
    OP_KHR_LOAD = 4457,
    OP_KHR_STORE = 4458,
    OP_KHR_MUL_ADD = 4459,
    OP_KHR_LENGTH = 4460
};
#define CAPABILITY_NV  5357u
#define CAPABILITY_KHR 6022u
#define ALL_SIGNED     15u /* components of a, b, c and the result */
#define MOST_IDS       (1u << 20)

/* What is known of an id. */
struct known {
    uint32_t type;      /* of what has such a matrix for its type; 0: others */
    uint32_t component; /* of a type of matrices; 0: another id */
    uint8_t use;        /* 0, 1, 2: a, b, c of a product */
    bool is_float, is_true;
};

static bool is_op(const uint32_t *at, size_t left) {
    uint32_t length = *at >> 16;
    return length && length <= left;
}

/* Fills in what the ids are, and uint's. */
static bool look(const uint32_t *words, size_t n_words, struct known *ids, uint32_t *out_uint) {
    uint32_t bound = words[3];
    for (size_t i = HEADER_WORDS; i < n_words; i += words[i] >> 16) {
        const uint32_t *at = words + i;
        uint32_t op = *at & 0xffff, length = *at >> 16;
        if (!is_op(at, n_words - i))
            return false;
        if (length < 3 || at[1] >= bound)
            continue;
        struct known *first = &ids[at[1]];
        if (op == OP_TYPE_INT && length > 3 && at[2] == 32 && at[3] == 0)
            *out_uint = at[1];
        first->is_float = first->is_float || op == OP_TYPE_FLOAT;
        if (op == OP_NV_TYPE && at[2] < bound) {
            first->component = at[2];
            first->use = 2;
        }
        if (at[2] >= bound)
            continue;
        if (first->component)
            ids[at[2]].type = at[1];
        ids[at[2]].is_true = ids[at[2]].is_true || op == OP_CONSTANT_TRUE;
        for (uint32_t k = 0; op == OP_NV_MUL_ADD && length > 5 && k < 3; k++)
            if (at[3 + k] < bound && ids[at[3 + k]].type)
                ids[ids[at[3 + k]].type].use = (uint8_t)k;
    }
    return *out_uint != 0;
}

/* One instruction; numbers: the ids of 0, 1 and 2. */
static size_t rewrite(const uint32_t *at, uint32_t bound, const struct known *ids,
                      const uint32_t numbers[3], uint32_t *out) {
    uint32_t op = *at & 0xffff, length = *at >> 16, n = length;
    memcpy(out, at, length * sizeof *out);
    switch (op) {
    case OP_CAPABILITY:
        out[1] = at[1] == CAPABILITY_NV ? CAPABILITY_KHR : at[1];
        break;
    case OP_EXTENSION: {
        const char from[28] = "SPV_NV_cooperative_matrix", to[28] = "SPV_KHR_cooperative_matrix";
        if (length == 8 && memcmp(at + 1, from, sizeof from) == 0)
            memcpy(out + 1, to, sizeof to);
        break;
    }
    case OP_SPEC_CONSTANT_OP:
        if (length > 3 && at[3] == OP_NV_LENGTH)
            out[3] = OP_KHR_LENGTH;
        break;
    case OP_NV_TYPE:
        op = OP_KHR_TYPE;
        out[n++] = numbers[ids[at[1]].use];
        break;
    case OP_NV_LOAD: /* type, result, pointer; stride and by columns become layout and stride */
        op = OP_KHR_LOAD;
        out[4] = numbers[at[5] < bound && ids[at[5]].is_true];
        out[5] = at[4];
        break;
    case OP_NV_STORE: /* pointer, object, likewise */
        op = OP_KHR_STORE;
        out[3] = numbers[at[4] < bound && ids[at[4]].is_true];
        out[4] = at[3];
        break;
    case OP_NV_MUL_ADD:
        op = OP_KHR_MUL_ADD;
        if (at[3] < bound && !ids[ids[ids[at[3]].type].component].is_float)
            out[n++] = ALL_SIGNED;
        break;
    case OP_NV_LENGTH:
        op = OP_KHR_LENGTH;
        break;
    default:
        return n;
    }
    out[0] = n << 16 | op;
    return n;
}

size_t sl_vk_spirv_khr_matrices(const uint32_t *words, size_t n_words, uint32_t *out) {
    if (n_words < HEADER_WORDS || words[0] != MAGIC || !words[3] || words[3] > MOST_IDS)
        return 0;
    uint32_t bound = words[3], uint_type = 0;
    const uint32_t numbers[3] = {bound, bound + 1, bound + 2};
    struct known *ids = calloc(bound, sizeof *ids);
    size_t n = HEADER_WORDS;
    bool fits = ids && look(words, n_words, ids, &uint_type), numbered = false;
    memcpy(out, words, HEADER_WORDS * sizeof *words);
    for (size_t i = HEADER_WORDS; fits && i < n_words; i += words[i] >> 16) {
        uint32_t op = words[i] & 0xffff, length = words[i] >> 16;
        if ((op == OP_NV_LOAD && length < 6) || (op == OP_NV_STORE && length < 5) ||
            (op == OP_NV_MUL_ADD && length < 6) ||
            (op == OP_NV_TYPE && (length < 6 || words[i + 1] >= bound))) {
            fits = false;
            break;
        }
        for (uint32_t k = 0; op == OP_NV_TYPE && !numbered && k < 3; k++) {
            const uint32_t constant[] = {4u << 16 | OP_CONSTANT, uint_type, numbers[k], k};
            memcpy(out + n, constant, sizeof constant);
            n += 4;
        }
        numbered = numbered || op == OP_NV_TYPE;
        n += rewrite(words + i, bound, ids, numbers, out + n);
    }
    if (numbered)
        out[3] = bound + 3;
    free(ids);
    return fits ? n : 0;
}
