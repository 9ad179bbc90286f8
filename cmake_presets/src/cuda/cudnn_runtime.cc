// Computes convolutions with cuDNN: TVM's modules of the kind "cudnn_json", one layer each.
//
// model/passes/offload/cudnn.py of adt says what goes there; its inputs are x, weights, then a bias
// and a tensor that is added, where there are such. Of cuDNN's legacy API only what is called is
// declared here, as NVIDIA documents it; the values are the same in cuDNN 8 and 9.
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "vendor_runtime.h"

namespace {

namespace ffi = tvm::ffi;
using tvm::runtime::json::JSONGraphNode;

using Handle = struct cudnnContext*;
using Descriptor = void*;  // each kind has a type of its own, and all are pointers
using Status = int;

constexpr Status kSuccess = 0;
constexpr int kFloat = 0;  // cudnnDataType_t
constexpr int kHalf = 2;
constexpr int kNchw = 0;              // cudnnTensorFormat_t
constexpr int kCrossCorrelation = 1;  // cudnnConvolutionMode_t
constexpr int kDefaultMath = 0;       // cudnnMathType_t: TF32 where the GPU has it
constexpr int kFmaMath = 3;           // float32 as it is
constexpr int kRelu = 1;              // cudnnActivationMode_t
constexpr int kIdentity = 5;
constexpr int kImplicitPrecompGemm = 1;  // cudnnConvolutionFwdAlgo_t
constexpr int kAlgorithms = 16;          // room for all, with and without tensor cores
constexpr std::size_t kMostWorkspace = std::size_t{256} << 20;

struct Performance {  // cudnnConvolutionFwdAlgoPerf_t
  int algorithm;
  Status status;
  float milliseconds;
  std::size_t bytes;
  int determinism;
  int math;
  int reserved[3];
};

#define ADT_CUDNN_FUNCTIONS(X)                                                                    \
  X(Create, Handle*)                                                                              \
  X(Destroy, Handle)                                                                              \
  X(SetStream, Handle, cudaStream_t)                                                              \
  X(CreateTensorDescriptor, Descriptor*)                                                          \
  X(DestroyTensorDescriptor, Descriptor)                                                          \
  X(SetTensor4dDescriptor, Descriptor, int, int, int, int, int, int)                              \
  X(CreateFilterDescriptor, Descriptor*)                                                          \
  X(DestroyFilterDescriptor, Descriptor)                                                          \
  X(SetFilter4dDescriptor, Descriptor, int, int, int, int, int, int)                              \
  X(CreateConvolutionDescriptor, Descriptor*)                                                     \
  X(DestroyConvolutionDescriptor, Descriptor)                                                     \
  X(SetConvolution2dDescriptor, Descriptor, int, int, int, int, int, int, int, int)               \
  X(SetConvolutionGroupCount, Descriptor, int)                                                    \
  X(SetConvolutionMathType, Descriptor, int)                                                      \
  X(CreateActivationDescriptor, Descriptor*)                                                      \
  X(DestroyActivationDescriptor, Descriptor)                                                      \
  X(SetActivationDescriptor, Descriptor, int, int, double)                                        \
  X(FindConvolutionForwardAlgorithm, Handle, Descriptor, Descriptor, Descriptor, Descriptor, int, \
    int*, Performance*)                                                                           \
  X(ConvolutionForward, Handle, const void*, Descriptor, const void*, Descriptor, const void*,    \
    Descriptor, int, void*, std::size_t, const void*, Descriptor, void*)                          \
  X(ConvolutionBiasActivationForward, Handle, const void*, Descriptor, const void*, Descriptor,   \
    const void*, Descriptor, int, void*, std::size_t, const void*, Descriptor, const void*,       \
    Descriptor, const void*, Descriptor, Descriptor, void*)                                       \
  X(AddTensor, Handle, const void*, Descriptor, const void*, const void*, Descriptor, void*)      \
  X(ActivationForward, Handle, Descriptor, const void*, Descriptor, const void*, const void*,     \
    Descriptor, void*)

// cuDNN's functions.
struct Cudnn {
#define ADT_MEMBER(name, ...) Status (*name)(__VA_ARGS__) = nullptr;
  ADT_CUDNN_FUNCTIONS(ADT_MEMBER)
#undef ADT_MEMBER
  const char* (*GetErrorString)(Status) = nullptr;

  Cudnn() {
    constexpr std::array names{"libcudnn.so.9", "libcudnn.so.8"};
    const adt::cuda::VendorLibrary library(names, "nvidia-cudnn-cu13 (or -cu12)");
#define ADT_FIND(name, ...) library.Find("cudnn" #name, &this->name);
    ADT_CUDNN_FUNCTIONS(ADT_FIND)
#undef ADT_FIND
    library.Find("cudnnGetErrorString", &GetErrorString);
  }
};

const Cudnn& TheCudnn() {
  static const Cudnn cudnn;
  return cudnn;
}

void Check(Status status, const std::string& what) {
  if (status == kSuccess) return;
  TVM_FFI_THROW(RuntimeError) << "cuDNN does not take " << what << ": "
                              << TheCudnn().GetErrorString(status);
}

struct State : adt::cuda::LayerState<Handle> {
  explicit State(int /*device*/) { Check(TheCudnn().Create(&handle), "this device"); }
  ~State() { TheCudnn().Destroy(handle); }

