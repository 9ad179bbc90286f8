// package.cc and json_reader.cc: the description of a package.
#include <string>

#include "package.h"
#include "target.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return adt::TakeOrRefuse([&] {
    const std::string text(reinterpret_cast<const char*>(data), size);
    const adt::Package package = adt::ParsePackage(text, "mod.json");
    for (const adt::Entry& entry : package.entries) package.entry(entry.name);
  });
}
