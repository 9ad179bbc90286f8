#include "rtvm/report.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <sstream>

#include "adt/sha256.h"
#include "json_writer.h"

namespace adt::rtvm {
namespace {

constexpr int kSchemaVersion = 1;

std::string Milliseconds(double value) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.3f ms", value);
  return text.data();
}

std::string Join(const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& item : items) text += (text.empty() ? "" : ", ") + item;
  return text;
}

std::string Describe(const std::string& dtype, const std::vector<std::string>& extents) {
  return dtype + "[" + Join(extents) + "]";
}

std::vector<std::string> Extents(const TensorSpec& spec) {
  std::vector<std::string> out;
  for (const Dim& dim : spec.shape) {
    out.push_back(dim.symbolic() ? dim.symbol : std::to_string(dim.extent));
  }
  return out;
}

std::vector<std::string> Extents(const Array& array) {
  std::vector<std::string> out;
  for (std::int64_t extent : array.shape) out.push_back(std::to_string(extent));
  return out;
}

std::string Sha256(const Array& array) { return adt::Sha256(array.data.data(), array.data.size()); }

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

void WriteArrays(JsonWriter* json, const NamedArrays& arrays) {
  json->BeginArray();
  for (const NamedArray& named : arrays) {
    json->BeginObject().Key("name").String(named.name).Key("shape").BeginArray();
    for (std::int64_t extent : named.array.shape) json->Int(extent);
    json->EndArray();
    json->Key("dtype").String(named.array.dtype);
    json->Key("sha256").String(Sha256(named.array)).EndObject();
  }
  json->EndArray();
}

void WriteRunner(JsonWriter* json, const RunnerInfo& info) {
  json->Key("version").String(info.version);
  json->Key("tvm_version").String(info.tvm_version);
  json->Key("ffi_version").String(info.ffi_version);
  json->Key("machine").String(info.machine);
  json->Key("alignment").Int(info.alignment);
  json->Key("context_symbols").Strings(info.context_symbols);
  json->Key("devices").Strings(info.devices);
}

void WriteSchema(JsonWriter* json, const char* name) {
  json->Key("schema").String(name).Key("schema_version").Int(kSchemaVersion);
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
  WriteSchema(&json, "adt.rtvm-version");
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
      out << "  input   " << spec.name << " " << Describe(spec.dtype, Extents(spec)) << "\n";
    }
    for (const TensorSpec& spec : entry.outputs) {
      out << "  output  " << spec.name << " " << Describe(spec.dtype, Extents(spec)) << "\n";
    }
  }
  return out.str();
}

std::string PackageJson(const Package& package) {
  JsonWriter json;
  json.BeginObject();
  WriteSchema(&json, "adt.rtvm-meta");
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

std::string RunText(const RunReport& report) {
  std::vector<double> sorted = report.run_ms;
  std::sort(sorted.begin(), sorted.end());
  std::ostringstream out;
  out << "package   " << report.package.name << ", entry " << report.entry << "\n"
      << "device    " << report.device << ": " << report.device_name << "\n"
      << "loaded    in " << Milliseconds(report.load_ms) << " (host clock)\n";
  for (const NamedArray& input : report.inputs) {
    out << "input     " << input.name << " " << Describe(input.array.dtype, Extents(input.array))
        << (report.seed ? ", random with seed " + std::to_string(*report.seed) : "") << "\n";
  }
  out << "runs      " << sorted.size() << " after " << report.warmup_runs << " warm-up: median "
      << Milliseconds(sorted[(sorted.size() - 1) / 2]) << ", min " << Milliseconds(sorted.front())
      << ", max " << Milliseconds(sorted.back()) << " (host clock)\n";
  for (const NamedArray& output : report.outputs) {
    out << "output    " << output.name << " " << Describe(output.array.dtype, Extents(output.array))
        << " sha256 " << Sha256(output.array) << "\n";
  }
  if (!report.output_file.empty()) out << "written   " << report.output_file << "\n";
  return out.str();
}

std::string RunJson(const RunReport& report) {
  JsonWriter json;
  json.BeginObject();
  WriteSchema(&json, "adt.rtvm-run");
  json.Key("runner").BeginObject();
  WriteRunner(&json, report.runner);
  json.EndObject();
  json.Key("package").String(report.package.name);
  json.Key("entry").String(report.entry);
  json.Key("device").BeginObject();
  json.Key("kind").String(report.device).Key("name").String(report.device_name).EndObject();
  json.Key("clock").String("host-clock");
  json.Key("load_ms").Fixed(report.load_ms);
  json.Key("warmup_runs").Int(report.warmup_runs);
  json.Key("run_ms").BeginArray();
  for (double run : report.run_ms) json.Fixed(run);
  json.EndArray();
  json.Key("seed");
  report.seed ? json.Unsigned(*report.seed) : json.Null();
  json.Key("inputs");
  WriteArrays(&json, report.inputs);
  json.Key("outputs");
  WriteArrays(&json, report.outputs);
  json.Key("output_file");
  report.output_file.empty() ? json.Null() : json.String(report.output_file);
  return json.EndObject().Finish();
}

}  // namespace adt::rtvm