  void SetStream(cudaStream_t next) { Check(TheCudnn().SetStream(handle, next), "the stream"); }
};

struct Destroy {
  Status (*destroy)(Descriptor);
  void operator()(Descriptor descriptor) const { destroy(descriptor); }
};
using Owned = std::unique_ptr<void, Destroy>;

Owned Make(Status (*create)(Descriptor*), Status (*destroy)(Descriptor)) {
  Descriptor descriptor = nullptr;
  Check(create(&descriptor), "one more descriptor");
  return Owned(descriptor, {destroy});
}

Owned MakeTensor(int type, const std::array<int, 4>& shape) {
  const Cudnn& cudnn = TheCudnn();
  Owned tensor = Make(cudnn.CreateTensorDescriptor, cudnn.DestroyTensorDescriptor);
  const auto [n, c, h, w] = shape;
  Check(cudnn.SetTensor4dDescriptor(tensor.get(), kNchw, type, n, c, h, w), "a tensor");
  return tensor;
}

class CudnnRuntime final : public adt::cuda::LayerRuntime<State> {
 public:
  CudnnRuntime(const std::string& symbol, const std::string& graph,
               const ffi::Array<ffi::String>& constants)
      : LayerRuntime(symbol, graph, constants) {
    TheCudnn();  // where there is none, the package must not load
  }

  const char* kind() const override { return "cudnn_json"; }

 private:
  void Forget() override { algorithms_.clear(); }

  void Compute(const JSONGraphNode& node) override {
    if (x_ == nullptr) Describe(node);
    if (algorithms_.empty()) Choose();
    Convolve(node);
  }

  static std::array<int, 4> ShapeOf(const JSONGraphNode& node) {
    const ffi::Array<int64_t> shape = node.GetOpShape()[0];
    std::array<int, 4> extents{};
    std::transform(shape.begin(), shape.end(), extents.begin(),
                   [](int64_t extent) { return static_cast<int>(extent); });
    return extents;
  }

  static std::vector<int> Integers(const JSONGraphNode& node, const char* name) {
    const ffi::Array<int64_t> values = node.GetAttr<ffi::Array<int64_t>>(name);
    return std::vector<int>(values.begin(), values.end());
  }

  static bool Flag(const JSONGraphNode& node, const char* name) {
    return node.GetAttr<int64_t>(name) != 0;
  }

  void Describe(const JSONGraphNode& node) {
    const Cudnn& cudnn = TheCudnn();
    const int type = node.GetOpDataType()[0].bits == 16 ? kHalf : kFloat;
    exact_ = type == kFloat && !Flag(node, "tf32");
    const auto [k, c, h, w] = ShapeOf(nodes_[node.GetInputs()[1].id_]);
    weights_ = Make(cudnn.CreateFilterDescriptor, cudnn.DestroyFilterDescriptor);
    Check(cudnn.SetFilter4dDescriptor(weights_.get(), type, kNchw, k, c, h, w), "the weights");
    bias_ = MakeTensor(type, {1, k, 1, 1});
    y_ = MakeTensor(type, ShapeOf(node));
    convolution_ = Make(cudnn.CreateConvolutionDescriptor, cudnn.DestroyConvolutionDescriptor);
    const std::vector<int> pad = Integers(node, "padding");
    const std::vector<int> stride = Integers(node, "strides");
    const std::vector<int> dilation = Integers(node, "dilation");
    const Descriptor convolution = convolution_.get();
    Check(cudnn.SetConvolution2dDescriptor(convolution, pad[0], pad[1], stride[0], stride[1],
                                           dilation[0], dilation[1], kCrossCorrelation, kFloat),
          "the convolution");
    const auto groups = static_cast<int>(node.GetAttr<int64_t>("groups"));
    Check(cudnn.SetConvolutionGroupCount(convolution, groups), "the groups");
    activation_ = Make(cudnn.CreateActivationDescriptor, cudnn.DestroyActivationDescriptor);
    const int mode = Flag(node, "relu") ? kRelu : kIdentity;
    Check(cudnn.SetActivationDescriptor(activation_.get(), mode, 0, 0.0), "the activation");
    x_ = MakeTensor(type, ShapeOf(nodes_[node.GetInputs()[0].id_]));
  }

