// program_cache.cc and program_list.cc: a file of compiled OpenCL programs, and the same bytes as
// the programs in one.
#include "program_cache.h"

#include <string>

#include "program_list.h"
#include "target.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return adt::TakeOrRefuse([&] {
    const std::string bytes(reinterpret_cast<const char*>(data), size);
    const adt::ProgramKey key{"0", "device", "vendor", "driver", "platform"};
    const adt::ParsedPrograms found = adt::ParsePrograms(bytes, key);
    adt::Require(found.problem.empty() || found.programs.empty());
    adt::Require(found.programs.size() <= size);
    adt::Require(!adt::IsProgramList(bytes) || size >= 8);

    const adt::ParsedPrograms again = adt::ParsePrograms(adt::FormatPrograms(key, bytes), key);
    adt::Require(again.problem.empty() && again.programs == bytes);
  });
}
