// What TVM's OpenCL runtime calls in place of clGetDeviceInfo().
//
// It makes its images, which are image arrays, from buffers wherever it finds
// cl_khr_image2d_from_buffer. That extension is about single images; of arrays, Qualcomm's driver
// alone does so, and others answer with an error
// (-65, Intel's). They must not appear to have it: TVM then makes images of their own.
#include <CL/cl.h>

#include <cstring>

namespace {

constexpr char kExtension[] = "cl_khr_image2d_from_buffer";

bool Qualcomms(cl_device_id device) {
  char vendor[256] = "";
  clGetDeviceInfo(device, CL_DEVICE_VENDOR, sizeof(vendor) - 1, vendor, nullptr);
  return std::strstr(vendor, "QUALCOMM") != nullptr;
}

}  // namespace

extern "C" cl_int CL_API_CALL adt_opencl_device_info(cl_device_id device, cl_device_info what,
                                                     size_t room, void* to, size_t* size) {
  const cl_int code = clGetDeviceInfo(device, what, room, to, size);
  if (what == CL_DEVICE_EXTENSIONS && code == CL_SUCCESS && to != nullptr && !Qualcomms(device)) {
    char* text = static_cast<char*>(to);  // its length stays: the name is blotted out
    for (char* found = text; (found = std::strstr(found, kExtension)) != nullptr;) {
      std::memset(found, ' ', sizeof(kExtension) - 1);
    }
  }
  return code;
}
