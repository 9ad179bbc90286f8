// A model's inputs, outputs and state.
#pragma once

#include <dlpack/dlpack.h>
#include <tvm/ffi/any.h>
#include <tvm/ffi/function.h>
#include <tvm/runtime/tensor.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "array.h"
#include "memory_pools.h"
#include "model.h"
#include "package.h"
#include "vm.h"

namespace adt {

/// Dimensions of an array, of any container. The pointer may be null when *rank* is 0.
struct Extents {
  const std::int64_t* data = nullptr;
  std::size_t rank = 0;
};

/// Copies of a program's arrays that a device reads later, when the program may have changed them.
class Staging {
 public:
  /// A copy, which stays until Release().
  const std::byte* Keep(const void* data, std::size_t size) {
    if (spare_.empty()) spare_.emplace_back();
    std::vector<std::byte>& copy = pending_.emplace_back(std::move(spare_.back()));
    spare_.pop_back();
    copy.resize(size);
    std::memcpy(copy.data(), data, size);
    pending_bytes_ += size;
    return copy.data();
  }
  /// Bytes that the device may still read.
  std::size_t pending_bytes() const { return pending_bytes_; }
  /// The device has read them all: their memory is used again.
  void Release() {
    for (auto& copy : pending_) spare_.push_back(std::move(copy));
    pending_.clear();
    pending_bytes_ = 0;
  }

 private:
  std::vector<std::vector<std::byte>> pending_;
  std::vector<std::vector<std::byte>> spare_;
  std::size_t pending_bytes_ = 0;
};

/// Copies of one input, which two tensors hold in turn, to an OpenCL device beside its runs
/// (cmake_presets/src/opencl_uploads.cc). Throws TVM's errors.
class OpenClUpload {
 public:
  /// Have room for *size* bytes. Whether the driver can do so.
  bool Make(DLDevice device, std::size_t size) {
    if (size > size_) {
      upload_ = tvm::ffi::Function::GetGlobalRequired("adt.make_opencl_upload")(
                    device.device_id, static_cast<std::int64_t>(size))
                    .cast<tvm::ffi::Optional<tvm::ffi::Function>>();
      size_ = size;
    }
    return upload_.has_value();
  }
  /// Copy *data* to the tensor that runs do not read. *fresh*: it was made for this.
  void Copy(const void* data, const tvm::runtime::Tensor& to, bool fresh) const {
    (*upload_)(const_cast<DLTensor*>(to.operator->()), const_cast<void*>(data), fresh);
  }

 private:
  std::size_t size_ = 0;
  tvm::ffi::Optional<tvm::ffi::Function> upload_;
};

/// Inputs stay on the device. One thread at a time, of any threads; sessions of one model run side
/// by side. Every function throws Error only, besides std::bad_alloc.
///
/// Entries, inputs and outputs go by their index in the package. An index that does not exist
/// throws Error(kUsage).
class Session {
 public:
  explicit Session(std::shared_ptr<Model> model);
  /// Waits for the device.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const std::shared_ptr<Model>& model() const { return model_; }
  const Package& package() const { return model_->package(); }
  DLDevice dl_device() const { return model_->dl_device(); }
  const Vm& vm() const { return vm_; }

  /// Error(kUsage) with the names that there are.
  std::size_t EntryIndex(const std::string& name) const;

  /// Throw unless there is such an entry.
  void RequireEntry(std::size_t entry) const { State(entry); }

  /// Copy an array to the device. Error(kInput): its shape or size is not the input's, or an index
  /// is out of its range.
  void SetInput(std::size_t entry, std::size_t input, const void* data, std::size_t size,
                Extents shape);
  /// Use a tensor where it lies, until the input is set again; one of the program's memory is
  /// copied to another device. Error(kInput): its type or shape is not the input's, it is not
  /// aligned to the package's alignment, or lies on another device. Indices in this machine's
  /// memory are looked at by each run, as somebody may change them.
  void SetInputTensor(std::size_t entry, std::size_t input, const tvm::runtime::Tensor& tensor);
  /// New memory of the device, which is the input from now on.
  tvm::runtime::Tensor InputTensor(std::size_t entry, std::size_t input, Extents shape);

