// Asks in a process of its own: whatever a vendor's library does, this process goes on.
#pragma once

#include <chrono>
#include <functional>
#include <vector>

#include "probe/records.h"

namespace adt::probe {

/// How a child ended, and what it said before.
struct Told {
  std::vector<Record> records;
  int signal = 0;          // that ended it; 0: none
  int exit_code = 0;       // when no signal did
  bool timed_out = false;  // it was ended by us
};

/// Run *ask* in a child, for *limit* at most. Throws std::system_error when none can be started.
Told InChild(const std::function<void(const RecordWriter&)>& ask, std::chrono::milliseconds limit);

}  // namespace adt::probe
