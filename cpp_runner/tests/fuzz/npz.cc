// npz.cc and zip.cc: what was read is no more than what the archive holds.
#include "npz.h"

#include "target.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return adt::TakeOrRefuse([&] {
    const auto* bytes = reinterpret_cast<const std::byte*>(data);
    std::size_t total = 0;
    for (const adt::NamedArray& named : adt::ParseNpz({bytes, bytes + size}, "in.npz")) {
      total += named.array.data.size();
    }
    adt::Require(total <= size);
  });
}
