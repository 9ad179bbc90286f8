// What this build of the runner is and offers; packages are checked against it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace adt {

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

/// Sets the runtime up for loading modules (context symbols) the first time. Throws Error(kRun).
RunnerInfo Info();

/// "0.1.0 (TVM 0.25.0, tvm-ffi 0.1.0)".
const char* VersionLine();

}  // namespace adt
