// Computes matrix products with cuBLAS: TVM's modules of the kind "cublas_json", one product each.
//
// model/passes/offload/cublas.py of adt says what goes there. Of cuBLAS only what is called is
// declared here, as NVIDIA documents it; the values are the same in cuBLAS 11 to 13. cuBLAS counts
// matrices by columns: of rows, it computes the transposed product of the operands swapped.
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "vendor_runtime.h"

namespace {

namespace ffi = tvm::ffi;
using tvm::runtime::json::JSONGraphNode;

using Handle = struct cublasContext*;
using Status = int;

constexpr int kFloat = 0;  // cudaDataType_t
constexpr int kHalf = 2;
constexpr int kAsItIs = 0;       // cublasOperation_t
constexpr int kCompute32F = 68;  // cublasComputeType_t: sums in float32, without TF32 …
constexpr int kComputeTf32 = 77;
constexpr int kDefaultAlgorithm = -1;  // cublasGemmAlgo_t
// What NVIDIA recommends for GPUs from Hopper (9.x) on, and for others.
constexpr std::size_t kLargeWorkspace = std::size_t{32} << 20;
constexpr std::size_t kSmallWorkspace = std::size_t{4} << 20;
constexpr int kHopper = 9;

// cuBLAS's functions.
struct Cublas {
  Status (*Create)(Handle*) = nullptr;
  Status (*Destroy)(Handle) = nullptr;
  Status (*SetStream)(Handle, cudaStream_t) = nullptr;
  Status (*SetWorkspace)(Handle, void*, std::size_t) = nullptr;
  Status (*Gemm)(Handle, int, int, int, int, int, const void*, const void*, int, int, const void*,
                 int, int, const void*, void*, int, int, int, int) = nullptr;
  Status (*GemmBatched)(Handle, int, int, int, int, int, const void*, const void*, int, int,
                        long long, const void*, int, int, long long, const void*, void*, int, int,
                        long long, int, int, int) = nullptr;

  Cublas() {
    constexpr std::array names{"libcublas.so.13", "libcublas.so.12", "libcublas.so.11"};
    const adt::cuda::VendorLibrary library(names, "nvidia-cublas (or nvidia-cublas-cu12)");
    library.Find("cublasCreate_v2", &Create);
    library.Find("cublasDestroy_v2", &Destroy);
    library.Find("cublasSetStream_v2", &SetStream);
    library.Find("cublasSetWorkspace_v2", &SetWorkspace);
    library.Find("cublasGemmEx", &Gemm);
    library.Find("cublasGemmStridedBatchedEx", &GemmBatched);
  }
};

const Cublas& TheCublas() {
  static const Cublas cublas;
  return cublas;
}

void Check(Status status, const std::string& what) {
  if (status != 0) {
    TVM_FFI_THROW(RuntimeError) << "cuBLAS does not take " << what << " (status " << status << ")";
  }
}

struct State : adt::cuda::LayerState<Handle> {
  explicit State(int device) {
    Check(TheCublas().Create(&handle), "this device");
    int generation = 0;
    adt::cuda::CheckCuda(
        cudaDeviceGetAttribute(&generation, cudaDevAttrComputeCapabilityMajor, device));
    workspace_bytes = generation >= kHopper ? kLargeWorkspace : kSmallWorkspace;
  }
  ~State() { TheCublas().Destroy(handle); }

  // cuBLAS forgets its workspace with the stream.
  void SetStream(cudaStream_t next) {
    Check(TheCublas().SetStream(handle, next), "the stream");
    void* const data = workspace.Grow(workspace_bytes, next);
    Check(TheCublas().SetWorkspace(handle, data, workspace_bytes), "its workspace");
  }

  std::size_t workspace_bytes = 0;
};

class CublasRuntime final : public adt::cuda::LayerRuntime<State> {
 public:
  CublasRuntime(const std::string& symbol, const std::string& graph,
                const ffi::Array<ffi::String>& constants)
      : LayerRuntime(symbol, graph, constants) {
    TheCublas();  // where there is none, the package must not load
  }

  const char* kind() const override { return "cublas_json"; }

 private:
  void Compute(const JSONGraphNode& node) override {
    const auto number = [&node](const char* name) {
      return static_cast<int>(node.GetAttr<int64_t>(name));
    };
    const int rows = number("rows");
    const int columns = number("columns");
    const int inner = number("inner");
    const int type = node.GetOpDataType()[0].bits == 16 ? kHalf : kFloat;
    const int compute = type == kFloat && number("tf32") != 0 ? kComputeTf32 : kCompute32F;
    const void* const a = Data(node.GetInputs()[0]);
    const void* const b = Data(node.GetInputs()[1]);
    void* const y = Data(outputs_[0]);
    const Handle handle = state_->handle;
    const float one = 1;
    const float zero = 0;
    if (const int batch = number("batch"); batch > 1) {
      const auto step = [&node](const char* name) { return node.GetAttr<int64_t>(name); };
      Check(TheCublas().GemmBatched(handle, kAsItIs, kAsItIs, columns, rows, inner, &one, b, type,
                                    columns, step("step_b"), a, type, inner, step("step_a"), &zero,
                                    y, type, columns, static_cast<long long>(rows) * columns, batch,
                                    compute, kDefaultAlgorithm),
            "the products");
    } else {
      Check(TheCublas().Gemm(handle, kAsItIs, kAsItIs, columns, rows, inner, &one, b, type, columns,
                             a, type, inner, &zero, y, type, columns, compute, kDefaultAlgorithm),
            "the product");
    }
  }
};

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def(
      "ffi.Module.load_from_bytes.cublas_json",
      tvm::runtime::json::JSONRuntimeBase::LoadFromBytes<CublasRuntime>);
}
