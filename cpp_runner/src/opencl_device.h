// What OpenCL tells about the device and the memory that the runtime uses, beyond what TVM asks.
//
// TVM keeps its OpenCL objects to itself: the device is found again in the library that TVM opened.
#pragma once

#include <dlpack/dlpack.h>

#include <memory>
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

/// Throws Error(kPackage) when the device does not even tell its name.
OpenClDevice DescribeOpenCl(DLDevice device);

/// Tells in which kind of memory a tensor lies.
class MemoryScopes {
 public:
  MemoryScopes();
  ~MemoryScopes();
  MemoryScopes(const MemoryScopes&) = delete;
  MemoryScopes& operator=(const MemoryScopes&) = delete;

  /// TVM's name of the scope: "global", or "global.texture", "global.texture-weight" or
  /// "global.texture-nhwc" for an image, by how the tensor's shape is folded into it.
  std::string Of(const DLTensor& tensor) const;

 private:
  class Queries;
  std::unique_ptr<const Queries> queries_;
};

}  // namespace adt
