/* Sixteen elements of a block whose largest magnitude has the bits `top`, to int8 as
 * backends/cpu/matmul/quantize.h defines it: four words, the block's scale and the elements' sum. */
uvec4 to_int8(vec4 v[4], uint top, out float d, out int sum) {
    float most = uintBitsToFloat(top), inv = 0.0;
    d = 0.0;
    sum = 0;
    if (top >= 0x7f800000u) {
        d = NAN;
    } else if (top >= 0x0d800000u) { /* 2^-100 */
        inv = divide(127.0, most);
        d = divide(most, 127.0);
    }
    uvec4 words;
    [[unroll]] for (uint k = 0; k < 4u; k++) {
        precise vec4 scaled = v[k] * inv;
        ivec4 e = inv == 0.0 ? ivec4(0) : ivec4(roundEven(scaled));
        words[k] = uint(e.x & 255 | (e.y & 255) << 8 | (e.z & 255) << 16 | e.w << 24);
        sum += e.x + e.y + e.z + e.w;
    }
    return words;
}
uint top_of(vec4 v[4]) {
    uint top = 0u;
    [[unroll]] for (uint k = 0; k < 4u; k++) {
        uvec4 size = floatBitsToUint(v[k]) & 0x7fffffffu;
        top = max(max(top, max(size.x, size.y)), max(size.z, size.w));
    }
    return top;
}
