/* Products of the types of 256 elements whose bytes hold runs of 64: a strip. An invocation has
 * whole strips: what unpacks a block's scales, and its addresses, is then shared by 64 elements.
 * The integers of a strip go to shared memory, some invocations join those of a block, and one for
 * each line (a row of weights with a row of input) adds the blocks in the definition's order.
 *
 * All that a strip needs is loaded before any of it is used, and without a branch in between. */
bool has_strips() {
    return TYPE == Q4_K || TYPE == Q5_K || TYPE == Q6_K;
}
#define BLOCK_STRIPS 4u

struct raw_strip {
    uint w[20];
};
struct strip {
    ivec4 q[4]; /* of units strip_unit() */
    ivec4 scale; /* of the four, or of two and two */
    ivec2 least;
    uint halves; /* binary16 of d, and of dmin above it */
};
struct strip_input {
    ivec4 q[4];
    uvec4 sums; /* 16 bits each */
    float d;
};

/* Unit k of strip p of a block. */
uint strip_unit(uint p, uint k) {
    return TYPE == Q6_K ? p / 2u * 8u + p % 2u + 2u * k : 4u * p + k;
}

void put_strip(uvec4 v, uint to, inout raw_strip r) {
    [[unroll]] for (uint k = 0; k < 4u; k++)
        r.w[to + k] = v[k];
}
/* n words that begin at any address: the words they lie in, one more than n. */
void put_strip_words(uint64_t at, uint n, uint to, inout raw_strip r) {
    u32s from = u32s(at & ~uint64_t(3));
    [[unroll]] for (uint k = 0; k < 4u; k++)
        if (k < n)
            r.w[to + k] = from.v[k];
    r.w[to + n] = from.v[(uint(at) & 3u) != 0u ? n : n - 1u]; /* holds at least one byte of them */
}

/* aligned: blocks begin at multiples of 16 bytes; a constant. */
raw_strip load_strip(uint64_t row, uint s, bool aligned) {
    raw_strip r;
    uint p = s % BLOCK_STRIPS;
    uint64_t b = row + uint64_t(s / BLOCK_STRIPS * block_bytes());
    if (TYPE == Q6_K) {
        uint64_t q = b + p / 2u * 64u + p % 2u * 16u;
        put_strip_words(q, 4u, 0u, r);
        put_strip_words(q + 32u, 4u, 5u, r);
        put_strip_words(b + 128u + 16u * p, 4u, 10u, r);
        put_strip_words(b + 192u + p / 2u * 8u, 2u, 15u, r);
        u32s d = u32s(b + 208u & ~uint64_t(3));
        r.w[18] = d.v[0];
        r.w[19] = d.v[(uint(b) & 3u) == 3u ? 1u : 0u];
        return r;
    }
    uint64_t q = b + (TYPE == Q4_K ? 16u : 48u) + 32u * p;
    if (aligned) {
        put_strip(vec4s(b).v[0], 0u, r);
        put_strip(vec4s(q).v[0], 4u, r);
        put_strip(vec4s(q).v[1], 8u, r);
        if (TYPE == Q5_K) {
            put_strip(vec4s(b).v[1], 12u, r);
            put_strip(vec4s(b).v[2], 16u, r);
        }
    } else {
        put_strip(bytes_at(b), 0u, r);
        put_strip(bytes_at(q), 4u, r);
        put_strip(bytes_at(q + 16u), 8u, r);
        if (TYPE == Q5_K) {
            put_strip(bytes_at(b + 16u), 12u, r);
            put_strip(bytes_at(b + 32u), 16u, r);
        }
    }
    return r;
}

uvec4 strip_4(raw_strip r, uint at) {
    return uvec4(r.w[at], r.w[at + 1u], r.w[at + 2u], r.w[at + 3u]);
}
uvec4 strip_16(raw_strip r, uint at, uint shift) {
    return uvec4(funnel(r.w[at], r.w[at + 1u], shift), funnel(r.w[at + 1u], r.w[at + 2u], shift),
                 funnel(r.w[at + 2u], r.w[at + 3u], shift),
                 funnel(r.w[at + 3u], r.w[at + 4u], shift));
}

