#include "activity/extras.h"

#include <jni.h>

#include <algorithm>
#include <limits>
#include <string>

#include "activity/java.h"
#include "error.h"

namespace adt::activity {
namespace {

constexpr const char* kRemedy = "Check the extras of `am start`.";

// The extras of the intent that started the activity.
class Extras {
 public:
  explicit Extras(const ANativeActivity& activity) : env_(activity.env) {
    intent_ = env_->CallObjectMethod(
        activity.clazz, MethodOf(env_, activity.clazz, "getIntent", "()Landroid/content/Intent;"));
    text_ = MethodOf(env_, intent_, "getStringExtra", "(Ljava/lang/String;)Ljava/lang/String;");
    number_ = MethodOf(env_, intent_, "getIntExtra", "(Ljava/lang/String;I)I");
  }

  // *value* becomes the extra *name*, if there is one.
  void Take(const char* name, std::string* value) const {
    const jobject text = env_->CallObjectMethod(intent_, text_, env_->NewStringUTF(name));
    if (text != nullptr) *value = TextOf(env_, text);
  }

  // The same of a number that is 0 or more.
  template <typename Integer>
  void Take(const std::string& name, Integer* value) const {
    // Java's UTF-8 is its own beyond the basic plane, and what is none ends the process.
    if (!std::all_of(name.begin(), name.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; }))
      return;
    const jint absent = std::numeric_limits<jint>::min();
    const jstring key = env_->NewStringUTF(name.c_str());
    const jint number = env_->CallIntMethod(intent_, number_, key, absent);
    if (number == absent) return;
    if (number < 0) {
      throw Error(ErrorKind::kUsage, "the extra " + name + " is less than 0", kRemedy);
    }
    *value = static_cast<Integer>(number);
  }

 private:
  JNIEnv* env_;
  jobject intent_;
  jmethodID text_;
  jmethodID number_;
};

// Leave *plan* the model *stem* alone.
void Choose(const std::string& stem, Plan* plan) {
  std::string stems;
  for (const PlannedModel& model : plan->models) {
    if (model.stem == stem) {
      plan->models = {PlannedModel(model)};
      return;
    }
    stems += (stems.empty() ? "" : ", ") + model.stem;
  }
  throw Error(ErrorKind::kUsage, "there is no model " + stem + ", only " + stems, kRemedy);
}

}  // namespace

void ApplyExtras(const ANativeActivity& activity, Plan* plan) {
  const Extras extras(activity);
  std::string model;
  extras.Take("model", &model);
  if (!model.empty()) Choose(model, plan);
  extras.Take("device", &plan->device);
  extras.Take("affinity", &plan->affinity);
  extras.Take("threads", &plan->threads);
  extras.Take("seed", &plan->seed);
  extras.Take("warmup_runs", &plan->warmup_runs);
  extras.Take("warmup_ms", &plan->warmup_ms);
  extras.Take("runs", &plan->runs);
  extras.Take("min_ms", &plan->min_ms);
  extras.Take("sample_ms", &plan->sample_ms);
  for (PlannedModel& planned : plan->models) {
    for (auto& [symbol, extent] : planned.extents) extras.Take("extent_" + symbol, &extent);
  }
}

ServerPlan ServerFromExtras(const ANativeActivity& activity) {
  const Extras extras(activity);
  ServerPlan plan;
  extras.Take("key", &plan.key);
  extras.Take("port", &plan.port);
  extras.Take("tracker_port", &plan.tracker_port);
  if (plan.key.empty() || plan.port == 0 || plan.tracker_port == 0) {
    throw Error(ErrorKind::kUsage, "the extras key, port and tracker_port are not all there",
                "Start the server by `adt install APK --run`.");
  }
  return plan;
}

}  // namespace adt::activity