  // Time the algorithms that compute as exactly as was asked for, the fastest first. cuDNN takes
  // memory of its own for it, which it gives back.
  void Choose() {
    const Cudnn& cudnn = TheCudnn();
    const Descriptor convolution = convolution_.get();
    SetMath(exact_ ? kFmaMath : kDefaultMath);
    std::array<Performance, kAlgorithms> found{};
    int count = 0;
    Check(
        cudnn.FindConvolutionForwardAlgorithm(state_->handle, x_.get(), weights_.get(), convolution,
                                              y_.get(), kAlgorithms, &count, found.data()),
        "the convolution");
    std::copy_if(found.begin(), found.begin() + count, std::back_inserter(algorithms_),
                 [this](const Performance& each) {
                   return each.status == kSuccess && each.bytes <= kMostWorkspace &&
                          (!exact_ || each.math == kFmaMath);
                 });
    if (algorithms_.empty()) {
      TVM_FFI_THROW(RuntimeError) << "cuDNN has no algorithm for the convolution " << symbol_name_;
    }
    const auto general = std::find_if(
        algorithms_.begin(), algorithms_.end(),
        [](const Performance& each) { return each.algorithm == kImplicitPrecompGemm; });
    general_ = general == algorithms_.end() ? nullptr : &*general;
    fused_ = true;
  }

  void SetMath(int math) {
    if (math == math_) return;
    Check(TheCudnn().SetConvolutionMathType(convolution_.get(), math), "the precision");
    math_ = math;
  }

  void* Prepare(const Performance& algorithm) {
    SetMath(algorithm.math);
    return state_->workspace.Grow(algorithm.bytes, *state_->stream);
  }

  void Convolve(const JSONGraphNode& node) {
    const bool bias = node.GetInputs().size() > 2;
    if (bias && fused_) {
      fused_ = ComputeFused(node);
      if (fused_) return;  // else as of the next run, too, step by step
    }
    const Cudnn& cudnn = TheCudnn();
    const Performance& algorithm = algorithms_.front();
    void* const workspace = Prepare(algorithm);
    void* const y = Data(outputs_[0]);
    const Handle handle = state_->handle;
    Check(
        cudnn.ConvolutionForward(handle, &kOne, x_.get(), Data(node.GetInputs()[0]), weights_.get(),
                                 Data(node.GetInputs()[1]), convolution_.get(), algorithm.algorithm,
                                 workspace, algorithm.bytes, &kZero, y_.get(), y),
        "the convolution");
    if (!bias) return;
    Check(
        cudnn.AddTensor(handle, &kOne, bias_.get(), Data(node.GetInputs()[2]), &kOne, y_.get(), y),
        "a bias");
    if (node.GetInputs().size() > 3) {
      Check(cudnn.AddTensor(handle, &kOne, y_.get(), Data(node.GetInputs()[3]), &kOne, y_.get(), y),
            "a sum");
    }
    if (!Flag(node, "relu")) return;
    Check(
        cudnn.ActivationForward(handle, activation_.get(), &kOne, y_.get(), y, &kZero, y_.get(), y),
        "the activation");
  }

  // Whether cuDNN has all of it in one call; without an activation one algorithm alone does.
  bool ComputeFused(const JSONGraphNode& node) {
    const Performance* algorithm = Flag(node, "relu") ? &algorithms_.front() : general_;
    if (algorithm == nullptr) return false;
    void* const workspace = Prepare(*algorithm);
    void* const y = Data(outputs_[0]);
    const bool sum = node.GetInputs().size() > 3;
    const Status status = TheCudnn().ConvolutionBiasActivationForward(
        state_->handle, &kOne, x_.get(), Data(node.GetInputs()[0]), weights_.get(),
        Data(node.GetInputs()[1]), convolution_.get(), algorithm->algorithm, workspace,
        algorithm->bytes, sum ? &kOne : &kZero, y_.get(), sum ? Data(node.GetInputs()[3]) : y,
        bias_.get(), Data(node.GetInputs()[2]), activation_.get(), y_.get(), y);
    return status == kSuccess;
  }

  static constexpr float kOne = 1;
  static constexpr float kZero = 0;

  bool exact_ = true;
  int math_ = kDefaultMath;  // of a new descriptor
  Owned x_{nullptr, {nullptr}};
  Owned weights_{nullptr, {nullptr}};
  Owned bias_{nullptr, {nullptr}};
  Owned y_{nullptr, {nullptr}};
  Owned convolution_{nullptr, {nullptr}};
  Owned activation_{nullptr, {nullptr}};
  std::vector<Performance> algorithms_;   // that work here, the fastest first
  const Performance* general_ = nullptr;  // of those, what adds a bias without an activation
  bool fused_ = true;
};

std::int64_t LibraryWorkspace() { return adt::cuda::WorkspaceBytes(); }

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef()
      .def("ffi.Module.load_from_bytes.cudnn_json",
           tvm::runtime::json::JSONRuntimeBase::LoadFromBytes<CudnnRuntime>)
      .def("adt.library_workspace_bytes", LibraryWorkspace);
}
