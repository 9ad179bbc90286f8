#include "compatibility.h"

#include <algorithm>

#include "adt/error.h"
#include "adt/sha256.h"
#include "elf.h"

namespace adt {
namespace {

void RequireMachine(const std::string& library, const RunnerInfo& runner) {
  const std::string machine = ElfMachine(library);
  if (machine != runner.machine) {
    throw Error(ErrorKind::kPackage,
                library + " is for " + machine + ", this runner is for " + runner.machine,
                "Compile the model for this device's platform (adt compile --for), or use the "
                "bundle of the platform that the package was compiled for.");
  }
}

void RequireAlignment(const Package& package, const RunnerInfo& runner) {
  if (package.alignment > runner.alignment) {
    throw Error(ErrorKind::kPackage,
                "the package assumes tensors aligned to " + std::to_string(package.alignment) +
                    " bytes, this runtime aligns to " + std::to_string(runner.alignment),
                "Compile the model for this bundle's alignment (adt compile), or build the target "
                "with the package's (adt build-target).");
  }
}

void RequireContextSymbols(const Package& package, const RunnerInfo& runner) {
  std::string missing;
  for (const std::string& symbol : package.tvm.context_symbols) {
    const auto& offered = runner.context_symbols;
    if (std::find(offered.begin(), offered.end(), symbol) == offered.end()) {
      missing += (missing.empty() ? "" : ", ") + symbol;
    }
  }
  if (!missing.empty()) {
    throw Error(ErrorKind::kPackage,
                "the package was compiled by TVM " + package.tvm.version +
                    " and needs context symbols that this runtime (TVM " + runner.tvm_version +
                    ") does not have: " + missing,
                "Build the target from the TVM source that matches the compiler (adt "
                "build-target), or compile with the TVM that matches the target.");
  }
}

void RequireDevice(const Package& package, const std::string& device) {
  if (device != package.target.device) {
    throw Error(
        ErrorKind::kPackage,
        "the package was compiled for the device " + package.target.device + ", not " + device,
        "Run it with --device " + package.target.device + ", or compile it for " + device + ".");
  }
}

void RequireHashes(const Package& package, const std::string& directory) {
  for (const auto& [name, file] : package.files) {
    const std::string path = directory + "/" + name;
    if (Sha256OfFile(path) != file.sha256) {
      throw Error(
          ErrorKind::kPackage, path + " is not the file that mod.json describes (sha256)",
          "Deploy the package again (adt deploy); if that does not help, compile it again.");
    }
  }
}

}  // namespace

void RequireFits(const Package& package, const std::string& directory, const RunnerInfo& runner,
                 const std::string& device) {
  RequireMachine(directory + "/mod.so", runner);
  RequireAlignment(package, runner);
  RequireContextSymbols(package, runner);
  RequireDevice(package, device);
  RequireHashes(package, directory);
}

}  // namespace adt
