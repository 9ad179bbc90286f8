// What the worker measures, once the activity has found it.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "activity/gate.h"
#include "activity/machine.h"
#include "activity/plan.h"
#include "activity/screen.h"
#include "source.h"

namespace adt::activity {

/// A model and its package; the library's bytes are not read.
struct Model {
  PlannedModel planned;
  Source package;
};

/// Shared by the activity's thread and the worker; has nothing of the activity's own, which may be
/// gone before the worker has noticed.
struct Job {
  Gate gate;
  Screen screen;
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  Machine machine;
  /// Where results go: a directory that the device's user and adb can read.
  std::string results;
  /// Where compiled OpenCL programs are kept.
  std::string programs;
  Plan plan;
  std::vector<Model> models;
  /// It measures nothing: see server.h.
  bool serves = false;
};

/// Measure every model, and leave a document for each; a measurement that the activity's going to
/// the background disturbed is done again. Returns when all is done, or after Gate::Stop. Throws
/// nothing. No two of a process measure at once.
void Measure(const std::shared_ptr<Job>& job);

}  // namespace adt::activity
