// How the work of a kernel is shared by threads.
#pragma once

#include <tvm/runtime/c_backend_api.h>

#include <cstdint>

namespace adt {

/// What a compiled module calls for a parallel loop, in place of TVM's function of that name, which
/// gives each thread one equal part: on big.LITTLE all then wait for the slow cores, and on any
/// machine for a core on which something else runs. Here each thread has kParts parts, begins with
/// its own, whose data its caches may have, and then takes what others have not begun.
///
/// The threads are those of TVM's pool. A module that asks for a number of tasks gets just these.
int ShareLoop(FTVMParallelLambda body, void* captured, int tasks);

/// How many loops this thread has shared so far.
std::uint64_t SharedLoops();

/// While it lives, this thread does such loops alone: TVM makes it no pool, and binds it to no
/// cores.
class Alone {
 public:
  Alone();
  ~Alone();
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;
};

}  // namespace adt
