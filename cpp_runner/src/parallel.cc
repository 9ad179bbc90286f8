#include "parallel.h"

#include <array>
#include <atomic>
#include <cstddef>

namespace adt {
namespace {

constexpr int kParts = 4;         // of each thread
constexpr int kMostThreads = 32;  // more share a loop as TVM does
constexpr std::size_t kCacheLine = 64;

struct alignas(kCacheLine) Counter {
  std::atomic<int> begun{0};  // parts of a thread
};

struct Loop {
  FTVMParallelLambda body;
  void* captured;
  std::array<Counter, kMostThreads> threads;
};

// The share of one of the pool's threads.
int Work(int thread, TVMParallelGroupEnv* pool, void* data) {
  auto* loop = static_cast<Loop*>(data);
  const int threads = pool->num_task;
  if (threads == 1 || threads > kMostThreads) return loop->body(thread, pool, loop->captured);
  TVMParallelGroupEnv parts{nullptr, threads * kParts};
  for (int i = 0; i < threads; ++i) {
    const int owner = (thread + i) % threads;
    std::atomic<int>& begun = loop->threads[static_cast<std::size_t>(owner)].begun;
    for (int part = begun++; part < kParts; part = begun++) {
      const int failed = loop->body(owner * kParts + part, &parts, loop->captured);
      if (failed != 0) return failed;
    }
  }
  return 0;
}

thread_local std::uint64_t shared_loops = 0;
thread_local bool is_alone = false;

}  // namespace

int ShareLoop(FTVMParallelLambda body, void* captured, int tasks) {
  ++shared_loops;
  if (is_alone) {  // as TVM does where it has one worker
    std::int32_t counter = 0;
    TVMParallelGroupEnv one{&counter, 1};
    return body(0, &one, captured);
  }
  if (tasks != 0) return TVMBackendParallelLaunch(body, captured, tasks);
  Loop loop{body, captured, {}};
  return TVMBackendParallelLaunch(Work, &loop, 0);
}

std::uint64_t SharedLoops() { return shared_loops; }

Alone::Alone() { is_alone = true; }

Alone::~Alone() { is_alone = false; }

}  // namespace adt
