#include "context_symbols.h"

#include <tvm/ffi/c_api.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <algorithm>

#include "build_config.h"
#include "parallel.h"

namespace adt {
namespace {

bool Register() {
#define ADT_REGISTER(Function) \
  TVM_FFI_CHECK_SAFE_CALL(     \
      TVMFFIEnvModRegisterContextSymbol("__" #Function, reinterpret_cast<void*>(Function)));
  ADT_EXTRA_CONTEXT_SYMBOLS(ADT_REGISTER)
#undef ADT_REGISTER
  // of two of one name the later one counts
  TVM_FFI_CHECK_SAFE_CALL(TVMFFIEnvModRegisterContextSymbol("__TVMBackendParallelLaunch",
                                                            reinterpret_cast<void*>(ShareLoop)));
  return true;
}

}  // namespace

std::vector<std::string> OfferedContextSymbols() {
  static const bool registered = Register();
  static_cast<void>(registered);
  std::vector<std::string> names;
  tvm::ffi::Module::VisitContextSymbols(
      [&names](const tvm::ffi::String& name, void*) { names.emplace_back(name); });
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace adt
