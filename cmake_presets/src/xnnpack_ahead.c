// XNNPACK's own kernels, in which each load of the first of a row of weights, "w", fetches others.
#include "xnnpack_ahead.h"

#include <immintrin.h>
#include <stdbool.h>

_Thread_local struct AdtAhead adt_ahead;

static inline __attribute__((always_inline)) __m512 Load(const float* weights, bool first) {
  if (first) {
    const uintptr_t ahead = adt_ahead.offset + ((uintptr_t)weights >> adt_ahead.shift);
    _mm_prefetch((const char*)ahead, _MM_HINT_T1);
  }
  return _mm512_load_ps(weights);
}

#define _mm512_load_ps(address) Load(address, sizeof(#address) == sizeof("w"))
#define xnn_f32_gemm_minmax_ukernel_7x32__avx512f_broadcast adt_gemm_ahead
#define xnn_f32_igemm_minmax_ukernel_7x32__avx512f_broadcast adt_igemm_ahead
#include "f32-gemm/gen/f32-gemm-7x32-minmax-avx512f-broadcast.c"
#include "f32-igemm/gen/f32-igemm-7x32-minmax-avx512f-broadcast.c"
