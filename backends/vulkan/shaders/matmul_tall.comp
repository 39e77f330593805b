#version 460
#extension GL_GOOGLE_include_directive : require
/* As matmul_quant.comp, for matrices of so many rows that there are workgroups enough. */
#include "matmul_quant.glsl"
