// Which instruction sets the kernels are compiled for. Included before Highway.
#pragma once

#if defined(__SANITIZE_ADDRESS__)
// AddressSanitizer looks at the same loops whatever the set, and they compile very slowly with it.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#else
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif
