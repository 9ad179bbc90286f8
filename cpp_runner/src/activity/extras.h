// What `am start` changes of the plan.
#pragma once

#include <android/native_activity.h>

#include "activity/plan.h"
#include "activity/server.h"

namespace adt::activity {

/// Take the extras of the intent that started *activity* into *plan*: `--es model`, `device` and
/// `affinity`; `--ei threads`, `seed`, `warmup_runs`, `warmup_ms`, `runs`, `min_ms`, `sample_ms`,
/// and `extent_NAME` for a symbol NAME in an input's shape. On the activity's thread. Throws
/// Error(kUsage).
void ApplyExtras(const ANativeActivity& activity, Plan* plan);

/// Where the intent wants a server: `--es key`, `--ei port`, `--ei tracker_port`, all of them. On
/// the activity's thread. Throws Error(kUsage).
ServerPlan ServerFromExtras(const ANativeActivity& activity);

}  // namespace adt::activity
