#include "probe/ask.h"

#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <CL/cl_ext.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "json_writer.h"
#include "probe/library.h"
#include "probe/text.h"

namespace adt::probe {
namespace {

// Of Qualcomm's cl_qcom_ml_ops (CLML), whose header only its SDK has: major versions, minor
// versions, room, how many there are.
using QueryMlVersions = cl_int (*)(cl_int*, cl_int*, cl_uint, cl_uint*);

constexpr cl_uint kMost = 64;  // platforms, devices, versions: more is a driver's nonsense

std::string CodeText(const char* function, cl_int code) {
  const char* name = "";
  switch (code) {
    case CL_OUT_OF_RESOURCES:
      name = ", CL_OUT_OF_RESOURCES";
      break;
    case CL_OUT_OF_HOST_MEMORY:
      name = ", CL_OUT_OF_HOST_MEMORY";
      break;
    case CL_INVALID_VALUE:
      name = ", CL_INVALID_VALUE";
      break;
    case CL_INVALID_PLATFORM:
      name = ", CL_INVALID_PLATFORM";
      break;
    case CL_INVALID_DEVICE:
      name = ", CL_INVALID_DEVICE";
      break;
    case CL_PLATFORM_NOT_FOUND_KHR:
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
  decltype(&clGetPlatformIDs) platform_ids;
  decltype(&clGetPlatformInfo) platform_info;
  decltype(&clGetDeviceIDs) device_ids;
  decltype(&clGetDeviceInfo) device_info;
};

/// The answers of clGetPlatformInfo or clGetDeviceInfo about one thing; what they do not tell is
/// null.
template <typename Function, typename Id>
class Facts {
 public:
  Facts(Function function, Id id, JsonWriter* json) : function_(function), id_(id), json_(json) {}

  void Text(const char* key, cl_uint what) const {
    const std::optional<std::string> text = Get(what);
    json_->Key(key);
    text ? json_->String(*text) : json_->Null();
  }

  void Words(const char* key, cl_uint what) const {
    json_->Key(key).Strings(Split(Get(what).value_or("")));
  }

  /// Number is the type that OpenCL gives.
  template <typename Number>
  void Count(const char* key, cl_uint what) const {
    const std::optional<Number> value = Value<Number>(what);
    json_->Key(key);
    value ? json_->Unsigned(*value) : json_->Null();
  }

  void Bool(const char* key, cl_uint what) const {
    const auto value = Value<cl_bool>(what);
    json_->Key(key);
    value ? json_->Bool(*value != 0) : json_->Null();
  }

  template <typename Number>
  std::optional<Number> Value(cl_uint what) const {
    Number value = 0;
    std::size_t size = 0;
    if (function_(id_, what, sizeof(value), &value, &size) != CL_SUCCESS) return {};
    if (size != sizeof(value)) return {};
    return value;
  }

 private:
  std::optional<std::string> Get(cl_uint what) const {
    std::size_t size = 0;
    if (function_(id_, what, 0, nullptr, &size) != CL_SUCCESS) return {};
    std::string text(std::min<std::size_t>(size, 1 << 20), '\0');
    if (function_(id_, what, text.size(), text.data(), nullptr) != CL_SUCCESS) return {};
    return Clean(text);
  }

  Function function_;
  Id id_;
  JsonWriter* json_;
};

const char* TypeName(cl_device_type type) {
  if (type & CL_DEVICE_TYPE_GPU) return "gpu";
  if (type & CL_DEVICE_TYPE_ACCELERATOR) return "accelerator";
  if (type & CL_DEVICE_TYPE_CPU) return "cpu";
  if (type & CL_DEVICE_TYPE_CUSTOM) return "custom";
  return "other";
}

void WriteDevice(const Functions& call, cl_device_id device, JsonWriter* json) {
  const Facts facts(call.device_info, device, json);
  json->BeginObject();
  facts.Text("name", CL_DEVICE_NAME);
  facts.Text("vendor", CL_DEVICE_VENDOR);
  facts.Text("version", CL_DEVICE_VERSION);
  facts.Text("driver_version", CL_DRIVER_VERSION);
  facts.Text("opencl_c_version", CL_DEVICE_OPENCL_C_VERSION);
  json->Key("kind").String(TypeName(facts.Value<cl_device_type>(CL_DEVICE_TYPE).value_or(0)));
  facts.Count<cl_uint>("compute_units", CL_DEVICE_MAX_COMPUTE_UNITS);
  facts.Count<cl_uint>("max_clock_mhz", CL_DEVICE_MAX_CLOCK_FREQUENCY);
  facts.Count<cl_uint>("address_bits", CL_DEVICE_ADDRESS_BITS);
  facts.Count<std::size_t>("max_work_group_size", CL_DEVICE_MAX_WORK_GROUP_SIZE);
  facts.Count<cl_ulong>("global_memory", CL_DEVICE_GLOBAL_MEM_SIZE);
  facts.Count<cl_ulong>("local_memory", CL_DEVICE_LOCAL_MEM_SIZE);
  facts.Count<cl_ulong>("max_allocation", CL_DEVICE_MAX_MEM_ALLOC_SIZE);
  facts.Count<cl_uint>("base_address_alignment_bits", CL_DEVICE_MEM_BASE_ADDR_ALIGN);
  facts.Bool("unified_memory", CL_DEVICE_HOST_UNIFIED_MEMORY);
  facts.Count<cl_uint>("half_vector_width", CL_DEVICE_PREFERRED_VECTOR_WIDTH_HALF);
  facts.Bool("images", CL_DEVICE_IMAGE_SUPPORT);
  facts.Count<std::size_t>("image2d_max_width", CL_DEVICE_IMAGE2D_MAX_WIDTH);
  facts.Count<std::size_t>("image2d_max_height", CL_DEVICE_IMAGE2D_MAX_HEIGHT);
  facts.Count<std::size_t>("image_max_buffer_size", CL_DEVICE_IMAGE_MAX_BUFFER_SIZE);
  facts.Count<std::size_t>("image_max_array_size", CL_DEVICE_IMAGE_MAX_ARRAY_SIZE);
  facts.Count<cl_uint>("image_pitch_alignment", CL_DEVICE_IMAGE_PITCH_ALIGNMENT);
  facts.Count<cl_uint>("image_base_address_alignment", CL_DEVICE_IMAGE_BASE_ADDRESS_ALIGNMENT);
  facts.Words("extensions", CL_DEVICE_EXTENSIONS);
  json->EndObject();
}

void AskPlatform(const Functions& call, cl_platform_id platform, const std::string& which,
                 const RecordWriter& out) {
  JsonWriter json;
  const Facts facts(call.platform_info, platform, &json);
  json.BeginObject();
  facts.Text("name", CL_PLATFORM_NAME);
  facts.Text("vendor", CL_PLATFORM_VENDOR);
  facts.Text("version", CL_PLATFORM_VERSION);
  facts.Words("extensions", CL_PLATFORM_EXTENSIONS);

  out.Write(Kind::kStage, "listing the devices of " + which);
  cl_uint count = 0;
  cl_int code = call.device_ids(platform, CL_DEVICE_TYPE_ALL, 0, nullptr, &count);
  std::vector<cl_device_id> devices(code == CL_SUCCESS ? std::min(count, kMost) : 0);
  if (!devices.empty()) {
    const auto room = static_cast<cl_uint>(devices.size());
    code = call.device_ids(platform, CL_DEVICE_TYPE_ALL, room, devices.data(), nullptr);
    if (code != CL_SUCCESS) devices.clear();
  }
  json.Key("devices").BeginArray();
  for (std::size_t i = 0; i < devices.size(); ++i) {
    out.Write(Kind::kStage, "asking device " + std::to_string(i) + " of " + which);
    WriteDevice(call, devices[i], &json);
  }
  json.EndArray();
  json.Key("error");
  const bool failed = code != CL_SUCCESS && code != CL_DEVICE_NOT_FOUND;
  failed ? json.String(CodeText("clGetDeviceIDs", code)) : json.Null();
  json.EndObject();
  out.Write(Kind::kPlatform, json.Finish());
}

void AskClml(const Library& library, const RecordWriter& out) {
  const auto query = library.Find<QueryMlVersions>("clQueryMLInterfaceVersionsQCOM");
  if (query == nullptr) return;
  out.Write(Kind::kStage, "asking for the versions of CLML");
  cl_uint count = 0;
  if (query(nullptr, nullptr, 0, &count) != CL_SUCCESS) return;
  std::vector<cl_int> major(std::min(count, kMost));
  std::vector<cl_int> minor(major.size());
  const auto room = static_cast<cl_uint>(major.size());
  if (query(major.data(), minor.data(), room, nullptr) != CL_SUCCESS) return;
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
      library->Find<decltype(&clGetPlatformIDs)>("clGetPlatformIDs"),
      library->Find<decltype(&clGetPlatformInfo)>("clGetPlatformInfo"),
      library->Find<decltype(&clGetDeviceIDs)>("clGetDeviceIDs"),
      library->Find<decltype(&clGetDeviceInfo)>("clGetDeviceInfo"),
  };
  if (const std::string missing = Missing(*library); !missing.empty()) {
    out.Write(Kind::kUnusable, missing);
    out.Write(Kind::kDone);
    return;
  }
  out.Write(Kind::kStage, "listing its platforms");
  cl_uint count = 0;
  cl_int code = call.platform_ids(0, nullptr, &count);
  std::vector<cl_platform_id> platforms(code == CL_SUCCESS ? std::min(count, kMost) : 0);
  if (!platforms.empty()) {
    const auto room = static_cast<cl_uint>(platforms.size());
    code = call.platform_ids(room, platforms.data(), nullptr);
  }
  if (code != CL_SUCCESS) {
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
