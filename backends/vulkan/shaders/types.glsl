/* Tensor types: one element of a float type, and 16 elements of a quantised one, in the form of
 * backends/cpu/matmul/formats.h: integers, an integer scale and minimum, and the block's d and dmin. */

/* Address of the type's grid, for types with one: 8 int8 an entry, 4 of IQ3's (grids.c). */
uint64_t iq_grid;

bool is_block32() {
    return TYPE == Q4_0 || TYPE == Q4_1 || TYPE == Q5_0 || TYPE == Q5_1 || TYPE == Q8_0 ||
           TYPE == IQ4_NL || TYPE == MXFP4;
}
bool has_min() {
    return TYPE == Q4_1 || TYPE == Q5_1 || TYPE == Q2_K || TYPE == Q4_K || TYPE == Q5_K;
}
bool is_float() {
    return TYPE == F32 || TYPE == F16 || TYPE == BF16;
}
uint block_bytes() {
    switch (TYPE) {
    case Q4_0: case IQ4_NL: return 18u;
    case Q4_1: return 20u;
    case Q5_0: return 22u;
    case Q5_1: return 24u;
    case Q8_0: return 34u;
    case MXFP4: return 17u;
    case Q2_K: return 84u;
    case Q3_K: return 110u;
    case Q4_K: return 144u;
    case Q5_K: return 176u;
    case Q6_K: return 210u;
    case IQ2_XXS: return 66u;
    case IQ2_XS: return 74u;
    case IQ2_S: return 82u;
    case IQ3_XXS: return 98u;
    case IQ3_S: return 110u;
    case IQ1_S: return 50u;
    case IQ1_M: return 56u;
    case TQ1_0: return 54u;
    case TQ2_0: return 66u;
    case IQ2_K: return 76u;
    case IQ3_K: return 110u;
    case IQ4_K: return 144u;
    case IQ5_K: return 176u;
    case IQ6_K: return 212u;
    default: return 136u; /* IQ4_XS */
    }
}

float load_float(uint64_t row, uint i) {
    if (TYPE == F32)
        return f32s(row).v[i];
    uint h = uint(u16s(row).v[i]);
    return TYPE == F16 ? f32_of_f16(h) : uintBitsToFloat(h << 16);
}

uint byte_at(uint64_t b, uint i) {
    return uint(u8s(b).v[i]);
}
/* Whether blocks of these weights begin at multiples of 16 bytes, of types whose blocks have such a
 * length. */
bool aligned16 = false;
void find_alignment(uint64_t w, uint64_t row_bytes) {
    aligned16 = (TYPE == Q4_K || TYPE == Q5_K) && ((uint(w) | uint(row_bytes)) & 15u) == 0u;
}

/* A word that begins `shift` bits, below 32, within the first of two. */
uint funnel(uint w, uint w1, uint shift) {
    return w >> shift | w1 << 1 << 31u - shift;
}
/* 16 bytes at any address, experts may be at any: the words that they lie in. */
uvec4 bytes_at(uint64_t at) {
    if ((TYPE == Q4_K || TYPE == Q5_K) && aligned16)
        return vec4s(at).v[0];
    uint shift = 8u * (uint(at) & 3u);
    u32s from = u32s(at & ~uint64_t(3));
    uvec4 w = uvec4(from.v[0], from.v[1], from.v[2], from.v[3]);
    uint last = from.v[shift != 0u ? 4u : 3u]; /* holds at least one of them */
    return uvec4(funnel(w.x, w.y, shift), funnel(w.y, w.z, shift), funnel(w.z, w.w, shift),
                 funnel(w.w, last, shift));
}
uint byte_of(uvec4 w, uint i) {
    return w[i / 4u] >> 8u * (i % 4u) & 255u;
}
float f16_at(uint64_t b, uint i) {
    return f32_of_f16(byte_at(b, i) | byte_at(b, i + 1u) << 8);
}

/* Where unit u (16 elements) of a row has its block, and which of the block's units it is. */
uint64_t block_of(uint64_t row, uint u, out uint unit) {
    uint units = is_block32() ? 2u : 16u;
    unit = u % units;
    return row + uint64_t(u / units) * block_bytes();
}

