// Products by columns: XNNPACK's src/operator-run.c calls these in place of pthreadpool's
// functions.
//
// XNNPACK computes a product row by row of tiles, and reads all weights for each: where there are
// many, they come from memory again and again. By columns, some columns' weights stay in a cache
// until all rows are computed; on processors with AVX-512 the next columns' come into it meanwhile.
#include <pthreadpool.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "xnnpack/compute.h"

#if defined(__x86_64__)
#include "xnnpack_ahead.h"
#define COLUMNS 64  // a multiple of what any of XNNPACK's kernels computes at once
#else
#define COLUMNS 16
#endif

struct Product {
  void* task;
  void* argument;
};

static size_t FewColumns(size_t columns) { return columns < COLUMNS ? columns : COLUMNS; }

static void ComputeTile(void* data, size_t column, size_t row, size_t columns, size_t rows) {
  const struct Product* product = (const struct Product*)data;
  ((pthreadpool_task_2d_tile_2d_t)product->task)(product->argument, row, column, rows, columns);
}

static void ComputeTileOn(void* data, uint32_t core, size_t column, size_t row, size_t columns,
                          size_t rows) {
  const struct Product* product = (const struct Product*)data;
  ((pthreadpool_task_2d_tile_2d_with_id_t)product->task)(product->argument, core, row, column, rows,
                                                         columns);
}

#if defined(__x86_64__)
#define AHEAD_COLUMNS 32        // of the kernels that fetch weights ahead
#define MANY ((size_t)1 << 20)  // bytes of weights; fewer are in the cache from the last run
#define LEAST_TILES 4           // of rows, to compute while weights are fetched

// A product by a kernel that fetches weights ahead.
struct ProductAhead {
  union {
    struct gemm_context gemm;
    struct igemm_context igemm;
  } context;
  struct Product product;
  uintptr_t weights;
  size_t bytes;      // of the weights of AHEAD_COLUMNS
  size_t tile_rows;  // that the kernel computes at once
  size_t tiles;      // of rows
  unsigned shift;    // while it computes one, it fetches 1 of 2^shift of the next columns' weights
};

// Whether the product of *task* is one for such a kernel, and *ahead* has it.
static bool DefineAhead(pthreadpool_task_2d_tile_2d_t task, const void* argument, size_t rows,
                        size_t columns, size_t tile_rows, struct ProductAhead* ahead) {
  size_t stride = 0;  // in bytes, from one column's weights to the next one's
  if (task == (pthreadpool_task_2d_tile_2d_t)xnn_compute_igemm) {
    struct igemm_context* context = &ahead->context.igemm;
    *context = *(const struct igemm_context*)argument;
    xnn_igemm_ukernel_fn* kernel = &context->ukernel.function[XNN_UARCH_DEFAULT];
    if (*kernel != (xnn_igemm_ukernel_fn)xnn_f32_igemm_minmax_ukernel_7x32__avx512f_broadcast) {
      return false;
    }
    *kernel = (xnn_igemm_ukernel_fn)adt_igemm_ahead;
    ahead->weights = (uintptr_t)context->packed_w;
    stride = context->w_stride;
  } else if (task == (pthreadpool_task_2d_tile_2d_t)xnn_compute_gemm) {
    struct gemm_context* context = &ahead->context.gemm;
    *context = *(const struct gemm_context*)argument;
    xnn_gemm_ukernel_fn* kernel = &context->ukernel.function[XNN_UARCH_DEFAULT];
    if (*kernel != (xnn_gemm_ukernel_fn)xnn_f32_gemm_minmax_ukernel_7x32__avx512f_broadcast) {
      return false;
    }
    *kernel = (xnn_gemm_ukernel_fn)adt_gemm_ahead;
    ahead->weights = (uintptr_t)context->packed_w;
    stride = context->w_stride;
  }
  ahead->product.task = (void*)task;
  ahead->product.argument = &ahead->context;
  ahead->bytes = AHEAD_COLUMNS * stride;
  ahead->tile_rows = tile_rows;
  ahead->tiles = (rows + tile_rows - 1) / tile_rows;
  ahead->shift = 0;
  while (((size_t)1 << ahead->shift) < ahead->tiles) ++ahead->shift;
  return stride * columns >= MANY && ahead->tiles >= LEAST_TILES;
}

// The next columns' weights follow those of this tile's. Behind the last columns' it fetches what
// is there, which does no harm, wherever that is.
static void ComputeTileAhead(void* data, size_t column, size_t row, size_t columns, size_t rows) {
  const struct ProductAhead* ahead = (const struct ProductAhead*)data;
  const uintptr_t begin = ahead->weights + column / AHEAD_COLUMNS * ahead->bytes;
  const size_t share = ahead->bytes / ahead->tiles * (row / ahead->tile_rows);
  adt_ahead.offset = begin + ahead->bytes + share - (begin >> ahead->shift);
  adt_ahead.shift = ahead->shift;
  ComputeTile((void*)&ahead->product, column, row, columns, rows);
}
#endif

void adt_parallelize_2d_tile_2d(struct pthreadpool* pool, pthreadpool_task_2d_tile_2d_t task,
                                void* argument, size_t rows, size_t columns, size_t tile_rows,
                                size_t tile_columns, uint32_t flags) {
#if defined(__x86_64__)
  struct ProductAhead ahead;
  if (DefineAhead(task, argument, rows, columns, tile_rows, &ahead)) {
    pthreadpool_parallelize_2d_tile_2d(pool, ComputeTileAhead, &ahead, columns, rows, AHEAD_COLUMNS,
                                       tile_rows, flags);
    return;
  }
#endif
  struct Product product = {(void*)task, argument};
  pthreadpool_parallelize_2d_tile_2d(pool, ComputeTile, &product, columns, rows,
                                     FewColumns(tile_columns), tile_rows, flags);
}

void adt_parallelize_2d_tile_2d_with_uarch(struct pthreadpool* pool,
                                           pthreadpool_task_2d_tile_2d_with_id_t task,
                                           void* argument, uint32_t core, uint32_t most,
                                           size_t rows, size_t columns, size_t tile_rows,
                                           size_t tile_columns, uint32_t flags) {
  struct Product product = {(void*)task, argument};
  pthreadpool_parallelize_2d_tile_2d_with_uarch(pool, ComputeTileOn, &product, core, most, columns,
                                                rows, FewColumns(tile_columns), tile_rows, flags);
}
