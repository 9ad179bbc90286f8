#include "devices.h"

#include <sys/utsname.h>
#include <tvm/runtime/device_api.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <thread>

#include "error.h"
#include "tvm_errors.h"

namespace adt {
namespace {

using tvm::runtime::DeviceAPI;

struct KnownDevice {
  const char* name;
  DLDeviceType type;
};

constexpr std::array<KnownDevice, 3> kDevices{
    {{"cpu", kDLCPU}, {"opencl", kDLOpenCL}, {"cuda", kDLCUDA}}};

const char* RemedyOfAbsent(DLDevice device) {
  switch (device.device_type) {
    case kDLOpenCL:
      return "The device must have an OpenCL driver whose libOpenCL.so this program may load (its "
             "directory in LD_LIBRARY_PATH); otherwise compile the model for cpu.";
    case kDLCUDA:
      return "The machine must have an NVIDIA GPU and its driver, whose libcuda.so.1 this program "
             "may load; otherwise compile the model for cpu.";
    default:
      return "Compile the model for a device that this machine has.";
  }
}

}  // namespace

DLDevice FindDevice(const std::string& name) {
  const std::size_t colon = name.find(':');
  const char* end = name.data() + name.size();
  const char* digits = colon == std::string::npos ? end : name.data() + colon + 1;
  int number = 0;
  const auto [rest, error] = std::from_chars(digits, end, number);
  const bool counted = digits == end ? colon == std::string::npos
                                     : rest == end && error == std::errc() && number >= 0;
  for (const KnownDevice& known : kDevices) {
    if (counted && name.compare(0, colon, known.name) == 0) return DLDevice{known.type, number};
  }
  std::string names;
  for (const KnownDevice& known : kDevices) {
    names += (names.empty() ? "" : ", ") + std::string(known.name);
  }
  throw Error(ErrorKind::kNoDevice, "this runner knows no device " + name,
              "It knows: " + names + "; a number chooses among several: opencl:1.");
}

std::string KindName(DLDevice device) {
  const auto* known = std::find_if(kDevices.begin(), kDevices.end(), [&](const KnownDevice& each) {
    return each.type == device.device_type;
  });
  return known == kDevices.end() ? "" : known->name;
}

std::vector<std::string> BuiltInDevices() {
  std::vector<std::string> names;
  for (const KnownDevice& known : kDevices) {
    if (DeviceAPI::Get(DLDevice{known.type, 0}, /*allow_missing=*/true) != nullptr) {
      names.emplace_back(known.name);
    }
  }
  return names;
}

void RequirePresent(DLDevice device, const std::string& name) {
  DeviceAPI* api = DeviceAPI::Get(device, /*allow_missing=*/true);
  if (api == nullptr) {
    throw Error(ErrorKind::kNoDevice, "this runner was built without " + name,
                "Build the target again with it (adt build-target --" + name +
                    "), or compile the model for cpu.");
  }
  const char* remedy = RemedyOfAbsent(device);
  const bool present = WithTvmErrors(
      ErrorKind::kNoDevice, [&] { return "the device " + name + " cannot be used"; }, remedy,
      [&] {
        tvm::ffi::Any exists;
        api->GetAttr(device, tvm::runtime::kExist, &exists);
        return exists.cast<int>() != 0 && (device.device_type != kDLCPU || device.device_id == 0);
      });
  if (!present) {
    throw Error(ErrorKind::kNoDevice,
                device.device_id == 0 ? "there is no " + name + " device on this machine"
                                      : "there is no device " + name + ":" +
                                            std::to_string(device.device_id) + " on this machine",
                remedy);
  }
}

std::string DeviceName(DLDevice device) {
  if (device.device_type == kDLCPU) {
    utsname machine{};
    uname(&machine);
    return std::string(machine.machine) + ", " +
           std::to_string(std::thread::hardware_concurrency()) + " processors";
  }
  return WithTvmErrors(ErrorKind::kNoDevice, "the device does not say its name",
                       "Check the device's driver.", [&] {
                         tvm::ffi::Any name;
                         DeviceAPI::Get(device)->GetAttr(device, tvm::runtime::kDeviceName, &name);
                         return name.cast<std::string>();
                       });
}

}  // namespace adt
