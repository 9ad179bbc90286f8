// A run, for programs.

#include "rtvm/describe.h"
#include "rtvm/report.h"

namespace adt::rtvm {
namespace {

constexpr int kRunVersion = 2;

void WriteText(JsonWriter* json, const char* key, const std::string& text) {
  json->Key(key);
  text.empty() ? json->Null() : json->String(text);
}

void WriteArrays(JsonWriter* json, const char* key, const NamedArrays& arrays) {
  json->Key(key).BeginArray();
  for (const NamedArray& named : arrays) {
    json->BeginObject().Key("name").String(named.name).Key("shape").BeginArray();
    for (std::int64_t extent : named.array.shape) json->Int(extent);
    json->EndArray();
    json->Key("dtype").String(named.array.dtype);
    json->Key("sha256").String(Sha256(named.array)).EndObject();
  }
  json->EndArray();
}

void WriteDevice(JsonWriter* json, const RunReport& report) {
  json->Key("device").BeginObject();
  json->Key("kind").String(report.device).Key("name").String(report.device_name);
  WriteText(json, "vendor", report.opencl ? report.opencl->vendor : "");
  WriteText(json, "driver", report.opencl ? report.opencl->driver : "");
  WriteText(json, "type",
            report.opencl            ? report.opencl->type
            : report.device == "cpu" ? "cpu"
                                     : "gpu");
  json->EndObject();
}

void WriteRuns(JsonWriter* json, const RunReport& report) {
  json->Key("clock").String("host-clock");
  json->Key("load_ms").Fixed(report.load_ms);
  json->Key("first_run_ms").Fixed(report.first_run_ms);
  json->Key("end_to_end").Bool(report.end_to_end);
  json->Key("zero_copy").Bool(report.zero_copy);
  json->Key("warmup_runs").Int(report.warmup_runs);
  json->Key("timed_runs").Unsigned(report.run_ms.size());
  json->Key("run_ms");
  if (report.times_file.empty()) {
    WriteTimes(json, report.run_ms);
  } else {
    json->Null();
  }
  WriteText(json, "times_file", report.times_file);
}

void WritePrograms(JsonWriter* json, const ProgramReport& programs) {
  json->Key("program_cache").BeginObject();
  json->Key("state").String(Name(programs.state));
  WriteText(json, "file", programs.file);
  WriteText(json, "warning", programs.warning);
  json->Key("take_ms");
  programs.take_ms > 0 ? json->Fixed(programs.take_ms) : json->Null();
  json->Key("keep_ms");
  programs.keep_ms > 0 ? json->Fixed(programs.keep_ms) : json->Null();
  json->EndObject();
}

void WriteBuild(JsonWriter* json, const ProgramBuildReport& build) {
  json->Key("program_build").BeginObject();
  json->Key("built").Int(build.built);
  json->Key("ready").Int(build.ready);
  json->Key("ms").Fixed(build.ms);
  json->EndObject();
}

void WriteCallDump(JsonWriter* json, const RunReport& report) {
  json->Key("call_dump");
  if (report.calls_file.empty()) {
    json->Null();
    return;
  }
  json->BeginObject().Key("file").String(report.calls_file);
  json->Key("arrays").Int(report.call_tensors);
  json->Key("left_out").Strings(report.calls_left_out).EndObject();
}

}  // namespace

std::string RunJson(const RunReport& report) {
  JsonWriter json;
  json.BeginObject();
  WriteSchema(&json, "adt.rtvm-run", kRunVersion);
  json.Key("runner").BeginObject();
  WriteRunner(&json, report.runner);
  json.EndObject();
  json.Key("package").String(report.package.name);
  json.Key("entry").String(report.entry);
  WriteDevice(&json, report);
  json.Key("threads");
  report.threads == 0 ? json.Null() : json.Int(report.threads);
  WriteText(&json, "affinity", report.affinity);
  WriteRuns(&json, report);
  WriteMemory(&json, report);
  WritePrograms(&json, report.programs);
  WriteBuild(&json, report.build);
  WriteSamples(&json, report.samples);
  json.Key("profile");
  if (report.profile) {
    WriteProfile(&json, *report.profile);
  } else {
    json.Null();
  }
  WriteCallDump(&json, report);
  json.Key("fill_mode");
  report.fill ? json.String(FillModeName(*report.fill)) : json.Null();
  json.Key("seed");
  report.seed ? json.Unsigned(*report.seed) : json.Null();
  WriteArrays(&json, "inputs", report.inputs);
  WriteArrays(&json, "outputs", report.outputs);
  WriteText(&json, "output_file", report.output_file);
  return json.EndObject().Finish();
}

}  // namespace adt::rtvm
