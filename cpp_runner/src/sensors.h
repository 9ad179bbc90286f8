// What this machine says of its temperatures, clocks and power, from the kernel's files in /sys.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace adt {

/// One reading. What this machine does not have, or does not let this program read, is not in it.
struct Sample {
  /// Milliseconds since the caller's start.
  double at_ms = 0;
  /// Degrees Celsius of each thermal zone, by its type.
  std::map<std::string, double> temperatures;
  /// Clocks now, in MHz: "cpu0" …, "gpu".
  std::map<std::string, double> frequencies_mhz;
  /// The kernel's raw counters: "current_ua", "voltage_uv" and "charge_uah" of the battery,
  /// "energy_uj" of all processor packages together (it wraps around).
  std::map<std::string, std::int64_t> power;
};

/// Finds the readable files once; reading them is then cheap.
class Sensors {
 public:
  /// *root*: where the kernel's files are mounted.
  explicit Sensors(const std::string& root = "/sys");

  Sample Read(double at_ms) const;

 private:
  // File and factor to the unit of the Sample.
  struct Source {
    std::string name;
    std::string file;
    double factor;
  };

  void FindTemperatures(const std::string& root);
  void FindClocks(const std::string& root);
  void FindPower(const std::string& root);

  std::vector<Source> temperatures_;
  std::vector<Source> clocks_;
  std::vector<Source> power_;
};

}  // namespace adt
