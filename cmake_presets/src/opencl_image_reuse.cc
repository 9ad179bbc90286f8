// What TVM's OpenCL runtime calls in place of clCreateContext(), clCreateBuffer(), clCreateImage()
// and clReleaseMemObject().
//
// For each tensor that a model computes into an image, TVM makes the image in each run and releases
// it afterwards, which drivers answer slowly: with one of them, more slowly than small kernels run.
// Here a released image is kept, and given out again when the same one is asked for.
//
// What used it before is done by then: all commands that use images of a context of one device go
// into one queue, in their order. Images of other contexts are not kept.
#include <CL/cl.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <tuple>
#include <vector>

namespace {

constexpr std::size_t kMostImages = 256;
constexpr std::size_t kMostBytes = std::size_t{128} << 20;  // of images with memory of their own
constexpr std::uint64_t kForgotten = 4096;  // images that others asked for since: not wanted again

/// What an image was asked for with.
struct Request {
  cl_context context;
  cl_mem_flags flags;
  cl_image_format format;
  cl_image_desc about;

  auto Fields() const {
    return std::tie(about.image_width, about.image_height, about.image_array_size, about.buffer,
                    context, flags, format.image_channel_order, format.image_channel_data_type,
                    about.image_type, about.image_depth, about.image_row_pitch,
                    about.image_slice_pitch, about.num_mip_levels, about.num_samples);
  }
  bool operator==(const Request& other) const { return Fields() == other.Fields(); }

  /// Bytes of its own: none for a view of a buffer. TVM's images are of four channels.
  std::size_t Bytes() const {
    if (about.buffer != nullptr) return 0;
    const std::size_t channel = format.image_channel_data_type == CL_HALF_FLOAT ? 2 : 4;
    return 4 * channel * about.image_width * about.image_height *
           std::max<std::size_t>(1, about.image_array_size);
  }
};

class Images {
 public:
  void KnowContext(cl_context context, cl_uint devices) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (devices == 1) {
      of_one_device_.insert(context);
    } else {
      of_one_device_.erase(context);  // another one had the same address
    }
  }

  /// A kept image; null if there is none.
  cl_mem Take(const Request& request) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++asked_;
    for (std::size_t i = kept_.size(); i-- > 0;) {
      if (kept_[i].request == request) return Lend(i);
    }
    return nullptr;
  }

  /// An image that was made may be kept when it is released.
  void Know(cl_mem image, const Request& request) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (of_one_device_.count(request.context) != 0) lent_.insert_or_assign(image, request);
  }

  /// Whether the image was kept instead of being released.
  bool Keep(cl_mem image) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = lent_.find(image);
    if (found == lent_.end()) return false;
    const Request request = found->second;
    lent_.erase(found);
    while (!kept_.empty() && asked_ - kept_.front().since > kForgotten) Release(0);
    if (kept_.size() >= kMostImages || bytes_ + request.Bytes() > kMostBytes) return false;
    kept_.push_back({image, request, asked_});
    bytes_ += request.Bytes();
    return true;
  }

  /// The buffer goes: of its views none may be kept, for another one may get its address.
  void Forget(cl_mem buffer) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (std::size_t i = kept_.size(); i-- > 0;) {
      if (kept_[i].request.about.buffer == buffer) Release(i);
    }
    for (auto view = lent_.begin(); view != lent_.end();) {
      view = view->second.about.buffer == buffer ? lent_.erase(view) : std::next(view);
    }
  }

  /// Whether memory may be free now that was not.
  bool ReleaseAll() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (kept_.empty()) return false;
    while (!kept_.empty()) Release(kept_.size() - 1);
    return true;
  }

 private:
  struct Kept {
    cl_mem image;
    Request request;
    std::uint64_t since;  // how many had been asked for
  };

  cl_mem Lend(std::size_t index) {
    const Kept taken = Drop(index);
    lent_.insert_or_assign(taken.image, taken.request);
    return taken.image;
  }

  void Release(std::size_t index) { clReleaseMemObject(Drop(index).image); }

  Kept Drop(std::size_t index) {
    const Kept dropped = kept_[index];
    kept_.erase(kept_.begin() + static_cast<std::ptrdiff_t>(index));
    bytes_ -= dropped.request.Bytes();
    return dropped;
  }

  std::mutex mutex_;
  std::set<cl_context> of_one_device_;
  std::map<cl_mem, Request> lent_;
  std::vector<Kept> kept_;  // from the first that was released to the last
  std::size_t bytes_ = 0;   // of those
  std::uint64_t asked_ = 0;
};

// Never destroyed: at the end of the process the driver may be gone before.
Images& AllImages() {
  static auto* images = new Images;
  return *images;
}

bool WantsMemory(cl_int code) {
  return code == CL_MEM_OBJECT_ALLOCATION_FAILURE || code == CL_OUT_OF_RESOURCES ||
         code == CL_OUT_OF_HOST_MEMORY;
}

}  // namespace

extern "C" cl_context CL_API_CALL adt_opencl_create_context(
    const cl_context_properties* properties, cl_uint count, const cl_device_id* devices,
    void(CL_CALLBACK* notify)(const char*, const void*, std::size_t, void*), void* data,
    cl_int* code) {
  const cl_context context = clCreateContext(properties, count, devices, notify, data, code);
  if (context != nullptr) AllImages().KnowContext(context, count);
  return context;
}

extern "C" cl_mem CL_API_CALL adt_opencl_create_buffer(cl_context context, cl_mem_flags flags,
                                                       std::size_t size, void* data, cl_int* code) {
  cl_int made = CL_SUCCESS;
  cl_mem buffer = clCreateBuffer(context, flags, size, data, &made);
  if (WantsMemory(made) && AllImages().ReleaseAll()) {
    buffer = clCreateBuffer(context, flags, size, data, &made);
  }
  if (code != nullptr) *code = made;
  return buffer;
}

extern "C" cl_mem CL_API_CALL adt_opencl_create_image(cl_context context, cl_mem_flags flags,
                                                      const cl_image_format* format,
                                                      const cl_image_desc* about, void* data,
                                                      cl_int* code) {
  const Request request{context, flags, *format, *about};
  cl_int made = CL_SUCCESS;
  cl_mem image = data == nullptr ? AllImages().Take(request) : nullptr;
  if (image == nullptr) {
    image = clCreateImage(context, flags, format, about, data, &made);
    if (WantsMemory(made) && AllImages().ReleaseAll()) {
      image = clCreateImage(context, flags, format, about, data, &made);
    }
    if (made == CL_SUCCESS && data == nullptr) AllImages().Know(image, request);
  }
  if (code != nullptr) *code = made;
  return image;
}

// Called by destructors, which end the process when it fails: a lost device keeps its memory.
extern "C" cl_int CL_API_CALL adt_opencl_release_memory(cl_mem memory) {
  if (AllImages().Keep(memory)) return CL_SUCCESS;
  AllImages().Forget(memory);
  clReleaseMemObject(memory);
  return CL_SUCCESS;
}

// For opencl_state.cc.
extern "C" void adt_opencl_release_images() { AllImages().ReleaseAll(); }
