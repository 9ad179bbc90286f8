#include "sensors.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <system_error>

namespace adt {
namespace {

namespace fs = std::filesystem;

constexpr double kHzToMhz = 1e-6;
constexpr double kKhzToMhz = 1e-3;

std::optional<std::int64_t> ReadNumber(const std::string& file) {
  std::ifstream in(file);
  std::int64_t value = 0;
  if (!(in >> value)) return {};
  return value;
}

std::string ReadLine(const std::string& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back()))) line.pop_back();
  return line;
}

// Numbers in names count as numbers: cpu2 is before cpu10.
bool NaturallyBefore(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return a.size() < b.size();
  return a < b;
}

// Entries of *directory* whose names begin with *prefix*.
std::vector<std::string> Entries(const std::string& directory, const std::string& prefix) {
  std::vector<std::string> names;
  std::error_code failed;
  for (fs::directory_iterator it(directory, failed), end; !failed && it != end;
       it.increment(failed)) {
    const std::string name = it->path().filename().string();
    if (name.compare(0, prefix.size(), prefix) == 0) names.push_back(name);
  }
  std::sort(names.begin(), names.end(), NaturallyBefore);
  return names;
}

bool AllDigits(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return std::isdigit(static_cast<unsigned char>(c)) != 0;
  });
}

// The kernel's unit is 0.001 °C; some vendors' zones give whole degrees.
std::optional<double> Degrees(std::int64_t value) {
  constexpr std::int64_t kWholeDegrees = 200;
  const double degrees = std::llabs(value) < kWholeDegrees ? static_cast<double>(value)
                                                           : static_cast<double>(value) / 1000.0;
  // Zones that are switched off say -274 or 0x7FFFFFFF.
  if (degrees < -40 || degrees > 200) return {};
  return degrees;
}

}  // namespace

Sensors::Sensors(const std::string& root) {
  FindTemperatures(root);
  FindClocks(root);
  FindPower(root);
}

void Sensors::FindTemperatures(const std::string& root) {
  const std::string zones = root + "/class/thermal";
  std::set<std::string> taken;
  for (const std::string& zone : Entries(zones, "thermal_zone")) {
    const std::string file = zones + "/" + zone + "/temp";
    if (!ReadNumber(file)) continue;
    std::string name = ReadLine(zones + "/" + zone + "/type");
    if (name.empty()) name = zone;
    if (!taken.insert(name).second) name += " (" + zone + ")";
    temperatures_.push_back({name, file, 1.0});
  }
}

void Sensors::FindClocks(const std::string& root) {
  const std::string cpus = root + "/devices/system/cpu";
  for (const std::string& cpu : Entries(cpus, "cpu")) {
    const std::string file = cpus + "/" + cpu + "/cpufreq/scaling_cur_freq";
    if (AllDigits(cpu.substr(3)) && ReadNumber(file)) clocks_.push_back({cpu, file, kKhzToMhz});
  }

  std::vector<Source> gpu{
      {"gpu", root + "/class/kgsl/kgsl-3d0/gpuclk", kHzToMhz},  // Adreno
      {"gpu", root + "/class/kgsl/kgsl-3d0/devfreq/cur_freq", kHzToMhz},
      {"gpu", root + "/class/kgsl/kgsl-3d0/clock_mhz", 1.0},
      {"gpu", root + "/class/misc/mali0/device/devfreq/cur_freq", kHzToMhz},
  };
  const std::string mali = root + "/class/misc/mali0/device/devfreq";
  for (const std::string& name : Entries(mali, "")) {
    gpu.push_back({"gpu", mali + "/" + name + "/cur_freq", kHzToMhz});
  }
  const std::string devfreq = root + "/class/devfreq";
  for (const std::string& name : Entries(devfreq, "")) {
    if (name.find("gpu") == std::string::npos && name.find("mali") == std::string::npos) continue;
    gpu.push_back({"gpu", devfreq + "/" + name + "/cur_freq", kHzToMhz});
  }
  const std::string drm = root + "/class/drm";
  for (const std::string& name : Entries(drm, "card")) {
    gpu.push_back({"gpu", drm + "/" + name + "/gt_cur_freq_mhz", 1.0});  // Intel
  }
  const auto found = std::find_if(gpu.begin(), gpu.end(), [](const Source& source) {
    return ReadNumber(source.file).has_value();
  });
  if (found != gpu.end()) clocks_.push_back(*found);
}

void Sensors::FindPower(const std::string& root) {
  const std::string supplies = root + "/class/power_supply";
  for (const std::string& name : Entries(supplies, "")) {
    const std::string supply = supplies + "/" + name;
    if (ReadLine(supply + "/type") != "Battery") continue;
    const std::array<std::pair<const char*, const char*>, 4> files{
        {{"current_ua", "current_now"},
         {"voltage_uv", "voltage_now"},
         {"charge_uah", "charge_counter"},
         {"charge_uah", "charge_now"}}};
    for (const auto& [key, file] : files) {
      const bool had = std::any_of(power_.begin(), power_.end(),
                                   [&, k = key](const Source& source) { return source.name == k; });
      const std::string path = supply + "/" + file;
      if (!had && ReadNumber(path)) power_.push_back({key, path, 1.0});
    }
  }
  // One directory for each package; the parts of a package have a second number in their names.
  const std::string powercap = root + "/class/powercap";
  for (const std::string& name : Entries(powercap, "intel-rapl:")) {
    const std::string file = powercap + "/" + name + "/energy_uj";
    if (AllDigits(name.substr(name.find(':') + 1)) && ReadNumber(file)) {
      power_.push_back({"energy_uj", file, 1.0});
    }
  }
}

Sample Sensors::Read(double at_ms) const {
  Sample sample;
  sample.at_ms = at_ms;
  for (const Source& source : temperatures_) {
    const std::optional<std::int64_t> value = ReadNumber(source.file);
    const std::optional<double> degrees = value ? Degrees(*value) : std::nullopt;
    if (degrees) sample.temperatures[source.name] = *degrees;
  }
  for (const Source& source : clocks_) {
    const std::optional<std::int64_t> value = ReadNumber(source.file);
    if (value) sample.frequencies_mhz[source.name] = static_cast<double>(*value) * source.factor;
  }
  for (const Source& source : power_) {
    if (const auto value = ReadNumber(source.file)) sample.power[source.name] += *value;
  }
  return sample;
}

}  // namespace adt
