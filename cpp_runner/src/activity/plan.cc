#include "activity/plan.h"

#include <utility>

#include "error.h"
#include "json_reader.h"

namespace adt::activity {
namespace {

constexpr const char* kName = "assets/adt/bench.json";
constexpr const char* kSchema = "adt.app-bench-plan";
constexpr std::int64_t kPlanVersion = 1;

std::int64_t NotNegative(JsonReader* json, const std::string& key) {
  const std::int64_t value = json->Int(key);
  if (value < 0) json->Fail(key, "is less than 0");
  return value;
}

Plan Read(const std::string& text) {
  JsonReader json = JsonReader::Parse(text, kName);
  if (json.String("schema") != kSchema) json.Fail("schema", std::string("is not ") + kSchema);
  if (json.Int("schema_version") != kPlanVersion) json.Fail("schema_version", "is not 1");
  Plan plan;
  plan.app = json.String("app");
  plan.adt_version = json.String("adt_version");
  JsonReader digests = json.Object("bundle_digests");
  for (const char* abi : {"arm64-v8a", "armeabi-v7a", "x86_64", "x86", "riscv64"}) {
    if (digests.Has(abi)) plan.bundle_digests[abi] = digests.String(abi);
  }
  for (JsonReader& model : json.Objects("models")) {
    PlannedModel planned{model.String("stem"),
                         model.String("library"),
                         model.String("entry"),
                         {},
                         model.Bool("shared_params")};
    for (JsonReader& extent : model.Objects("extents")) {
      planned.extents[extent.String("symbol")] = NotNegative(&extent, "extent");
    }
    plan.models.push_back(std::move(planned));
  }
  plan.device = json.String("device");
  plan.threads = NotNegative(&json, "threads");
  plan.affinity = json.String("affinity");
  plan.seed = static_cast<std::uint64_t>(NotNegative(&json, "seed"));
  plan.end_to_end = json.Bool("end_to_end");
  plan.warmup_runs = NotNegative(&json, "warmup_runs");
  plan.warmup_ms = NotNegative(&json, "warmup_ms");
  plan.runs = NotNegative(&json, "runs");
  plan.min_ms = NotNegative(&json, "min_ms");
  plan.sample_ms = NotNegative(&json, "sample_ms");
  return plan;
}

}  // namespace

Plan ParsePlan(const std::string& text) {
  try {
    return Read(text);
  } catch (const Error& error) {
    throw Error(ErrorKind::kPackage, error.what(), "Make the APK again with one adt: adt apk.");
  }
}

}  // namespace adt::activity
