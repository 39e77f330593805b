#version 460
#extension GL_GOOGLE_include_directive : require
#define ROWS 4u
#define LANES 32u
#include "matmul_quant.glsl"
