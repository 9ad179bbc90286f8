#include "adt/runner.h"

#include <tvm/ffi/dtype.h>
#include <tvm/runtime/device_api.h>
#include <tvm/runtime/tensor.h>

#include <algorithm>
#include <map>
#include <utility>

#include "adt/build_config.h"
#include "compatibility.h"
#include "context_symbols.h"
#include "devices.h"
#include "dtype.h"
#include "elf.h"
#include "tvm_errors.h"
#include "vm.h"

namespace adt {
namespace {

namespace ffi = tvm::ffi;
using tvm::runtime::Tensor;

std::string Describe(const TensorSpec& spec) {
  std::string text = spec.dtype + "[";
  for (std::size_t i = 0; i < spec.shape.size(); ++i) {
    if (i != 0) text += ", ";
    text += spec.shape[i].symbolic() ? spec.shape[i].symbol : std::to_string(spec.shape[i].extent);
  }
  return text + "]";
}

// Equal, where a symbolic dimension stands for one extent wherever it occurs (*bound*).
bool Fits(const std::vector<Dim>& wanted, const std::vector<std::int64_t>& found,
          std::map<std::string, std::int64_t>* bound) {
  if (wanted.size() != found.size()) return false;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const std::int64_t extent = wanted[i].symbolic()
                                    ? bound->emplace(wanted[i].symbol, found[i]).first->second
                                    : wanted[i].extent;
    if (extent != found[i]) return false;
  }
  return true;
}

std::string Names(const std::vector<TensorSpec>& specs) {
  std::string names;
  for (const TensorSpec& spec : specs) {
    names += (names.empty() ? "" : ", ") + spec.name + " " + Describe(spec);
  }
  return names;
}

// One for each virtual device of the module, and the CPU, where shapes are computed.
std::vector<DLDevice> VmDevices(const Package& package, DLDevice device) {
  std::vector<DLDevice> devices;
  for (const std::string& name : package.target.vdevices) devices.push_back(FindDevice(name));
  if (devices.empty()) devices.push_back(device);
  const bool has_cpu = std::any_of(devices.begin(), devices.end(),
                                   [](DLDevice d) { return d.device_type == kDLCPU; });
  if (!has_cpu) devices.push_back(DLDevice{kDLCPU, 0});
  return devices;
}

}  // namespace

RunnerInfo Info() {
  return WithTvmErrors(ErrorKind::kRun, "the runtime cannot be set up",
                       "Deploy the bundle again; its files do not belong together.", [] {
                         RunnerInfo info;
                         info.version = ADT_RUNNER_VERSION;
                         info.tvm_version = ADT_TVM_VERSION;
                         info.ffi_version = ADT_TVM_FFI_VERSION;
                         info.machine = OwnMachine();
                         info.alignment = tvm::runtime::kAllocAlignment;
                         info.context_symbols = OfferedContextSymbols();
                         info.devices = BuiltInDevices();
                         return info;
                       });
}

class Runner::Impl {
 public:
  Impl(const std::string& directory, const std::string& device)
      : package_(ReadPackage(directory)),
        device_name_(device.empty() ? package_.target.device : device),
        device_(FindDevice(device_name_)) {
    RequireFits(package_, directory, Info(), device_name_);
    RequirePresent(device_, device_name_);
    device_label_ = DeviceName(device_);
    vm_ = std::make_unique<Vm>(directory + "/mod.so", VmDevices(package_, device_));
    LoadParams(directory + "/mod.params");
  }

  void SetInputs(const NamedArrays& inputs, const Entry& entry) {
    RequireNames(inputs, entry);
    std::map<std::string, std::int64_t> bound;
    std::vector<Tensor> arguments;
    for (const TensorSpec& spec : entry.inputs) {
      const auto found = std::find_if(inputs.begin(), inputs.end(),
                                      [&](const NamedArray& i) { return i.name == spec.name; });
      arguments.push_back(ToDevice(found->array, spec, &bound));
    }
    for (const std::string& param : entry.params) arguments.push_back(params_.at(param));
    vm_->SetInput(entry.name, arguments);
  }

  void Invoke(const Entry& entry) {
    vm_->Invoke(entry.name);
    WithTvmErrors(ErrorKind::kRun, "the model failed on the device",
                  "Run it again; if it still fails, report the message with the model.",
                  [&] { tvm::runtime::DeviceAPI::Get(device_)->StreamSync(device_, nullptr); });
  }

