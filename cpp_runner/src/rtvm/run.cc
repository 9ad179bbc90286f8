#include "rtvm/run.h"

#include <tvm/ffi/dtype.h>
#include <tvm/ffi/function.h>
#include <tvm/runtime/tensor.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "array.h"
#include "error.h"
#include "external_memory.h"
#include "npz.h"
#include "random_inputs.h"
#include "rtvm/timed_runs.h"
#include "session.h"
#include "threads.h"

namespace adt::rtvm {
namespace {

/// Memory of this process in KiB, as the kernel counts it; none when the kernel does not say.
std::optional<std::int64_t> StatusField(const std::string& name) {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    if (word != name) continue;
    std::int64_t value = 0;
    if (!(status >> value)) return {};
    return value;
  }
  return {};
}

std::optional<std::int64_t> ResidentKb() { return StatusField("VmRSS:"); }
std::optional<std::int64_t> PeakResidentKb() { return StatusField("VmHWM:"); }

/// Copies of arrays, aligned as a package wants them.
class AlignedInputs {
 public:
  /// *inputs* fit *entry* of the session. Throws Error(kUsage): it is not on a CPU.
  AlignedInputs(const NamedArrays& inputs, const Session& session, std::size_t entry);

  /// Make them the entry's inputs, without a copy.
  void Set(Session* session) const;

 private:
  std::size_t entry_;
  std::vector<tvm::runtime::Tensor> inputs_;  // in the entry's order
};

AlignedInputs::AlignedInputs(const NamedArrays& inputs, const Session& session, std::size_t entry)
    : entry_(entry) {
  if (session.dl_device().device_type != kDLCPU) {
    throw Error(ErrorKind::kUsage,
                "the inputs of a model on " + session.model()->device() +
                    " cannot lie in the program's memory",
                "Let them be copied (leave out --zero-copy).");
  }
  const auto alignment = static_cast<std::size_t>(session.package().alignment);
  for (const TensorSpec& spec : session.package().entries[entry].inputs) {
    const auto found = std::find_if(inputs.begin(), inputs.end(),
                                    [&](const NamedArray& i) { return i.name == spec.name; });
    const Array& array = found->array;
    void* memory = nullptr;
    if (posix_memalign(&memory, std::max(alignment, sizeof(void*)),
                       std::max<std::size_t>(array.data.size(), 1)) != 0) {
      throw std::bad_alloc();
    }
    if (!array.data.empty()) std::memcpy(memory, array.data.data(), array.data.size());
    inputs_.push_back(WrapMemory(memory, tvm::ffi::Shape(array.shape),
                                 tvm::ffi::StringToDLDataType(tvm::ffi::String(array.dtype)),
                                 DLDevice{kDLCPU, 0}, [memory] { std::free(memory); }));
  }
}

void AlignedInputs::Set(Session* session) const {
  for (std::size_t i = 0; i < inputs_.size(); ++i) session->SetInputTensor(entry_, i, inputs_[i]);
}

using Clock = std::chrono::steady_clock;

double MillisecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

/// Samples, not more often than the command line says.
class Sampler {
 public:
  Sampler(const Options& options, Clock::time_point start, std::vector<Sample>* samples)
      : every_ms_(options.sample_ms), start_(start), samples_(samples) {
    if (every_ms_ > 0) sensors_.emplace(options.sysfs);
  }

  void Now() const {
    if (sensors_) samples_->push_back(sensors_->Read(MillisecondsSince(start_)));
  }
  void IfDue() const {
    if (!sensors_) return;
    const double since = MillisecondsSince(start_) - samples_->back().at_ms;
    if (since >= static_cast<double>(every_ms_)) Now();
  }

