#include "opencl_device.h"

#include <tvm/runtime/device_api.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include "probe/candidates.h"
#include "probe/library.h"
#include "probe/opencl_api.h"
#include "probe/text.h"
#include "tvm_errors.h"

namespace adt {
namespace {

namespace cl = probe::cl;

constexpr std::uint32_t kMost = 64;  // platforms, devices: more is a driver's nonsense

// The library that TVM has open: it took the first that loads, too.
std::optional<probe::Library> OpenLibrary() {
  for (const char* name : probe::kTvmLibraries) {
    try {
      return probe::Library(name);
    } catch (const probe::NotLoaded&) {
      continue;
    }
  }
  return {};
}

template <typename Function, typename Id>
std::string Text(Function function, Id id, std::uint32_t what) {
  std::size_t size = 0;
  if (function(id, what, 0, nullptr, &size) != cl::kSuccess) return {};
  std::string text(std::min<std::size_t>(size, 1 << 16), '\0');
  if (function(id, what, text.size(), text.data(), nullptr) != cl::kSuccess) return {};
  return probe::Clean(text);
}

std::string TypeName(std::uint64_t type) {
  if (type & cl::kTypeGpu) return "gpu";
  if (type & cl::kTypeCpu) return "cpu";
  if (type & cl::kTypeAccelerator) return "accelerator";
  return {};
}

std::string Attribute(DLDevice device, tvm::runtime::DeviceAttrKind kind, const char* doing) {
  return WithTvmErrors(ErrorKind::kPackage, doing, "Check the device's driver.", [&] {
    tvm::ffi::Any value;
    tvm::runtime::DeviceAPI::Get(device)->GetAttr(device, kind, &value);
    return probe::Clean(value.cast<std::string>());
  });
}

// Vendor, platform and type of the first device with this name and driver: two that agree in both
// agree in the rest as well. TVM cuts the driver's version at 127 characters.
void Complete(const probe::Library& library, OpenClDevice* wanted) {
  const auto platform_ids = library.Find<cl::GetPlatformIds>("clGetPlatformIDs");
  const auto platform_info = library.Find<cl::GetPlatformInfo>("clGetPlatformInfo");
  const auto device_ids = library.Find<cl::GetDeviceIds>("clGetDeviceIDs");
  const auto device_info = library.Find<cl::GetDeviceInfo>("clGetDeviceInfo");
  if (!platform_ids || !platform_info || !device_ids || !device_info) return;

  std::array<cl::PlatformId, kMost> platforms{};
  std::uint32_t platform_count = 0;
  if (platform_ids(kMost, platforms.data(), &platform_count) != cl::kSuccess) return;
  for (std::uint32_t p = 0; p < std::min(platform_count, kMost); ++p) {
    std::array<cl::DeviceId, kMost> devices{};
    std::uint32_t count = 0;
    if (device_ids(platforms[p], cl::kTypeAll, kMost, devices.data(), &count) != cl::kSuccess) {
      continue;
    }
    for (std::uint32_t d = 0; d < std::min(count, kMost); ++d) {
      const std::string driver = Text(device_info, devices[d], cl::kDriverVersion);
      if (Text(device_info, devices[d], cl::kDeviceName) != wanted->name ||
          driver.compare(0, wanted->driver.size(), wanted->driver) != 0) {
        continue;
      }
      wanted->driver = driver;
      wanted->vendor = Text(device_info, devices[d], cl::kDeviceVendor);
      wanted->platform = Text(platform_info, platforms[p], cl::kPlatformVersion);
      std::uint64_t type = 0;
      if (device_info(devices[d], cl::kDeviceType, sizeof(type), &type, nullptr) == cl::kSuccess) {
        wanted->type = TypeName(type);
      }
      return;
    }
  }
}

}  // namespace

OpenClDevice DescribeOpenCl(DLDevice device) {
  OpenClDevice found;
  found.name = Attribute(device, tvm::runtime::kDeviceName, "the device does not say its name");
  found.driver = Attribute(device, tvm::runtime::kDriverVersion,
                           "the device does not say its driver's version");
  if (const std::optional<probe::Library> library = OpenLibrary()) Complete(*library, &found);
  return found;
}

// clGetMemObjectInfo and clGetImageInfo, with the numbers of the OpenCL 3.0 specification.
class MemoryScopes::Queries {
 public:
  using Memory = struct MemoryObject*;
  using Info = std::int32_t (*)(Memory, std::uint32_t, std::size_t, void*, std::size_t*);

  struct Extent {
    std::size_t width = 0;
    std::size_t height = 0;
    std::size_t depth = 0;
  };

  Queries() {
    const std::optional<probe::Library> library = OpenLibrary();
    if (!library) return;
    memory_info_ = library->Find<Info>("clGetMemObjectInfo");
    image_info_ = library->Find<Info>("clGetImageInfo");
  }

  // Of the image array that *memory* is; none when it is a buffer.
  std::optional<Extent> Image(Memory memory) const {
    constexpr std::uint32_t kMemType = 0x1100;
    constexpr std::uint32_t kBuffer = 0x10F0;
    constexpr std::uint32_t kWidth = 0x1114;
    constexpr std::uint32_t kHeight = 0x1115;
    constexpr std::uint32_t kArraySize = 0x1117;
    if (memory_info_ == nullptr || image_info_ == nullptr) return {};
    std::uint32_t type = 0;
    if (memory_info_(memory, kMemType, sizeof(type), &type, nullptr) != cl::kSuccess) return {};
    if (type == kBuffer) return {};
    return Extent{Get(memory, kWidth), Get(memory, kHeight), Get(memory, kArraySize)};
  }

 private:
  std::size_t Get(Memory memory, std::uint32_t what) const {
    std::size_t value = 0;
    image_info_(memory, what, sizeof(value), &value, nullptr);
    return value;
  }

  Info memory_info_ = nullptr;
  Info image_info_ = nullptr;
};

MemoryScopes::MemoryScopes() : queries_(std::make_unique<Queries>()) {}
MemoryScopes::~MemoryScopes() = default;

std::string MemoryScopes::Of(const DLTensor& tensor) const {
  if (tensor.device.device_type != kDLOpenCL || tensor.data == nullptr) return "global";
  // What TVM's data pointer points to begins with the cl_mem: its generated code relies on that.
  Queries::Memory memory = nullptr;
  std::memcpy(&memory, tensor.data, sizeof(memory));
  const auto image = queries_->Image(memory);
  if (!image || tensor.ndim < 3) return "global";

  // TVM folds the extents before *axis* into depth and height, and those from it on into the width.
  const auto folds_at = [&](int axis) {
    Queries::Extent folded{1, 1, 1};
    for (int i = 0; i + 1 < tensor.ndim; ++i) {
      std::size_t& part = i < axis - 1 ? folded.depth : i < axis ? folded.height : folded.width;
      part *= static_cast<std::size_t>(tensor.shape[i]);
    }
    return folded.width == image->width && folded.height == image->height &&
           std::max<std::size_t>(image->depth, 1) == folded.depth;
  };
  if (folds_at(tensor.ndim - 2)) return "global.texture";
  if (folds_at(1)) return "global.texture-weight";
  if (folds_at(2)) return "global.texture-nhwc";
  return "global.texture";
}

}  // namespace adt
