// The OpenCL device and the memory that TVM's runtime uses (cmake_presets/src/opencl_state.cc).
#pragma once

#include <dlpack/dlpack.h>

#include <string>

namespace adt {

/// What is not known is empty.
struct OpenClDevice {
  std::string name;
  std::string vendor;
  std::string driver;
  /// CL_PLATFORM_VERSION.
  std::string platform;
  /// "gpu", "cpu" or "accelerator". An OpenCL device that is a CPU is PoCL or the like.
  std::string type;
};

/// Throws Error(kNoDevice) when the device does not tell its name.
OpenClDevice DescribeOpenCl(DLDevice device);

/// TVM's name of the scope that a tensor lies in: "global", or "global.texture",
/// "global.texture-weight" or "global.texture-nhwc" for an image, by how the tensor's shape is
/// folded into it.
std::string MemoryScope(const DLTensor& tensor);

}  // namespace adt
