// The few OpenCL declarations that asking a library needs: names and numbers as the OpenCL 3.0
// specification gives them. Nothing is linked: each function is looked up in the library.
#pragma once

#include <cstddef>
#include <cstdint>

namespace adt::probe::cl {

using PlatformId = struct Platform*;
using DeviceId = struct Device*;

using GetPlatformIds = std::int32_t (*)(std::uint32_t, PlatformId*, std::uint32_t*);
using GetPlatformInfo = std::int32_t (*)(PlatformId, std::uint32_t, std::size_t, void*,
                                         std::size_t*);
using GetDeviceIds = std::int32_t (*)(PlatformId, std::uint64_t, std::uint32_t, DeviceId*,
                                      std::uint32_t*);
using GetDeviceInfo = std::int32_t (*)(DeviceId, std::uint32_t, std::size_t, void*, std::size_t*);
/// Of Qualcomm's cl_qcom_ml_ops (CLML): major versions, minor versions, room, how many there are.
using QueryMlVersions = std::int32_t (*)(std::int32_t*, std::int32_t*, std::uint32_t,
                                         std::uint32_t*);

constexpr std::int32_t kSuccess = 0;
constexpr std::int32_t kDeviceNotFound = -1;
constexpr std::int32_t kOutOfResources = -5;
constexpr std::int32_t kOutOfHostMemory = -6;
constexpr std::int32_t kInvalidValue = -30;
constexpr std::int32_t kInvalidPlatform = -32;
constexpr std::int32_t kInvalidDevice = -33;
constexpr std::int32_t kPlatformNotFound = -1001;  // cl_khr_icd

constexpr std::uint64_t kTypeCpu = 1 << 1;
constexpr std::uint64_t kTypeGpu = 1 << 2;
constexpr std::uint64_t kTypeAccelerator = 1 << 3;
constexpr std::uint64_t kTypeCustom = 1 << 4;
constexpr std::uint64_t kTypeAll = 0xFFFFFFFF;

enum PlatformInfo : std::uint32_t {
  kPlatformVersion = 0x0901,
  kPlatformName = 0x0902,
  kPlatformVendor = 0x0903,
  kPlatformExtensions = 0x0904,
};

enum DeviceInfo : std::uint32_t {
  kDeviceType = 0x1000,
  kMaxComputeUnits = 0x1002,
  kMaxWorkGroupSize = 0x1004,
  kMaxClockFrequency = 0x100C,
  kAddressBits = 0x100D,
  kMaxMemAllocSize = 0x1010,
  kImage2dMaxWidth = 0x1011,
  kImage2dMaxHeight = 0x1012,
  kImageSupport = 0x1016,
  kMemBaseAddrAlign = 0x1019,
  kGlobalMemSize = 0x101F,
  kLocalMemSize = 0x1023,
  kDeviceName = 0x102B,
  kDeviceVendor = 0x102C,
  kDriverVersion = 0x102D,
  kDeviceVersion = 0x102F,
  kDeviceExtensions = 0x1030,
  kPreferredVectorWidthHalf = 0x1034,
  kHostUnifiedMemory = 0x1035,
  kOpenclCVersion = 0x103D,
  kImageMaxBufferSize = 0x1040,
  kImageMaxArraySize = 0x1041,
  kImagePitchAlignment = 0x104A,
  kImageBaseAddressAlignment = 0x104B,
};

}  // namespace adt::probe::cl