 private:
  std::int64_t every_ms_;
  Clock::time_point start_;
  std::vector<Sample>* samples_;
  std::optional<Sensors> sensors_;
};

void SetThreads(const Options& options, RunReport* report) {
  if (options.threads == 0 && options.affinity.empty()) return;
  std::string affinity = options.affinity;
  if (affinity.empty()) {
    const bool fits = CoresOf("big").size() >= static_cast<std::size_t>(options.threads);
    affinity = fits ? "big" : "all";
  }
  report->threads = adt::SetThreads(static_cast<int>(options.threads), affinity);
  report->affinity = affinity;
}

Array DoubleArray(const std::vector<double>& values) {
  Array array{"float64", {static_cast<std::int64_t>(values.size())}, {}};
  array.data.resize(values.size() * sizeof(double));
  if (!values.empty()) std::memcpy(array.data.data(), values.data(), array.data.size());
  return array;
}

void WriteTimes(const std::string& file, RunReport* report) {
  WriteNpz(file,
           {{"run_ms", DoubleArray(report->run_ms)}, {"start_ms", DoubleArray(report->start_ms)}});
  report->times_file = file;
}

void WriteCalls(const Options& options, const Session& session, RunReport* report) {
  CallDump dump =
      DumpCalls(session.vm().module(), report->entry, options.first_call, options.end_call);
  WriteNpz(options.dump_calls, dump.arrays);
  report->calls_file = options.dump_calls;
  report->call_tensors = static_cast<std::int64_t>(dump.arrays.size());
  report->calls_left_out = std::move(dump.left_out);
}

ModelOptions ForModel(const Options& options) {
  ModelOptions wanted;
  wanted.device = options.device;
  wanted.build.threads = static_cast<int>(options.build_threads);
  wanted.programs = options.programs ? *options.programs : DefaultProgramStore();
  return wanted;
}

void DescribeSession(const Session& session, RunReport* report) {
  report->runner = Info();
  report->package = session.package();
  report->device = session.model()->device();
  report->device_name = session.model()->device_name();
  report->build = session.model()->build();
  if (session.dl_device().device_type == kDLOpenCL) {
    report->opencl = DescribeOpenCl(session.dl_device());
  }
}

// *specs*, whose symbols that are in *extents* are numbers.
std::vector<TensorSpec> WithExtents(std::vector<TensorSpec> specs,
                                    const std::map<std::string, std::int64_t>& extents) {
  for (TensorSpec& spec : specs) {
    for (Dim& dim : spec.shape) {
      const auto extent = extents.find(dim.symbol);
      if (dim.symbolic() && extent != extents.end()) dim = {extent->second, ""};
    }
  }
  return specs;
}

void GetInputs(const Options& options, const Entry& entry, RunReport* report) {
  if (options.input.empty()) {
    report->fill = options.fill;
    if (options.fill == FillMode::kRandom) report->seed = options.seed;
    report->inputs =
        RandomInputs(WithExtents(entry.inputs, options.extents), options.seed, options.fill);
  } else {
    report->inputs = ReadNpz(options.input);
  }
}

void TakeTimes(TimedRuns runs, RunReport* report) {
  report->first_run_ms = runs.first_run_ms;
  report->warmup_runs = runs.warmup_runs;
  report->run_ms = std::move(runs.run_ms);
  report->start_ms = std::move(runs.start_ms);
}

// What the runtimes of libraries for GPUs have allocated in this process.
std::optional<std::int64_t> WorkspaceBytes() {
  const auto count = tvm::ffi::Function::GetGlobal("adt.library_workspace_bytes");
  const std::int64_t bytes = count ? (*count)().cast<std::int64_t>() : 0;
  return bytes > 0 ? std::optional(bytes) : std::nullopt;
}

// The files and the further runs that were asked for.
void Afterwards(const Options& options, std::size_t entry, Session* session, RunReport* report) {
  session->model()->KeepPrograms();
  report->programs = session->model()->programs();
  if (!options.output.empty()) {
    WriteNpz(options.output, report->outputs);
    report->output_file = options.output;
  }
  if (!options.times.empty()) WriteTimes(options.times, report);
  if (options.profile == 0 && options.dump_calls.empty()) return;
  session->ShareInputs(entry);
  if (options.profile > 0) {
    report->profile = ProfileCalls(session->vm().module(), report->entry, options.profile);
  }
  if (!options.dump_calls.empty()) WriteCalls(options, *session, report);
}

}  // namespace

RunReport RunPackage(const Options& options, Clock::time_point start) {
  return RunPackage(options, [&] { return OpenDirectory(options.model); }, [] {}, start);
}

RunReport RunPackage(const Options& options, const std::function<Source()>& open,
                     const std::function<void()>& proceed, Clock::time_point start) {
  RunReport report;
  SetThreads(options, &report);
  const Sampler sampler(options, start, &report.samples);
  sampler.Now();
  report.before_load_kb = ResidentKb();

  const ModelOptions wanted = ForModel(options);
  const auto load_start = Clock::now();
  Session session(std::make_shared<Model>(open(), wanted));
  report.load_ms = MillisecondsSince(load_start);
  DescribeSession(session, &report);
  const Entry& entry = session.package().entry(options.entry);
  report.entry = entry.name;

  GetInputs(options, entry, &report);
  const std::size_t index = session.EntryIndex(entry.name);
  std::optional<AlignedInputs> aligned;
  const auto set = [&] {
    aligned ? aligned->Set(&session) : session.SetInputs(report.inputs, entry.name);
  };
  const auto run = [&] {
    session.Start(index);
    session.Wait();
  };
  const auto get = [&] { report.outputs = session.Outputs(entry.name); };
  set();
  if (options.zero_copy) {
    aligned.emplace(report.inputs, session, index);
    set();
  }
  report.end_to_end = options.end_to_end;
  report.zero_copy = options.zero_copy;

  const RunPlan plan{options.dry_run, options.warmup_ms, options.run_count, options.min_seconds,
                     options.max_seconds};
  const auto end_to_end = [&] {
    set();
    run();
    get();
  };
  const auto one = [&] { options.end_to_end ? end_to_end() : run(); };
  const auto warmup = [&] {
    proceed();
    one();
  };
  const auto between = [&] {
    sampler.IfDue();
    proceed();
  };
  TakeTimes(RunTimed(plan, start, warmup, one, between), &report);
  sampler.Now();
  get();
  report.peak_kb = PeakResidentKb();
  report.workspace_bytes = WorkspaceBytes();
  Afterwards(options, index, &session, &report);
  return report;
}

}  // namespace adt::rtvm
