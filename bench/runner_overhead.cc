// runner_overhead DIR BATCH ROUNDS: libadt_runner's C interface beside a direct loop over TVM's
// virtual machine.
//
// Both load the package in DIR (a CPU, one entry "main", inputs of fixed shapes) into this process.
// In each round, each of them does BATCH inferences, in turn; a line of JSON per kind and round
// says what one took (µs).
#include <adt/adt_runner.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/runtime/memory/memory_manager.h>
#include <tvm/runtime/tensor.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

namespace {

namespace ffi = tvm::ffi;
using tvm::runtime::Tensor;
using Bytes = std::vector<char>;

void Check(adt_status_t status) {
  if (status == ADT_OK) return;
  std::fprintf(stderr, "%s\n", adt_last_error());
  std::exit(1);
}

// The package through the C interface.
struct Runner {
  explicit Runner(const std::string& directory) {
    Check(adt_runner_create(directory.c_str(), nullptr, &handle));
    const int count = adt_runner_input_count(handle, 0);
    for (int i = 0; i < count; ++i) {
      adt_tensor_info_t info{};
      info.struct_size = sizeof(info);
      Check(adt_runner_input_info(handle, 0, i, &info));
      inputs.push_back(info);
      data.emplace_back(static_cast<std::size_t>(info.size));
      Check(adt_runner_set_input(handle, 0, i, data.back().data(), info.size));
    }
    adt_tensor_info_t info{};
    info.struct_size = sizeof(info);
    Check(adt_runner_output_info(handle, 0, 0, &info));
    output.resize(static_cast<std::size_t>(info.size));
  }
  ~Runner() { adt_runner_free(handle); }
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  void Run() { Check(adt_runner_run(handle, 0)); }
  void Infer() {
    for (std::size_t i = 0; i < data.size(); ++i) {
      const auto size = static_cast<std::int64_t>(data[i].size());
      Check(adt_runner_set_input(handle, 0, static_cast<int>(i), data[i].data(), size));
    }
    Run();
    Check(adt_runner_get_output(handle, 0, 0, output.data(),
                                static_cast<std::int64_t>(output.size())));
  }

  adt_runner_t* handle = nullptr;
  std::vector<adt_tensor_info_t> inputs;
  std::vector<Bytes> data;
  Bytes output;
};

// The same by hand: what a program that knows this one model would do. direct.so is a copy of
// mod.so: two modules on one loaded library would share its pointers.
struct Direct {
  Direct(const std::string& directory, const Runner& like)
      : vm(ffi::Module::LoadFromFile(directory + "/direct.so")
               ->GetFunction("vm_load_executable")
               .value()()
               .cast<ffi::Module>()) {
    vm->GetFunction("vm_initialization")
        .value()(static_cast<int>(kDLCPU), 0,
                 static_cast<int>(tvm::runtime::memory::AllocatorType::kPooled));
    for (const adt_tensor_info_t& info : like.inputs) {
      arguments.push_back(Tensor::Empty(ffi::Shape(info.shape, info.shape + info.rank),
                                        ffi::StringToDLDataType(info.dtype), DLDevice{kDLCPU, 0}));
    }
    data = like.data;
    output.resize(like.output.size());
  }
  // *params*: the names that follow the inputs.
  void SetInput(const std::string& directory, const std::vector<std::string>& params) {
    const auto load = ffi::Function::GetGlobalRequired("runtime.LoadParamsFromFile");
    const auto found = load(directory + "/mod.params").cast<ffi::Map<ffi::String, Tensor>>();
    std::vector<Tensor> all = arguments;
    for (const std::string& param : params) all.push_back(found[param]);
    std::vector<ffi::AnyView> packed{name};
    for (const Tensor& argument : all) packed.emplace_back(argument);
    ffi::Any result;
    vm->GetFunction("set_input")
        .value()
        .CallPacked(packed.data(), static_cast<int>(packed.size()), &result);
    invoke = vm->GetFunction("invoke_stateful").value();
    Run();
    get_output = vm->GetFunction("get_output").value();
    tuple = vm->GetFunction("get_output_arity").value()(name).cast<int>() >= 0;
  }

  void Run() { invoke(name); }
  void Infer() {
    for (std::size_t i = 0; i < arguments.size(); ++i)
      arguments[i].CopyFromBytes(data[i].data(), data[i].size());
    Run();
    const Tensor found = (tuple ? get_output(name, 0) : get_output(name)).cast<Tensor>();
    found.CopyToBytes(output.data(), output.size());
  }

  ffi::Module vm;
  ffi::String name{"main"};
  ffi::Function invoke;
  ffi::Function get_output;
  bool tuple = false;
  std::vector<Tensor> arguments;
  std::vector<Bytes> data;
  Bytes output;
};

// The runner's models run on another thread than this one, so no processor's time would be fair.
double Now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

template <typename Work>
double Microseconds(int batch, Work&& work) {
  const double began = Now();
  for (int i = 0; i < batch; ++i) work();
  return (Now() - began) / batch;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: runner_overhead DIR BATCH ROUNDS [PARAMETER...]\n");
    return 2;
  }
  const std::string directory = argv[1];
  const int batch = std::atoi(argv[2]);
  const int rounds = std::atoi(argv[3]);
  Runner runner(directory);
  runner.Run();
  Direct direct(directory, runner);
  direct.SetInput(directory, std::vector<std::string>(argv + 4, argv + argc));
  for (int i = 0; i < batch; ++i) {  // warm-up
    runner.Infer();
    direct.Infer();
  }
  if (runner.output != direct.output) {
    std::fprintf(stderr, "the two disagree\n");
    return 1;
  }
  for (int round = 0; round < rounds; ++round) {
    const bool first = round % 2 == 0;  // whoever goes first finds other caches
    double run[2], infer[2];
    for (int turn = 0; turn < 2; ++turn) {
      const bool ours = (turn == 0) == first;
      run[ours] = Microseconds(batch, [&] { ours ? runner.Run() : direct.Run(); });
      infer[ours] = Microseconds(batch, [&] { ours ? runner.Infer() : direct.Infer(); });
    }
    std::printf("[%.4f, %.4f, %.4f, %.4f]\n", run[0], run[1], infer[0], infer[1]);
  }
}
