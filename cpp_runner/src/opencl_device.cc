#include "opencl_device.h"

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/string.h>

#include "error.h"
#include "probe/text.h"
#include "tvm_errors.h"

namespace adt {

namespace ffi = tvm::ffi;

OpenClDevice DescribeOpenCl(DLDevice device) {
  constexpr const char* kRemedy = "Check the device's driver.";
  const auto texts =
      WithTvmErrors(ErrorKind::kNoDevice, "the device does not say what it is", kRemedy, [&] {
        return ffi::Function::GetGlobalRequired("adt.describe_opencl")(device.device_id)
            .cast<ffi::Array<ffi::String>>();
      });
  const auto text = [&](int i) { return probe::Clean(std::string(texts[i])); };
  OpenClDevice described{text(0), text(1), text(2), text(3), text(4)};
  if (described.name.empty()) {
    throw Error(ErrorKind::kNoDevice, "the device does not say its name", kRemedy);
  }
  return described;
}

std::string MemoryScope(const DLTensor& tensor) {
  if (tensor.device.device_type != kDLOpenCL) return "global";
  const auto scope = ffi::Function::GetGlobalRequired("adt.opencl_scope");
  return std::string(scope(const_cast<DLTensor*>(&tensor)).cast<ffi::String>());
}

}  // namespace adt
