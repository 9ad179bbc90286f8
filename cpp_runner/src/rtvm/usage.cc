#include "rtvm/options.h"

namespace adt::rtvm {

std::string Usage() {
  return R"(rtvm: run a model package of adt on this machine.

  rtvm --model DIR [--device cpu|opencl|cuda] [--input IN.npz] [--output OUT.npz]
       [--dry-run N] [--run-count N] [--seed S] [--entry NAME] [--json] [...]
  rtvm --model DIR --dump-meta [--json]
  rtvm --version [--json]

What runs:
  --model DIR          the package: a directory with mod.so, mod.params and mod.json
  --device NAME        cpu, opencl or cuda, or one of several as in opencl:1; default: the first of
                       what the package was compiled for
  --entry NAME         function to run (default main)
  --input FILE         inputs, as numpy.savez writes them; default: made-up values
  --fill-mode MODE     what these are: random (default), zeros, ones, or arange: 0, 1, 2, ...
  --seed S             seed of the random inputs (default 0)
  --output FILE        write the outputs of the last timed run here, for numpy.load
  --zero-copy          the inputs are used where they lie, and not copied (cpu)
  --threads N          processors that work on one run; default: the runtime's choice
  --affinity CPUS      big, little, all, or processors as in 0,4-7; default: the runtime's choice

How often it runs:
  --dry-run N          runs before the first timed one (default 0)
  --warmup-ms N        and at least for so many milliseconds
  --run-count N        timed runs (default 1)
  --min-seconds T      and at least for so many seconds
  --max-seconds T      no timed run begins after so many seconds, whatever was asked for
  --end-to-end         a timed run copies the inputs in and the outputs out, too
  --times FILE         write each timed run's time and start to this .npz instead of the report

Compiled OpenCL programs:
  --program-cache DIR  keep them in this directory; off: nowhere; default: $ADT_PROGRAM_CACHE, else
                       $XDG_CACHE_HOME/adt/programs, else $HOME/.cache/adt/programs if it can be made
  --pre-compiled FILE  keep them in exactly this file: read when it is there, else written
  --build-threads N    build the others at loading, on so many threads (default: one for each core);
                       off: each when its kernel is first called

What is looked at:
  --profile [N]        after the timed runs, N runs that time every call (default 10)
  --dump-calls FILE    in one more run, write the tensors of every call, as they are after it
  --calls A:B          only of the calls from A up to, and without, B
  --sample-ms N        temperatures, clocks and power: before, after, and between the timed runs at
                       most every N milliseconds
  --sysfs DIR          where the kernel's files for that are (default /sys)
  --dump-meta          print the package's inputs, outputs and origin; run nothing

Other:
  --json               print one JSON document on stdout instead of text
  --verbose            show what the TVM runtime logs
  --version            print the versions and what a package is checked against
  --help               print this

Times are host-clock: read from this machine's steady clock around one run and the wait for the
device to finish it. Copies of inputs and outputs are not in them, except with --end-to-end.

Examples:
  rtvm --model /data/local/tmp/model --input in.npz --output out.npz --run-count 10
  rtvm --model /data/local/tmp/model --warmup-ms 500 --run-count 100 --min-seconds 10 --affinity big
  rtvm --model /data/local/tmp/model --profile 10 --json

Exit codes:
  0  done
  2  wrong command line
  3  the package is damaged, or a file of it is missing
  4  the input or output data does not fit, or cannot be read or written
  5  the model was loaded and failed
  6  the package does not fit: schema, machine, alignment, module ABI, kind of device
  7  this machine or this runner has no such device
  8  the device failed, and does nothing more
  9  memory ran out: this machine's, or the device's
)";
}

}  // namespace adt::rtvm
