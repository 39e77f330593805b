/* The dot product of four int8 with four int8, exact: OpSDotKHR, core in SPIR-V 1.6. */
#extension GL_EXT_spirv_intrinsics : require
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6018, 6019], id = 4450)
int dot4_packed(int a, int b, spirv_literal int format);
int dot4(int a, int b) {
    return dot4_packed(a, b, 0);
}