/* Elements of Q6_K are 32 too large: what that makes is taken off with the input's sums. */
strip make_strip(raw_strip r, uint64_t row, uint s) {
    strip to;
    uint p = s % BLOCK_STRIPS;
    to.least = ivec2(0);
    if (TYPE == Q6_K) {
        /* all parts are at multiples of 4 bytes in a block */
        uint shift = 8u * (uint(row) + s / BLOCK_STRIPS * block_bytes() & 3u);
        uvec4 low = strip_16(r, 0u, shift), high = strip_16(r, 5u, shift), two = strip_16(r, 10u, shift);
        to.q[0] = ivec4(low & 0x0f0f0f0fu | (two & 0x03030303u) << 4);
        to.q[1] = ivec4(high & 0x0f0f0f0fu | (two & 0x0c0c0c0cu) << 2);
        to.q[2] = ivec4(low >> 4 & 0x0f0f0f0fu | two & 0x30303030u);
        to.q[3] = ivec4(high >> 4 & 0x0f0f0f0fu | (two & 0xc0c0c0c0u) >> 2);
        int scales_0 = int(funnel(r.w[15], r.w[16], shift)), scales_1 = int(funnel(r.w[16], r.w[17], shift));
        int from = int(p % 2u * 8u);
        to.scale = ivec4(bitfieldExtract(scales_0, from, 8), bitfieldExtract(scales_0, from + 16, 8),
                         bitfieldExtract(scales_1, from, 8), bitfieldExtract(scales_1, from + 16, 8));
        to.halves = funnel(r.w[18], r.w[19], shift) & 0xffffu;
        return to;
    }
    piece head;
    put_head(strip_4(r, 0u), 2u * p, head);
    to.scale = ivec4(head.scale_a, head.scale_b, 0, 0);
    to.least = ivec2(head.least_a, head.least_b);
    to.halves = head.halves;
    [[unroll]] for (uint k = 0; k < 2u; k++) {
        uvec4 w = strip_4(r, 4u + 4u * k), low = w & 0x0f0f0f0fu, high = w >> 4 & 0x0f0f0f0fu;
        if (TYPE == Q5_K) {
            uvec4 fifth = strip_4(r, 12u + 4u * k) >> 2u * p;
            low |= (fifth & 0x01010101u) << 4;
            high |= (fifth & 0x02020202u) << 3;
        }
        to.q[k] = ivec4(low);
        to.q[2u + k] = ivec4(high);
    }
    return to;
}

/* What strip s of a row needs of its input x. */
strip_input load_input(uint64_t x, uint s) {
    strip_input to;
    uint p = s % BLOCK_STRIPS;
    vec4s from = vec4s(x + uint64_t(s / BLOCK_STRIPS * QX_BYTES));
    [[unroll]] for (uint k = 0; k < 4u; k++)
        to.q[k] = ivec4(from.v[strip_unit(p, k)]);
    to.sums = from.v[18u + p / 2u];
    to.d = uintBitsToFloat(from.v[16].x);
    return to;
}
int half_of(uint w, uint k) {
    return bitfieldExtract(int(w), int(16u * k), 16);
}

/* Places of a line of n strips: four more, so that lines begin in different banks. */
#define LINE_PLACES(n) ((n) + 4u)
/* Strips of a line that there is room for, of so many lines. */
uint room_for(uint n_lines) {
    return (PLACES / n_lines - 4u) & ~3u;
}

void multiply_strip(strip w, strip_input x, uint s, uint at) {
    uint p = s % BLOCK_STRIPS;
    int sum;
    if (TYPE == Q6_K) {
        sum = 0;
        [[unroll]] for (uint k = 0; k < 4u; k++)
            sum += w.scale[k] * (dot_unit(w.q[k], x.q[k]) - 32 * half_of(x.sums[k], p % 2u));
    } else {
        uvec2 sums = (p & 1u) == 0u ? x.sums.xy : x.sums.zw;
        sum = w.scale.x * (dot_unit(w.q[0], x.q[0]) + dot_unit(w.q[1], x.q[1])) +
              w.scale.y * (dot_unit(w.q[2], x.q[2]) + dot_unit(w.q[3], x.q[3]));
        mins[at] = w.least.x * (half_of(sums.x, 0u) + half_of(sums.x, 1u)) +
                   w.least.y * (half_of(sums.y, 0u) + half_of(sums.y, 1u));
    }
    dots[at] = sum;
    if (p == 0u) {
        factor[at] = int(w.halves);
        factor[at + 1u] = floatBitsToInt(x.d);
    }
}

/* Joins the strips of each block of n_lines lines of n strips: there remain sums as floats and
 * their factors. */
void join_strips(uint n_lines, uint n, uint l) {
    uint each = n / BLOCK_STRIPS;
    barrier();
    for (uint i = l; i < n_lines * each; i += THREADS) {
        uint at = i / each * LINE_PLACES(n) + i % each * BLOCK_STRIPS;
        uint halves = uint(factor[at]);
        float dx = intBitsToFloat(factor[at + 1u]);
        precise float by = f32_of_f16(halves & 0xffffu) * dx;
        dots[at] = floatBitsToInt(float(dots[at] + dots[at + 1u] + dots[at + 2u] + dots[at + 3u]));
        factor[at] = floatBitsToInt(by);
        if (has_min()) {
            precise float down = -(f32_of_f16(halves >> 16) * dx);
            mins[at] = floatBitsToInt(float(mins[at] + mins[at + 1u] + mins[at + 2u] + mins[at + 3u]));
            factor[at + 1u] = floatBitsToInt(down);
        }
    }
    barrier();
}
/* Adds the joined blocks of line l: several at a time, so that what is read does not wait for what
 * is added. */
