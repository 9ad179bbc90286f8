#include "rtvm/options.h"

#include <cstdlib>
#include <functional>
#include <map>
#include <utility>

#include "error.h"

namespace adt::rtvm {
namespace {

constexpr const char* kHelpRemedy = "rtvm --help lists the options.";

constexpr const char* kProfileRuns = "10";

[[noreturn]] void Wrong(const std::string& what) {
  throw Error(ErrorKind::kUsage, what, kHelpRemedy);
}

std::uint64_t ParseNumber(const std::string& option, const std::string& text, std::uint64_t min,
                          std::uint64_t max) {
  std::uint64_t value = 0;
  bool good = !text.empty();
  for (char c : text) {
    const auto digit = static_cast<std::uint64_t>(static_cast<unsigned char>(c) - '0');
    good = good && digit <= 9 && value <= (max - digit) / 10;
    if (!good) break;
    value = value * 10 + digit;
  }
  if (!good || value < min) {
    Wrong(option + " takes a number from " + std::to_string(min) + " to " + std::to_string(max) +
          ", not '" + text + "'");
  }
  return value;
}

bool IsNumber(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

std::int64_t ParseCount(const std::string& option, const std::string& text, std::uint64_t min) {
  constexpr std::uint64_t kMax = 1'000'000'000;
  return static_cast<std::int64_t>(ParseNumber(option, text, min, kMax));
}

// "0.5", "3e5"; no signs, blanks, infinities or hexadecimal digits.
double ParseDecimal(const std::string& option, const std::string& text) {
  constexpr double kMax = 1e9;
  const bool plain = !text.empty() &&
                     text.find_first_not_of("0123456789.e+-") == std::string::npos &&
                     text[0] != '-' && text[0] != '+';
  char* end = nullptr;
  const double value = plain ? std::strtod(text.c_str(), &end) : -1;
  if (!plain || *end != '\0' || !(value >= 0 && value <= kMax)) {
    Wrong(option + " takes a number from 0 to 1e9, not '" + text + "'");
  }
  return value;
}

void ParseCalls(const std::string& option, const std::string& text, Options* options) {
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) Wrong(option + " takes A:B, not '" + text + "'");
  const std::string first = text.substr(0, colon);
  const std::string end = text.substr(colon + 1);
  if (!first.empty()) options->first_call = ParseCount(option, first, 0);
  if (!end.empty()) options->end_call = ParseCount(option, end, 0);
  if (options->first_call >= options->end_call) {
    Wrong(option + " " + text + " has no call in it: B is not among them");
  }
}

// "big", "little", "all", or numbers and ranges of them: what else is there is told where the
// machine's processors are known.
void CheckAffinity(const std::string& text) {
  for (const char* name : {"big", "little", "all"}) {
    if (text == name) return;
  }
  if (text.find_first_not_of("0123456789,-") == std::string::npos) return;
  Wrong("--affinity takes big, little, all, or processors as in 0,4-7, not '" + text + "'");
}

void RequireTogether(const Options& options, bool calls_given) {
  if (options.zero_copy && !options.device.empty() && options.device != "cpu") {
    throw Error(ErrorKind::kUsage,
                "--zero-copy is for cpu: " + options.device + " has memory of its own",
                "Leave --zero-copy out.");
  }
  if (calls_given && options.dump_calls.empty()) {
    throw Error(ErrorKind::kUsage, "--calls says which calls --dump-calls writes",
                "Give --dump-calls FILE as well, or leave --calls out.");
  }
  if (options.max_seconds && *options.max_seconds < options.min_seconds) {
    throw Error(ErrorKind::kUsage, "--max-seconds is less than --min-seconds",
                "Make it at least as long, or leave one of them out.");
  }
  if (options.sysfs != "/sys" && options.sample_ms == 0) {
    throw Error(ErrorKind::kUsage, "--sysfs says where --sample-ms reads",
                "Give --sample-ms N as well, or leave --sysfs out.");
  }
  if (options.model.empty() && !options.help && !options.version) {
    throw Error(ErrorKind::kUsage, "no package given",
                "rtvm --model DIR; " + std::string(kHelpRemedy));
  }
}

}  // namespace

Options ParseOptions(const std::vector<std::string>& arguments) {
  using Parse = std::function<void(const std::string&, const std::string&)>;
  Options options;
  bool calls_given = false;
  const std::map<std::string, bool*> flags{
      {"--dump-meta", &options.dump_meta}, {"--json", &options.json},
      {"--verbose", &options.verbose},     {"-v", &options.verbose},
      {"--help", &options.help},           {"-h", &options.help},
      {"--version", &options.version},     {"--end-to-end", &options.end_to_end},
      {"--zero-copy", &options.zero_copy},
  };
  const auto text = [](std::string* to) -> Parse {
    return [to](const std::string&, const std::string& value) { *to = value; };
  };
  const auto count = [](std::int64_t* to, std::uint64_t min) -> Parse {
    return [to, min](const std::string& name, const std::string& value) {
      *to = ParseCount(name, value, min);
    };
  };
  const auto decimal = [](double* to) -> Parse {
    return [to](const std::string& name, const std::string& value) {
      *to = ParseDecimal(name, value);
    };
  };
  const auto keep = [&](ProgramStore store) {
    if (options.programs)
      Wrong("--program-cache and --pre-compiled: programs are kept in one place");
    options.programs = std::move(store);
  };
  const std::map<std::string, Parse> values{
      {"--model", text(&options.model)},
      {"--input", text(&options.input)},
      {"--output", text(&options.output)},
      {"--entry", text(&options.entry)},
      {"--times", text(&options.times)},
      {"--dump-calls", text(&options.dump_calls)},
      {"--sysfs", text(&options.sysfs)},
      {"--dry-run", count(&options.dry_run, 0)},
      {"--run-count", count(&options.run_count, 1)},
      {"--threads", count(&options.threads, 1)},
      {"--profile", count(&options.profile, 0)},
      {"--sample-ms", count(&options.sample_ms, 1)},
      {"--warmup-ms", decimal(&options.warmup_ms)},
      {"--min-seconds", decimal(&options.min_seconds)},
      {"--max-seconds",
       [&](const std::string& name, const std::string& value) {
         options.max_seconds = ParseDecimal(name, value);
       }},
      {"--device",
       [&](const std::string& name, const std::string& value) {
         const std::string kind = value.substr(0, value.find(':'));
         if (kind != "cpu" && kind != "opencl" && kind != "cuda") {
           Wrong(name + " takes cpu, opencl or cuda, not '" + value + "'");
         }
         options.device = value;
       }},
      {"--seed",
       [&](const std::string& name, const std::string& value) {
         options.seed = ParseNumber(name, value, 0, std::numeric_limits<std::uint64_t>::max());
       }},
      {"--fill-mode",
       [&](const std::string& name, const std::string& value) {
         const std::optional<FillMode> fill = FindFillMode(value);
         if (!fill) Wrong(name + " takes random, zeros, ones or arange, not '" + value + "'");
         options.fill = *fill;
       }},
      {"--affinity",
       [&](const std::string&, const std::string& value) {
         CheckAffinity(value);
         options.affinity = value;
       }},
      {"--calls",
       [&](const std::string& name, const std::string& value) {
         ParseCalls(name, value, &options);
         calls_given = true;
       }},
      {"--program-cache",
       [&](const std::string&, const std::string& value) {
         keep(value == "off" ? ProgramStore{}
                             : ProgramStore{ProgramStore::Kind::kDirectory, value});
       }},
      {"--build-threads",
       [&](const std::string& name, const std::string& value) {
         options.build_threads = value == "off" ? -1 : ParseCount(name, value, 1);
       }},
      {"--pre-compiled",
       [&](const std::string&, const std::string& value) {
         keep({ProgramStore::Kind::kFile, value});
       }},
  };

  for (std::size_t i = 0; i < arguments.size(); ++i) {
    std::string name = arguments[i];
    std::optional<std::string> value;
    if (const std::size_t equals = name.find('='); equals != std::string::npos) {
      value = name.substr(equals + 1);
      name.resize(equals);
    }
    if (const auto flag = flags.find(name); flag != flags.end()) {
      if (value) Wrong(name + " takes no value");
      *flag->second = true;
      continue;
    }
    const auto found = values.find(name);
    if (found == values.end()) Wrong("unknown option " + arguments[i]);
    if (name == "--profile" && !value &&
        !IsNumber(i + 1 < arguments.size() ? arguments[i + 1] : "")) {
      value = kProfileRuns;  // as a flag, which it was in upstream's rtvm
    }
    if (!value && i + 1 < arguments.size()) value = arguments[++i];
    if (!value || value->empty()) Wrong(name + " needs a value");
    found->second(name, *value);
  }
  RequireTogether(options, calls_given);
  return options;
}

}  // namespace adt::rtvm
