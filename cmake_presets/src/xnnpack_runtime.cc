// Computes subgraphs of a model with XNNPACK: TVM's modules of the kind "xnnpack_json".
//
// model/passes/offload/xnnpack.py of adt writes the graph: its inputs, constants and kernels, with
// tensors laid out as in the rest of the model (NCHW). XNNPACK computes in NHWC: weights are laid
// out once, and tensors of four dimensions where they enter and leave the subgraph. A node with
// "scale" holds integers: scale * (value - zero_point); its uint8 values are int8 to XNNPACK, 128
// less.
#include <pthreadpool.h>
#include <sys/mman.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>
#include <xnnpack.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "builtin_fp16.h"
#include "runtime/contrib/json/json_node.h"
#include "runtime/contrib/json/json_runtime.h"

namespace {

namespace ffi = tvm::ffi;
using tvm::runtime::Tensor;
using tvm::runtime::json::JSONGraphNode;
using tvm::runtime::json::JSONRuntimeBase;
using Shape = std::vector<std::size_t>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr std::uintptr_t kPage = 4096;  // the smallest of any system
constexpr std::uint8_t kSign = 0x80;    // between uint8 and int8 with the zero point 128 less

// XNNPACK's memory. Megabytes of packed weights and of workspace are huge pages where the system
// has them for those who ask: reading them costs fewer look-ups of addresses.
constexpr std::size_t kHugePage = std::size_t{2} << 20;

void* Allocate(void* /*context*/, std::size_t alignment, std::size_t size) {
  void* memory = nullptr;
  const bool huge = size >= kHugePage;
  if (posix_memalign(&memory, huge ? kHugePage : alignment, size) != 0) return nullptr;
  if (huge) madvise(memory, size / kHugePage * kHugePage, MADV_HUGEPAGE);  // may fail
  return memory;
}

constexpr xnn_allocator kAllocator = {
    nullptr,
    [](void*, std::size_t size) { return std::malloc(size); },
    [](void*, void* memory, std::size_t size) { return std::realloc(memory, size); },
    [](void*, void* memory) { std::free(memory); },
    Allocate,
    [](void*, void* memory) { std::free(memory); },
};

void Check(xnn_status status, const std::string& what) {
  if (status != xnn_status_success) {
    TVM_FFI_THROW(RuntimeError) << "XNNPACK does not take " << what << " (status " << status << ")";
  }
}

Shape ChannelsLast(const Shape& shape) {
  return shape.size() == 4 ? Shape{shape[0], shape[2], shape[3], shape[1]} : shape;
}

std::size_t Elements(const Shape& shape) {
  std::size_t count = 1;
  for (std::size_t extent : shape) count *= extent;
  return count;
}

struct DeleteSubgraph {
  void operator()(xnn_subgraph_t subgraph) const { xnn_delete_subgraph(subgraph); }
};
struct DeleteRuntime {
  void operator()(xnn_runtime_t runtime) const { xnn_delete_runtime(runtime); }
};
struct DeletePool {
  void operator()(pthreadpool_t pool) const { pthreadpool_destroy(pool); }
};
template <typename Pointer, typename Delete>
using Owned = std::unique_ptr<std::remove_pointer_t<Pointer>, Delete>;

// A tensor of TVM's that XNNPACK reads or writes.
struct External {
  std::uint32_t id;     // to XNNPACK
  std::uint32_t entry;  // to TVM
  std::size_t bytes;
  bool output;
  bool flipped;                    // uint8, of which XNNPACK gets int8
  std::vector<std::uint8_t> copy;  // where XNNPACK cannot have TVM's own
};

class XnnpackRuntime final : public JSONRuntimeBase {
 public:
  XnnpackRuntime(const std::string& symbol, const std::string& graph,
                 const ffi::Array<ffi::String>& constants)
      : JSONRuntimeBase(symbol, graph, constants) {}

  const char* kind() const override { return "xnnpack_json"; }

  void Init(const ffi::Array<Tensor>& constants) override {
    SetupConstants(constants);
    constants_ = constants;
    Check(xnn_initialize(&kAllocator), "this processor");
  }

