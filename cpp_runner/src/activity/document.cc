#include "activity/document.h"

#include <array>
#include <ctime>

#include "file.h"
#include "json_writer.h"
#include "program_cache.h"
#include "rtvm/describe.h"

namespace adt::activity {
namespace {

constexpr int kDocumentVersion = 1;

// The time now, in UTC.
std::string Now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S+00:00", &parts);
  return text.data();
}

void WriteMachine(JsonWriter* json, const Machine& machine) {
  json->Key("machine").BeginObject();
  json->Key("model").String(machine.model).Key("soc").String(machine.soc);
  json->Key("android_release").String(machine.android_release);
  json->Key("api_level").Int(machine.api_level).Key("abi").String(machine.abi).EndObject();
}

void WriteDevice(JsonWriter* json, const rtvm::RunReport& report) {
  json->Key("device").BeginObject();
  json->Key("kind").String(report.device).Key("name").String(report.device_name);
  json->Key("driver").String(report.opencl ? report.opencl->driver : "");
  json->Key("type").String(report.opencl ? report.opencl->type : "cpu").EndObject();
}

}  // namespace

std::string BenchJson(const Plan& plan, const Machine& machine, const rtvm::RunReport& report,
                      const std::string& package_digest) {
  const auto bundle = plan.bundle_digests.find(machine.abi);
  JsonWriter json;
  json.BeginObject();
  rtvm::WriteSchema(&json, "adt.app-bench", kDocumentVersion);
  json.Key("when").String(Now());
  json.Key("app").String(plan.app);
  json.Key("writer").String("native-activity");
  WriteMachine(&json, machine);
  json.Key("package").String(report.package.name);
  json.Key("package_digest").String(package_digest);
  json.Key("entry").String(report.entry);
  json.Key("bundle_digest").String(bundle == plan.bundle_digests.end() ? "" : bundle->second);
  json.Key("adt_version").String(plan.adt_version);
  json.Key("runner_version").String(report.runner.version);
  WriteDevice(&json, report);
  json.Key("threads");
  report.threads == 0 ? json.Null() : json.Int(report.threads);
  json.Key("affinity").String(report.affinity);
  json.Key("end_to_end").Bool(report.end_to_end);
  json.Key("seed").Unsigned(plan.seed);
  json.Key("program_cache").String(Name(report.programs.state));
  json.Key("warmup_runs").Int(report.warmup_runs);
  json.Key("warmup_ms").Fixed(static_cast<double>(plan.warmup_ms));
  json.Key("load_ms").Fixed(report.load_ms);
  json.Key("first_run_ms").Fixed(report.first_run_ms);
  json.Key("run_ms");
  rtvm::WriteTimes(&json, report.run_ms);
  json.Key("start_ms");
  rtvm::WriteTimes(&json, report.start_ms);
  rtvm::WriteMemory(&json, report);
  rtvm::WriteSamples(&json, report.samples);
  return json.EndObject().Finish();
}

std::string ErrorJson(const std::string& app, const std::string& model, const std::string& what,
                      const std::string& remedy) {
  JsonWriter json;
  json.BeginObject();
  rtvm::WriteSchema(&json, "adt.app-bench-error", kDocumentVersion);
  json.Key("app").String(app).Key("model").String(model);
  json.Key("what").String(what).Key("remedy").String(remedy);
  return json.EndObject().Finish();
}

void WriteWhole(const std::string& path, const std::string& text) {
  NewFile file(path, 0666);
  file.Write(text.data(), text.size());
  if (const std::string reason = file.Complete(); !reason.empty()) {
    throw Error(ErrorKind::kInput, path + " cannot be written: " + reason,
                "Make room on the device, and start the application again.");
  }
}

}  // namespace adt::activity