void add_strips(uint n, uint l, inout float total) {
    uint at = l * LINE_PLACES(n);
    [[dont_unroll]] for (uint i = 0; i < n; i += 8u * BLOCK_STRIPS) {
        float by[8], sum[8], down[8], low[8];
        [[unroll]] for (uint k = 0; k < 8u; k++) {
            uint from = at + min(i + k * BLOCK_STRIPS, n - BLOCK_STRIPS);
            by[k] = intBitsToFloat(factor[from]);
            sum[k] = intBitsToFloat(dots[from]);
            if (has_min()) {
                down[k] = intBitsToFloat(factor[from + 1u]);
                low[k] = intBitsToFloat(mins[from]);
            }
        }
        [[unroll]] for (uint k = 0; k < 8u; k++) {
            float t = fma_once(by[k], sum[k], total);
            if (has_min())
                t = fma_once(down[k], low[k], t);
            total = i + k * BLOCK_STRIPS < n ? t : total;
        }
    }
}

/* Strips in turn: of unit u = line * n + strip, and of the unit THREADS further on. */
struct strip_place {
    uint line, s;
};
strip_place place_of_unit(uint u, uint n) {
    return strip_place(u / n, u % n);
}
strip_place next_place(strip_place at, uint n) {
    strip_place to = strip_place(at.line + THREADS / n, at.s + THREADS % n);
    if (to.s >= n) {
        to.s -= n;
        to.line++;
    }
    return to;
}

#ifndef AT_ONCE
#define AT_ONCE 2u
#endif
/* Where line q's row of weights is. */
uint64_t line_weights(uint q);

/* n_lines rows of weights times one row of input. In invocation l < n_lines: line l's product. */
float strips_of_one(uint n_lines, uint64_t x, uint n_in, uint l, bool aligned) {
    precise float total = 0.0;
    uint n_strips = n_in / 64u, room = room_for(n_lines);
    for (uint first = 0; first < n_strips; first += room) {
        uint n = min(room, n_strips - first), n_units = n_lines * n;
        strip_place next = place_of_unit(l, n);
        for (uint u = 0; u < n_units; u += AT_ONCE * THREADS) {
            raw_strip w[AT_ONCE];
            strip_input in_x[AT_ONCE];
            strip_place at[AT_ONCE];
            [[unroll]] for (uint k = 0; k < AT_ONCE; k++) {
                at[k] = next;
                next = next_place(next, n);
                w[k] = load_strip(line_weights(min(at[k].line, n_lines - 1u)), first + at[k].s, aligned);
            }
            [[unroll]] for (uint k = 0; k < AT_ONCE; k++)
                in_x[k] = load_input(x, first + at[k].s);
            [[unroll]] for (uint k = 0; k < AT_ONCE; k++)
                if (at[k].line < n_lines)
                    multiply_strip(make_strip(w[k], line_weights(at[k].line), first + at[k].s), in_x[k],
                                   at[k].s, at[k].line * LINE_PLACES(n) + at[k].s);
        }
        join_strips(n_lines, n, l);
        if (l < n_lines)
            add_strips(n, l, total);
        if (first + room < n_strips)
            barrier();
    }
    return total;
}

/* n rows of input, at x + t * x_stride. In invocation l < n_lines * n: the product of line
 * l % n_lines and input row l / n_lines. */
float strips_of(uint n_lines, uint64_t x, uint64_t x_stride, uint n, uint n_in, uint l, bool aligned) {
    precise float total = 0.0;
    uint n_strips = n_in / 64u, room = room_for(n_lines * n);
    for (uint first = 0; first < n_strips; first += room) {
        uint n_here = min(room, n_strips - first), n_units = n_lines * n_here;
        strip_place at = place_of_unit(l, n_here);
        for (uint u = 0; u < n_units; u += THREADS) {
            uint64_t row = line_weights(min(at.line, n_lines - 1u));
            strip w = make_strip(load_strip(row, first + at.s, aligned), row, first + at.s);
            for (uint t = 0; t < n; t += 2u) {
                strip_input in_x[2];
                [[unroll]] for (uint k = 0; k < 2u; k++)
                    in_x[k] = load_input(x + min(t + k, n - 1u) * x_stride, first + at.s);
                [[unroll]] for (uint k = 0; k < 2u; k++)
                    if (at.line < n_lines && t + k < n)
                        multiply_strip(w, in_x[k], at.s,
                                       ((t + k) * n_lines + at.line) * LINE_PLACES(n_here) + at.s);
            }
            at = next_place(at, n_here);
        }
        join_strips(n_lines * n, n_here, l);
        if (l < n_lines * n)
            add_strips(n_here, l, total);
        if (first + room < n_strips)
            barrier();
    }
    return total;
}
