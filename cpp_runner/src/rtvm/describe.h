// Words for what rtvm's reports show.
#pragma once

#include <string>
#include <vector>

#include "array.h"
#include "json_writer.h"
#include "rtvm/report.h"
#include "runner_info.h"
#include "sensors.h"

namespace adt::rtvm {

/// "1.250 ms".
std::string Milliseconds(double value);
/// *value* with *digits* after the point.
std::string Decimal(double value, int digits);
std::string Join(const std::vector<std::string>& items);
/// Of the array's bytes.
std::string Sha256(const Array& array);

/// "schema" and "schema_version".
void WriteSchema(JsonWriter* json, const char* name, int version);
/// The members of an object, not the object.
void WriteRunner(JsonWriter* json, const RunnerInfo& info);
void WriteTimes(JsonWriter* json, const std::vector<double>& times);
/// "memory" and its object.
void WriteMemory(JsonWriter* json, const RunReport& report);
/// "samples" and its array.
void WriteSamples(JsonWriter* json, const std::vector<Sample>& samples);

}  // namespace adt::rtvm
