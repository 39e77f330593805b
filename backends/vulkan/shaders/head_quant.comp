#version 460
#extension GL_GOOGLE_include_directive : require
#define QUANTIZED
#include "head_matmul.glsl"