  /// Run; on OpenCL, return when all is in the device's queue. Error(kInput): an input is missing,
  /// or symbolic extents of one name differ. Error(kRun). Error(kCancelled), between two calls of
  /// the VM: *cancelled* became true; the session can be used again.
  void Start(std::size_t entry, const std::atomic<bool>* cancelled = nullptr);
  /// Wait until the device's queue is empty. Error(kRun).
  void Wait();

  /// An output of the last run, wherever it lies. Error(kUsage): there was none.
  const tvm::runtime::Tensor& Output(std::size_t entry, std::size_t output) const;
  /// Its bytes.
  std::size_t OutputSize(std::size_t entry, std::size_t output) const;
  /// Copy it. Error(kInput): *size* is not its size.
  void GetOutput(std::size_t entry, std::size_t output, void* data, std::size_t size) const;

  /// The output itself, for others: the next run uses other memory while anybody has it.
  tvm::runtime::Tensor TakeOutput(std::size_t entry, std::size_t output);

  /// Give the VM its own reference to the inputs, for what goes by its invoke_stateful.
  void ShareInputs(std::size_t entry);

  /// Copy *inputs*, in any order, to the device. Error(kInput) when one is missing, unknown, or of
  /// another shape or type than the entry has.
  void SetInputs(const NamedArrays& inputs, const std::string& entry = "main");
  /// Start and Wait.
  void Invoke(const std::string& entry = "main");
  /// Copy the outputs of the last run from the device, in the entry's order.
  NamedArrays Outputs(const std::string& entry = "main") const;

 private:
  // What mod.json says about an input or output, ready to be compared.
  struct Port {
    const TensorSpec* spec = nullptr;
    DLDataType dtype{};
    std::size_t element_size = 0;
    std::vector<std::int64_t> extents;    // -1 where symbolic
    std::vector<std::ptrdiff_t> symbols;  // index into the entry's symbols; -1 where not symbolic
    std::size_t size = 0;                 // bytes, when no extent is symbolic
    bool symbolic = false;
  };
  struct Input {
    Port port;
    tvm::runtime::Tensor owned;     // what arrays are copied to; kept for the next one
    tvm::runtime::Tensor spare;     // the next one's, when runs may still read *owned*
    OpenClUpload upload;            // to *spare*
    tvm::runtime::Tensor argument;  // what the next run takes: owned, or somebody's
  };
  struct EntryState {
    const Entry* entry = nullptr;
    tvm::ffi::Function function;
    std::vector<Input> inputs;
    std::vector<Port> ports;                   // of the outputs
    std::vector<tvm::ffi::AnyView> arguments;  // the inputs', then the weights
    std::vector<std::int64_t> symbols;         // extents of the last run
    std::vector<std::int64_t> symbols_before;  // and of the one before
    PoolLimit pool_limit;
    bool checked = false;  // the arguments are complete and fit one another
    tvm::ffi::Any result;
    std::vector<tvm::runtime::Tensor> outputs;
  };

  EntryState& State(std::size_t entry);
  const EntryState& State(std::size_t entry) const;
  void CopyIn(const void* data, const tvm::runtime::Tensor& tensor);
  bool CopyBesideRuns(Input* input, const void* data, std::size_t size, Extents shape);
  static Input& InputAt(EntryState* state, std::size_t input);
  static Extents RequireShape(const Port& port, std::optional<std::size_t> size, Extents shape);
  static void Use(EntryState* state, Input* input, const tvm::runtime::Tensor& tensor);
  static void RequireArguments(EntryState* state);
  void RequireIndices(const EntryState& state) const;
  static void TakeOutputs(EntryState* state);

  std::shared_ptr<Model> model_;  // the first, and so the last to go
  DLDevice device_;
  Vm vm_;
  std::vector<EntryState> entries_;
  mutable bool started_ = false;  // runs that were not waited for, on OpenCL
  mutable Staging staging_;       // of inputs that the device's queue may not have copied yet
};

}  // namespace adt
