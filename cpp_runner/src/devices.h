// The devices a package can run on.
#pragma once

#include <dlpack/dlpack.h>

#include <string>
#include <vector>

namespace adt {

/// The device called *name* ("cpu", "opencl", "cuda"). Throws Error(kPackage) when this runner
/// knows none of that name.
DLDevice FindDevice(const std::string& name);

/// Names of the devices whose runtime is built in.
std::vector<std::string> BuiltInDevices();

/// Throw Error(kPackage), with the reason, unless *device* is there and can be used.
void RequirePresent(DLDevice device, const std::string& name);

/// What *device* calls itself; for the CPU, the machine and its number of processors.
std::string DeviceName(DLDevice device);

}  // namespace adt
