// An application without Java: Android's NativeActivity loads this library, which measures the
// models that the APK carries and writes an adt.app-bench document for each. Where the APK carries
// none, it is an RPC server.

#include <android/input.h>
#include <android/looper.h>
#include <android/native_activity.h>
#include <android/window.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <thread>

#include "activity/directories.h"
#include "activity/document.h"
#include "activity/extras.h"
#include "activity/job.h"
#include "activity/log.h"
#include "activity/server.h"
#include "adt/asset.h"
#include "error.h"
#include "source.h"

namespace adt::activity {
namespace {

// All callbacks come on the activity's thread. The worker never touches the activity, so nothing
// waits for it when the activity goes.
std::shared_ptr<Job>& JobOf(ANativeActivity* activity) {
  return *static_cast<std::shared_ptr<Job>*>(activity->instance);
}

constexpr const char* kAssets = "assets/";  // in the APK, and for messages

// The asset *path*, which begins with kAssets.
Blob MapAsset(AAssetManager* assets, const std::string& code_cache, const std::string& path) try {
  const Asset asset(assets, path.substr(std::strlen(kAssets)), code_cache);
  return Blob::MapPart(asset.blob().fd, asset.blob().offset, asset.blob().size, path);
} catch (const std::system_error& error) {
  throw Error(ErrorKind::kPackage, error.what(), "Make the APK again: adt apk.");
}

void Find(const ANativeActivity& activity, Job* job) {
  const auto map = [&, code_cache = CodeCache(activity)](const std::string& path) {
    return MapAsset(activity.assetManager, code_cache, path);
  };
  job->plan = ParsePlan(std::string(map(kAssets + std::string("adt/bench.json")).text()));
  ApplyExtras(activity, &job->plan);
  for (const PlannedModel& planned : job->plan.models) {
    const std::string directory = kAssets + ("adt/" + planned.stem + "/");
    const std::string of_abi = directory + job->machine.abi + "/";
    Source package;
    package.manifest_name = of_abi + "mod.json";
    package.params_name = (planned.shared_params ? directory : of_abi) + "mod.params";
    package.manifest = map(package.manifest_name);
    package.params = map(package.params_name);
    UseLibrary(planned.library, &package);
    job->models.push_back({planned, package});
  }
}

void Refuse(Job* job, const std::string& what, const std::string& remedy) {
  LogError(what + "\nremedy: " + remedy);
  job->screen.Show(Progress::kFailed);
  std::error_code failed;
  std::filesystem::create_directories(job->results, failed);
  WriteWhole(job->results + "/error.json", ErrorJson(job->plan.app, "", what, remedy));
}

void BeginToServe(const ANativeActivity& activity, const std::shared_ptr<Job>& job) {
  ServerPlan plan = ServerFromExtras(activity);
  plan.directory = CodeCache(activity) + "/adt-rpc";
  job->serves = true;
  std::thread([plan, job] { Serve(plan, [&job] { job->screen.Show(Progress::kDone); }); }).detach();
}

void Begin(ANativeActivity* activity, const std::shared_ptr<Job>& job) {
  job->machine = ThisMachine();
  job->results = ResultsDirectory(*activity);
  job->programs = std::string(activity->internalDataPath) + "/adt-programs";
  try {
    Find(*activity, job.get());
    if (job->plan.models.empty()) {
      BeginToServe(*activity, job);
      return;
    }
  } catch (const Error& error) {
    Refuse(job.get(), error.what(), error.remedy());
    return;
  }
  std::thread([job] { Measure(job); }).detach();
}

// Nobody else takes what is typed and touched, and an application that leaves it lying is taken for
// one that hangs.
int PassOn(int, int, void* data) {
  auto* queue = static_cast<AInputQueue*>(data);
  AInputEvent* event = nullptr;
  while (AInputQueue_getEvent(queue, &event) >= 0) {
    if (AInputQueue_preDispatchEvent(queue, event) == 0) AInputQueue_finishEvent(queue, event, 0);
  }
  return 1;
}

void OnResume(ANativeActivity* activity) { JobOf(activity)->gate.Resume(); }

void OnPause(ANativeActivity* activity) { JobOf(activity)->gate.Pause(); }

void OnDestroy(ANativeActivity* activity) {
  if (JobOf(activity)->serves) std::_Exit(EXIT_SUCCESS);  // who closes it wants no server
  const std::unique_ptr<std::shared_ptr<Job>> job(&JobOf(activity));
  activity->instance = nullptr;
  (*job)->screen.Use(nullptr);
  (*job)->gate.Stop();
}

void OnWindowCreated(ANativeActivity* activity, ANativeWindow* window) {
  JobOf(activity)->screen.Use(window);
}

void OnWindowRedrawNeeded(ANativeActivity* activity, ANativeWindow*) {
  JobOf(activity)->screen.Redraw();
}

void OnWindowDestroyed(ANativeActivity* activity, ANativeWindow*) {
  JobOf(activity)->screen.Use(nullptr);
}

void OnInputQueueCreated(ANativeActivity*, AInputQueue* queue) {
  constexpr int kIdent = 1;
  AInputQueue_attachLooper(queue, ALooper_forThread(), kIdent, PassOn, queue);
}

void OnInputQueueDestroyed(ANativeActivity*, AInputQueue* queue) {
  AInputQueue_detachLooper(queue);
}

void Create(ANativeActivity* activity) {
  auto job = std::make_unique<std::shared_ptr<Job>>(std::make_shared<Job>());
  ANativeActivityCallbacks* callbacks = activity->callbacks;
  callbacks->onResume = OnResume;
  callbacks->onPause = OnPause;
  callbacks->onDestroy = OnDestroy;
  callbacks->onNativeWindowCreated = OnWindowCreated;
  callbacks->onNativeWindowRedrawNeeded = OnWindowRedrawNeeded;
  callbacks->onNativeWindowDestroyed = OnWindowDestroyed;
  callbacks->onInputQueueCreated = OnInputQueueCreated;
  callbacks->onInputQueueDestroyed = OnInputQueueDestroyed;
  activity->instance = job.get();
  ANativeActivity_setWindowFlags(activity, AWINDOW_FLAG_KEEP_SCREEN_ON, 0);
  Begin(activity, *job.release());
}

}  // namespace
}  // namespace adt::activity

extern "C" __attribute__((visibility("default"))) void ANativeActivity_onCreate(
    ANativeActivity* activity, void*, size_t) {
  try {
    adt::activity::Create(activity);
  } catch (const std::exception& error) {
    adt::activity::LogError(error.what());
    ANativeActivity_finish(activity);
  }
}
