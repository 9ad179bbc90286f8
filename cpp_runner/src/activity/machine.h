// What Android says of the device that this runs on.
#pragma once

#include <cstdint>
#include <string>

namespace adt::activity {

/// Empty or 0 where the device does not say.
struct Machine {
  std::string model;
  std::string soc;
  std::string android_release;
  std::int64_t api_level = 0;
  std::string abi;
};

/// ABI that this library was compiled for, as Android calls it.
const char* Abi();

Machine ThisMachine();

}  // namespace adt::activity
