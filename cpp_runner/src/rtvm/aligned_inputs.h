// Inputs where the model can use them as they lie.
#pragma once

#include <tvm/runtime/tensor.h>

#include <cstddef>
#include <vector>

#include "array.h"
#include "session.h"

namespace adt::rtvm {

/// Copies of arrays, aligned as a package wants them.
class AlignedInputs {
 public:
  /// *inputs* fit *entry* of the session. Throws Error(kUsage): it is not on a CPU.
  AlignedInputs(const NamedArrays& inputs, const Session& session, std::size_t entry);

  /// Make them the entry's inputs, without a copy.
  void Set(Session* session) const;

 private:
  std::size_t entry_;
  std::vector<tvm::runtime::Tensor> inputs_;  // in the entry's order
};

}  // namespace adt::rtvm
