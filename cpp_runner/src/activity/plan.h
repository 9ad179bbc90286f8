// What the application's measurements are: assets/adt/bench.json, schema adt.app-bench-plan.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace adt::activity {

struct PlannedModel {
  /// Of its assets' directory and its result's file.
  std::string stem;
  /// mod.so as the application carries it: libdetector_model.so.
  std::string library;
  std::string entry;
  /// Of the symbols in its inputs' shapes.
  std::map<std::string, std::int64_t> extents;
  /// mod.params lies in the directory itself, not in each ABI's below it.
  bool shared_params = false;
};

struct Plan {
  /// The application's id: com.example.vision.
  std::string app;
  /// adt that made the application.
  std::string adt_version;
  /// sha256 of each bundle's bundle.json, by ABI.
  std::map<std::string, std::string> bundle_digests;
  /// None: the application measures nothing, it is an RPC server.
  std::vector<PlannedModel> models;
  /// "cpu", "opencl" or "cuda"; empty for what each package was compiled for.
  std::string device;
  /// 0 for the runtime's choice.
  std::int64_t threads = 0;
  std::string affinity;
  std::uint64_t seed = 0;
  bool end_to_end = false;
  std::int64_t warmup_runs = 0;
  std::int64_t warmup_ms = 0;
  std::int64_t runs = 1;
  std::int64_t min_ms = 0;
  std::int64_t sample_ms = 0;
};

/// Throws Error(kPackage): it is no such plan.
Plan ParsePlan(const std::string& text);

}  // namespace adt::activity
