/* How OpenCL's clGet…Info answer: in functions whose last parameters are room, value and real. */
#include <CL/cl.h>
#include <string.h>

static cl_int give(const void* from, size_t size, size_t room, void* value, size_t* real) {
  if (real) *real = size;
  if (!value) return CL_SUCCESS;
  if (room < size) return CL_INVALID_VALUE;
  memcpy(value, from, size);
  return CL_SUCCESS;
}
#define TEXT(t) return give(t, strlen(t) + 1, room, value, real)
#define NUMBER(type, n)                              \
  do {                                               \
    type x_ = (n);                                   \
    return give(&x_, sizeof(x_), room, value, real); \
  } while (0)
