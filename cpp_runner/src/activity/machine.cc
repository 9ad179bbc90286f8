#include "activity/machine.h"

#include <sys/system_properties.h>

#include <array>
#include <cstdlib>

namespace adt::activity {
namespace {

std::string Property(const char* name) {
  std::array<char, PROP_VALUE_MAX> value{};
  __system_property_get(name, value.data());
  return value.data();
}

std::string SystemOnChip() {
  if (const std::string model = Property("ro.soc.model"); !model.empty()) {
    const std::string maker = Property("ro.soc.manufacturer");
    return maker.empty() ? model : maker + " " + model;
  }
  for (const char* name : {"ro.board.platform", "ro.hardware.chipname", "ro.hardware"}) {
    if (std::string value = Property(name); !value.empty()) return value;
  }
  return {};
}

}  // namespace

const char* Abi() {
#if defined(__aarch64__)
  return "arm64-v8a";
#elif defined(__arm__)
  return "armeabi-v7a";
#elif defined(__x86_64__)
  return "x86_64";
#elif defined(__i386__)
  return "x86";
#elif defined(__riscv)
  return "riscv64";
#else
  return "";
#endif
}

Machine ThisMachine() {
  const std::string level = Property("ro.build.version.sdk");
  return {Property("ro.product.model"), SystemOnChip(), Property("ro.build.version.release"),
          std::strtoll(level.c_str(), nullptr, 10), Abi()};
}

}  // namespace adt::activity
