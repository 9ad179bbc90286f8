// The memory that TVM keeps for later runs: it belongs to the process, matches exact sizes only,
// and TVM releases it only when there is no other.
#pragma once

#include <dlpack/dlpack.h>

#include <cstddef>

namespace adt {

/// Release what no tensor uses, of every device: TVM's pools, images that were kept, and free
/// memory of the C library. What a run needs then is allocated again. Throws nothing.
void TrimMemory() noexcept;

/// A loaded package: memory is trimmed when the last one of the process is gone.
class PoolUser {
 public:
  PoolUser();
  ~PoolUser();
  PoolUser(const PoolUser&) = delete;
  PoolUser& operator=(const PoolUser&) = delete;
};

/// Keeps the pool of a package small whose inputs have a new shape now and then: each shape needs
/// buffers of sizes of its own.
class PoolLimit {
 public:
  /// After a run with another shape than the one before: trim when the pool has become several
  /// times as large as one run needs.
  void AfterNewShape(DLDevice device);

 private:
  std::size_t need_ = 0;  // of one run after a trim; 0: not known
};

}  // namespace adt
