// Inputs where the model can use them as they lie.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "array.h"
#include "session.h"

namespace adt::rtvm {

/// Copies of arrays, aligned as a package wants them; they must outlive the runs.
class AlignedInputs {
 public:
  /// *inputs* fit *entry* of the session.
  AlignedInputs(const NamedArrays& inputs, const Session& session, std::size_t entry);

  /// Make them the entry's inputs, without a copy. Throws Error(kUsage): not on a CPU.
  void Bind(Session* session) const;

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };
  struct Aligned {
    std::vector<std::int64_t> shape;
    std::size_t size;
    std::unique_ptr<std::byte, Free> data;
  };

  std::size_t entry_;
  std::vector<Aligned> inputs_;  // in the entry's order
};

}  // namespace adt::rtvm
