#include "compatibility.h"

#include <algorithm>
#include <cstdint>

#include "elf.h"
#include "error.h"
#include "hashed_files.h"

namespace adt {
namespace {

void RequireMachine(const Source& source, const RunnerInfo& runner) {
  if (source.library.empty()) return;  // the dynamic linker will see
  const std::string& library = source.library_name();
  const std::string machine = ElfMachine(source.library.data(), source.library.size(), library);
  if (machine != runner.machine) {
    throw Error(ErrorKind::kMismatch,
                library + " is for " + machine + ", this runner is for " + runner.machine,
                "Compile the model for this device's platform (adt compile --for), or use the "
                "bundle of the platform that the package was compiled for.");
  }
}

void RequireAlignment(const Package& package, const RunnerInfo& runner) {
  if (package.alignment > runner.alignment) {
    throw Error(ErrorKind::kMismatch,
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
    throw Error(ErrorKind::kMismatch,
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
        ErrorKind::kMismatch,
        "the package was compiled for the device " + package.target.device + ", not " + device,
        "Run it with --device " + package.target.device + ", or compile it for " + device + ".");
  }
}

// Calls *check* with each file whose bytes are there, and what mod.json says of it.
template <typename Check>
void ForEachFile(const Package& package, const Source& source, const Check& check) {
  check(package.files.at("mod.params"), source.params, source.params_name);
  if (source.library.empty()) return;
  check(package.files.at("mod.so"), source.library, source.library_name());
}

[[noreturn]] void FailAsAnotherFile(const std::string& name, const char* difference) {
  throw Error(ErrorKind::kPackage,
              name + " is not the file that mod.json describes (" + difference + ")",
              "Deploy the package again (adt deploy); if that does not help, compile it again.");
}

}  // namespace

void RequireFits(const Package& package, const Source& source, const RunnerInfo& runner,
                 const std::string& device) {
  RequireMachine(source, runner);
  RequireAlignment(package, runner);
  RequireContextSymbols(package, runner);
  RequireDevice(package, device);
  ForEachFile(package, source,
              [](const PackageFile& file, const Blob& bytes, const std::string& name) {
                if (static_cast<std::uint64_t>(file.size) != bytes.size()) {
                  FailAsAnotherFile(name, "size");
                }
              });
}

void RequireHashes(const Package& package, const Source& source, const std::string& directory) {
  ForEachFile(package, source,
              [&](const PackageFile& file, const Blob& bytes, const std::string& name) {
                if (file.sha256 != Sha256Once(bytes, directory)) FailAsAnotherFile(name, "sha256");
              });
}

}  // namespace adt
