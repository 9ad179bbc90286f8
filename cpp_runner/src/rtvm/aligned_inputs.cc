#include "rtvm/aligned_inputs.h"

#include <tvm/ffi/dtype.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "error.h"
#include "external_memory.h"

namespace adt::rtvm {

AlignedInputs::AlignedInputs(const NamedArrays& inputs, const Session& session, std::size_t entry)
    : entry_(entry) {
  if (session.dl_device().device_type != kDLCPU) {
    throw Error(ErrorKind::kUsage,
                "the inputs of a model on " + session.model()->device() +
                    " cannot lie in the program's memory",
                "Let them be copied (leave out --zero-copy).");
  }
  const auto alignment = static_cast<std::size_t>(session.package().alignment);
  for (const TensorSpec& spec : session.package().entries[entry].inputs) {
    const auto found = std::find_if(inputs.begin(), inputs.end(),
                                    [&](const NamedArray& i) { return i.name == spec.name; });
    const Array& array = found->array;
    void* memory = nullptr;
    if (posix_memalign(&memory, std::max(alignment, sizeof(void*)),
                       std::max<std::size_t>(array.data.size(), 1)) != 0) {
      throw std::bad_alloc();
    }
    if (!array.data.empty()) std::memcpy(memory, array.data.data(), array.data.size());
    inputs_.push_back(WrapMemory(memory, tvm::ffi::Shape(array.shape),
                                 tvm::ffi::StringToDLDataType(tvm::ffi::String(array.dtype)),
                                 DLDevice{kDLCPU, 0}, [memory] { std::free(memory); }));
  }
}

void AlignedInputs::Set(Session* session) const {
  for (std::size_t i = 0; i < inputs_.size(); ++i) session->SetInputTensor(entry_, i, inputs_[i]);
}

}  // namespace adt::rtvm
