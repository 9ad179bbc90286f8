// The module that a subgraph becomes where models are compiled, for libraries whose runtimes are
// adt's own (../../src): it keeps the graph, and is saved into mod.so as the runtime's, with the
// same kind and the same bytes. It computes nothing.
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include "runtime/contrib/json/json_runtime.h"

namespace {

namespace ffi = tvm::ffi;
using tvm::runtime::Tensor;
using tvm::runtime::json::JSONRuntimeBase;

class JsonModule final : public JSONRuntimeBase {
 public:
  JsonModule(const std::string& kind, const std::string& symbol, const std::string& graph,
             const ffi::Array<ffi::String>& constants)
      : JSONRuntimeBase(symbol, graph, constants), kind_(kind) {}

  const char* kind() const override { return kind_.c_str(); }
  void Init(const ffi::Array<Tensor>&) override {}
  void Run() override { TVM_FFI_THROW(RuntimeError) << kind_ << " is in the bundle, not here"; }

 private:
  std::string kind_;
};

// What JSONRuntimeBase::SaveToBytes wrote; TVM copies modules by it while it compiles.
ffi::Module Load(const std::string& kind, const ffi::Bytes& bytes) {
  tvm::support::BytesInStream stream(bytes);
  std::string symbol;
  std::string graph;
  std::vector<std::string> constants;
  TVM_FFI_ICHECK(stream.Read(&symbol) && stream.Read(&graph) && stream.Read(&constants));
  ffi::Array<ffi::String> names;
  for (const std::string& name : constants) names.push_back(name);
  return ffi::Module(ffi::make_object<JsonModule>(kind, symbol, graph, names));
}

ffi::Module Create(const ffi::String& kind, const ffi::String& symbol, const ffi::String& graph,
                   const ffi::Array<ffi::String>& constants) {
  const std::string loader = "ffi.Module.load_from_bytes." + std::string(kind);
  if (!ffi::Function::GetGlobal(loader)) {
    const auto load = [kind](const ffi::Bytes& bytes) { return Load(kind, bytes); };
    ffi::Function::SetGlobal(loader, ffi::Function::FromTyped(load));
  }
  return ffi::Module(ffi::make_object<JsonModule>(kind, symbol, graph, constants));
}

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def("adt.JsonModuleCreate", Create);
}
