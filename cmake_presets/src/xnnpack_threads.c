// pthreadpool on TVM's thread pool: XNNPACK computes on the threads and the cores of the runner,
// and on no others.
//
// Takes the place of pthreadpool's src/pthreads.c; what shares a loop's range between threads and
// lets them take from each other (src/portable-api.c, src/fastpath.c) stays.
#include <fxdiv.h>
#include <pthreadpool.h>
#include <string.h>
#include <tvm/runtime/c_backend_api.h>

#include "threadpool-atomics.h"
#include "threadpool-common.h"
#include "threadpool-object.h"
#include "threadpool-utils.h"

static int Work(int thread, TVMParallelGroupEnv* group, void* data) {
  (void)group;
  struct pthreadpool* pool = (struct pthreadpool*)data;
  // A nested loop has one thread, which takes the ranges of all.
  if ((size_t)thread >= pool->threads_count.value) return 0;
  const uint32_t flags = pthreadpool_load_relaxed_uint32_t(&pool->flags);
  struct fpu_state state = {0};
  if (flags & PTHREADPOOL_FLAG_DISABLE_DENORMALS) {
    state = get_fpu_state();
    disable_fpu_denormals();
  }
  const thread_function_t function =
      (thread_function_t)pthreadpool_load_relaxed_void_p(&pool->thread_function);
  function(pool, &pool->threads[thread]);
  if (flags & PTHREADPOOL_FLAG_DISABLE_DENORMALS) set_fpu_state(state);
  return 0;
}

struct pthreadpool* pthreadpool_create(size_t threads) {
  struct pthreadpool* pool = pthreadpool_allocate(threads);
  if (pool == NULL) return NULL;
  pool->threads_count = fxdiv_init_size_t(threads);
  for (size_t i = 0; i < threads; ++i) pool->threads[i].thread_number = i;
  return pool;
}

void pthreadpool_parallelize(struct pthreadpool* pool, thread_function_t function,
                             const void* params, size_t params_size, void* task, void* context,
                             size_t range, uint32_t flags) {
  pthreadpool_store_relaxed_void_p(&pool->thread_function, (void*)function);
  pthreadpool_store_relaxed_void_p(&pool->task, task);
  pthreadpool_store_relaxed_void_p(&pool->argument, context);
  pthreadpool_store_relaxed_uint32_t(&pool->flags, flags);
  if (params_size != 0) memcpy(&pool->params, params, params_size);
  const struct fxdiv_result_size_t shares = fxdiv_divide_size_t(range, pool->threads_count);
  size_t begin = 0;
  for (size_t i = 0; i < pool->threads_count.value; ++i) {
    struct thread_info* thread = &pool->threads[i];
    const size_t length = shares.quotient + (size_t)(i < shares.remainder);
    pthreadpool_store_relaxed_size_t(&thread->range_start, begin);
    pthreadpool_store_relaxed_size_t(&thread->range_end, begin + length);
    pthreadpool_store_relaxed_size_t(&thread->range_length, length);
    begin += length;
  }
  TVMBackendParallelLaunch(Work, pool, 0);
}

void pthreadpool_destroy(struct pthreadpool* pool) {
  if (pool != NULL) pthreadpool_deallocate(pool);
}
