// The documents about a package and about this program.

#include <sstream>

#include "rtvm/describe.h"
#include "rtvm/report.h"

namespace adt::rtvm {
namespace {

constexpr int kMetaVersion = 1;
constexpr int kVersionVersion = 1;

void WriteSpecs(JsonWriter* json, const std::vector<TensorSpec>& specs) {
  json->BeginArray();
  for (const TensorSpec& spec : specs) {
    json->BeginObject().Key("name").String(spec.name).Key("shape").BeginArray();
    for (const Dim& dim : spec.shape) {
      dim.symbolic() ? json->String(dim.symbol) : json->Int(dim.extent);
    }
    json->EndArray().Key("dtype").String(spec.dtype).EndObject();
  }
  json->EndArray();
}

}  // namespace

std::string VersionText(const RunnerInfo& info) {
  std::ostringstream out;
  out << "rtvm " << info.version << " (TVM " << info.tvm_version << ", tvm-ffi " << info.ffi_version
      << ")\nmachine          " << info.machine << "\nalignment        " << info.alignment
      << " bytes\ndevices          " << Join(info.devices) << "\ncontext symbols  "
      << Join(info.context_symbols) << "\n";
  return out.str();
}

std::string VersionJson(const RunnerInfo& info) {
  JsonWriter json;
  json.BeginObject();
  WriteSchema(&json, "adt.rtvm-version", kVersionVersion);
  WriteRunner(&json, info);
  return json.EndObject().Finish();
}

std::string PackageText(const Package& package) {
  std::ostringstream out;
  out << "package   " << package.name << " from " << package.source.file << " ("
      << package.source.format << "), compiled by adt " << package.adt_version << ", TVM "
      << package.tvm.version << "\ntarget    " << package.target.name << " on "
      << package.target.platform << " (" << package.target.triple << "), device "
      << package.target.device << ", " << package.precision << ", alignment " << package.alignment
      << "\nkernels   " << package.total << ", tuned " << package.tuned << "\n";
  for (const Entry& entry : package.entries) {
    out << "entry     " << entry.name << ", " << entry.params.size() << " parameters\n";
    for (const TensorSpec& spec : entry.inputs) {
      out << "  input   " << spec.name << " " << Describe(spec) << "\n";
    }
    for (const TensorSpec& spec : entry.outputs) {
      out << "  output  " << spec.name << " " << Describe(spec) << "\n";
    }
  }
  return out.str();
}

std::string PackageJson(const Package& package) {
  JsonWriter json;
  json.BeginObject();
  WriteSchema(&json, "adt.rtvm-meta", kMetaVersion);
  json.Key("name").String(package.name);
  json.Key("adt_version").String(package.adt_version);
  json.Key("tvm_version").String(package.tvm.version);
  json.Key("ffi_version").String(package.tvm.ffi_version);
  json.Key("context_symbols").Strings(package.tvm.context_symbols);
  json.Key("source").BeginObject();
  json.Key("file").String(package.source.file);
  json.Key("format").String(package.source.format);
  json.Key("sha256").String(package.source.sha256).EndObject();
  json.Key("target").BeginObject();
  json.Key("name").String(package.target.name);
  json.Key("device").String(package.target.device);
  json.Key("platform").String(package.target.platform);
  json.Key("triple").String(package.target.triple);
  json.Key("machine").String(package.target.machine);
  json.Key("vdevices").Strings(package.target.vdevices).EndObject();
  json.Key("alignment").Int(package.alignment);
  json.Key("precision").String(package.precision);
  json.Key("offload").String(package.offload);
  json.Key("tuned").Int(package.tuned);
  json.Key("total").Int(package.total);
  json.Key("entries").BeginArray();
  for (const Entry& entry : package.entries) {
    json.BeginObject().Key("name").String(entry.name);
    json.Key("inputs");
    WriteSpecs(&json, entry.inputs);
    json.Key("outputs");
    WriteSpecs(&json, entry.outputs);
    json.Key("params").Int(static_cast<std::int64_t>(entry.params.size()));
    json.EndObject();
  }
  return json.EndArray().EndObject().Finish();
}

}  // namespace adt::rtvm
