#include "instrument.h"

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/dtype.h>
#include <tvm/ffi/function.h>
#include <tvm/runtime/device_api.h>
#include <tvm/runtime/tensor.h>
#include <tvm/runtime/timer.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "dtype.h"
#include "error.h"
#include "opencl_device.h"
#include "tvm_errors.h"

namespace adt {
namespace {

namespace ffi = tvm::ffi;
using tvm::runtime::DeviceAPI;
using tvm::runtime::Tensor;
using tvm::runtime::Timer;
using Clock = std::chrono::steady_clock;

constexpr std::string_view kBuiltin = "vm.builtin.";
// The VM's own, but what it calls is a compiled function of the model.
constexpr std::string_view kDynamicCall = "vm.builtin.call_tir_dyn";
constexpr const char* kCallsRemedy =
    "Run the model without looking at its calls; if that fails too, report the message with the "
    "model.";

double Microseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

// What the VM hands to its instrument, before and after each call.
struct Event {
  std::string_view name;
  bool before;
  bool packed;  // no function of the VM's own bytecode
  ffi::PackedArgs arguments;
};

/// While it lives, the VM reports its calls to *observe*.
class Hook {
 public:
  using Observe = std::function<void(const Event&)>;

  Hook(const ffi::Module& vm, Observe observe)
      : observe_(std::make_shared<Observe>(std::move(observe))) {
    const auto set = vm->GetFunction("set_instrument");
    if (!set) {
      throw Error(ErrorKind::kRun, "this TVM's virtual machine cannot be instrumented",
                  "Build the target from a TVM source tree that adt supports (adt build-target).");
    }
    set_ = *set;
    const std::weak_ptr<Observe> weak = observe_;
    Set(ffi::Function::FromPacked([weak](ffi::PackedArgs arguments, ffi::Any* result) {
      *result = 0;  // go on
      const std::shared_ptr<Observe> alive = weak.lock();
      constexpr int kOwn = 4;
      if (!alive || arguments.size() < kOwn) return;
      const auto name = arguments[1].cast<ffi::String>();
      (*alive)({std::string_view(name.data(), name.size()), arguments[2].cast<bool>(),
                arguments[0].as<ffi::Function>().has_value(), arguments.Slice(kOwn)});
    }));
  }

  ~Hook() {
    try {
      Set(ffi::Function(nullptr));
    } catch (const std::exception&) {  // it stays, and does nothing
    }
  }

  Hook(const Hook&) = delete;
  Hook& operator=(const Hook&) = delete;

 private:
  void Set(const ffi::Function& instrument) { set_(instrument); }

  ffi::Function set_;
  std::shared_ptr<Observe> observe_;
};

bool IsBuiltin(std::string_view name) {
  return name.substr(0, kBuiltin.size()) == kBuiltin && name != kDynamicCall;
}

std::vector<Tensor> Tensors(const ffi::PackedArgs& arguments) {
  std::vector<Tensor> tensors;
  for (int i = 0; i < arguments.size(); ++i) {
    if (arguments[i].type_index() != ffi::TypeIndex::kTVMFFITensor) continue;
    tensors.push_back(arguments[i].cast<Tensor>());
  }
  return tensors;
}

bool Same(DLDevice a, DLDevice b) {
  return a.device_type == b.device_type && a.device_id == b.device_id;
}

void Invoke(const ffi::Module& vm, const std::string& entry) {
  const auto invoke = vm->GetFunction("invoke_stateful");
  if (!invoke) {
    throw Error(ErrorKind::kRun, "this module is no virtual machine of TVM",
                "Give the module that vm_load_executable returns.");
  }
  (*invoke)(ffi::String(entry));
}

/// Writes down the calls and the devices of one run.
class Recorder {
 public:
  void operator()(const Event& event) {
    if (!event.before) {
      --depth_;
      return;
    }
    Call call;
    call.name = std::string(event.name);
    call.builtin = IsBuiltin(event.name);
    call.depth = depth_++;
    timed_.push_back(event.packed && !call.builtin);
    for (const Tensor& tensor : Tensors(event.arguments)) {
      CallArgument argument;
      argument.shape.assign(tensor.Shape().begin(), tensor.Shape().end());
      argument.dtype = std::string(ffi::DLDataTypeToString(tensor->dtype));
      argument.scope = MemoryScope(*tensor.operator->());
      call.arguments.push_back(std::move(argument));
      Use(tensor->device);
    }
    calls_.push_back(std::move(call));
  }

  std::vector<Call> TakeCalls() { return std::move(calls_); }
  /// For each call: is it a compiled function?
  const std::vector<bool>& timed() const { return timed_; }
  /// Devices with queues of their own.
  const std::vector<DLDevice>& devices() const { return devices_; }

