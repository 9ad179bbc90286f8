#include "session.h"

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/dtype.h>
#include <tvm/runtime/device_api.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <type_traits>
#include <utility>

#include "cancellation.h"
#include "device_tensor.h"
#include "devices.h"
#include "dtype.h"
#include "error.h"
#include "external_memory.h"
#include "opencl_waiting.h"
#include "tvm_errors.h"

namespace adt {
namespace {

namespace ffi = tvm::ffi;
using tvm::runtime::Tensor;

constexpr const char* kCompileRemedy = "Compile the model again (adt compile).";
constexpr const char* kRunRemedy =
    "Compile the model again; if it still fails, report the message with the model.";
constexpr const char* kShapeRemedy =
    "Convert the array, or compile the model for this shape (adt compile --shape).";

std::string Describe(std::string_view dtype, Extents shape) {
  return adt::Describe(dtype, std::vector<std::int64_t>(shape.data, shape.data + shape.rank));
}

std::string Names(const std::vector<TensorSpec>& specs) {
  std::string names;
  for (const TensorSpec& spec : specs) {
    names += (names.empty() ? "" : ", ") + spec.name + " " + Describe(spec);
  }
  return names;
}

Extents ShapeOf(const Tensor& tensor) {
  return {tensor->shape, static_cast<std::size_t>(tensor->ndim)};
}

bool SameShape(const Tensor& tensor, Extents shape) {
  return std::equal(tensor->shape, tensor->shape + tensor->ndim, shape.data,
                    shape.data + shape.rank);
}

ffi::Shape TvmShape(Extents shape) { return ffi::Shape(shape.data, shape.data + shape.rank); }

std::size_t TensorBytes(const Tensor& tensor) { return ffi::GetDataSize(*tensor.operator->()); }

// No output of the last run is the tensor, or a part of it.
bool IsOurs(const Tensor& tensor, const Tensor& argument) {
  return tensor.use_count() == (argument.same_as(tensor) ? 2 : 1);
}

// Make *tensor* one of that shape that no run's result is. Whether it is another one now.
bool Fit(Tensor* tensor, const Tensor& argument, Extents shape, DLDataType dtype, DLDevice device) {
  if (tensor->defined() && SameShape(*tensor, shape) && IsOurs(*tensor, argument)) return false;
  *tensor = Tensor::Empty(TvmShape(shape), dtype, device);
  return true;
}

void RequireNames(const NamedArrays& inputs, const Entry& entry) {
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

template <typename T>
void RequireRange(const TensorSpec& spec, const void* data, std::size_t size) {
  for (std::size_t i = 0; i < size / sizeof(T); ++i) {
    T value;  // a caller's array need not be aligned to its elements
    std::memcpy(&value, static_cast<const std::byte*>(data) + i * sizeof(T), sizeof(T));
    // Beyond int64 is beyond every range.
    const bool huge =
        std::is_unsigned_v<T> && sizeof(T) == 8 && static_cast<std::int64_t>(value) < 0;
    const std::int64_t number =
        huge ? std::numeric_limits<std::int64_t>::max() : static_cast<std::int64_t>(value);
    if (number < spec.values->least || number > spec.values->most) {
      throw Error(ErrorKind::kInput,
                  "input " + spec.name + " has the value " + std::to_string(value) +
                      "; the model takes " + std::to_string(spec.values->least) + " to " +
                      std::to_string(spec.values->most) + ": it picks elements of a tensor by them",
                  "Give values in that range, made for this very model (its own tokenizer, its own "
                  "table).");
    }
  }
}

// Indices outside their range would read other memory.
void RequireValues(const TensorSpec& spec, const void* data, std::size_t size) {
  if (!spec.values || !spec.values->index) return;
  const DType* dtype = FindDType(spec.dtype);
  const bool is_signed = dtype->kind == 'i';
  switch (dtype->size) {
    case 1:
      return is_signed ? RequireRange<std::int8_t>(spec, data, size)
                       : RequireRange<std::uint8_t>(spec, data, size);
    case 2:
      return is_signed ? RequireRange<std::int16_t>(spec, data, size)
                       : RequireRange<std::uint16_t>(spec, data, size);
    case 4:
      return is_signed ? RequireRange<std::int32_t>(spec, data, size)
                       : RequireRange<std::uint32_t>(spec, data, size);
    default:
      return is_signed ? RequireRange<std::int64_t>(spec, data, size)
                       : RequireRange<std::uint64_t>(spec, data, size);
  }
}

std::string NoSuch(const char* what, std::size_t index, const std::string& owner) {
  return owner + " has no " + what + " " + std::to_string(index);
}

std::string From0To(std::size_t count) {
  return count == 0 ? "There is none."
                    : "Give a number from 0 to " + std::to_string(count - 1) + ".";
}

}  // namespace

Session::Session(std::shared_ptr<Model> model)
    : model_(std::move(model)), device_(model_->dl_device()), vm_(model_->MakeVm()) {
  entries_.reserve(package().entries.size());
  for (const Entry& entry : package().entries) {
    EntryState& state = entries_.emplace_back();
    state.entry = &entry;
    state.function = vm_.Function(entry.name);
    std::map<std::string, std::ptrdiff_t> symbols;
    const auto port = [&](const TensorSpec& spec) {
      const DType* dtype = FindDType(spec.dtype);
      if (dtype == nullptr) {
        throw Error(ErrorKind::kPackage,
                    spec.name + " has the element type " + spec.dtype + ", which no array has",
                    "Compile the model with inputs and outputs of another type.");
      }
      Port made;
      made.spec = &spec;
      made.dtype = ffi::StringToDLDataType(ffi::String(spec.dtype));
      made.element_size = dtype->size;
      for (const Dim& dim : spec.shape) {
        const auto next = static_cast<std::ptrdiff_t>(symbols.size());
        made.extents.push_back(dim.symbolic() ? -1 : dim.extent);
        made.symbols.push_back(dim.symbolic() ? symbols.emplace(dim.symbol, next).first->second
                                              : -1);
        made.symbolic |= dim.symbolic();
      }
      if (!made.symbolic) made.size = ByteSize(*dtype, made.extents);
      return made;
    };
    for (const TensorSpec& spec : entry.inputs) state.inputs.emplace_back().port = port(spec);
    for (const TensorSpec& spec : entry.outputs) state.ports.push_back(port(spec));
    state.symbols.resize(symbols.size());
    state.arguments.resize(entry.inputs.size());
    for (const Tensor& tensor : model_->params(entries_.size() - 1)) {
      state.arguments.emplace_back(tensor);
    }
  }
}

Session::~Session() {
  try {
    Wait();
  } catch (...) {  // the device failed: there is nothing to wait for
  }
}

std::size_t Session::EntryIndex(const std::string& name) const {
  return static_cast<std::size_t>(&package().entry(name) - package().entries.data());
}

const Session::EntryState& Session::State(std::size_t entry) const {
  if (entry >= entries_.size()) {
    throw Error(ErrorKind::kUsage, NoSuch("entry", entry, "the package"), From0To(entries_.size()));
  }
  return entries_[entry];
}

Session::EntryState& Session::State(std::size_t entry) {
  return const_cast<EntryState&>(std::as_const(*this).State(entry));
}

Session::Input& Session::InputAt(EntryState* state, std::size_t input) {
  if (input >= state->inputs.size()) {
    throw Error(ErrorKind::kUsage, NoSuch("input", input, "entry " + state->entry->name),
                From0To(state->inputs.size()));
  }
  return state->inputs[input];
}

// The array's shape, checked: the given one, or the input's own when none is given.
Extents Session::RequireShape(const Port& port, std::optional<std::size_t> size, Extents shape) {
  const TensorSpec& spec = *port.spec;
  std::size_t bytes = port.size;
  if (shape.data == nullptr && shape.rank == 0) {
    if (port.symbolic) {
      throw Error(ErrorKind::kInput,
                  "input " + spec.name + " is " + Describe(spec) + ": its shape varies",
                  "Give the array's shape with the array.");
    }
    shape = {port.extents.data(), port.extents.size()};
  } else {
    bool fits = shape.rank == port.extents.size();
    for (std::size_t i = 0; fits && i < shape.rank; ++i) {
      fits = port.extents[i] < 0 || port.extents[i] == shape.data[i];
    }
    const auto given = fits ? ByteSize(port.element_size, shape.data, shape.rank) : std::nullopt;
    bytes = given.value_or(0);
    if (!given) {
      throw Error(ErrorKind::kInput,
                  "input " + spec.name + " is " + Describe(spec.dtype, shape) +
                      ", the model takes " + Describe(spec),
                  kShapeRemedy);
    }
  }
  if (size && *size != bytes) {
    throw Error(ErrorKind::kInput,
                "input " + spec.name + " has " + std::to_string(*size) +
                    " bytes of data, its shape takes " + std::to_string(bytes),
                "Give data for the whole array, in C order.");
  }
  return shape;
}

void Session::Use(EntryState* state, Input* input, const Tensor& tensor) {
  input->argument = tensor;
  state->arguments[static_cast<std::size_t>(input - state->inputs.data())] = input->argument;
  state->checked = false;
}

// On OpenCL the copy is in the queue when this returns, behind the runs that were started.
void Session::CopyIn(const void* data, const Tensor& tensor) {
  constexpr std::size_t kMostStaged = std::size_t{32} << 20;
  const std::size_t size = TensorBytes(tensor);
  if (size == 0) return;  // TVM takes no null pointer, even for no bytes
  const bool deferred = device_.device_type == kDLOpenCL && size <= kMostStaged;
  if (deferred && staging_.pending_bytes() + size > kMostStaged) Wait();
  const DLTensor from =
      HostArray(deferred ? staging_.Keep(data, size) : data, *tensor.operator->());
  const auto copy = [&] { Tensor::CopyFromTo(&from, const_cast<DLTensor*>(tensor.operator->())); };
  if (!deferred) return copy();
  const DeferredOpenClWaiting waiting(device_);
  copy();
}

// False where the device cannot do so.
bool Session::CopyBesideRuns(Input* input, const void* data, std::size_t size, Extents shape) {
  if (!started_ || size == 0 || !input->upload.Make(device_, size)) return false;
  Tensor next = std::exchange(input->spare, Tensor());  // gone when the copy fails
  const bool fresh = Fit(&next, input->argument, shape, input->port.dtype, device_);
  input->upload.Copy(data, next, fresh);
  input->spare = std::exchange(input->owned, std::move(next));
  return true;
}

void Session::SetInput(std::size_t entry, std::size_t input, const void* data, std::size_t size,
                       Extents shape) {
  EntryState& state = State(entry);
  Input& to = InputAt(&state, input);
  shape = RequireShape(to.port, size, shape);
  RequireValues(*to.port.spec, data, size);
  WithTvmErrors(
      ErrorKind::kRun, [&] { return "cannot copy input " + to.port.spec->name + " to the device"; },
      "Check the memory that the device has left.",
      [&] {
        if (CopyBesideRuns(&to, data, size, shape)) return;
        Fit(&to.owned, to.argument, shape, to.port.dtype, device_);
        CopyIn(data, to.owned);
      });
  if (!to.argument.same_as(to.owned)) Use(&state, &to, to.owned);
}

void Session::SetInputTensor(std::size_t entry, std::size_t input, const Tensor& tensor) {
  EntryState& state = State(entry);
  Input& to = InputAt(&state, input);
  static constexpr std::int64_t kNoExtents = 0;
  const Extents shape{tensor->ndim == 0 ? &kNoExtents : tensor->shape, ShapeOf(tensor).rank};
  if (tensor->dtype != to.port.dtype) {
    throw Error(ErrorKind::kInput,
                "input " + to.port.spec->name + " is " +
                    Describe(std::string(ffi::DLDataTypeToString(tensor->dtype)), shape) +
                    ", the model takes " + Describe(*to.port.spec),
                "Give a tensor of the same element type.");
  }
  RequireShape(to.port, std::nullopt, shape);
  const bool here = tensor->device.device_type == device_.device_type &&
                    tensor->device.device_id == device_.device_id;
  const bool on_cpu = tensor->device.device_type == kDLCPU;
  if (!here && on_cpu) return SetInput(entry, input, DataOf(tensor), TensorBytes(tensor), shape);
  if (!here) {
    throw Error(ErrorKind::kInput,
                "input " + to.port.spec->name + " lies on another device (" +
                    KindName(tensor->device) + ":" + std::to_string(tensor->device.device_id) +
                    ") than the model",
                "Copy it to the program's memory first (adt_tensor_copy).");
  }
  if (tensor->byte_offset != 0) {  // kernels take no offset: a copy, but on the device
    Tensor copy;
    WithTvmErrors(ErrorKind::kRun, "cannot copy the tensor on the device", kRunRemedy, [&] {
      copy = Tensor::Empty(TvmShape(shape), to.port.dtype, device_);
      if (TensorBytes(tensor) != 0) {
        Tensor::CopyFromTo(tensor.operator->(), const_cast<DLTensor*>(copy.operator->()));
      }
    });
    return Use(&state, &to, copy);
  }
  const auto alignment =
      static_cast<std::uintptr_t>(std::max<std::int64_t>(package().alignment, 1));
  if (on_cpu && reinterpret_cast<std::uintptr_t>(tensor->data) % alignment != 0) {
    throw Error(
        ErrorKind::kInput,
        "input " + to.port.spec->name + " lies at an address that is no multiple of " +
            std::to_string(alignment) + " bytes, which the package takes for granted",
        "Allocate it with aligned_alloc or posix_memalign, or copy it (adt_runner_set_input).");
  }
  if (!to.argument.same_as(tensor)) Use(&state, &to, tensor);
}

Tensor Session::InputTensor(std::size_t entry, std::size_t input, Extents shape) {
  EntryState& state = State(entry);
  Input& to = InputAt(&state, input);
  shape = RequireShape(to.port, std::nullopt, shape);
  Tensor tensor = WithTvmErrors(
      ErrorKind::kRun, [&] { return "cannot allocate input " + to.port.spec->name; },
      "Check the memory that the device has left.",
      [&] { return Tensor::Empty(TvmShape(shape), to.port.dtype, device_); });
  to.owned = Tensor();
  Use(&state, &to, tensor);
  return tensor;
}

// Sets the symbols to the arguments' extents.
void Session::RequireArguments(EntryState* state) {
  std::fill(state->symbols.begin(), state->symbols.end(), -1);
  for (const Input& input : state->inputs) {
    const TensorSpec& spec = *input.port.spec;
    if (!input.argument.defined()) {
      throw Error(ErrorKind::kInput, "input " + spec.name + " is missing",
                  "Entry " + state->entry->name + " takes: " + Names(state->entry->inputs) + ".");
    }
    for (std::size_t i = 0; i < input.port.symbols.size(); ++i) {
      if (input.port.symbols[i] < 0) continue;
      std::int64_t& bound = state->symbols[static_cast<std::size_t>(input.port.symbols[i])];
      const std::int64_t extent = input.argument->shape[i];
      if (bound < 0) bound = extent;
      if (bound != extent) {
        throw Error(ErrorKind::kInput,
                    "input " + spec.name + " is " + Describe(spec.dtype, ShapeOf(input.argument)) +
                        ", the model takes " + Describe(spec) + ", and " + spec.shape[i].symbol +
                        " is " + std::to_string(bound) + " elsewhere",
                    kShapeRemedy);
      }
    }
  }
  state->checked = true;
}

// What others have, too, may have changed since it was set.
void Session::RequireIndices(const EntryState& state) const {
  if (device_.device_type != kDLCPU) return;
  for (const Input& input : state.inputs) {
    if (input.argument.same_as(input.owned)) continue;
    const auto* data = static_cast<const std::byte*>(input.argument->data);
    RequireValues(*input.port.spec, data + input.argument->byte_offset,
                  TensorBytes(input.argument));
  }
}

void Session::TakeOutputs(EntryState* state) {
  const auto take = [state](const ffi::Any& value) {
    const auto tensor = value.as<ffi::Tensor>();
    if (!tensor) {
      throw Error(ErrorKind::kRun,
                  "entry " + state->entry->name + " returned something else than tensors",
                  kCompileRemedy);
    }
    state->outputs.emplace_back(*tensor);
  };
  if (const auto* tuple = state->result.as<ffi::ArrayObj>()) {
    for (const ffi::Any& value : *tuple) take(value);
  } else {
    take(state->result);
  }
  if (state->outputs.size() != state->ports.size()) {
    throw Error(ErrorKind::kRun,
                "entry " + state->entry->name + " returned " +
                    std::to_string(state->outputs.size()) + " tensors, mod.json describes " +
                    std::to_string(state->ports.size()),
                kCompileRemedy);
  }
  for (std::size_t i = 0; i < state->outputs.size(); ++i) {
    const Port& port = state->ports[i];
    const Tensor& tensor = state->outputs[i];
    bool fits = tensor->dtype == port.dtype &&
                static_cast<std::size_t>(tensor->ndim) == port.extents.size();
    for (std::size_t k = 0; fits && k < port.extents.size(); ++k) {
      std::int64_t wanted = port.extents[k];
      if (port.symbols[k] >= 0) {
        std::int64_t& bound = state->symbols[static_cast<std::size_t>(port.symbols[k])];
        if (bound < 0) bound = tensor->shape[k];  // a symbol of outputs only
        wanted = bound;
      }
      fits = tensor->shape[k] == wanted;
    }
    if (!fits) {
      const std::string dtype(ffi::DLDataTypeToString(tensor->dtype));
      throw Error(ErrorKind::kRun,
                  "output " + port.spec->name + " is " + Describe(dtype, ShapeOf(tensor)) +
                      ", mod.json says " + Describe(*port.spec),
                  kCompileRemedy);
    }
  }
}

void Session::Start(std::size_t entry, const std::atomic<bool>* cancelled) {
  EntryState& state = State(entry);
  state.outputs.clear();  // before the run, so that it may use their memory
  state.result = nullptr;
  if (!state.checked || !state.symbols.empty()) RequireArguments(&state);
  RequireIndices(state);
  std::optional<Cancellation> cancellation;
  if (cancelled != nullptr) {
    RequireNotCancelled(*cancelled);
    cancellation.emplace(vm_.module(), *cancelled);
  }
  started_ = device_.device_type == kDLOpenCL;
  try {
    WithTvmErrors(ErrorKind::kRun, "the model failed", kRunRemedy, [&] {
      model_->WithCode([&] {
        state.function.CallPacked(state.arguments.data(), static_cast<int>(state.arguments.size()),
                                  &state.result);
      });
    });
    TakeOutputs(&state);
  } catch (...) {
    state.outputs.clear();
    throw;
  }
  if (state.symbols == state.symbols_before) return;
  state.symbols_before = state.symbols;
  state.pool_limit.AfterNewShape(device_);
}

void Session::Wait() {
  WithTvmErrors(ErrorKind::kRun, "the model failed on the device",
                "Run it again; if it still fails, report the message with the model.",
                [&] { tvm::runtime::DeviceAPI::Get(device_)->StreamSync(device_, nullptr); });
  staging_.Release();
  started_ = false;
}

const Tensor& Session::Output(std::size_t entry, std::size_t output) const {
  const EntryState& state = State(entry);
  if (output >= state.ports.size()) {
    throw Error(ErrorKind::kUsage, NoSuch("output", output, "entry " + state.entry->name),
                From0To(state.ports.size()));
  }
  if (output >= state.outputs.size()) {
    throw Error(ErrorKind::kUsage, "entry " + state.entry->name + " has no outputs yet",
                "Run it first; a run that failed has none.");
  }
  return state.outputs[output];
}

std::size_t Session::OutputSize(std::size_t entry, std::size_t output) const {
  return TensorBytes(Output(entry, output));
}

void Session::GetOutput(std::size_t entry, std::size_t output, void* data, std::size_t size) const {
  const Tensor& tensor = Output(entry, output);
  const TensorSpec& spec = *entries_[entry].ports[output].spec;
  CopyFromDevice(tensor, data, size, [&spec] { return "output " + spec.name; });
  if (tensor->device.device_type == kDLOpenCL) {  // the copy waited for the queue
    staging_.Release();
    started_ = false;
  }
}

Tensor Session::TakeOutput(std::size_t entry, std::size_t output) {
  Tensor tensor = Output(entry, output);
  for (Input& input : State(entry).inputs) {  // what a model hands through is no longer ours
    for (Tensor* own : {&input.owned, &input.spare}) {
      if (own->defined() && !IsOurs(*own, input.argument)) *own = Tensor();
    }
  }
  return tensor;
}

void Session::ShareInputs(std::size_t entry) {
  EntryState& state = State(entry);
  RequireArguments(&state);
  RequireIndices(state);
  WithTvmErrors(ErrorKind::kRun, "cannot set the inputs", kRunRemedy, [&] {
    const ffi::String name(state.entry->name);
    std::vector<ffi::AnyView> arguments{name};
    arguments.insert(arguments.end(), state.arguments.begin(), state.arguments.end());
    ffi::Any result;
    vm_.Function("set_input")
        .CallPacked(arguments.data(), static_cast<int>(arguments.size()), &result);
  });
}

void Session::SetInputs(const NamedArrays& inputs, const std::string& entry) {
  const std::size_t index = EntryIndex(entry);
  const EntryState& state = State(index);
  RequireNames(inputs, *state.entry);
  for (std::size_t i = 0; i < state.inputs.size(); ++i) {
    const TensorSpec& spec = state.entry->inputs[i];
    const auto found = std::find_if(inputs.begin(), inputs.end(), [&](const NamedArray& named) {
      return named.name == spec.name;
    });
    const Array& array = found->array;
    if (array.dtype != spec.dtype) {
      throw Error(ErrorKind::kInput,
                  "input " + spec.name + " is " + adt::Describe(array.dtype, array.shape) +
                      ", the model takes " + Describe(spec),
                  kShapeRemedy);
    }
    static constexpr std::int64_t kNoExtents = 0;
    const Extents shape{array.shape.empty() ? &kNoExtents : array.shape.data(), array.shape.size()};
    SetInput(index, i, array.data.data(), array.data.size(), shape);
  }
}

void Session::Invoke(const std::string& entry) {
  Start(EntryIndex(entry));
  Wait();
}

NamedArrays Session::Outputs(const std::string& entry) const {
  const std::size_t index = EntryIndex(entry);
  NamedArrays outputs;
  for (std::size_t i = 0; i < State(index).ports.size(); ++i) {
    const TensorSpec& spec = *entries_[index].ports[i].spec;
    const Tensor& tensor = Output(index, i);
    Array array;
    array.dtype = spec.dtype;
    array.shape.assign(tensor->shape, tensor->shape + tensor->ndim);
    array.data.resize(TensorBytes(tensor));
    GetOutput(index, i, array.data.data(), array.data.size());
    outputs.push_back({spec.name, std::move(array)});
  }
  return outputs;
}

}  // namespace adt