void block_scales(uint64_t b, out float d, out float dmin) {
    dmin = 0.0;
    switch (TYPE) {
    case Q2_K:
        d = f16_at(b, 80u);
        dmin = f16_at(b, 82u);
        break;
    case Q3_K:
        d = f16_at(b, 108u);
        break;
    case Q6_K:
        d = f16_at(b, 208u);
        break;
    case MXFP4: {
        uint e = byte_at(b, 0u);
        d = uintBitsToFloat(e < 2u ? 0x00200000u << e : (e - 1u) << 23);
        break;
    }
    case Q4_K:
    case Q5_K:
        d = f16_at(b, 0u);
        dmin = f16_at(b, 2u);
        break;
    case Q4_1:
    case Q5_1:
        d = f16_at(b, 0u);
        dmin = -f16_at(b, 2u);
        break;
    case IQ1_M:
        d = 0.125 * f32_of_f16(byte_at(b, 49u) >> 4 | byte_at(b, 51u) >> 4 << 4 |
                               byte_at(b, 53u) >> 4 << 8 | byte_at(b, 55u) >> 4 << 12);
        break;
    case IQ2_XXS:
    case IQ2_XS:
    case IQ2_S:
    case IQ1_S:
        d = 0.125 * f16_at(b, 0u);
        break;
    case IQ3_XXS:
        d = 0.25 * f16_at(b, 0u);
        break;
    case TQ1_0:
        d = f16_at(b, 52u);
        break;
    case TQ2_0:
        d = f16_at(b, 64u);
        break;
    default:
        d = f16_at(b, 0u);
    }
}

const int IQ4_VALUES[16] = int[16](-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69,
                                   89, 113);
const int FP4_VALUES[16] = int[16](0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);

void unit_32(uint64_t b, uint unit, out int q[16]) {
    uint at = TYPE == Q4_1 ? 4u : TYPE == Q5_0 ? 6u : TYPE == Q5_1 ? 8u : TYPE == MXFP4 ? 1u : 2u;
    uint high = TYPE == Q5_0 ? 2u : 4u, bits = 0u;
    if (TYPE == Q5_0 || TYPE == Q5_1)
        bits = byte_at(b, high) | byte_at(b, high + 1u) << 8 | byte_at(b, high + 2u) << 16 |
               byte_at(b, high + 3u) << 24;
    uvec4 w = bytes_at(b + at + (TYPE == Q8_0 ? 16u * unit : 0u));
    [[unroll]] for (uint i = 0; i < 16u; i++) {
        if (TYPE == Q8_0) {
            q[i] = int(byte_of(w, i)) << 24 >> 24;
            continue;
        }
        int v = int(byte_of(w, i) >> 4u * unit & 15u);
        if (TYPE == Q5_0 || TYPE == Q5_1)
            v |= int(bits >> i + 16u * unit & 1u) << 4;
        q[i] = TYPE == Q4_0     ? v - 8
               : TYPE == Q5_0   ? v - 16
               : TYPE == IQ4_NL ? IQ4_VALUES[v]
               : TYPE == MXFP4  ? FP4_VALUES[v]
                                : v;
    }
}

void unit_super(uint64_t b, uint unit, out int q[16]) {
    uint i32 = 16u * (unit & 1u); /* of the first element, among 32 */
    uint at = TYPE == Q4_K   ? 16u + unit / 4u * 32u + i32
              : TYPE == Q5_K ? 48u + unit / 4u * 32u + i32
              : TYPE == Q6_K ? unit / 8u * 64u + unit % 4u * 16u
              : TYPE == Q2_K ? 16u + unit / 8u * 32u + i32
              : TYPE == Q3_K ? 32u + unit / 8u * 32u + i32
                             : 8u + unit / 2u * 16u; /* IQ4_XS */
    uvec4 w = bytes_at(b + at), h = uvec4(0u);
    if (TYPE == Q3_K)
        h = bytes_at(b + i32);
    else if (TYPE == Q5_K)
        h = bytes_at(b + 16u + i32);
    else if (TYPE == Q6_K)
        h = bytes_at(b + 128u + unit / 8u * 32u + i32);
    [[unroll]] for (uint i = 0; i < 16u; i++) {
        uint low = byte_of(w, i), high = byte_of(h, i);
        switch (TYPE) {
        case Q2_K:
            q[i] = int(low >> unit % 8u / 2u * 2u & 3u);
            break;
        case Q3_K:
            q[i] = int(low >> unit % 8u / 2u * 2u & 3u) - ((high >> unit / 2u & 1u) == 1u ? 0 : 4);
            break;
        case Q4_K:
            q[i] = int(low >> unit / 2u % 2u * 4u & 15u);
            break;
        case Q5_K:
            q[i] = int(low >> unit / 2u % 2u * 4u & 15u | (high >> unit / 2u & 1u) << 4);
            break;
        case Q6_K:
            q[i] = int(low >> unit / 4u % 2u * 4u & 15u | (high >> unit % 8u / 2u * 2u & 3u) << 4) - 32;
            break;
        default: /* IQ4_XS */
            q[i] = IQ4_VALUES[low >> 4u * (unit & 1u) & 15u];
        }
    }
}

