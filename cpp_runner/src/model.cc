#include "model.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include "compatibility.h"
#include "devices.h"
#include "error.h"
#include "external_memory.h"
#include "library.h"
#include "opencl_device.h"
#include "opencl_modules.h"
#include "param_upload.h"
#include "params.h"
#include "runner_info.h"

namespace adt {
namespace {

namespace ffi = tvm::ffi;
using tvm::runtime::Tensor;

// One for each virtual device of the module, and the CPU, where shapes are computed.
std::vector<DLDevice> VmDevices(const Package& package, DLDevice device) {
  std::vector<DLDevice> devices;
  for (const std::string& name : package.target.vdevices) {
    const DLDevice named = FindDevice(name);
    devices.push_back(named.device_type == device.device_type ? device : named);
  }
  if (devices.empty()) devices.push_back(device);
  const bool has_cpu = std::any_of(devices.begin(), devices.end(),
                                   [](DLDevice d) { return d.device_type == kDLCPU; });
  if (!has_cpu) devices.push_back(DLDevice{kDLCPU, 0});
  return devices;
}

DLTensor HostArray(const Param& param) {
  DLTensor array{};
  array.data = const_cast<std::byte*>(param.data);
  array.device = DLDevice{kDLCPU, 0};
  array.ndim = static_cast<std::int32_t>(param.shape.size());
  array.dtype = param.dtype;
  array.shape = const_cast<std::int64_t*>(param.shape.data());
  return array;
}

// Whether kernels of a CPU can read the parameter where it lies in the file.
bool LiesReady(const Param& param, const Blob& file, DLDevice device, std::int64_t alignment) {
  const auto address = reinterpret_cast<std::uintptr_t>(param.data);
  const auto multiple = static_cast<std::uintptr_t>(std::max<std::int64_t>(alignment, 1));
  return device.device_type == kDLCPU && file.mapped() && param.size != 0 &&
         address % multiple == 0;
}

}  // namespace

Model::Model(const Source& source, const ModelOptions& options)
    : package_(ParsePackage(std::string(source.manifest.text()), source.manifest_name)),
      manifest_(source.manifest.text()),
      device_(FindDevice(options.device.empty() ? package_.target.device : options.device)),
      device_name_(KindName(device_)),
      library_name_(source.library_name()) {
  RequireFits(package_, source, Info(), device_name_);
  RequirePresent(device_, device_name_);
  RequireHashes(package_, source, options.programs.directory());
  device_label_ = DeviceName(device_);
  if (device_.device_type == kDLOpenCL) device_driver_ = DescribeOpenCl(device_).driver;
  library_ = LoadWithPrograms([&] { return LoadLibrary(source, options.scratch); },
                              options.programs, device_, &programs_);
  plain_ = device_.device_type == kDLCPU && IsCompiledCode(library_);
  reentrant_ = IsReentrant(library_);
  build_ = BuildPrograms(library_, device_, options.build);
  LoadParams(source);
}

Model::~Model() {
  if (saving_.joinable()) saving_.join();
}

void Model::LoadParams(const Source& source) {
  std::map<std::string, Param> stored;
  for (Param& param : ParseParams(source.params.data(), source.params.size(), source.params_name)) {
    std::string name = param.name;
    stored.emplace(std::move(name), std::move(param));
  }
  std::map<std::pair<std::string, bool>, Tensor> loaded;
  ParamUpload upload(device_, source.params);
  const auto load = [&](const std::string& name, bool image) {
    const std::pair<std::string, bool> key(name, image);
    if (const auto it = loaded.find(key); it != loaded.end()) return it->second;
    const auto it = stored.find(name);
    if (it == stored.end()) {
      throw Error(ErrorKind::kPackage, source.params_name + " has no parameter " + name,
                  "Compile the model again (adt compile) and deploy the package.");
    }
    const DLTensor array = HostArray(it->second);
    Tensor tensor;
    if (LiesReady(it->second, source.params, device_, package_.alignment)) {
      const ffi::Shape shape(array.shape, array.shape + array.ndim);
      tensor = WrapMemory(array.data, shape, array.dtype, device_, [file = source.params] {});
    } else {
      tensor = upload.Copy(array, image, [&] { return "parameter " + name; });
    }
    loaded.emplace(key, tensor);
    return tensor;
  };
  for (const Entry& entry : package_.entries) {
    std::vector<Tensor>& params = params_.emplace_back();
    for (const std::string& name : entry.params) {
      params.push_back(load(name, entry.images.count(name) != 0));
    }
  }
  upload.Finish();
}

Vm Model::MakeVm() {
  // A library's module prepares what is looked up.
  return WithCode([&] { return Vm(library_, library_name_, VmDevices(package_, device_)); });
}

void Model::KeepPrograms() {
  if (!programs_.pending) return;
  const auto start = std::chrono::steady_clock::now();
  std::optional<ProgramFile> file;
  {
    const std::unique_lock<std::shared_mutex> lock(code_);  // a run builds programs, too
    file = TakePrograms(library_, device_, &programs_);
  }
  if (!file) return;
  NoteWrite(WritePrograms(*file), &programs_);
  programs_.keep_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

void Model::SavePrograms() {
  const std::lock_guard<std::mutex> lock(saving_mutex_);
  if (saving_.joinable() || !programs_.pending) return;
  being_saved_ = true;
  const auto save = [this] {
    try {
      KeepPrograms();
    } catch (const std::exception&) {  // no memory: they are built again by the next load
    }
    const std::lock_guard<std::mutex> done(saving_mutex_);
    being_saved_ = false;
    saved_.notify_all();
  };
  try {
    saving_ = std::thread(save);
  } catch (const std::system_error&) {  // no thread is to be had
    KeepPrograms();
    being_saved_ = false;
  }
}

const ProgramReport& Model::programs() const {
  std::unique_lock<std::mutex> lock(saving_mutex_);
  saved_.wait(lock, [this] { return !being_saved_; });
  return programs_;
}

}  // namespace adt
