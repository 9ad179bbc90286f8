// The devices a package can run on.
#pragma once

#include <dlpack/dlpack.h>

#include <string>
#include <vector>

namespace adt {

/// The device called *name*: "cpu", "opencl" or "cuda", and which of several ("opencl:1"; the first
/// is 0). Throws Error(kNoDevice) when this runner knows none of that name.
DLDevice FindDevice(const std::string& name);

/// "cpu", "opencl" or "cuda".
std::string KindName(DLDevice device);

/// Names of the devices whose runtime is built in.
std::vector<std::string> BuiltInDevices();

/// Throw Error(kNoDevice), with the reason, unless *device* is there and can be used.
void RequirePresent(DLDevice device, const std::string& name);

/// What *device* calls itself; for the CPU, the machine and its number of processors.
std::string DeviceName(DLDevice device);

}  // namespace adt