/* ---- types with grids ---- */

uint word_at(uint64_t b, uint i) {
    return byte_at(b, i) | byte_at(b, i + 1u) << 8;
}
uint u32_at(uint64_t b, uint i) {
    return word_at(b, i) | word_at(b, i + 2u) << 16;
}
/* 7 stored sign bits to 8: the eighth makes the number of set bits even. */
uint signs_of(uint bits7) {
    return bits7 | uint(bitCount(bits7) & 1) << 7;
}
/* n values of an entry that begins at value i of the grid, from q[to] on. */
void put_grid(uint i, uint n, uint signs, uint to, inout int q[16]) {
    [[unroll]] for (uint j = 0; j < n; j++) {
        int v = int(i8s(iq_grid).v[i + j]);
        q[to + j] = (signs >> j & 1u) == 1u ? -v : v;
    }
}
void put_iq1(uint index, bool negative, uint to, inout int q[16]) {
    [[unroll]] for (uint j = 0; j < 8u; j++)
        q[to + j] = 8 * int(i8s(iq_grid).v[index * 8u + j]) + (negative ? -1 : 1);
}

void unit_grid(uint64_t b, uint unit, out int q[16]) {
    uint s = unit / 2u, half_s = unit & 1u;
    if (TYPE == IQ3_XXS || TYPE == IQ3_S) {
        uint bits = TYPE == IQ3_XXS ? u32_at(b, 66u + 4u * s) : 0u;
        [[unroll]] for (uint k = 0; k < 4u; k++) {
            uint l = unit * 4u + k, index = byte_at(b, 2u + l), signs;
            if (TYPE == IQ3_XXS) {
                signs = signs_of(bits >> 7u * (l % 8u / 2u) & 127u);
            } else {
                index |= (byte_at(b, 66u + l / 8u) >> l % 8u & 1u) << 8;
                signs = byte_at(b, 74u + l / 2u);
            }
            put_grid(index * 4u, 4u, signs >> l % 2u * 4u, k * 4u, q);
        }
        return;
    }
    [[unroll]] for (uint k = 0; k < 2u; k++) {
        uint l = unit * 2u + k, v; /* of 32 */
        switch (TYPE) {
        case IQ2_XXS:
            v = u32_at(b, 6u + 8u * s) >> 7u * (2u * half_s + k) & 127u;
            put_grid(byte_at(b, 2u + 8u * s + 2u * half_s + k) * 8u, 8u, signs_of(v), k * 8u, q);
            break;
        case IQ2_XS:
            v = word_at(b, 2u + 2u * l);
            put_grid((v & 511u) * 8u, 8u, signs_of(v >> 9), k * 8u, q);
            break;
        case IQ2_S:
            v = byte_at(b, 2u + l) | (byte_at(b, 66u + l / 4u) >> l % 4u * 2u & 3u) << 8;
            put_grid(v * 8u, 8u, byte_at(b, 34u + l), k * 8u, q);
            break;
        case IQ1_S:
            v = word_at(b, 34u + 2u * s);
            put_iq1(byte_at(b, 2u + l) | (v >> 3u * (2u * half_s + k) & 7u) << 8, v >> 15 == 1u,
                    k * 8u, q);
            break;
        default: /* IQ1_M */
            v = byte_at(b, 32u + l / 2u) >> l % 2u * 4u & 15u;
            put_iq1(byte_at(b, l) | (v & 7u) << 8, v >> 3 == 1u, k * 8u, q);
        }
    }
}

/* ---- types with tables of values, and of base 3 ---- */

