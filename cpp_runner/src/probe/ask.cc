#include "probe/ask.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "json_writer.h"
#include "probe/library.h"
#include "probe/opencl_api.h"
#include "probe/text.h"

namespace adt::probe {
namespace {

constexpr std::uint32_t kMost = 64;  // platforms, devices, versions: more is a driver's nonsense

std::string CodeText(const char* function, std::int32_t code) {
  const char* name = "";
  switch (code) {
    case cl::kOutOfResources:
      name = ", CL_OUT_OF_RESOURCES";
      break;
    case cl::kOutOfHostMemory:
      name = ", CL_OUT_OF_HOST_MEMORY";
      break;
    case cl::kInvalidValue:
      name = ", CL_INVALID_VALUE";
      break;
    case cl::kInvalidPlatform:
      name = ", CL_INVALID_PLATFORM";
      break;
    case cl::kInvalidDevice:
      name = ", CL_INVALID_DEVICE";
      break;
    case cl::kPlatformNotFound:
      name = ", CL_PLATFORM_NOT_FOUND_KHR: a loader without a driver";
      break;
    default:
      break;
  }
  return std::string(function) + " gives error " + std::to_string(code) + name;
}

std::vector<std::string> Split(const std::string& text) {
  std::vector<std::string> words(1);
  for (char c : text) {
    if (c != ' ') {
      words.back() += c;
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

struct Functions {
  cl::GetPlatformIds platform_ids;
  cl::GetPlatformInfo platform_info;
  cl::GetDeviceIds device_ids;
  cl::GetDeviceInfo device_info;
};

/// The answers of clGetPlatformInfo or clGetDeviceInfo about one thing; what they do not tell is
/// null.
template <typename Function, typename Id>
class Facts {
 public:
  Facts(Function function, Id id, JsonWriter* json) : function_(function), id_(id), json_(json) {}

  void Text(const char* key, std::uint32_t what) const {
    const std::optional<std::string> text = Get(what);
    json_->Key(key);
    text ? json_->String(*text) : json_->Null();
  }

  void Words(const char* key, std::uint32_t what) const {
    json_->Key(key).Strings(Split(Get(what).value_or("")));
  }

  /// Number is the type that OpenCL gives.
  template <typename Number>
  void Count(const char* key, std::uint32_t what) const {
    const std::optional<Number> value = Value<Number>(what);
    json_->Key(key);
    value ? json_->Unsigned(*value) : json_->Null();
  }

  void Bool(const char* key, std::uint32_t what) const {
    const auto value = Value<std::uint32_t>(what);
    json_->Key(key);
    value ? json_->Bool(*value != 0) : json_->Null();
  }

  template <typename Number>
  std::optional<Number> Value(std::uint32_t what) const {
    Number value = 0;
    std::size_t size = 0;
    if (function_(id_, what, sizeof(value), &value, &size) != cl::kSuccess) return {};
    if (size != sizeof(value)) return {};
    return value;
  }

 private:
  std::optional<std::string> Get(std::uint32_t what) const {
    std::size_t size = 0;
    if (function_(id_, what, 0, nullptr, &size) != cl::kSuccess) return {};
    std::string text(std::min<std::size_t>(size, 1 << 20), '\0');
    if (function_(id_, what, text.size(), text.data(), nullptr) != cl::kSuccess) return {};
    return Clean(text);
  }

  Function function_;
  Id id_;
  JsonWriter* json_;
};

const char* TypeName(std::uint64_t type) {
  if (type & cl::kTypeGpu) return "gpu";
  if (type & cl::kTypeAccelerator) return "accelerator";
  if (type & cl::kTypeCpu) return "cpu";
  if (type & cl::kTypeCustom) return "custom";
  return "other";
}

void WriteDevice(const Functions& call, cl::DeviceId device, JsonWriter* json) {
  const Facts<cl::GetDeviceInfo, cl::DeviceId> facts(call.device_info, device, json);
  json->BeginObject();
  facts.Text("name", cl::kDeviceName);
  facts.Text("vendor", cl::kDeviceVendor);
  facts.Text("version", cl::kDeviceVersion);
  facts.Text("driver_version", cl::kDriverVersion);
  facts.Text("opencl_c_version", cl::kOpenclCVersion);
  json->Key("kind").String(TypeName(facts.Value<std::uint64_t>(cl::kDeviceType).value_or(0)));
  facts.Count<std::uint32_t>("compute_units", cl::kMaxComputeUnits);
  facts.Count<std::uint32_t>("max_clock_mhz", cl::kMaxClockFrequency);
  facts.Count<std::uint32_t>("address_bits", cl::kAddressBits);
  facts.Count<std::size_t>("max_work_group_size", cl::kMaxWorkGroupSize);
  facts.Count<std::uint64_t>("global_memory", cl::kGlobalMemSize);
  facts.Count<std::uint64_t>("local_memory", cl::kLocalMemSize);
  facts.Count<std::uint64_t>("max_allocation", cl::kMaxMemAllocSize);
  facts.Count<std::uint32_t>("base_address_alignment_bits", cl::kMemBaseAddrAlign);
  facts.Bool("unified_memory", cl::kHostUnifiedMemory);
  facts.Count<std::uint32_t>("half_vector_width", cl::kPreferredVectorWidthHalf);
  facts.Bool("images", cl::kImageSupport);
  facts.Count<std::size_t>("image2d_max_width", cl::kImage2dMaxWidth);
  facts.Count<std::size_t>("image2d_max_height", cl::kImage2dMaxHeight);
  facts.Count<std::size_t>("image_max_buffer_size", cl::kImageMaxBufferSize);
  facts.Count<std::size_t>("image_max_array_size", cl::kImageMaxArraySize);
  facts.Count<std::uint32_t>("image_pitch_alignment", cl::kImagePitchAlignment);
  facts.Count<std::uint32_t>("image_base_address_alignment", cl::kImageBaseAddressAlignment);
  facts.Words("extensions", cl::kDeviceExtensions);
  json->EndObject();
}

void AskPlatform(const Functions& call, cl::PlatformId platform, const std::string& which,
                 const RecordWriter& out) {
  JsonWriter json;
  const Facts<cl::GetPlatformInfo, cl::PlatformId> facts(call.platform_info, platform, &json);
  json.BeginObject();
  facts.Text("name", cl::kPlatformName);
  facts.Text("vendor", cl::kPlatformVendor);
  facts.Text("version", cl::kPlatformVersion);
  facts.Words("extensions", cl::kPlatformExtensions);

  out.Write(Kind::kStage, "listing the devices of " + which);
  std::uint32_t count = 0;
  std::int32_t code = call.device_ids(platform, cl::kTypeAll, 0, nullptr, &count);
  std::vector<cl::DeviceId> devices(code == cl::kSuccess ? std::min(count, kMost) : 0);
  if (!devices.empty()) {
    const auto room = static_cast<std::uint32_t>(devices.size());
    code = call.device_ids(platform, cl::kTypeAll, room, devices.data(), nullptr);
    if (code != cl::kSuccess) devices.clear();
  }
  json.Key("devices").BeginArray();
  for (std::size_t i = 0; i < devices.size(); ++i) {
    out.Write(Kind::kStage, "asking device " + std::to_string(i) + " of " + which);
    WriteDevice(call, devices[i], &json);
  }
  json.EndArray();
  json.Key("error");
  const bool failed = code != cl::kSuccess && code != cl::kDeviceNotFound;
  failed ? json.String(CodeText("clGetDeviceIDs", code)) : json.Null();
  json.EndObject();
  out.Write(Kind::kPlatform, json.Finish());
}

void AskClml(const Library& library, const RecordWriter& out) {
  const auto query = library.Find<cl::QueryMlVersions>("clQueryMLInterfaceVersionsQCOM");
  if (query == nullptr) return;
  out.Write(Kind::kStage, "asking for the versions of CLML");
  std::uint32_t count = 0;
  if (query(nullptr, nullptr, 0, &count) != cl::kSuccess) return;
  std::vector<std::int32_t> major(std::min(count, kMost));
  std::vector<std::int32_t> minor(major.size());
  const auto room = static_cast<std::uint32_t>(major.size());
  if (query(major.data(), minor.data(), room, nullptr) != cl::kSuccess) return;
  for (std::size_t i = 0; i < major.size(); ++i) {
    out.Write(Kind::kClml, std::to_string(major[i]) + "." + std::to_string(minor[i]));
  }
}

/// Says which functions *library* lacks; empty when it has what is asked for here.
std::string Missing(const Library& library) {
  std::string missing;
  for (const char* name :
       {"clGetPlatformIDs", "clGetPlatformInfo", "clGetDeviceIDs", "clGetDeviceInfo"}) {
    if (library.Find<void*>(name) == nullptr)
      missing += (missing.empty() ? "" : ", ") + std::string(name);
  }
  if (missing.empty()) return missing;
  const bool driver = library.Find<void*>("clGetExtensionFunctionAddress") != nullptr;
  return "it lacks " + missing +
         (driver ? ": a driver that only an OpenCL loader (libOpenCL.so) can use" : "");
}

}  // namespace

void AskLibrary(const std::string& name, const RecordWriter& out) {
  out.Write(Kind::kStage, "loading it");
  std::optional<Library> library;
  try {
    library.emplace(name);
  } catch (const NotLoaded& why) {
    out.Write(Kind::kNotLoaded, why.what());
    out.Write(Kind::kDone);
    return;
  }
  out.Write(Kind::kPath, library->FileOf("clGetPlatformIDs").value_or(""));

  const Functions call{
      library->Find<cl::GetPlatformIds>("clGetPlatformIDs"),
      library->Find<cl::GetPlatformInfo>("clGetPlatformInfo"),
      library->Find<cl::GetDeviceIds>("clGetDeviceIDs"),
      library->Find<cl::GetDeviceInfo>("clGetDeviceInfo"),
  };
  if (const std::string missing = Missing(*library); !missing.empty()) {
    out.Write(Kind::kUnusable, missing);
    out.Write(Kind::kDone);
    return;
  }
  out.Write(Kind::kStage, "listing its platforms");
  std::uint32_t count = 0;
  std::int32_t code = call.platform_ids(0, nullptr, &count);
  std::vector<cl::PlatformId> platforms(code == cl::kSuccess ? std::min(count, kMost) : 0);
  if (!platforms.empty()) {
    const auto room = static_cast<std::uint32_t>(platforms.size());
    code = call.platform_ids(room, platforms.data(), nullptr);
  }
  if (code != cl::kSuccess) {
    out.Write(Kind::kUnusable, CodeText("clGetPlatformIDs", code));
  } else if (platforms.empty()) {
    out.Write(Kind::kUnusable, "it has no platform");
  } else {
    for (std::size_t i = 0; i < platforms.size(); ++i) {
      const std::string which = "platform " + std::to_string(i);
      out.Write(Kind::kStage, "asking " + which);
      AskPlatform(call, platforms[i], which, out);
    }
    AskClml(*library, out);
  }
  out.Write(Kind::kDone);
}

}  // namespace adt::probe
