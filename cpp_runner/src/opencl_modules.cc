#include "opencl_modules.h"

#include <set>
#include <string_view>

namespace adt {
namespace {

namespace ffi = tvm::ffi;

void Find(const ffi::Module& module, std::set<const void*>* seen, std::vector<ffi::Module>* found) {
  if (!seen->insert(module.get()).second) return;
  if (std::string_view(module->kind()) == "opencl") found->push_back(module);
  for (const ffi::Any& import : module->imports()) Find(import.cast<ffi::Module>(), seen, found);
}

}  // namespace

std::vector<ffi::Module> FindOpenClModules(const ffi::Module& module) {
  std::set<const void*> seen;
  std::vector<ffi::Module> found;
  Find(module, &seen, &found);
  return found;
}

}  // namespace adt
