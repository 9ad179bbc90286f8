"""Stand-ins for cuDNN and cuBLAS, which compute in the memory of the stand-in for the driver: this machine's.

They refuse what the real ones do (a bias without an activation has one algorithm), round float32 to TF32
unless they are told not to, and write a line for each call to the file that ``CUDA_STANDIN_LOG`` names.
``CUDNN_STANDIN_PLAIN`` has cuDNN refuse calls of several operators.
"""

import subprocess
from pathlib import Path

COMMON = r"""
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FLOAT = 0, HALF = 2 };
static float get(const void* data, int type, long at) {
  return type == HALF ? (float)((const _Float16*)data)[at] : ((const float*)data)[at];
}
static void set(void* data, int type, long at, float value) {
  if (type == HALF) ((_Float16*)data)[at] = (_Float16)value; else ((float*)data)[at] = value;
}
static float tf32(float value) {
  uint32_t bits; memcpy(&bits, &value, 4);
  bits = (bits + 0x1000) & 0xffffe000u; memcpy(&value, &bits, 4); return value;
}
static void note(const char* format, ...) {
  FILE* log = fopen(getenv("CUDA_STANDIN_LOG"), "a");
  va_list arguments; va_start(arguments, format); vfprintf(log, format, arguments); va_end(arguments);
  fclose(log);
}
"""
CUDNN = (
    COMMON
    + r"""
enum { SUCCESS = 0, BAD_PARAM = 2000, NOT_SUPPORTED = 3000 };
enum { DEFAULT_MATH = 0, TENSOR_OP_MATH = 1, FMA_MATH = 3, RELU = 1, IDENTITY = 5, PRECOMP = 1, WINOGRAD = 6 };
typedef struct { int type, n, c, h, w; } Tensor;
typedef struct { int pad[2], stride[2], dilation[2], groups, math; } Convolution;
typedef struct { int algorithm, status; float ms; size_t bytes; int determinism, math, reserved[3]; } Performance;

const char* cudnnGetErrorString(int status) { return status == NOT_SUPPORTED ? "NOT SUPPORTED" : "BAD PARAM"; }
int cudnnCreate(void** handle) { *handle = calloc(1, 8); note("cudnn create\n"); return SUCCESS; }
int cudnnDestroy(void* handle) { free(handle); note("cudnn destroy\n"); return SUCCESS; }
int cudnnSetStream(void* handle, void* stream) { return SUCCESS; }
#define DESCRIPTOR(kind, type) \
  int cudnnCreate##kind##Descriptor(void** d) { *d = calloc(1, sizeof(type)); return SUCCESS; } \
  int cudnnDestroy##kind##Descriptor(void* d) { free(d); return SUCCESS; }
DESCRIPTOR(Tensor, Tensor)
DESCRIPTOR(Filter, Tensor)
DESCRIPTOR(Convolution, Convolution)
DESCRIPTOR(Activation, int)
int cudnnSetTensor4dDescriptor(Tensor* t, int format, int type, int n, int c, int h, int w) {
  *t = (Tensor){type, n, c, h, w}; return format == 0 ? SUCCESS : BAD_PARAM;
}
int cudnnSetFilter4dDescriptor(Tensor* t, int type, int format, int k, int c, int h, int w) {
  *t = (Tensor){type, k, c, h, w}; return format == 0 ? SUCCESS : BAD_PARAM;
}
int cudnnSetConvolution2dDescriptor(Convolution* c, int ph, int pw, int sh, int sw, int dh, int dw, int mode,
                                    int compute) {
  *c = (Convolution){{ph, pw}, {sh, sw}, {dh, dw}, 1, DEFAULT_MATH};
  return mode == 1 && compute == FLOAT ? SUCCESS : BAD_PARAM;
}
int cudnnSetConvolutionGroupCount(Convolution* c, int groups) { c->groups = groups; return SUCCESS; }
int cudnnSetConvolutionMathType(Convolution* c, int math) { c->math = math; return SUCCESS; }
int cudnnSetActivationDescriptor(int* a, int mode, int nan, double bound) { *a = mode; return SUCCESS; }
int cudnnFindConvolutionForwardAlgorithm(void* handle, Tensor* x, Tensor* w, Convolution* c, Tensor* y, int room,
                                         int* count, Performance* found) {
  int math = c->math == FMA_MATH ? FMA_MATH : TENSOR_OP_MATH;
  note("cudnn find\n");
  found[0] = (Performance){7, SUCCESS, 0.1f, (size_t)1 << 33, 0, math};
  found[1] = (Performance){WINOGRAD, SUCCESS, 0.2f, 4096, 0, math};
  found[2] = (Performance){PRECOMP, SUCCESS, 0.3f, 256, 0, math};
  found[3] = (Performance){0, NOT_SUPPORTED, -1, 0, 0, math};
  *count = 4;
  return SUCCESS;
}
static int output(int in, int pad, int size, int dilation, int stride) {
  return (in + 2 * pad - dilation * (size - 1) - 1) / stride + 1;
}
static int convolve(Tensor* xd, const void* x, Tensor* wd, const void* w, Convolution* c, size_t room, Tensor* yd,
                    float* y) {
  int rounded = xd->type == FLOAT && c->math != FMA_MATH;
  if (yd->h != output(xd->h, c->pad[0], wd->h, c->dilation[0], c->stride[0]) ||
      yd->w != output(xd->w, c->pad[1], wd->w, c->dilation[1], c->stride[1]) || yd->c != wd->n ||
      xd->c != wd->c * c->groups || room == 0)
    return BAD_PARAM;
  long at = 0;
  for (int n = 0; n < yd->n; ++n) for (int k = 0; k < yd->c; ++k)
    for (int i = 0; i < yd->h; ++i) for (int j = 0; j < yd->w; ++j) {
      double sum = 0;
      int first = k / (wd->n / c->groups) * wd->c;
      for (int d = 0; d < wd->c; ++d) for (int r = 0; r < wd->h; ++r) for (int s = 0; s < wd->w; ++s) {
        int row = i * c->stride[0] - c->pad[0] + r * c->dilation[0];
        int column = j * c->stride[1] - c->pad[1] + s * c->dilation[1];
        if (row < 0 || row >= xd->h || column < 0 || column >= xd->w) continue;
        float a = get(x, xd->type, (((long)n * xd->c + first + d) * xd->h + row) * xd->w + column);
        float b = get(w, xd->type, (((long)k * wd->c + d) * wd->h + r) * wd->w + s);
        sum += rounded ? (double)tf32(a) * tf32(b) : (double)a * b;
      }
      y[at++] = (float)sum;
    }
  return SUCCESS;
}
int cudnnConvolutionForward(void* handle, const float* alpha, Tensor* xd, const void* x, Tensor* wd, const void* w,
                            Convolution* c, int algorithm, void* workspace, size_t room, const float* beta,
                            Tensor* yd, void* y) {
  long size = (long)yd->n * yd->c * yd->h * yd->w;
  float* sums = malloc(size * sizeof(float));
  int status = convolve(xd, x, wd, w, c, room, yd, sums);
  for (long i = 0; i < size && status == SUCCESS; ++i) set(y, yd->type, i, *alpha * sums[i]);
  free(sums);
  note("cudnn convolution %d\n", algorithm);
  return status;
}
int cudnnConvolutionBiasActivationForward(void* handle, const float* alpha, Tensor* xd, const void* x, Tensor* wd,
                                          const void* w, Convolution* c, int algorithm, void* workspace, size_t room,
                                          const float* alpha2, Tensor* zd, const void* z, Tensor* bd,
                                          const void* bias, int* activation, Tensor* yd, void* y) {
  if (getenv("CUDNN_STANDIN_PLAIN") || (*activation == IDENTITY && algorithm != PRECOMP)) return NOT_SUPPORTED;
  long size = (long)yd->n * yd->c * yd->h * yd->w, plane = (long)yd->h * yd->w;
  float* sums = malloc(size * sizeof(float));
  int status = convolve(xd, x, wd, w, c, room, yd, sums);
  for (long i = 0; i < size && status == SUCCESS; ++i) {
    float value = *alpha * sums[i] + (*alpha2 != 0 ? *alpha2 * get(z, zd->type, i) : 0);
    value += get(bias, bd->type, i / plane % yd->c);
    set(y, yd->type, i, *activation == RELU && value < 0 ? 0 : value);
  }
  free(sums);
  note("cudnn fused %d%s%s\n", algorithm, *alpha2 != 0 ? " add" : "", *activation == RELU ? " relu" : "");
  return status;
}
int cudnnAddTensor(void* handle, const float* alpha, Tensor* ad, const void* a, const float* beta, Tensor* yd, void* y) {
  long size = (long)yd->n * yd->c * yd->h * yd->w, plane = (long)yd->h * yd->w;
  for (long i = 0; i < size; ++i) {
    float added = get(a, ad->type, ad->h == yd->h && ad->w == yd->w && ad->n == yd->n ? i : i / plane % yd->c);
    set(y, yd->type, i, *alpha * added + *beta * get(y, yd->type, i));
  }
  note("cudnn add\n");
  return SUCCESS;
}
int cudnnActivationForward(void* handle, int* activation, const float* alpha, Tensor* xd, const void* x,
                           const float* beta, Tensor* yd, void* y) {
  long size = (long)yd->n * yd->c * yd->h * yd->w;
  for (long i = 0; i < size; ++i) { float v = get(x, xd->type, i); set(y, yd->type, i, v < 0 ? 0 : v); }
  note("cudnn activation\n");
  return *activation == RELU ? SUCCESS : BAD_PARAM;
}
"""
)
CUBLAS = (
    COMMON
    + r"""
enum { SUCCESS = 0, INVALID = 7, COMPUTE_32F = 68, COMPUTE_TF32 = 77 };
int cublasCreate_v2(void** handle) { *handle = calloc(1, 8); note("cublas create\n"); return SUCCESS; }
int cublasDestroy_v2(void* handle) { free(handle); note("cublas destroy\n"); return SUCCESS; }
int cublasSetStream_v2(void* handle, void* stream) { return SUCCESS; }
int cublasSetWorkspace_v2(void* handle, void* workspace, size_t bytes) { return workspace ? SUCCESS : INVALID; }
/* Matrices by columns, neither transposed. */
int cublasGemmStridedBatchedEx(void* handle, int ta, int tb, int m, int n, int k, const float* alpha, const void* a,
                               int at, int lda, long long step_a, const void* b, int bt, int ldb, long long step_b,
                               const float* beta, void* c, int ct, int ldc, long long step_c, int count, int compute,
                               int algorithm) {
  int rounded = compute == COMPUTE_TF32 && at == FLOAT;
  if (ta || tb || lda < m || ldb < k || ldc < m || algorithm != -1 || (compute != COMPUTE_32F && !rounded))
    return INVALID;
  for (int g = 0; g < count; ++g) for (int j = 0; j < n; ++j) for (int i = 0; i < m; ++i) {
    double sum = 0;
    for (int p = 0; p < k; ++p) {
      float x = get(a, at, g * step_a + (long)p * lda + i), y = get(b, bt, g * step_b + (long)j * ldb + p);
      sum += rounded ? (double)tf32(x) * tf32(y) : (double)x * y;
    }
    set(c, ct, g * step_c + (long)j * ldc + i, *alpha * (float)sum);
  }
  note("cublas %d products\n", count);
  return SUCCESS;
}
int cublasGemmEx(void* handle, int ta, int tb, int m, int n, int k, const float* alpha, const void* a, int at,
                 int lda, const void* b, int bt, int ldb, const float* beta, void* c, int ct, int ldc, int compute,
                 int algorithm) {
  return cublasGemmStridedBatchedEx(handle, ta, tb, m, n, k, alpha, a, at, lda, 0, b, bt, ldb, 0, beta, c, ct, ldc, 0,
                                    1, compute, algorithm);
}
"""
)


def make_libraries(directory: Path) -> None:
    """Compile both stand-ins into *directory*."""
    for name, text in (("libcudnn.so.9", CUDNN), ("libcublas.so.13", CUBLAS)):
        source = directory / f"{name}.c"
        source.write_text(text)
        subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-w", source, "-o", directory / name], check=True)
