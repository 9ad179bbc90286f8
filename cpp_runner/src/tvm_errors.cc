#include "tvm_errors.h"

#include <tvm/ffi/function.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

namespace adt {
namespace {

constexpr const char* kSmallerRemedy =
    "Free memory (other handles, adt_trim), or use a smaller model or smaller inputs.";
constexpr const char* kLostRemedy =
    "Free all handles of the device and load the package again; if that fails, too, the device is "
    "gone until the process, or the machine, starts again: use a package that was compiled for "
    "cpu.";

// The number behind "code=" in what TVM says of a failed OpenCL call.
std::optional<int> OpenClCode(std::string_view message) {
  constexpr std::string_view kMark = "OpenCL Error, code=";
  const std::size_t at = message.find(kMark);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view digits = message.substr(at + kMark.size());
  int code = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), code);
  return error == std::errc() ? std::optional(code) : std::nullopt;
}

// Whether OpenCL's queues can still be waited for.
bool DeviceAnswers() {
  try {
    const auto answers = tvm::ffi::Function::GetGlobal("adt.opencl_answers");
    return !answers || (*answers)().cast<bool>();
  } catch (const std::exception&) {
    return false;
  }
}

std::optional<ErrorKind> KindOfOpenCl(int code) {
  switch (code) {
    case -4:   // CL_MEM_OBJECT_ALLOCATION_FAILURE
    case -6:   // CL_OUT_OF_HOST_MEMORY
    case -61:  // CL_INVALID_BUFFER_SIZE: more than one allocation may have
      return ErrorKind::kOutOfMemory;
    case -5:  // CL_OUT_OF_RESOURCES: drivers say it for lack of memory, and after a fault of the
              // GPU
      return DeviceAnswers() ? ErrorKind::kOutOfMemory : ErrorKind::kDeviceLost;
    case -2:     // CL_DEVICE_NOT_AVAILABLE
    case -14:    // CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST
    case -33:    // CL_INVALID_DEVICE
    case -34:    // CL_INVALID_CONTEXT
    case -36:    // CL_INVALID_COMMAND_QUEUE
    case -9999:  // NVIDIA's, for a kernel that read or wrote what is not its own
      return ErrorKind::kDeviceLost;
    default:
      return std::nullopt;
  }
}

std::optional<ErrorKind> KindOf(std::string_view message) {
  if (const auto code = OpenClCode(message)) return KindOfOpenCl(*code);
  for (const char* words : {"CUDA: out of memory", "std::bad_alloc"}) {
    if (message.find(words) != std::string_view::npos) return ErrorKind::kOutOfMemory;
  }
  return std::nullopt;
}

// A driver's build log, which TVM quotes, may hold a NUL and other characters that no terminal
// wants.
void Clean(std::string* message) {
  message->erase(std::remove_if(message->begin(), message->end(),
                                [](unsigned char c) {
                                  return (c < 0x20 && c != '\n' && c != '\t') || c == 0x7F;
                                }),
                 message->end());
  while (!message->empty() && message->back() == '\n') message->pop_back();
}

}  // namespace

void ThrowTvmError(ErrorKind kind, const std::string& doing, std::string message,
                   const char* remedy) {
  Clean(&message);
  if (const auto device = KindOf(message)) {
    kind = *device;
    remedy = kind == ErrorKind::kDeviceLost ? kLostRemedy : kSmallerRemedy;
  }
  throw Error(kind, doing + ": " + message, remedy);
}

}  // namespace adt
