// TVM's visitors of Relax expressions, which code generators derive from and the wheel does not
// export.
//
// The wheel has registered the functions of that file already; registered twice they are an error.
#include <tvm/ffi/reflection/registry.h>

#undef TVM_FFI_STATIC_INIT_BLOCK
#define TVM_FFI_STATIC_INIT_BLOCK() [[maybe_unused]] static void RegisteredByTheWheel()

#include "relax/ir/expr_functor.cc"
