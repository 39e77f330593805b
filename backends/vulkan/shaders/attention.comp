#version 460
#extension GL_GOOGLE_include_directive : require
#define MAX_DIM 256u
#include "attention.glsl"