  void Run() override {
    const int threads = ffi::Function::GetGlobalRequired("runtime.NumThreads")().cast<int>();
    if (runtime_ == nullptr || threads != threads_) Build(threads);
    std::vector<xnn_external_value> values;
    for (External& external : externals_) values.push_back({external.id, Before(&external)});
    Check(xnn_setup_runtime_v2(runtime_.get(), values.size(), values.data()), "its tensors");
    Check(xnn_invoke_runtime(runtime_.get()), "a run");
    for (const External& external : externals_) After(external);
  }

 private:
  // Make XNNPACK's runtime for so many threads: workspaces and packed weights depend on them.
  void Build(int threads) {
    runtime_.reset();
    pool_.reset(threads > 1 ? pthreadpool_create(static_cast<std::size_t>(threads)) : nullptr);
    ids_.assign(NumEntries(), XNN_INVALID_VALUE_ID);
    externals_.clear();
    laid_out_.clear();
    scales_.clear();
    xnn_subgraph_t subgraph = nullptr;
    const std::size_t outside = input_var_eid_.size() + outputs_.size();
    Check(xnn_create_subgraph(static_cast<std::uint32_t>(outside), 0, &subgraph), "a graph");
    subgraph_.reset(subgraph);
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i].GetOpType() == "input") DefineInput(nodes_[i], EntryID(i, 0));
      if (nodes_[i].GetOpType() == "kernel") DefineKernel(nodes_[i], EntryID(i, 0));
    }
    for (const auto& output : outputs_) DefineOutput(nodes_[output.id_], EntryID(output));
    xnn_runtime_t runtime = nullptr;
    Check(xnn_create_runtime_v2(subgraph, pool_.get(), 0, &runtime), "the graph");
    runtime_.reset(runtime);
    subgraph_.reset();
    laid_out_.clear();  // packed by now
    Check(xnn_reshape_runtime(runtime), "the shapes");
    threads_ = threads;
  }

  // XNNPACK reads some bytes behind a tensor, which does no harm where the page goes on.
  void* Before(External* external) {
    const DLTensor* tensor = data_entry_[external->entry];
    auto* data = static_cast<std::uint8_t*>(tensor->data) + tensor->byte_offset;
    const std::uintptr_t end = reinterpret_cast<std::uintptr_t>(data) + external->bytes;
    const bool reads_on = (end - 1) / kPage != (end - 1 + XNN_EXTRA_BYTES) / kPage;
    if (!external->flipped && (external->output || !reads_on)) return data;
    external->copy.resize(external->bytes + XNN_EXTRA_BYTES);
    if (external->output) return external->copy.data();
    const std::uint8_t flip = external->flipped ? kSign : 0;
    std::transform(data, data + external->bytes, external->copy.begin(),
                   [flip](std::uint8_t value) { return value ^ flip; });
    return external->copy.data();
  }

  void After(const External& external) {
    if (!external.output || !external.flipped) return;
    const DLTensor* tensor = data_entry_[external.entry];
    auto* data = static_cast<std::uint8_t*>(tensor->data) + tensor->byte_offset;
    std::transform(external.copy.begin(),
                   external.copy.begin() + static_cast<std::ptrdiff_t>(external.bytes), data,
                   [](std::uint8_t value) { return value ^ kSign; });
  }

  static Shape ShapeOf(const JSONGraphNode& node) {
    const ffi::Array<int64_t> shape = node.GetOpShape()[0];
    return Shape(shape.begin(), shape.end());
  }

  static bool Unsigned(const JSONGraphNode& node) {
    return node.GetOpDataType()[0].code == kDLUInt;
  }

  static bool Half(const JSONGraphNode& node) {
    const DLDataType type = node.GetOpDataType()[0];
    return type.code == kDLFloat && type.bits == 16;
  }

  static std::size_t Bytes(const JSONGraphNode& node) {
    return Elements(ShapeOf(node)) * (static_cast<std::size_t>(node.GetOpDataType()[0].bits) / 8);
  }

  // Define a tensor of the type of *node*.
  std::uint32_t Define(const JSONGraphNode& node, const Shape& shape, std::uint32_t external,
                       std::uint32_t flags) {
    std::uint32_t id = XNN_INVALID_VALUE_ID;
    xnn_status status = xnn_status_success;
    if (node.HasAttr("scale")) {
      const double scale = node.GetAttr<ffi::Array<double>>("scale")[0];
      const int64_t zero = node.GetAttr<int64_t>("zero_point") - (Unsigned(node) ? kSign : 0);
      status = xnn_define_quantized_tensor_value(
          subgraph_.get(), xnn_datatype_qint8, static_cast<int32_t>(zero),
          static_cast<float>(scale), shape.size(), shape.data(), nullptr, external, flags, &id);
    } else {
      const xnn_datatype type = Half(node) ? xnn_datatype_fp16 : xnn_datatype_fp32;
      status = xnn_define_tensor_value(subgraph_.get(), type, shape.size(), shape.data(), nullptr,
                                       external, flags, &id);
    }
    Check(status, "a tensor of " + node.GetOpName());
    return id;
  }

  // XNNPACK's convolutions in half precision take weights in float32, and pack them in half.
  const void* Single(const std::uint16_t* half, std::size_t count) {
    laid_out_.emplace_back(count * sizeof(float));
    char* out = laid_out_.back().data();
    for (std::size_t i = 0; i < count; ++i) {
      const float value =
          __extendXfYf2__<std::uint16_t, std::uint16_t, 10, float, std::uint32_t, 23>(half[i]);
      std::memcpy(out + i * sizeof(float), &value, sizeof(float));
    }
    return out;
  }

  // Define a constant with *data*, of which the dimension *channels* has a scale for each element.
  std::uint32_t DefineConstant(const JSONGraphNode& node, const Shape& shape, std::size_t channels,
                               const void* data) {
    std::uint32_t id = XNN_INVALID_VALUE_ID;
    xnn_status status = xnn_status_success;
    if (node.HasAttr("scale")) {
      const ffi::Array<double> scale = node.GetAttr<ffi::Array<double>>("scale");
      scales_.emplace_back(scale.begin(), scale.end());
      const bool wide = node.GetOpDataType()[0].bits == 32;
      status = xnn_define_channelwise_quantized_tensor_value(
          subgraph_.get(), wide ? xnn_datatype_qcint32 : xnn_datatype_qcint8, scales_.back().data(),
          shape.size(), channels, shape.data(), data, XNN_INVALID_VALUE_ID, 0, &id);
    } else {
      if (Half(node)) data = Single(static_cast<const std::uint16_t*>(data), Elements(shape));
      status = xnn_define_tensor_value(subgraph_.get(), xnn_datatype_fp32, shape.size(),
                                       shape.data(), data, XNN_INVALID_VALUE_ID, 0, &id);
    }
    Check(status, "the constant " + node.GetOpName());
    return id;
  }

  void Transpose(const Shape& order, std::uint32_t from, std::uint32_t to) {
    Check(xnn_define_static_transpose(subgraph_.get(), order.size(), order.data(), from, to, 0),
          "a transposition");
  }

  std::uint32_t AddExternal(const JSONGraphNode& node, std::uint32_t entry, bool output) {
    const auto number = static_cast<std::uint32_t>(externals_.size());
    const std::uint32_t flag =
        output ? XNN_VALUE_FLAG_EXTERNAL_OUTPUT : XNN_VALUE_FLAG_EXTERNAL_INPUT;
    const std::uint32_t id = Define(node, ShapeOf(node), number, flag);
    externals_.push_back({id, entry, Bytes(node), output, Unsigned(node), {}});
    return id;
  }

  void DefineInput(const JSONGraphNode& node, std::uint32_t entry) {
    ids_[entry] = AddExternal(node, entry, false);
    const Shape shape = ShapeOf(node);
    if (shape.size() != 4) return;
    const std::uint32_t id = Define(node, ChannelsLast(shape), XNN_INVALID_VALUE_ID, 0);
    Transpose({0, 2, 3, 1}, ids_[entry], id);
    ids_[entry] = id;
  }

  void DefineOutput(const JSONGraphNode& node, std::uint32_t entry) {
    const std::uint32_t id = AddExternal(node, entry, true);
    if (ShapeOf(node).size() == 4) {
      Transpose({0, 3, 1, 2}, ids_[entry], id);
    } else {
      Check(xnn_define_copy(subgraph_.get(), ids_[entry], id, 0), "a copy");
    }
  }

  // A constant with its dimensions in another order; the last or the first is that of channels.
  std::uint32_t DefineWeights(const JSONGraphNode& node, std::uint32_t entry, const Shape& order) {
    const Shape shape = ShapeOf(node);
    const std::size_t bytes = static_cast<std::size_t>(node.GetOpDataType()[0].bits) / 8;
    Shape steps(shape.size(), bytes);  // of the constant as it is
    for (std::size_t i = shape.size() - 1; i > 0; --i) steps[i - 1] = steps[i] * shape[i];
    Shape to(shape.size());
    std::transform(order.begin(), order.end(), to.begin(), [&](std::size_t i) { return shape[i]; });
    const DLTensor* tensor = data_entry_[entry];
    const char* from = static_cast<const char*>(tensor->data) + tensor->byte_offset;
    laid_out_.emplace_back(Elements(shape) * bytes);
    char* out = laid_out_.back().data();
    Shape index(shape.size(), 0);
    for (std::size_t n = Elements(shape); n > 0; --n, out += bytes) {
      std::size_t at = 0;
      for (std::size_t i = 0; i < order.size(); ++i) at += index[i] * steps[order[i]];
      std::memcpy(out, from + at, bytes);
      for (std::size_t i = order.size(); i-- > 0;) {
        if (++index[i] < to[i]) break;
        index[i] = 0;
      }
    }
    const auto first = std::find(order.begin(), order.end(), std::size_t{0});
    const std::size_t channels = shape.size() == 4 ? first - order.begin() : 0;
    return DefineConstant(node, to, channels, laid_out_.back().data());
  }

  void DefineKernel(const JSONGraphNode& node, std::uint32_t entry) {
    const std::string name = node.GetOpName();
    ids_[entry] = Define(node, ChannelsLast(ShapeOf(node)), XNN_INVALID_VALUE_ID, 0);
    xnn_status status = xnn_status_invalid_parameter;
    if (name == "xnnpack.conv2d") {
      status = Convolution(node, ids_[entry]);
    } else if (name == "xnnpack.dense") {
      status = Dense(node, ids_[entry]);
    } else if (name == "xnnpack.add") {
      xnn_binary_params bounds{Lower(node), Upper(node)};
      status = xnn_define_binary(subgraph_.get(), xnn_binary_add, &bounds, Input(node, 0),
                                 Input(node, 1), ids_[entry], 0);
    } else if (name == "xnnpack.max_pool2d" || name == "xnnpack.avg_pool2d") {
      status = Pool(node, ids_[entry]);
    } else if (name == "xnnpack.mean") {
      const Shape axes{1, 2};
      status = xnn_define_static_reduce(subgraph_.get(), xnn_reduce_mean, axes.size(), axes.data(),
                                        Input(node, 0), ids_[entry], XNN_FLAG_KEEP_DIMS);
    } else if (name == "xnnpack.reshape") {
      const Shape shape = ShapeOf(node);
      status = xnn_define_static_reshape(subgraph_.get(), shape.size(), shape.data(),
                                         Input(node, 0), ids_[entry], 0);
    } else if (name == "xnnpack.convert") {
      status = xnn_define_unary(subgraph_.get(), xnn_unary_convert, nullptr, Input(node, 0),
                                ids_[entry], 0);
    }
    Check(status, name);
  }

  xnn_status Convolution(const JSONGraphNode& node, std::uint32_t output) {
    const JSONGraphNode& weights = nodes_[node.GetInputs()[1].id_];
    const Shape w =
        ShapeOf(weights);  // [output channels, input channels of a group, height, width]
    const std::uint32_t entry = EntryID(node.GetInputs()[1]);
    const auto groups = static_cast<std::uint32_t>(node.GetAttr<int64_t>("groups"));
    const auto pad = Integers(node, "padding");
    const auto stride = Integers(node, "strides");
    const auto dilation = Integers(node, "dilation");
    const auto height = static_cast<std::uint32_t>(w[2]);
    const auto width = static_cast<std::uint32_t>(w[3]);
    const std::size_t outputs = w[0] / groups;
    if (groups > 1 && w[1] == 1) {
      return xnn_define_depthwise_convolution_2d(
          subgraph_.get(), pad[0], pad[3], pad[2], pad[1], height, width, stride[0], stride[1],
          dilation[0], dilation[1], static_cast<std::uint32_t>(outputs), groups, Lower(node),
          Upper(node), Input(node, 0), DefineWeights(weights, entry, {1, 2, 3, 0}), Bias(node),
          output, 0);
    }
    return xnn_define_convolution_2d(
        subgraph_.get(), pad[0], pad[3], pad[2], pad[1], height, width, stride[0], stride[1],
        dilation[0], dilation[1], groups, w[1], outputs, Lower(node), Upper(node), Input(node, 0),
        DefineWeights(weights, entry, {0, 2, 3, 1}), Bias(node), output, 0);
  }

  xnn_status Dense(const JSONGraphNode& node, std::uint32_t output) {
    const JSONGraphNode& weights = nodes_[node.GetInputs()[1].id_];  // [inputs, outputs]
    const std::uint32_t filter = DefineWeights(weights, EntryID(node.GetInputs()[1]), {1, 0});
    return xnn_define_fully_connected(subgraph_.get(), Lower(node), Upper(node), Input(node, 0),
                                      filter, Bias(node), output, 0);
  }

  xnn_status Pool(const JSONGraphNode& node, std::uint32_t output) {
    const auto pad = Integers(node, "padding");
    const auto size = Integers(node, "pool_size");
    const auto stride = Integers(node, "strides");
    if (node.GetOpName() == "xnnpack.avg_pool2d") {
      return xnn_define_average_pooling_2d(subgraph_.get(), pad[0], pad[3], pad[2], pad[1], size[0],
                                           size[1], stride[0], stride[1], Lower(node), Upper(node),
                                           Input(node, 0), output, 0);
    }
    const auto dilation = Integers(node, "dilation");
    return xnn_define_max_pooling_2d(subgraph_.get(), pad[0], pad[3], pad[2], pad[1], size[0],
                                     size[1], stride[0], stride[1], dilation[0], dilation[1],
                                     Lower(node), Upper(node), Input(node, 0), output, 0);
  }

  std::uint32_t Input(const JSONGraphNode& node, std::size_t number) const {
    return ids_[EntryID(node.GetInputs()[number])];
  }

  std::uint32_t Bias(const JSONGraphNode& node) {
    if (node.GetInputs().size() < 3) return XNN_INVALID_VALUE_ID;
    const JSONGraphNode& bias = nodes_[node.GetInputs()[2].id_];
    const DLTensor* tensor = data_entry_[EntryID(node.GetInputs()[2])];
    const char* data = static_cast<const char*>(tensor->data) + tensor->byte_offset;
    return DefineConstant(bias, {Elements(ShapeOf(bias))}, 0, data);
  }

  static float Lower(const JSONGraphNode& node) {
    return node.HasAttr("min") ? static_cast<float>(node.GetAttr<double>("min")) : -kInfinity;
  }

  static float Upper(const JSONGraphNode& node) {
    return node.HasAttr("max") ? static_cast<float>(node.GetAttr<double>("max")) : kInfinity;
  }

  static std::vector<std::uint32_t> Integers(const JSONGraphNode& node, const char* name) {
    const ffi::Array<int64_t> values = node.GetAttr<ffi::Array<int64_t>>(name);
    return std::vector<std::uint32_t>(values.begin(), values.end());
  }

  ffi::Array<Tensor> constants_;
  int threads_ = 0;
  Owned<pthreadpool_t, DeletePool> pool_;
  Owned<xnn_subgraph_t, DeleteSubgraph> subgraph_;
  Owned<xnn_runtime_t, DeleteRuntime> runtime_;
  std::vector<std::uint32_t> ids_;  // of each entry, in NHWC
  std::vector<External> externals_;
  std::vector<std::vector<char>> laid_out_;  // weights, until they are packed
  std::vector<std::vector<float>> scales_;   // of constants, for each channel
};

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def("ffi.Module.load_from_bytes.xnnpack_json",
                                        JSONRuntimeBase::LoadFromBytes<XnnpackRuntime>);
}
