// The C interface: inputs, runs and their outputs.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "adt/adt_runner.h"
#include "c_api.h"
#include "executor.h"
#include "parallel.h"
#include "session.h"

namespace {

using adt::c_api::ArraySize;
using adt::c_api::AsyncRun;
using adt::c_api::Guard;
using adt::c_api::Index;
using adt::c_api::Last;
using adt::c_api::MakeTensor;
using adt::c_api::Remember;
using adt::c_api::Require;
using adt::c_api::Shape;

// *work* on the session, alone.
template <typename Work>
adt_status_t WithSession(adt_runner_t* runner, Work&& work) {
  return Guard([&] {
    const std::lock_guard<std::mutex> lock(Require(runner, "runner").mutex);
    work(runner->session);
  });
}

// *work*, which runs the entry, on the handle's executor. A model whose kernels no threads share
// needs none of what an executor has: after its first run the caller's thread runs it, which saves
// two changes of threads.
template <typename Work>
adt_status_t RunSession(adt_runner_t* runner, std::int32_t entry, Work&& work) {
  return Guard([&] {
    adt_runner& r = Require(runner, "runner");
    const std::size_t index = Index(entry, "entry");
    r.session.RequireEntry(index);
    std::atomic<bool>& alone = r.entries[index].alone;
    const auto run = [&] {
      const std::lock_guard<std::mutex> lock(r.mutex);
      const std::uint64_t loops = adt::SharedLoops();
      work(r.session, index);
      alone = r.session.model()->IsPlain() && adt::SharedLoops() == loops;
    };
    if (alone && r.pending == 0 && !adt::Executor::HasSetThreads()) {
      const adt::Alone this_thread;
      run();
    } else {
      r.executor->Run(run);
    }
  });
}

}  // namespace

extern "C" {

adt_status_t adt_runner_set_input(adt_runner_t* runner, std::int32_t entry, std::int32_t input,
                                  const void* data, std::int64_t size) {
  return adt_runner_set_input_shaped(runner, entry, input, data, size, nullptr, 0);
}

adt_status_t adt_runner_set_input_shaped(adt_runner_t* runner, std::int32_t entry,
                                         std::int32_t input, const void* data, std::int64_t size,
                                         const std::int64_t* shape, std::int32_t rank) {
  return WithSession(runner, [&](adt::Session& session) {
    session.SetInput(Index(entry, "entry"), Index(input, "input"), data, ArraySize(data, size),
                     Shape(shape, rank));
  });
}

adt_status_t adt_runner_set_input_tensor(adt_runner_t* runner, std::int32_t entry,
                                         std::int32_t input, adt_tensor_t* tensor) {
  return WithSession(runner, [&](adt::Session& session) {
    session.SetInputTensor(Index(entry, "entry"), Index(input, "input"),
                           Require(tensor, "tensor").tensor);
  });
}

adt_status_t adt_runner_input_tensor(adt_runner_t* runner, std::int32_t entry, std::int32_t input,
                                     const std::int64_t* shape, std::int32_t rank,
                                     adt_tensor_t** out) {
  return MakeTensor(out, [&] {
    const std::lock_guard<std::mutex> lock(Require(runner, "runner").mutex);
    return runner->session.InputTensor(Index(entry, "entry"), Index(input, "input"),
                                       Shape(shape, rank));
  });
}

adt_status_t adt_runner_run(adt_runner_t* runner, std::int32_t entry) {
  return RunSession(runner, entry, [&](adt::Session& session, std::size_t index) {
    session.Start(index);
    session.Wait();
    session.model()->SavePrograms();
  });
}

adt_status_t adt_runner_run_async(adt_runner_t* runner, std::int32_t entry, adt_run_done_t done,
                                  void* data, adt_ticket_t** ticket) {
  if (ticket != nullptr) *ticket = nullptr;
  return Guard([&] {
    const std::size_t index = Index(entry, "entry");
    Require(runner, "runner").session.RequireEntry(index);
    const auto run = std::make_shared<AsyncRun>();
    auto own = std::make_unique<adt_ticket>(adt_ticket{run});
    ++runner->pending;
    runner->executor->Post([=] {
      run->status = Guard([&] {
        const std::lock_guard<std::mutex> lock(runner->mutex);
        runner->session.Start(index, &run->cancelled);
        runner->session.Wait();
        runner->session.model()->SavePrograms();
      });
      if (run->status != ADT_OK) Guard([&] { run->error = Last(); });
      --runner->pending;
      if (done != nullptr) done(data, run->status);
      run->over.Set();
    });
    if (ticket != nullptr) *ticket = own.release();
  });
}

adt_status_t adt_ticket_wait(adt_ticket_t* ticket) {
  AsyncRun* run = nullptr;
  const adt_status_t status = Guard([&] { run = Require(ticket, "ticket").run.get(); });
  if (status != ADT_OK) return status;
  run->over.Wait(0);
  return run->status == ADT_OK ? ADT_OK : Remember(run->status, run->error.text, run->error.remedy);
}

void adt_ticket_cancel(adt_ticket_t* ticket) {
  if (ticket != nullptr) ticket->run->cancelled = true;
}

void adt_ticket_free(adt_ticket_t* ticket) { delete ticket; }

adt_status_t adt_runner_start(adt_runner_t* runner, std::int32_t entry) {
  return RunSession(runner, entry,
                    [](adt::Session& session, std::size_t index) { session.Start(index); });
}

adt_status_t adt_runner_wait(adt_runner_t* runner) {
  return WithSession(runner, [&](adt::Session& session) {
    session.Wait();
    session.model()->SavePrograms();
  });
}

std::int32_t adt_runner_output_shape(adt_runner_t* runner, std::int32_t entry, std::int32_t output,
                                     std::int64_t* shape, std::int32_t capacity) {
  std::int32_t rank = -1;
  const adt_status_t status = WithSession(runner, [&](const adt::Session& session) {
    const auto& tensor = session.Output(Index(entry, "entry"), Index(output, "output"));
    if (capacity > 0) Require(shape, "shape");
    for (std::int32_t i = 0; i < std::min(capacity, tensor->ndim); ++i) shape[i] = tensor->shape[i];
    rank = tensor->ndim;
  });
  return status == ADT_OK ? rank : -1;
}

std::int64_t adt_runner_output_size(adt_runner_t* runner, std::int32_t entry, std::int32_t output) {
  std::int64_t size = -1;
  const adt_status_t status = WithSession(runner, [&](const adt::Session& session) {
    size = static_cast<std::int64_t>(
        session.OutputSize(Index(entry, "entry"), Index(output, "output")));
  });
  return status == ADT_OK ? size : -1;
}

adt_status_t adt_runner_get_output(adt_runner_t* runner, std::int32_t entry, std::int32_t output,
                                   void* data, std::int64_t size) {
  return WithSession(runner, [&](const adt::Session& session) {
    session.GetOutput(Index(entry, "entry"), Index(output, "output"), data, ArraySize(data, size));
  });
}

adt_status_t adt_runner_take_output(adt_runner_t* runner, std::int32_t entry, std::int32_t output,
                                    adt_tensor_t** out) {
  return MakeTensor(out, [&] {
    const std::lock_guard<std::mutex> lock(Require(runner, "runner").mutex);
    return runner->session.TakeOutput(Index(entry, "entry"), Index(output, "output"));
  });
}

}  // extern "C"