 private:
  void Use(DLDevice device) {
    if (device.device_type == kDLCPU) return;
    if (std::none_of(devices_.begin(), devices_.end(),
                     [&](DLDevice d) { return Same(d, device); })) {
      devices_.push_back(device);
    }
  }

  std::int64_t depth_ = 0;
  std::vector<Call> calls_;
  std::vector<bool> timed_;
  std::vector<DLDevice> devices_;
};

// cmake_presets/src/opencl_clock.cc.
void SetOpenClClock(DLDevice device, bool on) {
  ffi::Function::GetGlobalRequired("adt.set_opencl_clock")(device.device_id, on);
}

ffi::Array<std::int64_t> ReadOpenClClock(DLDevice device, std::int64_t first) {
  const auto read = ffi::Function::GetGlobalRequired("adt.read_opencl_clock");
  return read(device.device_id, first).cast<ffi::Array<std::int64_t>>();
}

/// Nanoseconds that one device works, by its own clock.
class DeviceTimer {
 public:
  explicit DeviceTimer(DLDevice device) : device_(device) {
    if (device.device_type == kDLOpenCL) {
      first_ = ReadOpenClClock(device, std::numeric_limits<std::int64_t>::max())[0];
    } else {
      timer_ = Timer::Start(device);
    }
  }

  /// Since the construction; the device has nothing more to do.
  std::int64_t Stop() {
    if (device_.device_type == kDLOpenCL) return ReadOpenClClock(device_, first_)[1];
    timer_->Stop();
    return timer_->SyncAndGetElapsedNanos();
  }

 private:
  DLDevice device_;
  std::int64_t first_ = 0;
  Timer timer_;
};

/// Whether *device* has a clock of its own.
bool HasClock(DLDevice device) {
  return device.device_type == kDLOpenCL || device.device_type == kDLCUDA;
}

/// While it lives, OpenCL's clocks run.
class OpenClClocks {
 public:
  explicit OpenClClocks(const std::vector<DLDevice>& devices) {
    for (DLDevice device : devices) {
      if (device.device_type != kDLOpenCL) continue;
      SetOpenClClock(device, true);
      devices_.push_back(device);
    }
  }
  ~OpenClClocks() {
    for (DLDevice device : devices_) {
      try {
        SetOpenClClock(device, false);
      } catch (const std::exception&) {  // the device is lost
      }
    }
  }
  OpenClClocks(const OpenClClocks&) = delete;
  OpenClClocks& operator=(const OpenClClocks&) = delete;

 private:
  std::vector<DLDevice> devices_;
};

/// Puts clocks around the calls of one run.
class Stopwatch {
 public:
  Stopwatch(std::vector<Call>* calls, const std::vector<bool>& timed,
            const std::vector<DLDevice>& devices)
      : calls_(calls), timed_(timed), devices_(devices) {}

  void operator()(const Event& event) { event.before ? Before(event) : After(); }

  void RequireComplete() const {
    if (next_ != calls_->size()) Differs();
  }

 private:
  struct Open {
    std::size_t index;
    std::vector<DeviceTimer> timers;
    Clock::time_point start;
  };

  [[noreturn]] static void Differs() {
    throw Error(ErrorKind::kRun, "the model makes other calls in each run",
                "Profile a model whose calls do not depend on its data.");
  }

  void Sync() const {
    for (DLDevice device : devices_) DeviceAPI::Get(device)->StreamSync(device, nullptr);
  }

  void Before(const Event& event) {
    if (next_ == calls_->size() || (*calls_)[next_].name != event.name) Differs();
    Sync();
    Open open{next_, {}, {}};
    if (timed_[next_]) {
      for (DLDevice device : devices_) {
        if (HasClock(device)) open.timers.emplace_back(device);
      }
    }
    ++next_;
    open_.push_back(std::move(open));
    open_.back().start = Clock::now();
  }

  void After() {
    Sync();
    const auto end = Clock::now();
    Open open = std::move(open_.back());
    open_.pop_back();
    Call& call = (*calls_)[open.index];
    call.host_us.push_back(Microseconds(end - open.start));
    std::int64_t nanoseconds = 0;
    for (DeviceTimer& timer : open.timers) {
      try {
        nanoseconds += timer.Stop();
      } catch (const std::exception&) {  // the driver has no times: it counts as none
      }
    }
    call.device_us.push_back(static_cast<double>(nanoseconds) * 1e-3);
  }

  std::vector<Call>* calls_;
  const std::vector<bool>& timed_;
  const std::vector<DLDevice>& devices_;
  std::size_t next_ = 0;
  std::vector<Open> open_;
};

/// Keeps the tensors of some calls of one run.
class Dumper {
 public:
  Dumper(std::int64_t first, std::int64_t end) : first_(first), end_(end) {}