bool is_iqk() {
    return TYPE == IQ2_K || TYPE == IQ3_K || TYPE == IQ4_K || TYPE == IQ5_K || TYPE == IQ6_K;
}
bool has_table() {
    return is_iqk() || TYPE == TQ1_0 || TYPE == TQ2_0;
}
const int IQ2K_VALUES[4] = int[4](-31, -13, 1, 17);
const int IQ3K_VALUES[8] = int[8](-63, -40, -23, -10, 1, 13, 28, 47);
const int IQ5K_VALUES[32] = int[32](-126, -114, -103, -92, -83, -74, -65, -57, -50, -43, -36, -30,
                                    -24, -18, -12, -6, -1, 5, 11, 17, 23, 29, 36, 43, 51, 59, 68,
                                    77, 87, 97, 109, 121);
const int IQ6K_VALUES[64] =
    int[64](-127, -121, -115, -109, -104, -98, -93, -88, -84, -79, -74, -70, -66, -62, -58, -54,
            -51, -47, -44, -40, -37, -34, -31, -28, -25, -22, -19, -16, -13, -11, -8, -5, -2, 0, 3,
            6, 9, 12, 14, 17, 20, 23, 27, 30, 33, 36, 40, 44, 47, 51, 55, 59, 63, 68, 72, 77, 82,
            87, 92, 98, 103, 109, 115, 121);
/* What is added to the values of units whose bit is set. */
int added_value() {
    return TYPE == IQ2_K ? 5 : TYPE == IQ3_K || TYPE == IQ4_K ? 4 : TYPE == IQ5_K ? 2 : 1;
}
/* Digit n of a byte that stands for five, or four, of base 3 in a fraction of 256. */
int trit(uint v, uint n) {
    const uint POWERS[5] = uint[5](1u, 3u, 9u, 27u, 81u);
    return int((v * POWERS[n] & 255u) * 3u >> 8) - 1;
}

void unit_table(uint64_t b, uint unit, out int q[16]) {
    uint i32 = 16u * (unit & 1u); /* of the first element, among 32 */
    uint two = unit / 8u * 32u + i32, four = unit / 4u * 32u + i32;
    uint shift = unit % 8u / 2u * 2u, half_at = unit / 2u % 2u * 4u;
    int more = is_iqk() && (byte_at(b, 2u + unit / 8u) >> unit % 8u & 1u) == 1u ? added_value() : 0;
    [[unroll]] for (uint i = 0; i < 16u; i++) {
        switch (TYPE) {
        case TQ1_0:
            q[i] = unit < 10u   ? trit(byte_at(b, i32 + i), unit / 2u)
                   : unit < 15u ? trit(byte_at(b, 32u + i), unit - 10u)
                                : trit(byte_at(b, 48u + i % 4u), i / 4u);
            break;
        case TQ2_0:
            q[i] = int(byte_at(b, two + i) >> shift & 3u) - 1;
            break;
        case IQ2_K:
            q[i] = IQ2K_VALUES[byte_at(b, 12u + two + i) >> shift & 3u] + more;
            break;
        case IQ3_K:
            q[i] = IQ3K_VALUES[byte_at(b, 14u + two + i) >> shift & 3u |
                               (byte_at(b, 78u + i32 + i) >> unit / 2u & 1u) << 2] +
                   more;
            break;
        case IQ4_K:
            q[i] = IQ4_VALUES[byte_at(b, 16u + unit / 2u * 16u + i) >> 4u * (unit & 1u) & 15u] + more;
            break;
        case IQ5_K:
            q[i] = IQ5K_VALUES[byte_at(b, 16u + four + i) >> half_at & 15u |
                               (byte_at(b, 144u + i32 + i) >> unit / 2u & 1u) << 4] +
                   more;
            break;
        default: /* IQ6_K */
            q[i] = IQ6K_VALUES[byte_at(b, 20u + four + i) >> half_at & 15u |
                               (byte_at(b, 148u + two + i) >> shift & 3u) << 4] +
                   more;
        }
    }
}

