// What TVM's OpenCL runtime calls in place of functions whose failure it does not stand: of a lost
// device, all of them fail.
//
// Destructors release kernels and programs, and TVM throws where that fails: the process would end.
// What a driver does not release is lost with its device. And TVM takes what clGetProgramInfo() and
// clGetProgramBuildInfo() give without looking whether they gave anything.
#include <CL/cl.h>
#include <tvm/ffi/error.h>

extern "C" cl_int CL_API_CALL adt_opencl_release_kernel(cl_kernel kernel) {
  clReleaseKernel(kernel);
  return CL_SUCCESS;
}

extern "C" cl_int CL_API_CALL adt_opencl_release_program(cl_program program) {
  clReleaseProgram(program);
  return CL_SUCCESS;
}

extern "C" cl_int CL_API_CALL adt_opencl_program_info(cl_program program, cl_program_info what,
                                                      size_t room, void* to, size_t* size) {
  const cl_int code = clGetProgramInfo(program, what, room, to, size);
  if (code != CL_SUCCESS) {
    TVM_FFI_THROW(InternalError) << "OpenCL does not give a program's binary, code=" << code;
  }
  return code;
}

extern "C" cl_int CL_API_CALL adt_opencl_build_info(cl_program program, cl_device_id device,
                                                    cl_program_build_info what, size_t room,
                                                    void* to, size_t* size) {
  const cl_int code = clGetProgramBuildInfo(program, device, what, room, to, size);
  if (code != CL_SUCCESS && size != nullptr) *size = 0;  // no log
  return code;
}