  NamedArrays Outputs(const Entry& entry) {
    const std::vector<Tensor> tensors = vm_->Outputs(entry.name);
    if (tensors.size() != entry.outputs.size()) {
      throw Error(ErrorKind::kRun,
                  "entry " + entry.name + " returned " + std::to_string(tensors.size()) +
                      " tensors, mod.json describes " + std::to_string(entry.outputs.size()),
                  "Compile the model again (adt compile).");
    }
    NamedArrays outputs;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      outputs.push_back({entry.outputs[i].name, ToHost(tensors[i], entry.outputs[i])});
    }
    return outputs;
  }

  const Package& package() const { return package_; }
  const std::string& device() const { return device_name_; }
  const std::string& device_label() const { return device_label_; }

 private:
  static void RequireNames(const NamedArrays& inputs, const Entry& entry) {
    for (const TensorSpec& spec : entry.inputs) {
      const auto count = std::count_if(inputs.begin(), inputs.end(),
                                       [&](const NamedArray& i) { return i.name == spec.name; });
      if (count != 1) {
        throw Error(ErrorKind::kInput,
                    "input " + spec.name + " is " + (count == 0 ? "missing" : "given twice"),
                    "Entry " + entry.name + " takes: " + Names(entry.inputs) + ".");
      }
    }
    for (const NamedArray& input : inputs) {
      const bool known = std::any_of(entry.inputs.begin(), entry.inputs.end(),
                                     [&](const TensorSpec& s) { return s.name == input.name; });
      if (!known) {
        throw Error(ErrorKind::kInput, "the model has no input " + input.name,
                    "Entry " + entry.name + " takes: " + Names(entry.inputs) + ".");
      }
    }
  }

  Tensor ToDevice(const Array& array, const TensorSpec& spec,
                  std::map<std::string, std::int64_t>* bound) const {
    const DType* dtype = FindDType(array.dtype);
    if (array.dtype != spec.dtype || dtype == nullptr || !Fits(spec.shape, array.shape, bound)) {
      throw Error(ErrorKind::kInput,
                  "input " + spec.name + " is " + adt::Describe(array.dtype, array.shape) +
                      ", the model takes " + Describe(spec),
                  "Convert the array, or compile the model for this shape (adt compile --shape).");
    }
    if (array.data.size() != ByteSize(*dtype, array.shape)) {
      throw Error(ErrorKind::kInput,
                  "input " + spec.name + " has " + std::to_string(array.data.size()) +
                      " bytes of data, its shape takes " +
                      std::to_string(ByteSize(*dtype, array.shape)),
                  "Give data for the whole array, in C order.");
    }
    return WithTvmErrors(ErrorKind::kRun, "cannot copy input " + spec.name + " to the device",
                         "Check the memory that the device has left.", [&] {
                           Tensor tensor = Tensor::Empty(
                               ffi::Shape(array.shape),
                               ffi::StringToDLDataType(ffi::String(array.dtype)), device_);
                           if (!array.data.empty())
                             tensor.CopyFromBytes(array.data.data(), array.data.size());
                           return tensor;
                         });
  }

  static Array ToHost(const Tensor& tensor, const TensorSpec& spec) {
    Array array;
    array.dtype = std::string(ffi::DLDataTypeToString(tensor->dtype));
    array.shape.assign(tensor.Shape().begin(), tensor.Shape().end());
    const DType* dtype = FindDType(array.dtype);
    std::map<std::string, std::int64_t> bound;
    if (dtype == nullptr || array.dtype != spec.dtype || !Fits(spec.shape, array.shape, &bound)) {
      throw Error(ErrorKind::kRun,
                  "output " + spec.name + " is " + adt::Describe(array.dtype, array.shape) +
                      ", mod.json says " + Describe(spec),
                  "Compile the model again (adt compile).");
    }
    array.data.resize(ByteSize(*dtype, array.shape));
    if (array.data.empty()) return array;  // TVM takes no null pointer, even for no bytes
    WithTvmErrors(ErrorKind::kRun, "cannot copy output " + spec.name + " from the device",
                  "Run it again; if it still fails, report the message with the model.",
                  [&] { tensor.CopyToBytes(array.data.data(), array.data.size()); });
    return array;
  }

  void LoadParams(const std::string& path) {
    const std::string remedy = "Compile the model again (adt compile) and deploy the package.";
    WithTvmErrors(ErrorKind::kPackage, "cannot load " + path, remedy, [&] {
      const auto load = ffi::Function::GetGlobalRequired("runtime.LoadParamsFromFile");
      const auto found = load(ffi::String(path)).cast<ffi::Map<ffi::String, Tensor>>();
      for (const Entry& entry : package_.entries) {
        for (const std::string& name : entry.params) {
          if (params_.count(name) != 0) continue;
          const auto it = found.find(ffi::String(name));
          if (it == found.end()) {
            throw Error(ErrorKind::kPackage, path + " has no parameter " + name, remedy);
          }
          const Tensor host = (*it).second;
          params_.emplace(name, device_.device_type == kDLCPU ? host : host.CopyTo(device_));
        }
      }
    });
  }

  Package package_;
  std::string device_name_;
  DLDevice device_;
  std::string device_label_;
  std::unique_ptr<Vm> vm_;
  std::map<std::string, Tensor> params_;
};

Runner::Runner(const std::string& directory, const std::string& device)
    : impl_(std::make_unique<Impl>(directory, device)) {}
Runner::~Runner() = default;
Runner::Runner(Runner&&) noexcept = default;
Runner& Runner::operator=(Runner&&) noexcept = default;

const Package& Runner::package() const { return impl_->package(); }
const std::string& Runner::device() const { return impl_->device(); }
const std::string& Runner::device_name() const { return impl_->device_label(); }

void Runner::SetInputs(const NamedArrays& inputs, const std::string& entry) {
  impl_->SetInputs(inputs, package().entry(entry));
}
void Runner::Invoke(const std::string& entry) { impl_->Invoke(package().entry(entry)); }
NamedArrays Runner::Outputs(const std::string& entry) {
  return impl_->Outputs(package().entry(entry));
}
NamedArrays Runner::Run(const NamedArrays& inputs, const std::string& entry) {
  SetInputs(inputs, entry);
  Invoke(entry);
  return Outputs(entry);
}

}  // namespace adt