/* Integer scale and minimum of a unit. */
void unit_scales(uint64_t b, uint unit, out int scale, out int least) {
    uint j = unit / 2u;
    scale = 1;
    least = has_min() ? 1 : 0;
    switch (TYPE) {
    case Q2_K:
        scale = int(byte_at(b, unit) & 15u);
        least = int(byte_at(b, unit) >> 4);
        break;
    case Q3_K: {
        uint low = unit < 8u ? byte_at(b, 96u + unit) & 15u : byte_at(b, 88u + unit) >> 4;
        uint high = byte_at(b, 104u + unit % 4u) >> unit / 4u * 2u & 3u;
        scale = int(low | high << 4) - 32;
        break;
    }
    case Q4_K:
    case Q5_K:
        if (j < 4u) {
            scale = int(byte_at(b, 4u + j) & 63u);
            least = int(byte_at(b, 8u + j) & 63u);
        } else {
            scale = int(byte_at(b, 8u + j) & 15u | byte_at(b, j) >> 6 << 4);
            least = int(byte_at(b, 8u + j) >> 4 | byte_at(b, 4u + j) >> 6 << 4);
        }
        break;
    case Q6_K:
        scale = int(i8s(b).v[192u + unit]);
        break;
    case IQ4_XS: {
        uint high = byte_at(b, 2u) | byte_at(b, 3u) << 8;
        uint low = byte_at(b, 4u + j / 2u) >> j % 2u * 4u & 15u;
        scale = int(low | (high >> 2u * j & 3u) << 4) - 32;
        break;
    }
    case IQ2_XXS:
        scale = 2 * int(byte_at(b, 9u + 8u * j) >> 4) + 1;
        break;
    case IQ2_XS:
        scale = 2 * int(byte_at(b, 66u + j) >> unit % 2u * 4u & 15u) + 1;
        break;
    case IQ2_S:
        scale = 2 * int(byte_at(b, 74u + j) >> unit % 2u * 4u & 15u) + 1;
        break;
    case IQ3_XXS:
        scale = 2 * int(byte_at(b, 69u + 4u * j) >> 4) + 1;
        break;
    case IQ3_S:
        scale = 2 * int(byte_at(b, 106u + j / 2u) >> j % 2u * 4u & 15u) + 1;
        break;
    case IQ1_S:
        scale = 2 * int(byte_at(b, 35u + 2u * j) >> 4 & 7u) + 1;
        break;
    case IQ1_M:
        scale = 2 * int(word_at(b, 48u + unit / 4u * 2u) >> unit % 4u * 3u & 7u) + 1;
        break;
    case IQ2_K:
        scale = int(byte_at(b, 4u + j) >> unit % 2u * 4u & 15u) - 8;
        break;
    case IQ3_K:
        scale = 2 * int(byte_at(b, 6u + j) >> unit % 2u * 4u & 15u) + 1;
        if ((byte_at(b, 4u + unit / 8u) >> unit % 8u & 1u) == 1u)
            scale = -scale;
        break;
    case IQ4_K:
    case IQ5_K:
        scale = int(byte_at(b, 8u + j) >> unit % 2u * 4u & 15u |
                    (byte_at(b, 4u + unit / 4u) >> unit % 4u * 2u & 3u) << 4) - 32;
        break;
    case IQ6_K:
        scale = int(i8s(b).v[4u + unit]);
        break;
    }
}

bool has_grid() {
    return TYPE == IQ2_XXS || TYPE == IQ2_XS || TYPE == IQ2_S || TYPE == IQ3_XXS || TYPE == IQ3_S ||
           TYPE == IQ1_S || TYPE == IQ1_M;
}
void load_unit(uint64_t b, uint unit, out int q[16]) {
    if (is_block32())
        unit_32(b, unit, q);
    else if (has_grid())
        unit_grid(b, unit, q);
    else if (has_table())
        unit_table(b, unit, q);
    else
        unit_super(b, unit, q);
}

/* ---- four elements a word ---- */

/* Each byte less `by`, where bytes are below 128 and none becomes less than -128. */
uvec4 less(uvec4 w, uint by) {
    return (w + (0x80u - by) * 0x01010101u) ^ 0x80808080u;
}
/* FP4_VALUES of each byte, which is below 16. */
uvec4 fp4_values(uvec4 w) {
    uvec4 low = w & 0x03030303u, large = (w >> 2 & 0x01010101u) * 0xffu;
    uvec4 size = low + (large & (0x04040404u + low + ((low & low >> 1 & 0x01010101u) << 1)));
    uvec4 minus = (w >> 3 & 0x01010101u) * 0xffu;
    return (0x80808080u + (size & ~minus)) - (size & minus) ^ 0x80808080u;
}
/* Four bits from bit `at` on, the lowest bit of a byte each. */
uint spread(uint bits, uint at) {
    return (bits >> at & 15u) * 0x00204081u & 0x01010101u;
}
ivec4 pack(int q[16]) {
    ivec4 w;
    [[unroll]] for (uint k = 0; k < 4u; k++)
        w[k] = q[4u * k] & 255 | (q[4u * k + 1u] & 255) << 8 | (q[4u * k + 2u] & 255) << 16 |
               q[4u * k + 3u] << 24;
    return w;
}
ivec4 unit_by_elements(uint64_t b, uint unit) {
    int q[16];
    load_unit(b, unit, q);
    return pack(q);
}

