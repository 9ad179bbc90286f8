// "adt.build_opencl_programs": build the programs of all kernels of loaded modules, on several
// threads.
//
//   adt.build_opencl_programs(modules, device, threads, progress) -> how many were built, how many
//     there were already
//
// TVM builds a kernel's program when the kernel is first called, one after the other. Here they are
// built before, side by side: clBuildProgram() may be called by several threads, of a program each.
// One that is not built is left to TVM, which says what the driver says of it.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/optional.h>
#include <tvm/ffi/reflection/registry.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "opencl_common.h"
#include "opencl_context.h"
#include "source_utils.h"

namespace {

namespace ffi = tvm::ffi;
using tvm::runtime::OpenCLModuleNode;
using tvm::runtime::OpenCLModuleNodeBase;
using tvm::runtime::cl::OpenCLWorkspace;

/// TVM's programs of a module, which it shows to classes that derive from the module's alone.
struct Programs : OpenCLModuleNodeBase {
  static std::vector<cl_program>& Of(OpenCLModuleNodeBase* module, const std::string& kernel) {
    return (module->*(&Programs::programs_))[kernel];
  }
};

struct ReleaseProgram {
  void operator()(cl_program program) const { clReleaseProgram(program); }
};
using Program = std::unique_ptr<std::remove_pointer_t<cl_program>, ReleaseProgram>;

/// A kernel without a program.
struct Kernel {
  OpenCLModuleNode* module;
  std::string name;
  std::string source;
  Program program;
};

class Build {
 public:
  Build(cl_context context, cl_device_id device, std::vector<Kernel>* kernels)
      : context_(context), device_(device), kernels_(*kernels) {}

  /// Build what no other thread has begun, and call *report* with the number of those that are done
  /// by any thread.
  template <typename Report>
  void Work(const Report& report) {
    for (std::size_t i = next_++; i < kernels_.size(); i = next_++) {
      kernels_[i].program = Built(kernels_[i].source);
      report(++done_);
    }
  }

 private:
  /// Null when the driver does not build it.
  Program Built(const std::string& source) const {
    const char* text = source.data();
    const std::size_t size = source.size();
    cl_int code = CL_SUCCESS;
    Program program(clCreateProgramWithSource(context_, 1, &text, &size, &code));
    if (code != CL_SUCCESS) return nullptr;
    code = clBuildProgram(program.get(), 1, &device_, nullptr, nullptr, nullptr);
    return code == CL_SUCCESS ? std::move(program) : nullptr;
  }

  cl_context context_;
  cl_device_id device_;
  std::vector<Kernel>& kernels_;
  std::atomic<std::size_t> next_{0};
  std::atomic<std::size_t> done_{0};
};

/// Threads beside the calling one, as many of *count* as the system gives; their end is waited for.
class Helpers {
 public:
  template <typename Work>
  Helpers(std::size_t count, const Work& work) {
    try {
      while (threads_.size() < count) threads_.emplace_back(work);
    } catch (const std::system_error&) {  // fewer do it, too
    }
  }
  ~Helpers() {
    for (std::thread& thread : threads_) thread.join();
  }
  Helpers(const Helpers&) = delete;
  Helpers& operator=(const Helpers&) = delete;

 private:
  std::vector<std::thread> threads_;
};

/// *progress* is called by this thread alone: with 0 and the total, then with what is done by then,
/// at last with the total.
void BuildAll(std::vector<Kernel>* kernels, int device, std::size_t threads,
              const ffi::Optional<ffi::Function>& progress) {
  OpenCLWorkspace* workspace = OpenCLWorkspace::Global();
  cl_device_id id = workspace->devices.at(static_cast<std::size_t>(device));
  Build build(adt::ContextOf(id), id, kernels);
  std::size_t reported = 0;
  const auto report = [&](std::size_t done) {
    reported = done;
    if (progress) {
      (*progress)(static_cast<std::int64_t>(done), static_cast<std::int64_t>(kernels->size()));
    }
  };
  report(0);
  {
    const Helpers helpers(std::min(threads, kernels->size()) - 1,
                          [&build] { build.Work([](std::size_t) {}); });
    build.Work(report);
  }
  if (reported != kernels->size()) report(kernels->size());
}

ffi::Array<std::int64_t> BuildPrograms(const ffi::Array<ffi::Module>& modules, int device,
                                       int threads, const ffi::Optional<ffi::Function>& progress) {
  OpenCLWorkspace::Global()->Init();
  std::vector<Kernel> kernels;
  std::int64_t ready = 0;
  for (const ffi::Module& module : modules) {
    auto* node = dynamic_cast<OpenCLModuleNode*>(const_cast<ffi::ModuleObj*>(module.get()));
    if (node == nullptr) continue;
    for (auto& [name, source] : tvm::runtime::SplitKernels(node->InspectSource(""))) {
      if (node->IsProgramCreated(name, device)) {
        ++ready;
      } else {
        kernels.push_back({node, name, source, nullptr});
      }
    }
  }
  if (kernels.empty()) return {0, ready};
  // The longest source first: it must not be what is left at the end.
  std::sort(kernels.begin(), kernels.end(),
            [](const Kernel& a, const Kernel& b) { return a.source.size() > b.source.size(); });
  BuildAll(&kernels, device, static_cast<std::size_t>(std::max(threads, 1)), progress);
  std::int64_t built = 0;
  for (Kernel& kernel : kernels) {
    if (kernel.program == nullptr) continue;
    Programs::Of(kernel.module, kernel.name).at(static_cast<std::size_t>(device)) =
        kernel.program.release();
    ++built;
  }
  return {built, ready};
}

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def("adt.build_opencl_programs", BuildPrograms);
}
