// rtvm's command line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace adt::rtvm {

struct Options {
  std::string model;
  std::string device;
  std::string input;
  std::string output;
  std::string entry = "main";
  std::uint64_t seed = 0;
  std::int64_t dry_run = 0;
  std::int64_t run_count = 1;
  bool dump_meta = false;
  bool json = false;
  bool verbose = false;
  bool help = false;
  bool version = false;
};

/// What --help prints.
std::string Usage();

/// Parse the arguments after the program's name. Throws Error(kUsage).
Options ParseOptions(const std::vector<std::string>& arguments);

}  // namespace adt::rtvm