/* Of types of 32 elements, from the 16 bytes that its units share. */
ivec4 nibbles_32(uvec4 bytes, uint unit, uint bits) {
    uvec4 w = bytes >> 4u * unit & 0x0f0f0f0fu;
    if (TYPE == Q5_0 || TYPE == Q5_1)
        w |= uvec4(spread(bits, 16u * unit), spread(bits, 16u * unit + 4u),
                   spread(bits, 16u * unit + 8u), spread(bits, 16u * unit + 12u))
             << 4;
    return ivec4(TYPE == Q4_0    ? less(w, 8u)
                 : TYPE == Q5_0  ? less(w, 16u)
                 : TYPE == MXFP4 ? fp4_values(w)
                                 : w);
}
uint nibbles_32_at() {
    return TYPE == Q4_1 ? 4u : TYPE == Q5_0 ? 6u : TYPE == Q5_1 ? 8u : TYPE == MXFP4 ? 1u : 2u;
}
uint fifth_bits(uint64_t b) {
    return TYPE == Q5_0 ? u32_at(b, 2u) : TYPE == Q5_1 ? u32_at(b, 4u) : 0u;
}
/* Of Q6_K, from the units' low and high bits. */
ivec4 six_bits(uvec4 low, uvec4 high, uint unit) {
    return ivec4(less(low >> unit / 4u % 2u * 4u & 0x0f0f0f0fu |
                          (high >> unit % 8u / 2u * 2u & 0x03030303u) << 4,
                      32u));
}
ivec4 five_bits(uvec4 low, uvec4 high, uint unit) { /* Q4_K and Q5_K */
    uvec4 w = low >> unit / 2u % 2u * 4u & 0x0f0f0f0fu;
    return ivec4(TYPE == Q5_K ? w | (high >> unit / 2u & 0x01010101u) << 4 : w);
}

/* load_unit(), packed. */
ivec4 load_words(uint64_t b, uint unit) {
    uint i32 = 16u * (unit & 1u);
    switch (TYPE) {
    case Q8_0:
        return ivec4(bytes_at(b + 2u + 16u * unit));
    case Q4_0: case Q4_1: case Q5_0: case Q5_1: case MXFP4:
        return nibbles_32(bytes_at(b + nibbles_32_at()), unit, fifth_bits(b));
    case Q4_K:
        return five_bits(bytes_at(b + 16u + unit / 4u * 32u + i32), uvec4(0u), unit);
    case Q5_K:
        return five_bits(bytes_at(b + 48u + unit / 4u * 32u + i32), bytes_at(b + 16u + i32), unit);
    case Q6_K:
        return six_bits(bytes_at(b + unit / 8u * 64u + unit % 4u * 16u),
                        bytes_at(b + 128u + unit / 8u * 32u + i32), unit);
    case Q2_K:
        return ivec4(bytes_at(b + 16u + unit / 8u * 32u + i32) >> unit % 8u / 2u * 2u & 0x03030303u);
    case Q3_K: {
        uvec4 w = bytes_at(b + 32u + unit / 8u * 32u + i32) >> unit % 8u / 2u * 2u & 0x03030303u;
        return ivec4(less(w | (bytes_at(b + i32) >> unit / 2u & 0x01010101u) << 2, 4u));
    }
    default:
        return unit_by_elements(b, unit);
    }
}

/* ---- pieces: 32 elements in two units that lie in the same bytes, where the type has such ---- */

struct piece {
    ivec4 a, b; /* of units unit_a() and unit_b() */
    int scale_a, scale_b, least_a, least_b;
    uint halves;   /* of 256-element types that are staged: binary16 of d, and of dmin above it */
    float d, dmin; /* of others */
};

