#include "elf.h"

#include <array>
#include <cstring>

#include "error.h"

namespace adt {
namespace {

struct Machine {
  unsigned number;  // e_machine
  const char* name;
};

constexpr std::array<Machine, 5> kMachines{
    {{3, "386"}, {40, "ARM"}, {62, "X86_64"}, {183, "AARCH64"}, {243, "RISCV"}}};

}  // namespace

std::string ElfMachine(const std::byte* data, std::size_t size, const std::string& name) {
  std::array<unsigned char, 20> header{};
  if (size >= header.size()) std::memcpy(header.data(), data, header.size());
  if (std::memcmp(header.data(), "\177ELF", 4) != 0) {
    throw Error(ErrorKind::kPackage, name + " is no ELF library",
                "Compile the model again (adt compile) and deploy the package again.");
  }
  const bool big_endian = header[5] == 2;
  const unsigned low = header[big_endian ? 19 : 18];
  const unsigned high = header[big_endian ? 18 : 19];
  const unsigned number = high << 8U | low;
  for (const Machine& machine : kMachines) {
    if (machine.number == number) return machine.name;
  }
  return "machine " + std::to_string(number);
}

std::string OwnMachine() {
#if defined(__aarch64__)
  return "AARCH64";
#elif defined(__x86_64__)
  return "X86_64";
#elif defined(__arm__)
  return "ARM";
#elif defined(__i386__)
  return "386";
#elif defined(__riscv)
  return "RISCV";
#else
#error "add this machine's ELF name"
#endif
}

}  // namespace adt
