// Building a package's OpenCL programs when it is loaded, and not one by one in its first run.
#pragma once

#include <dlpack/dlpack.h>
#include <tvm/ffi/extra/module.h>

#include <cstdint>
#include <functional>

namespace adt {

struct ProgramBuildOptions {
  /// 0 for one for each core; below 0: a program is built when its kernel is first called.
  int threads = 0;
  /// Called by the loading thread: how many are done, and how many there are to be built. Never
  /// called when there are none. Throws nothing.
  std::function<void(std::int32_t done, std::int32_t total)> progress;
};

struct ProgramBuildReport {
  /// Programs that were built.
  std::int64_t built = 0;
  /// Programs that were there already.
  std::int64_t ready = 0;
  double ms = 0;
};

/// Build the programs that the kernels of *library* on *device* lack. A kernel that the driver does
/// not compile is left to its first call, which fails with the driver's words. Throws Error
/// when the device fails.
ProgramBuildReport BuildPrograms(const tvm::ffi::Module& library, DLDevice device,
                                 const ProgramBuildOptions& options);

}  // namespace adt
