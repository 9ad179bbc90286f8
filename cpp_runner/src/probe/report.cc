#include "probe/report.h"

#include <cstring>
#include <optional>

#include "json_writer.h"
#include "probe/ask.h"
#include "probe/child.h"

namespace adt::probe {
namespace {

struct Answer {
  std::string outcome;
  std::string said;  // why it is not "answered"; empty then
  std::optional<std::string> path;
  std::vector<std::string> platforms;  // JSON
  std::vector<std::string> clml;
  bool taken = false;  // TVM's runtime stops its search here, for better or worse
};

Answer Digest(const Told& told, std::chrono::milliseconds limit) {
  Answer answer;
  std::string stage = "starting";
  std::optional<std::string> not_loaded;
  std::optional<std::string> unusable;
  bool done = false;
  for (const Record& record : told.records) {
    switch (record.kind) {
      case Kind::kStage:
        stage = record.text;
        break;
      case Kind::kNotLoaded:
        not_loaded = record.text;
        break;
      case Kind::kPath:
        answer.path = record.text;
        break;
      case Kind::kUnusable:
        unusable = record.text;
        break;
      case Kind::kPlatform:
        answer.platforms.push_back(record.text);
        break;
      case Kind::kClml:
        answer.clml.push_back(record.text);
        break;
      case Kind::kDone:
        done = true;
        break;
    }
  }
  answer.taken = !not_loaded;
  if (done && not_loaded) {
    answer.outcome = "not-loaded";
    answer.said = *not_loaded;
  } else if (done && unusable) {
    answer.outcome = "unusable";
    answer.said = *unusable;
  } else if (done) {
    answer.outcome = "answered";
  } else if (told.timed_out) {
    answer.outcome = "timed-out";
    answer.said = "no answer within " + std::to_string(limit.count()) + " ms while " + stage;
  } else {
    answer.outcome = "crashed";
    answer.said = told.signal != 0 ? std::string(strsignal(told.signal)) + " (signal " +
                                         std::to_string(told.signal) + ") while " + stage
                                   : "it ended the process (exit code " +
                                         std::to_string(told.exit_code) + ") while " + stage;
  }
  return answer;
}

void Write(const Candidate& candidate, const Answer& answer, JsonWriter* json) {
  json->BeginObject();
  json->Key("library").String(candidate.library);
  json->Key("tvm").Bool(candidate.tvm);
  json->Key("outcome").String(answer.outcome);
  json->Key("said").String(answer.said);
  json->Key("path");
  answer.path && !answer.path->empty() ? json->String(*answer.path) : json->Null();
  json->Key("platforms").BeginArray();
  for (const std::string& platform : answer.platforms) json->Document(platform);
  json->EndArray();
  json->Key("clml_versions").Strings(answer.clml);
  json->EndObject();
}

}  // namespace

std::string Report(const std::vector<Candidate>& candidates, std::chrono::milliseconds limit) {
  JsonWriter json;
  json.BeginObject();
  json.Key("schema").String("adt.opencl-probe");
  json.Key("schema_version").Int(1);
  json.Key("candidates").BeginArray();
  std::optional<std::string> taken;
  for (const Candidate& candidate : candidates) {
    const Told told =
        InChild([&](const RecordWriter& out) { AskLibrary(candidate.library, out); }, limit);
    const Answer answer = Digest(told, limit);
    if (candidate.tvm && answer.taken && !taken) taken = candidate.library;
    Write(candidate, answer, &json);
  }
  json.EndArray();
  json.Key("taken");
  taken ? json.String(*taken) : json.Null();
  json.EndObject();
  return json.Finish();
}

}  // namespace adt::probe
