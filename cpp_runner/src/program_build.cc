#include "program_build.h"

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/optional.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "opencl_modules.h"
#include "tvm_errors.h"

namespace adt {

namespace ffi = tvm::ffi;

ProgramBuildReport BuildPrograms(const ffi::Module& library, DLDevice device,
                                 const ProgramBuildOptions& options) {
  if (device.device_type != kDLOpenCL || options.threads < 0) return {};
  const std::vector<ffi::Module> modules = FindOpenClModules(library);
  const auto build = ffi::Function::GetGlobal("adt.build_opencl_programs");  // of our runtimes
  if (modules.empty() || !build) return {};
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  ffi::Optional<ffi::Function> progress;
  if (options.progress) {
    progress = ffi::Function::FromTyped([&](std::int64_t done, std::int64_t total) {
      options.progress(static_cast<std::int32_t>(done), static_cast<std::int32_t>(total));
    });
  }
  using Steady = std::chrono::steady_clock;
  const auto start = Steady::now();
  const auto counts = WithTvmErrors(
      ErrorKind::kMismatch, "cannot build the OpenCL programs",
      "Check the device's driver (adt probe).", [&] {
        return (*build)(ffi::Array<ffi::Module>(modules.begin(), modules.end()), device.device_id,
                        options.threads > 0 ? options.threads : cores, progress)
            .cast<ffi::Array<std::int64_t>>();
      });
  return {counts[0], counts[1],
          std::chrono::duration<double, std::milli>(Steady::now() - start).count()};
}

}  // namespace adt
