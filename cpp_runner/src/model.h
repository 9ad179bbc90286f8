// A loaded package on one device: what its sessions share.
#pragma once

#include <dlpack/dlpack.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/runtime/tensor.h>

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

#include "memory_pools.h"
#include "package.h"
#include "program_build.h"
#include "program_cache.h"
#include "source.h"
#include "vm.h"

namespace adt {

struct ModelOptions {
  /// "cpu", "opencl" or "cuda", or one of several ("opencl:1"); empty for the first of those that
  /// the package was compiled for.
  std::string device;
  /// Where compiled OpenCL programs are kept.
  ProgramStore programs;
  /// How those that are not there are built.
  ProgramBuildOptions build;
  /// Directory for a library that cannot be loaded from memory; empty for none.
  std::string scratch;
};

/// Weights, code and compiled programs. From any threads.
class Model {
 public:
  /// Check the package against this runner, this machine and its own hashes, then load it.
  /// Error(kPackage): it is damaged. Error(kMismatch): it does not fit. Error(kNoDevice). *source*
  /// is not needed afterwards.
  Model(const Source& source, const ModelOptions& options);
  /// Waits for programs that are being written.
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const Package& package() const { return package_; }
  /// The text of mod.json.
  const std::string& manifest() const { return manifest_; }
  /// "cpu", "opencl" or "cuda".
  const std::string& device() const { return device_name_; }
  /// What the device calls itself.
  const std::string& device_name() const { return device_label_; }
  /// Version of its driver; empty for the CPU.
  const std::string& device_driver() const { return device_driver_; }
  DLDevice dl_device() const { return device_; }
  /// Whether all that runs is compiled for the CPU: no driver and no other library computes.
  bool IsPlain() const { return plain_; }
  const ProgramBuildReport& build() const { return build_; }
  /// Weights of an entry, in its order.
  const std::vector<tvm::runtime::Tensor>& params(std::size_t entry) const {
    return params_[entry];
  }

  /// A VM of the package's code, with state of its own.
  Vm MakeVm();

  /// Call *run*, which calls the code, beside other sessions' runs; alone where a library that
  /// computes a part keeps the run's state in the model's memory.
  template <typename Run>
  auto WithCode(const Run& run) {
    if (reentrant_) {
      const std::shared_lock<std::shared_mutex> lock(code_);
      return run();
    }
    const std::unique_lock<std::shared_mutex> lock(code_);
    return run();
  }

  /// After a run: write the compiled OpenCL programs that were not found when loading, once.
  void KeepPrograms();
  /// The same on a thread of its own, as a disk may be slow.
  void SavePrograms();
  /// What became of them; waits for what is being written.
  const ProgramReport& programs() const;

 private:
  void LoadParams(const Source& source);

  PoolUser pool_user_;  // the first, and so the last to go
  Package package_;
  std::string manifest_;
  DLDevice device_{};
  std::string device_name_;
  std::string device_label_;
  std::string device_driver_;
  std::string library_name_;
  ProgramReport programs_;
  ProgramBuildReport build_;
  tvm::ffi::Module library_{tvm::ffi::UnsafeInit{}};
  bool plain_ = false;
  bool reentrant_ = false;
  std::vector<std::vector<tvm::runtime::Tensor>> params_;
  std::shared_mutex code_;
  mutable std::mutex saving_mutex_;
  mutable std::condition_variable saved_;
  bool being_saved_ = false;
  std::thread saving_;
};

}  // namespace adt
