// npz.cc and zip.cc: what was read is no more than what the archive holds.
#include "npz.h"

#include "target.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return adt::TakeOrRefuse([&] {
    std::size_t total = 0;
    for (const adt::NamedArray& named : adt::ParseNpz(adt::Blob::Borrow(data, size), "in.npz")) {
      total += named.array.data.size();
    }
    adt::Require(total <= size);
  });
}
