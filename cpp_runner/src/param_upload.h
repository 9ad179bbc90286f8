// Copies of a file's parameters in a device's memory.
#pragma once

#include <dlpack/dlpack.h>
#include <tvm/runtime/tensor.h>

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "source.h"

namespace adt {

/// On OpenCL many copies are made before their end is waited for. The file's pages leave this
/// process's memory as soon as they are copied: else each parameter would be there twice.
class ParamUpload {
 public:
  ParamUpload(DLDevice device, const Blob& file) : device_(device), file_(file) {}
  /// Waits for what is being copied, without an error.
  ~ParamUpload();
  ParamUpload(const ParamUpload&) = delete;
  ParamUpload& operator=(const ParamUpload&) = delete;

  /// As CopyToDevice(); complete when Finish() was called. The array lies in the file.
  tvm::runtime::Tensor Copy(const DLTensor& from, bool image,
                            const std::function<std::string()>& name);
  /// Throws Error(kRun).
  void Finish();

 private:
  void Wait();

  DLDevice device_;
  const Blob& file_;
  std::vector<std::pair<const std::byte*, std::size_t>> pending_;
  std::size_t pending_bytes_ = 0;
};

}  // namespace adt
