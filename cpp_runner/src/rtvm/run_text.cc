// A run, for people.

#include <algorithm>
#include <numeric>
#include <sstream>

#include "dtype.h"
#include "rtvm/describe.h"
#include "rtvm/report.h"

namespace adt::rtvm {
namespace {

double Mean(const std::vector<double>& values) {
  if (values.empty()) return 0;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

void WriteDevice(std::ostream& out, const RunReport& report) {
  out << "device    " << report.device << ": " << report.device_name;
  if (report.opencl) {
    if (!report.opencl->driver.empty()) out << ", driver " << report.opencl->driver;
    if (report.opencl->type == "cpu") out << " (OpenCL on a CPU: no GPU's speed)";
  }
  out << "\n";
  if (report.threads == 0 && report.affinity.empty()) return;
  out << "threads   "
      << (report.threads == 0 ? "one per processor" : std::to_string(report.threads))
      << (report.affinity.empty() ? "" : ", on processors: " + report.affinity) << "\n";
}

void WriteLoad(std::ostream& out, const RunReport& report) {
  out << "loaded    in " << Milliseconds(report.load_ms) << ", first run "
      << Milliseconds(report.first_run_ms) << " (host clock)\n";
  const ProgramReport& programs = report.programs;
  if (programs.state != ProgramState::kOff) {
    out << "programs  " << Name(programs.state)
        << (programs.file.empty() ? "" : ": " + programs.file);
    if (programs.take_ms > 0) out << ", taken in " << Milliseconds(programs.take_ms);
    if (programs.keep_ms > 0)
      out << ", kept in " << Milliseconds(programs.keep_ms) << " after the runs";
    out << "\n";
  }
  const ProgramBuildReport& build = report.build;
  if (build.built + build.ready > 0) {
    out << "built     " << build.built << " programs in " << Milliseconds(build.ms) << ", "
        << build.ready << " were there\n";
  }
}

void WriteRuns(std::ostream& out, const RunReport& report) {
  std::vector<double> sorted = report.run_ms;
  std::sort(sorted.begin(), sorted.end());
  out << "runs      " << sorted.size() << " after " << report.warmup_runs << " warm-up: median "
      << Milliseconds(sorted[(sorted.size() - 1) / 2]) << ", min " << Milliseconds(sorted.front())
      << ", max " << Milliseconds(sorted.back()) << " (host clock"
      << (report.end_to_end ? ", with copies in and out" : "")
      << (report.zero_copy ? ", inputs not copied" : "") << ")\n";
  if (!report.times_file.empty()) out << "times     " << report.times_file << "\n";
  if (report.peak_kb) {
    out << "memory    " << Decimal(static_cast<double>(*report.peak_kb) / 1024, 1)
        << " MiB at most";
    if (report.before_load_kb) {
      out << ", " << Decimal(static_cast<double>(*report.before_load_kb) / 1024, 1)
          << " MiB before loading";
    }
    out << "\n";
  }
}

void WriteSample(std::ostream& out, const char* when, const Sample& sample) {
  std::vector<std::string> facts;
  const auto hottest =
      std::max_element(sample.temperatures.begin(), sample.temperatures.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (hottest != sample.temperatures.end()) {
    facts.push_back(hottest->first + " " + Decimal(hottest->second, 1) + " °C");
  }
  for (const auto& [name, mhz] : sample.frequencies_mhz) {
    facts.push_back(name + " " + Decimal(mhz, 0) + " MHz");
  }
  for (const auto& [name, value] : sample.power) {
    facts.push_back(name + " " + std::to_string(value));
  }
  out << when << (facts.empty() ? "nothing readable" : Join(facts)) << "\n";
}

void WriteProfile(std::ostream& out, const CallProfile& profile) {
  out << "profile   " << profile.calls.size() << " calls, " << profile.total_us.size()
      << " runs of " << Milliseconds(Mean(profile.total_us) / 1000)
      << " with every call timed; means in µs (host clock, device clock):\n";
  for (std::size_t i = 0; i < profile.calls.size(); ++i) {
    const Call& call = profile.calls[i];
    if (call.builtin) continue;
    const std::string device =
        call.device_us.empty() ? std::string("-") : Decimal(Mean(call.device_us), 1);
    std::string line = Decimal(Mean(call.host_us), 1);
    line.insert(0, line.size() < 12 ? 12 - line.size() : 0, ' ');
    line += std::string(device.size() < 12 ? 12 - device.size() : 1, ' ') + device;
    out << line << "  " << i << " " << call.name << "\n";
  }
}

}  // namespace

std::string RunText(const RunReport& report) {
  std::ostringstream out;
  out << "package   " << report.package.name << ", entry " << report.entry << "\n";
  WriteDevice(out, report);
  WriteLoad(out, report);
  for (const NamedArray& input : report.inputs) {
    out << "input     " << input.name << " " << Describe(input.array.dtype, input.array.shape)
        << (report.fill ? std::string(", ") + FillModeName(*report.fill) : "")
        << (report.seed ? " with seed " + std::to_string(*report.seed) : "") << "\n";
  }
  WriteRuns(out, report);
  if (!report.samples.empty()) {
    WriteSample(out, "before    ", report.samples.front());
    WriteSample(out, "after     ", report.samples.back());
  }
  for (const NamedArray& output : report.outputs) {
    out << "output    " << output.name << " " << Describe(output.array.dtype, output.array.shape)
        << " sha256 " << Sha256(output.array) << "\n";
  }
  if (!report.output_file.empty()) out << "written   " << report.output_file << "\n";
  if (report.profile) WriteProfile(out, *report.profile);
  if (!report.calls_file.empty()) {
    out << "calls     " << report.calls_file << ": " << report.call_tensors << " arrays";
    if (!report.calls_left_out.empty()) {
      out << "; of a type that no .npz has, so left out: " << Join(report.calls_left_out);
    }
    out << "\n";
  }
  return out.str();
}

}  // namespace adt::rtvm
