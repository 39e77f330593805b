/* Tensor types: one element of a float type, and 16 elements of a quantised one, in the form of
 * backends/cpu/formats.h: integers, an integer scale and minimum, and the block's d and dmin. */
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
    [[unroll]] for (uint i = 0; i < 16u; i++) {
        if (TYPE == Q8_0) {
            q[i] = int(i8s(b).v[2u + 16u * unit + i]);
            continue;
        }
        int v = int(byte_at(b, at + i) >> 4u * unit & 15u);
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
    [[unroll]] for (uint i = 0; i < 16u; i++) {
        uint at = i32 + i, low, high;
        switch (TYPE) {
        case Q2_K:
            q[i] = int(byte_at(b, 16u + unit / 8u * 32u + at) >> unit % 8u / 2u * 2u & 3u);
            break;
        case Q3_K:
            low = byte_at(b, 32u + unit / 8u * 32u + at) >> unit % 8u / 2u * 2u & 3u;
            high = byte_at(b, at) >> unit / 2u & 1u;
            q[i] = int(low) - (high == 1u ? 0 : 4);
            break;
        case Q4_K:
            q[i] = int(byte_at(b, 16u + unit / 4u * 32u + at) >> unit / 2u % 2u * 4u & 15u);
            break;
        case Q5_K:
            low = byte_at(b, 48u + unit / 4u * 32u + at) >> unit / 2u % 2u * 4u & 15u;
            high = byte_at(b, 16u + at) >> unit / 2u & 1u;
            q[i] = int(low | high << 4);
            break;
        case Q6_K:
            low = byte_at(b, unit / 8u * 64u + unit % 4u * 16u + i) >> unit / 4u % 2u * 4u & 15u;
            high = byte_at(b, 128u + unit / 8u * 32u + at) >> unit % 8u / 2u * 2u & 3u;
            q[i] = int(low | high << 4) - 32;
            break;
        default: /* IQ4_XS */
            q[i] = IQ4_VALUES[byte_at(b, 8u + unit / 2u * 16u + i) >> 4u * (unit & 1u) & 15u];
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
    }
}

void load_unit(uint64_t b, uint unit, out int q[16]) {
    if (is_block32())
        unit_32(b, unit, q);
    else
        unit_super(b, unit, q);
}
