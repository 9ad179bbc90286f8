#include "opencl_modules.h"

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <set>
#include <string_view>

namespace adt {
namespace {

namespace ffi = tvm::ffi;

void Visit(const ffi::Module& module, std::set<const void*>* seen,
           const std::function<void(const ffi::Module&)>& visit) {
  if (!seen->insert(module.get()).second) return;
  visit(module);
  for (const ffi::Any& import : module->imports()) Visit(import.cast<ffi::Module>(), seen, visit);
}

// *module* and all its imports, each once.
void VisitAll(const ffi::Module& module, const std::function<void(const ffi::Module&)>& visit) {
  std::set<const void*> seen;
  Visit(module, &seen, visit);
}

bool HasOnly(const ffi::Module& module, std::initializer_list<std::string_view> kinds) {
  bool only = true;
  VisitAll(module, [&](const ffi::Module& one) {
    only = only && std::find(kinds.begin(), kinds.end(), one->kind()) != kinds.end();
  });
  return only;
}

}  // namespace

std::vector<ffi::Module> FindOpenClModules(const ffi::Module& module) {
  std::vector<ffi::Module> matches;
  VisitAll(module, [&](const ffi::Module& one) {
    if (std::string_view(one->kind()) == "opencl") matches.push_back(one);
  });
  return matches;
}

bool IsCompiledCode(const ffi::Module& module) {
  return HasOnly(module, {"library", "relax.VMExecutable"});
}

bool IsReentrant(const ffi::Module& module) {
  return HasOnly(module, {"library", "relax.VMExecutable", "opencl", "cuda"});
}

}  // namespace adt