  void operator()(const Event& event) {
    if (event.before) {
      open_.push_back(next_++);
      return;
    }
    const std::int64_t index = open_.back();
    open_.pop_back();
    if (index < first_ || index >= end_ || IsBuiltin(event.name)) return;
    std::size_t number = 0;
    for (const Tensor& tensor : Tensors(event.arguments)) Keep(index, event.name, number++, tensor);
  }

  CallDump Take() { return std::move(dump_); }

 private:
  void Keep(std::int64_t index, std::string_view call, std::size_t number, const Tensor& tensor) {
    std::array<char, 32> digits{};
    std::snprintf(digits.data(), digits.size(), "%05lld", static_cast<long long>(index));
    std::string name =
        std::string(digits.data()) + "|" + std::string(call) + "|" + std::to_string(number);
    Array array;
    array.dtype = std::string(ffi::DLDataTypeToString(tensor->dtype));
    array.shape.assign(tensor.Shape().begin(), tensor.Shape().end());
    const DType* dtype = FindDType(array.dtype);
    if (dtype == nullptr || !tensor.IsContiguous()) {
      dump_.left_out.push_back(std::move(name));
      return;
    }
    array.data.resize(ByteSize(*dtype, array.shape));
    if (!array.data.empty()) {  // TVM takes no null pointer, even for no bytes
      DeviceAPI::Get(tensor->device)->StreamSync(tensor->device, nullptr);
      tensor.CopyToBytes(array.data.data(), array.data.size());
    }
    dump_.arrays.push_back({std::move(name), std::move(array)});
  }

  std::int64_t first_;
  std::int64_t end_;
  std::int64_t next_ = 0;
  std::vector<std::int64_t> open_;
  CallDump dump_;
};

// Any run without a single event has no times at all.
void DropDeviceTimes(std::vector<Call>* calls) {
  for (Call& call : *calls) {
    if (std::all_of(call.device_us.begin(), call.device_us.end(),
                    [](double time) { return time <= 0; })) {
      call.device_us.clear();
    }
  }
}

}  // namespace

CallProfile ProfileCalls(const ffi::Module& vm, const std::string& entry, std::int64_t runs) {
  return WithTvmErrors(ErrorKind::kRun, "the calls cannot be timed", kCallsRemedy, [&] {
    Recorder recorder;
    {
      const Hook hook(vm, std::ref(recorder));
      Invoke(vm, entry);
    }
    CallProfile profile;
    profile.calls = recorder.TakeCalls();
    for (std::int64_t run = 0; run < runs; ++run) {
      const OpenClClocks clocks(recorder.devices());
      Stopwatch stopwatch(&profile.calls, recorder.timed(), recorder.devices());
      const Hook hook(vm, std::ref(stopwatch));
      const auto start = Clock::now();
      Invoke(vm, entry);
      for (DLDevice device : recorder.devices()) {
        DeviceAPI::Get(device)->StreamSync(device, nullptr);
      }
      profile.total_us.push_back(Microseconds(Clock::now() - start));
      stopwatch.RequireComplete();
    }
    DropDeviceTimes(&profile.calls);
    return profile;
  });
}

CallDump DumpCalls(const ffi::Module& vm, const std::string& entry, std::int64_t first,
                   std::int64_t end) {
  return WithTvmErrors(ErrorKind::kRun, "the calls' tensors cannot be kept", kCallsRemedy, [&] {
    Dumper dumper(first, end);
    const Hook hook(vm, std::ref(dumper));
    Invoke(vm, entry);
    return dumper.Take();
  });
}

void WriteProfile(JsonWriter* json, const CallProfile& profile) {
  const auto times = [&](const std::vector<double>& all) {
    json->BeginArray();
    for (double time : all) json->Fixed(time);
    json->EndArray();
  };
  json->BeginObject();
  json->Key("runs").Unsigned(profile.total_us.size());
  json->Key("total_us");
  times(profile.total_us);
  json->Key("calls").BeginArray();
  std::uint64_t index = 0;
  for (const Call& call : profile.calls) {
    json->BeginObject().Key("index").Unsigned(index++).Key("name").String(call.name);
    json->Key("builtin").Bool(call.builtin).Key("depth").Int(call.depth);
    json->Key("arguments").BeginArray();
    for (const CallArgument& argument : call.arguments) {
      json->BeginObject().Key("shape").BeginArray();
      for (std::int64_t extent : argument.shape) json->Int(extent);
      json->EndArray().Key("dtype").String(argument.dtype).Key("scope").String(argument.scope);
      json->EndObject();
    }
    json->EndArray().Key("host_us");
    times(call.host_us);
    json->Key("device_us");
    if (call.device_us.empty()) {
      json->Null();
    } else {
      times(call.device_us);
    }
    json->EndObject();
  }
  json->EndArray().EndObject();
}

}  // namespace adt
