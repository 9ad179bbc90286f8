// Run a ModelPackage.
//
//   adt::Runner runner("/data/local/tmp/model");
//   adt::NamedArrays outputs = runner.Run(adt::ReadNpz("in.npz"));
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "adt/array.h"
#include "adt/error.h"
#include "adt/export.h"
#include "adt/package.h"

namespace adt {

/// What this build of the runner is and offers; packages are checked against it.
struct RunnerInfo {
  std::string version;
  std::string tvm_version;
  std::string ffi_version;
  /// ELF machine, e.g. "AARCH64".
  std::string machine;
  /// Bytes that every tensor of this runtime is aligned to.
  std::int64_t alignment = 0;
  /// Context symbols that a loaded module finds filled.
  std::vector<std::string> context_symbols;
  /// Devices whose runtime is built in; whether one is present shows only when it is used.
  std::vector<std::string> devices;
};

ADT_API RunnerInfo Info();

/// A loaded package on one device. Parameters stay on the device. Not thread-safe: one Runner for
/// each thread.
///
/// Every function throws Error only.
class ADT_API Runner {
 public:
  /// Check the package in *directory* against this runner, this machine and its own hashes, then
  /// load it. *device* is "cpu" or "opencl"; empty for the one the package was compiled for.
  explicit Runner(const std::string& directory, const std::string& device = {});
  ~Runner();
  Runner(Runner&&) noexcept;
  Runner& operator=(Runner&&) noexcept;

  const Package& package() const;
  /// "cpu" or "opencl".
  const std::string& device() const;
  /// What the device calls itself.
  const std::string& device_name() const;

  /// Copy *inputs*, in any order, to the device. Error(kInput) when one is missing, unknown, or of
  /// another shape or type than the entry has.
  void SetInputs(const NamedArrays& inputs, const std::string& entry = "main");
  /// Run once with the inputs set last, and wait until the device is done.
  void Invoke(const std::string& entry = "main");
  /// Copy the outputs of the last Invoke from the device, in the entry's order.
  NamedArrays Outputs(const std::string& entry = "main");

  /// SetInputs, Invoke, Outputs.
  NamedArrays Run(const NamedArrays& inputs, const std::string& entry = "main");

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace adt
