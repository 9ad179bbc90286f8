// "ffi.Module.create.cuda" where TVM's CUDA runtime cannot be loaded, for want of a driver: has the
// kernels compiled by tvm_callback_cuda_compile as that would, and keeps machine code or PTX in
// mod.so. Without either TVM keeps the source there.
#include <tvm/ffi/function.h>

#include "target/cuda/cuda_fallback_module.h"

namespace {

namespace ffi = tvm::ffi;

ffi::Module Create(ffi::Bytes code, ffi::String format,
                   ffi::Map<ffi::String, tvm::runtime::FunctionInfo> functions,
                   ffi::Map<ffi::String, ffi::String> sources) {
  if (format == "cuda") {
    const ffi::String text(code.data(), code.size());
    sources.Set("cuda", text);
    const auto compile = ffi::Function::GetGlobalRequired("tvm_callback_cuda_compile");
    code = compile(text).cast<ffi::Bytes>();
    format =
        code.size() > 0 && code.data()[0] == '/' ? "ptx" : "cubin";  // PTX begins with a comment
  }
  return tvm::target::CUDAFallbackModuleCreate(code, format, functions, sources);
}

[[maybe_unused]] const bool registered = [] {
  constexpr const char* kName = "ffi.Module.create.cuda";
  if (!ffi::Function::GetGlobal(kName)) {
    ffi::Function::SetGlobal(kName, ffi::Function::FromTyped(Create));
  }
  return true;
}();

}  // namespace
