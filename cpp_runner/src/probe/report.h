// adt_probe's report: what each OpenCL library answered, as one JSON document.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace adt::probe {

struct Candidate {
  std::string library;  // as it is given to dlopen
  bool tvm;             // TVM's runtime would try it
};

/// Ask each candidate in turn, in a process of its own.
std::string Report(const std::vector<Candidate>& candidates, std::chrono::milliseconds limit);

}  // namespace adt::probe
