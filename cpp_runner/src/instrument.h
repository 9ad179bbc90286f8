// Looks at the calls that an entry makes, one by one, through the VM's instrument hook.
//
// A call is one call instruction of the VM: of a compiled function (one or more kernels), or of one
// of the VM's own ("vm.builtin.…"). They are counted from 0 in the order in which they run.
#pragma once

#include <tvm/ffi/extra/module.h>

#include <cstdint>
#include <string>
#include <vector>

#include "array.h"
#include "json_writer.h"

namespace adt {

/// A tensor among the arguments of a call.
struct CallArgument {
  std::vector<std::int64_t> shape;
  std::string dtype;
  /// "global", or "global.texture…" for an OpenCL image.
  std::string scope;
};

struct Call {
  std::string name;
  /// Of the VM itself: no work of the model.
  bool builtin = false;
  /// 0 for a call of the entry itself, 1 for one of a function that it calls, and so on. A call's
  /// times include those of the deeper calls that follow it.
  std::int64_t depth = 0;
  /// As it was called; compiled functions write their results into their last ones.
  std::vector<CallArgument> arguments;
  /// Microseconds of each run: host clock around the call and the wait for its device.
  std::vector<double> host_us;
  /// Microseconds of each run: what the OpenCL device needed for the call's kernels, by its own
  /// clock. Empty when it started none, or when the driver gives no times.
  std::vector<double> device_us;
};

struct CallProfile {
  /// Microseconds of each run with its instrument: more than a plain run takes.
  std::vector<double> total_us;
  std::vector<Call> calls;
};

/// Run *entry* of *vm*, whose inputs are set, once to look and then *runs* times with clocks.
/// Throws Error(kRun); the VM is usable afterwards.
CallProfile ProfileCalls(const tvm::ffi::Module& vm, const std::string& entry, std::int64_t runs);

/// Arguments of calls, and which of them could not be kept.
struct CallDump {
  /// "<index>|<name>|<argument>", with five digits of the index; arguments are the call's tensors,
  /// from 0.
  NamedArrays arrays;
  /// Names of those whose element type Array does not have, or that are not dense.
  std::vector<std::string> left_out;
};

/// Run *entry* once and keep the tensors that each call got, as they are after it. Only calls with
/// *first* <= index < *end* that are no builtins. Throws Error(kRun), Error(kInput) when there is
/// no memory for them.
CallDump DumpCalls(const tvm::ffi::Module& vm, const std::string& entry, std::int64_t first,
                   std::int64_t end);

/// As one JSON object: "runs", "total_us" and "calls" (docs/json.md).
void WriteProfile(JsonWriter* json, const CallProfile& profile);

}  // namespace adt
