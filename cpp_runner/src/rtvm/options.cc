#include "rtvm/options.h"

#include <functional>
#include <limits>
#include <map>
#include <optional>

#include "adt/error.h"

namespace adt::rtvm {
namespace {

constexpr const char* kHelpRemedy = "rtvm --help lists the options.";

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
    throw Error(ErrorKind::kUsage,
                option + " takes a number from " + std::to_string(min) + " to " +
                    std::to_string(max) + ", not '" + text + "'",
                kHelpRemedy);
  }
  return value;
}

std::int64_t ParseCount(const std::string& option, const std::string& text, std::uint64_t min) {
  constexpr std::uint64_t kMax = 1'000'000'000;
  return static_cast<std::int64_t>(ParseNumber(option, text, min, kMax));
}

}  // namespace

std::string Usage() {
  return R"(rtvm: run a model package of adt on this machine.

  rtvm --model DIR [--device cpu|opencl] [--input IN.npz] [--output OUT.npz]
       [--dry-run N] [--run-count N] [--seed S] [--entry NAME] [--json]
  rtvm --model DIR --dump-meta [--json]
  rtvm --version [--json]

Options:
  --model DIR      the package: a directory with mod.so, mod.params and mod.json
  --device NAME    cpu or opencl; default: what the package was compiled for
  --input FILE     inputs, as numpy.savez writes them; default: random values from --seed
  --output FILE    write the outputs of the last run here, for numpy.load
  --dry-run N      runs before the first timed one (default 0)
  --run-count N    timed runs (default 1)
  --seed S         seed of the random inputs (default 0)
  --entry NAME     function to run (default main)
  --dump-meta      print the package's inputs, outputs and origin; run nothing
  --json           print one JSON document on stdout instead of text
  --verbose        show what the TVM runtime logs
  --version        print the versions and what a package is checked against
  --help           print this

Times are host-clock: read from this machine's steady clock around one run and the wait for the
device to finish it. Copies of inputs and outputs are not in them.

Example:
  rtvm --model /data/local/tmp/model --input in.npz --output out.npz --run-count 10

Exit codes:
  0  done
  2  wrong command line
  3  the package is damaged or does not fit: schema, machine, alignment, module ABI, device, hash
  4  the input or output data does not fit, or cannot be read or written
  5  the model was loaded and failed
)";
}

Options ParseOptions(const std::vector<std::string>& arguments) {
  Options options;
  const std::map<std::string, bool*> flags{
      {"--dump-meta", &options.dump_meta}, {"--json", &options.json},
      {"--verbose", &options.verbose},     {"-v", &options.verbose},
      {"--help", &options.help},           {"-h", &options.help},
      {"--version", &options.version},
  };
  const auto text = [](std::string* to) {
    return [to](const std::string&, const std::string& value) { *to = value; };
  };
  const std::map<std::string, std::function<void(const std::string&, const std::string&)>> values{
      {"--model", text(&options.model)},
      {"--device", text(&options.device)},
      {"--input", text(&options.input)},
      {"--output", text(&options.output)},
      {"--entry", text(&options.entry)},
      {"--seed",
       [&](const std::string& name, const std::string& value) {
         options.seed = ParseNumber(name, value, 0, std::numeric_limits<std::uint64_t>::max());
       }},
      {"--dry-run",
       [&](const std::string& name, const std::string& value) {
         options.dry_run = ParseCount(name, value, 0);
       }},
      {"--run-count",
       [&](const std::string& name, const std::string& value) {
         options.run_count = ParseCount(name, value, 1);
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
      if (value) throw Error(ErrorKind::kUsage, name + " takes no value", kHelpRemedy);
      *flag->second = true;
      continue;
    }
    const auto found = values.find(name);
    if (found == values.end()) {
      throw Error(ErrorKind::kUsage, "unknown option " + arguments[i], kHelpRemedy);
    }
    if (!value && i + 1 < arguments.size()) value = arguments[++i];
    if (!value || value->empty()) {
      throw Error(ErrorKind::kUsage, name + " needs a value", kHelpRemedy);
    }
    found->second(name, *value);
  }

  if (!options.device.empty() && options.device != "cpu" && options.device != "opencl") {
    throw Error(ErrorKind::kUsage, "--device takes cpu or opencl, not '" + options.device + "'",
                kHelpRemedy);
  }
  if (options.model.empty() && !options.help && !options.version) {
    throw Error(ErrorKind::kUsage, "no package given",
                "rtvm --model DIR; " + std::string(kHelpRemedy));
  }
  return options;
}

}  // namespace adt::rtvm
