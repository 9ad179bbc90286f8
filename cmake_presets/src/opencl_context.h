// Which OpenCL context TVM uses for a device.
#pragma once

#include "opencl_common.h"

namespace adt {

/// That of the device's platform; throws std::out_of_range for a device that TVM does not use.
inline cl_context ContextOf(cl_device_id device) {
  const auto* workspace = tvm::runtime::cl::OpenCLWorkspace::Global();
  return workspace->contexts.at(workspace->device_info.at(device).platform_id);
}

}  // namespace adt
