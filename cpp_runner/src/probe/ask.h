// Asks one OpenCL library for its platforms and devices.
#pragma once

#include <string>

#include "probe/records.h"

namespace adt::probe {

/// Load *library* and say what it answers, step by step. Meant for a child process: it may crash.
void AskLibrary(const std::string& library, const RecordWriter& out);

}  // namespace adt::probe