/* Units of a row, of its piece i. */
uint unit_a(uint i) {
    if (TYPE == Q4_K || TYPE == Q5_K)
        return i / 2u * 4u + i % 2u;
    if (TYPE == Q6_K)
        return i / 4u * 8u + i % 4u;
    return 2u * i;
}
uint unit_b(uint i) {
    return unit_a(i) + (TYPE == Q4_K || TYPE == Q5_K ? 2u : TYPE == Q6_K ? 4u : 1u);
}

/* The first 16 bytes of a Q4_K or Q5_K block: d, dmin, and 6-bit scales and minimums of 8 runs of
 * 32, of which piece p has two. */
void put_head(uvec4 head, uint p, inout piece to) {
    uint shift = p / 2u % 2u * 16u;
    uint x = head.y >> shift, y = head.z >> shift, z = head.w >> shift;
    bool first = p < 4u;
    uint scales = first ? x & 0x3f3fu : z & 0x0f0fu | x >> 2 & 0x3030u;
    uint mins = first ? y & 0x3f3fu : z >> 4 & 0x0f0fu | y >> 2 & 0x3030u;
    to.scale_a = int(scales & 255u);
    to.scale_b = int(scales >> 8);
    to.least_a = int(mins & 255u);
    to.least_b = int(mins >> 8);
    to.halves = head.x;
}

/* What is loaded of a piece before anything is made of it, so that many loads are in flight: words
 * of memory. Only of these types. */
bool is_staged() {
    return TYPE == Q8_0 || TYPE == MXFP4 || TYPE == Q4_K || TYPE == Q5_K || TYPE == Q6_K;
}
struct raw_piece {
    uint w[14];
};
uint64_t block_of_piece(uint64_t row, uint i) {
    return row + uint64_t(is_block32() ? i : i / 8u) * block_bytes();
}
/* 16 bytes at any address, as 5 words from `to` on. */
void load_raw_16(uint64_t at, uint to, inout raw_piece r) {
    u32s from = u32s(at & ~uint64_t(3));
    [[unroll]] for (uint k = 0; k < 4u; k++)
        r.w[to + k] = from.v[k];
    r.w[to + 4u] = from.v[(uint(at) & 3u) != 0u ? 4u : 3u]; /* holds at least one of them */
}
uvec4 raw_16(raw_piece r, uint at, uint shift) {
    return uvec4(funnel(r.w[at], r.w[at + 1u], shift), funnel(r.w[at + 1u], r.w[at + 2u], shift),
                 funnel(r.w[at + 2u], r.w[at + 3u], shift),
                 funnel(r.w[at + 3u], r.w[at + 4u], shift));
}
void put_raw(uvec4 v, uint to, inout raw_piece r) {
    [[unroll]] for (uint k = 0; k < 4u; k++)
        r.w[to + k] = v[k];
}
uvec4 raw_4(raw_piece r, uint at) {
    return uvec4(r.w[at], r.w[at + 1u], r.w[at + 2u], r.w[at + 3u]);
}

raw_piece load_raw(uint64_t row, uint i) {
    raw_piece r;
    uint64_t b = block_of_piece(row, i);
    u32s from = u32s(b & ~uint64_t(3));
    uint p = i % 8u;
    switch (TYPE) {
    case Q8_0: /* the words that the block lies in */
        [[unroll]] for (uint k = 0; k < 9u; k++)
            r.w[k] = from.v[k];
        r.w[9] = from.v[(uint(b) & 3u) == 3u ? 9u : 8u];
        break;
    case MXFP4:
        [[unroll]] for (uint k = 0; k < 5u; k++)
            r.w[k] = from.v[k];
        break;
    case Q4_K: case Q5_K:
        put_raw(bytes_at(b), 0u, r);
        put_raw(bytes_at(b + (TYPE == Q4_K ? 16u : 48u) + 16u * p), 4u, r);
        if (TYPE == Q5_K)
            put_raw(bytes_at(b + 16u + 16u * (p & 1u)), 8u, r);
        break;
    case Q6_K: {
        uint unit = p / 4u * 8u + p % 4u;
        load_raw_16(b + 16u * p, 0u, r);
        load_raw_16(b + 128u + p / 4u * 32u + 16u * (p & 1u), 5u, r);
        r.w[10] = uint(int(i8s(b).v[192u + unit]));
        r.w[11] = uint(int(i8s(b).v[196u + unit]));
        r.w[12] = byte_at(b, 208u);
        r.w[13] = byte_at(b, 209u);
        break;
    }
    }
    return r;
}

