#include "rtvm/aligned_inputs.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

namespace adt::rtvm {

void AlignedInputs::Free::operator()(std::byte* data) const { std::free(data); }

AlignedInputs::AlignedInputs(const NamedArrays& inputs, const Session& session, std::size_t entry)
    : entry_(entry) {
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
    Aligned aligned{array.shape, array.data.size(), {}};
    aligned.data.reset(static_cast<std::byte*>(memory));
    if (!array.data.empty()) std::memcpy(memory, array.data.data(), array.data.size());
    inputs_.push_back(std::move(aligned));
  }
}

void AlignedInputs::Bind(Session* session) const {
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    const Aligned& input = inputs_[i];
    session->BindInput(entry_, i, input.data.get(), input.size,
                       {input.shape.data(), input.shape.size()});
  }
}

}  // namespace adt::rtvm
