/* __half stands in tests/support/simt/half.h, which kernel.h brings. */
