// Kernels of XNNPACK's that fetch weights ahead of their use, for processors with AVX-512.
#ifndef ADT_XNNPACK_AHEAD_H_
#define ADT_XNNPACK_AHEAD_H_

#include <stdint.h>

#include "xnnpack/gemm.h"
#include "xnnpack/igemm.h"

// While a kernel on this thread reads the weights at w, it fetches those at offset + (w >> shift).
extern _Thread_local struct AdtAhead {
  uintptr_t offset;
  unsigned shift;
} adt_ahead;

// They compute 7 rows and 32 columns at once.
DECLARE_F32_GEMM_MINMAX_UKERNEL_FUNCTION(adt_gemm_ahead)
DECLARE_F32_IGEMM_MINMAX_UKERNEL_FUNCTION(adt_igemm_ahead)

#endif  // ADT_XNNPACK_AHEAD_H_
