// params.cc: every tensor lies within the file.
#include "params.h"

#include "target.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return adt::TakeOrRefuse([&] {
    const auto* bytes = reinterpret_cast<const std::byte*>(data);
    const std::byte* at = bytes;
    for (const adt::Param& param : adt::ParseParams(bytes, size, "mod.params")) {
      adt::Require(param.data >= at && param.data + param.size <= bytes + size);
      at = param.data + param.size;
    }
  });
}
