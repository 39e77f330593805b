/* For kernels that are compiled for the CPU: see kernel.h. */
#include "tests/support/simt/half.h"
