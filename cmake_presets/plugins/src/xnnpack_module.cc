// The module that a subgraph for XNNPACK becomes where models are compiled: it keeps the graph, and
// is saved into mod.so as the runtime's (../../src/xnnpack_runtime.cc: the same kind, the same
// bytes). It computes nothing.
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include "runtime/contrib/json/json_runtime.h"

namespace {

namespace ffi = tvm::ffi;
using tvm::runtime::Tensor;
using tvm::runtime::json::JSONRuntimeBase;

class XnnpackModule final : public JSONRuntimeBase {
 public:
  XnnpackModule(const std::string& symbol, const std::string& graph,
                const ffi::Array<ffi::String>& constants)
      : JSONRuntimeBase(symbol, graph, constants) {}

  const char* kind() const override { return "xnnpack_json"; }
  void Init(const ffi::Array<Tensor>&) override {}
  void Run() override { TVM_FFI_THROW(RuntimeError) << "XNNPACK is in the bundle, not here"; }
};

ffi::Module Create(const ffi::String& symbol, const ffi::String& graph,
                   const ffi::Array<ffi::String>& constants) {
  return ffi::Module(ffi::make_object<XnnpackModule>(symbol, graph, constants));
}

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef()
      .def("runtime.XnnpackRuntimeCreate", Create)
      .def("ffi.Module.load_from_bytes.xnnpack_json",
           JSONRuntimeBase::LoadFromBytes<XnnpackModule>);
}
