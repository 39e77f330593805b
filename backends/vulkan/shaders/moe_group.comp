#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

/* Sorts the listed pairs by expert, and divides each expert's into tiles: one workgroup. Of those of
 * one expert the order is left to chance: no pair's result depends on it. */
layout(local_size_x = 256) in;
layout(push_constant) uniform args {
    uint64_t ids, pairs, order, tiles; /* tiles: how many, then expert, first and number of each */
    uint n_pairs, n_expert, tile;
} a;
shared uint count[1024], pairs_before[256], tiles_before[256];

uint expert_of(uint at) {
    return u32s(a.ids).v[a.pairs != 0 ? u32s(a.pairs).v[at] : at];
}

void main() {
    uint l = gl_LocalInvocationID.x, n_pairs = 0u, n_tiles = 0u;
    for (uint e = l; e < 1024u; e += 256u)
        count[e] = 0u;
    barrier();
    for (uint at = l; at < a.n_pairs; at += 256u)
        atomicAdd(count[expert_of(at)], 1u);
    barrier();
    for (uint e = 4u * l; e < 4u * l + 4u; e++) {
        n_pairs += count[e];
        n_tiles += (count[e] + a.tile - 1u) / a.tile;
    }
    pairs_before[l] = n_pairs;
    tiles_before[l] = n_tiles;
    barrier();
    for (uint step = 1u; step < 256u; step *= 2u) {
        uint p = l >= step ? pairs_before[l - step] : 0u, t = l >= step ? tiles_before[l - step] : 0u;
        barrier();
        pairs_before[l] += p;
        tiles_before[l] += t;
        barrier();
    }
    u32s tiles = u32s(a.tiles);
    if (l == 255u)
        tiles.v[0] = tiles_before[255];
    uint first = pairs_before[l] - n_pairs, t = tiles_before[l] - n_tiles;
    for (uint e = 4u * l; e < 4u * l + 4u; e++) {
        uint n = count[e];
        for (uint from = 0u; from < n; from += a.tile, t++) {
            tiles.v[1u + 3u * t] = e;
            tiles.v[2u + 3u * t] = first + from;
            tiles.v[3u + 3u * t] = min(n - from, a.tile);
        }
        count[e] = first;
        first += n;
    }
    barrier();
    for (uint at = l; at < a.n_pairs; at += 256u)
        u32s(a.order).v[atomicAdd(count[expert_of(at)], 1u)] = at;
}
