// What the runtimes of NVIDIA's libraries share: a TVM module that computes one layer.
#pragma once

#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "runtime/contrib/json/json_node.h"
#include "runtime/contrib/json/json_runtime.h"
#include "vendor_library.h"

namespace adt::cuda {

/// What all layers on a device compute with, one after the other. *Handle* is the library's.
template <typename Handle>
struct LayerState {
  LayerState() = default;
  LayerState(const LayerState&) = delete;
  LayerState& operator=(const LayerState&) = delete;

  Handle handle = nullptr;
  std::optional<cudaStream_t> stream;  // that the handle computes on
  Workspace workspace;
  std::mutex mutex;
};

/// A layer without constants. *State* is a LayerState that is made with a device's number and has
/// SetStream(stream).
template <typename State>
class LayerRuntime : public tvm::runtime::json::JSONRuntimeBase {
 public:
  LayerRuntime(const std::string& symbol, const std::string& graph,
               const tvm::ffi::Array<tvm::ffi::String>& constants)
      : JSONRuntimeBase(symbol, graph, constants) {
    initialized_ = true;
  }

  void Init(const tvm::ffi::Array<tvm::runtime::Tensor>&) override {}

  void Run() override {
    const int device = data_entry_[EntryID(outputs_[0])]->device.device_id;
    CheckCuda(cudaSetDevice(device));
    if (state_ == nullptr || device != device_) {
      state_ = SharedState<State>(device);
      device_ = device;
      Forget();
    }
    const std::lock_guard<std::mutex> lock(state_->mutex);
    const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(kDLCUDA, device));
    if (state_->stream != stream) {
      state_->SetStream(stream);
      state_->stream = stream;
    }
    Compute(nodes_[outputs_[0].id_]);
  }

 protected:
  /// What was chosen for another device.
  virtual void Forget() {}
  /// With state_, which no other layer uses meanwhile.
  virtual void Compute(const tvm::runtime::json::JSONGraphNode& node) = 0;

  std::uint8_t* Data(const tvm::runtime::json::JSONGraphNodeEntry& entry) const {
    const DLTensor* tensor = data_entry_[EntryID(entry)];
    return static_cast<std::uint8_t*>(tensor->data) + tensor->byte_offset;
  }

  std::shared_ptr<State> state_;

 private:
  int device_ = 0;
};

}  // namespace adt::cuda