piece make_staged(raw_piece r, uint64_t row, uint i) {
    piece to;
    to.scale_a = to.scale_b = 1;
    to.least_a = to.least_b = 0;
    to.halves = 0u;
    to.d = to.dmin = 0.0;
    uint64_t b = block_of_piece(row, i);
    uint p = i % 8u, shift = 8u * (uint(b) & 3u);
    switch (TYPE) {
    case Q8_0: { /* from the third byte on, which may be in the second word */
        uint by = shift + 16u & 31u;
        bool next = shift >= 16u;
        to.d = f32_of_f16(funnel(r.w[0], r.w[1], shift) & 0xffffu);
        [[unroll]] for (uint k = 0; k < 4u; k++) {
            to.a[k] = int(funnel(next ? r.w[k + 1u] : r.w[k], next ? r.w[k + 2u] : r.w[k + 1u], by));
            to.b[k] =
                int(funnel(next ? r.w[k + 5u] : r.w[k + 4u], next ? r.w[k + 6u] : r.w[k + 5u], by));
        }
        return to;
    }
    case MXFP4: {
        uint e = r.w[0] >> shift & 255u;
        uvec4 q;
        [[unroll]] for (uint k = 0; k < 4u; k++)
            q[k] = shift == 24u ? r.w[k + 1u] : funnel(r.w[k], r.w[k + 1u], shift + 8u & 31u);
        to.d = uintBitsToFloat(e < 2u ? 0x00200000u << e : (e - 1u) << 23);
        to.a = nibbles_32(q, 0u, 0u);
        to.b = nibbles_32(q, 1u, 0u);
        return to;
    }
    case Q4_K: case Q5_K: {
        uvec4 high = TYPE == Q5_K ? raw_4(r, 8u) : uvec4(0u);
        put_head(raw_4(r, 0u), p, to);
        to.a = five_bits(raw_4(r, 4u), high, p / 2u * 4u);
        to.b = five_bits(raw_4(r, 4u), high, p / 2u * 4u + 2u);
        return to;
    }
    case Q6_K: {
        uvec4 low = raw_16(r, 0u, shift), high = raw_16(r, 5u, shift);
        uint unit = p / 4u * 8u + p % 4u;
        to.scale_a = int(r.w[10]);
        to.scale_b = int(r.w[11]);
        to.halves = r.w[12] | r.w[13] << 8;
        to.a = six_bits(low, high, unit);
        to.b = six_bits(low, high, unit + 4u);
        return to;
    }
    }
    return to;
}

/* A piece of another type. */
piece make_other(uint64_t row, uint i) {
    piece to;
    to.halves = 0u;
    uint64_t b = block_of_piece(row, i);
    uint unit = is_block32() ? 0u : 2u * (i % 8u);
    if (TYPE == Q4_0 || TYPE == Q4_1 || TYPE == Q5_0 || TYPE == Q5_1) {
        uvec4 q = bytes_at(b + nibbles_32_at());
        uint bits = fifth_bits(b);
        to.a = nibbles_32(q, 0u, bits);
        to.b = nibbles_32(q, 1u, bits);
    } else {
        [[dont_unroll]] for (uint k = 0; k < 2u; k++) { /* to be small */
            ivec4 w = load_words(b, unit + k);
            to.a = k == 0u ? w : to.a;
            to.b = w;
        }
    }
    unit_scales(b, unit, to.scale_a, to.least_a);
    unit_scales(b, unit + 1u, to.scale_b, to.least_b);
    block_scales(b, to.d, to.dmin);
    return to;
}

/* Unit u of a row of n elements as floats; what is beyond the row is 0. */
void dequantize(uint64_t row, uint u, uint n, out float y[16]) {
    if (is_float()) {
        [[unroll]] for (uint e = 0; e < 16u; e++)
            y[e] = u * 16u + e < n ? load_float(row, u * 16u + e) : 0.0;
        return;
    }
    int q[16], scale, least;
    float d, dmin;
    uint unit;
    uint64_t b = block_of(row, u, unit);
    load_unit(b, unit, q);
    unit_scales(b, unit, scale, least);
    block_scales(b, d, dmin);
    precise float by = d * float(scale), less = dmin * float(least);
    [[unroll]] for (uint e = 0; e < 16u; e++) {
        precise float v = by * float(q[e]);
        y[e] = has_min() ? v - less : v;
    }
}
