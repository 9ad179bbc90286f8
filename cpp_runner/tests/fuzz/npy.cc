// npy.cc: what can be read is written and read again as the same array.
#include "npy.h"

#include <string>

#include "target.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return adt::TakeOrRefuse([&] {
    const adt::Array array = adt::ParseNpy(reinterpret_cast<const std::byte*>(data), size, "x");
    std::string bytes = adt::NpyHeader(array);
    bytes.append(reinterpret_cast<const char*>(array.data.data()), array.data.size());
    const adt::Array again =
        adt::ParseNpy(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size(), "x");
    adt::Require(again.dtype == array.dtype && again.shape == array.shape &&
                 again.data == array.data);
  });
}
