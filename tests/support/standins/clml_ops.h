/* STAND-IN, not the CLML SDK: declares what TVM's CLML runtime uses, with numbers of its own, for
 * syntax checks. */
#pragma once
#include <CL/cl.h>

#define CL_QCOM_ML_OPS_H_MAJOR_VERSION 4
#define CL_QCOM_ML_OPS_H_MINOR_VERSION 0
#define CL_ML_TENSOR_MAX_SPATIAL_DIMS_QCOM 4

enum standin_words {
  CL_QUEUE_RECORDABLE_QCOM = 1,
  CL_DEVICE_ONCHIP_GLOBAL_MEM_SIZE_QCOM,
  CL_MEM_ONCHIP_GLOBAL_QCOM,
  CL_MEM_ONCHIP_GLOBAL_OFFSET_QCOM,
  CL_TENSOR_UNUSED_QCOM,
  CL_TENSOR_DIMENSIONS_4D_QCOM,
  CL_ML_BATCH_NORM_OP_EPSILON_QCOM,
  CL_ML_OP_PROPERTY_LIST_END_QCOM,
  CL_ML_TENSOR_PROPERTY_DYNAMIC_DIMENSIONS_QCOM,
  CL_ML_TENSOR_PROPERTY_QUANTIZATION_QCOM,
  CL_ML_TENSOR_PROPERTY_LIST_END_QCOM,
  CL_ML_TENSOR_DYNAMIC_C_DIMENSION_QCOM,
  CL_ML_TENSOR_DYNAMIC_H_DIMENSION_QCOM,
  CL_ML_TENSOR_DYNAMIC_W_DIMENSION_QCOM,
  CL_UPDATE_ML_OP_PROPERTY_DYNAMIC_TENSORS_QCOM,
  CL_UPDATE_ML_OP_PROPERTY_LIST_END_QCOM,
  CL_ML_QUANTIZED_4_BIT_AS_UINT32_QCOM,
  CL_ML_QUANTIZATION_DESC_QCOM,
  CL_QUANTIZATION_MODE_4_BIT_AS_UINT32_QCOM,
  CL_CLIP_BY_VALUE_QCOM,
  CL_PROPAGATE_NAN_QCOM,
  CL_BATCHNORM_MODE_SPATIAL_QCOM,
  CL_POOLING_MODE_MAX_QCOM,
  CL_POOLING_MODE_AVERAGE_EXCLUDE_PADDING_QCOM,
  CL_SOFTMAX_ALGORITHM_ACCURATE_QCOM
};
typedef enum { CL_ACTIVATION_RELU, CL_ACTIVATION_RELU6 } cl_activation_function_qcom;
typedef enum {
  CL_ARITHMETIC_MODE_FP16_QCOM,
  CL_ARITHMETIC_MODE_FP16_ACC32_QCOM,
  CL_ARITHMETIC_MODE_FP32_QCOM
} cl_arithmetic_mode_qcom;
typedef enum {
  CL_CONVOLUTION_MODE_CONVOLUTION_QCOM,
  CL_CONVOLUTION_MODE_DEPTHWISE_QCOM,
  CL_CONVOLUTION_MODE_TRANSPOSE_QCOM
} cl_convolution_mode_qcom;
typedef enum {
  CL_FC_WEIGHT_TRANSFORM_NONE_QCOM,
  CL_FC_WEIGHT_TRANSFORM_TRANSPOSE_QCOM
} cl_fc_weight_transform_qcom;
typedef enum {
  CL_GEMM_TRANSFORM_NONE_QCOM,
  CL_GEMM_TRANSFORM_TRANSPOSE_QCOM
} cl_gemm_transform_qcom;
typedef enum {
  CL_PAD_MODE_CONSTANT_QCOM,
  CL_PAD_MODE_REFLECT_QCOM,
  CL_PAD_MODE_SYMMETRIC_QCOM
} cl_pad_mode_qcom;
typedef enum { CL_SOFTMAX_MODE_SPATIAL_QCOM } cl_softmax_mode_qcom;
typedef enum {
  CL_TENSOR_LAYOUT_NCHW_QCOM,
  CL_TENSOR_LAYOUT_NHWC_QCOM,
  CL_TENSOR_LAYOUT_OPTIMAL_QCOM
} cl_ml_tensor_layout_qcom;
typedef enum {
  CL_TENSOR_OP_ADD_QCOM,
  CL_TENSOR_OP_DIV_QCOM,
  CL_TENSOR_OP_MAX_QCOM,
  CL_TENSOR_OP_MIN_QCOM,
  CL_TENSOR_OP_MUL_QCOM,
  CL_TENSOR_OP_SUB_QCOM
} cl_binary_op_qcom;
typedef enum {
  CL_TENSOR_USAGE_INVALID_QCOM,
  CL_TENSOR_USAGE_UNUSED_QCOM,
  CL_TENSOR_USAGE_PARAMETER_QCOM,
  CL_TENSOR_USAGE_CNN_QCOM,
  CL_TENSOR_USAGE_TNN_QCOM
} cl_ml_tensor_usage_qcom;

typedef struct standin_op* cl_ml_op_qcom;
typedef struct standin_tensor* cl_ml_tensor_qcom;
typedef struct standin_set* cl_ml_tensor_mem_desc_set_qcom;
typedef struct standin_cache* cl_ml_tuningcache_qcom;
typedef struct standin_recording* cl_recording_qcom;
typedef cl_ulong cl_ml_op_properties_qcom;
typedef cl_ulong cl_ml_tensor_properties_qcom;
typedef cl_ulong cl_update_ml_op_properties_qcom;
struct standin_value {
  union {
    cl_float f;
  } value;
  cl_channel_type type;
};
struct standin_pair {
  cl_uint value[2];
};

typedef struct {
  cl_channel_type type;
  cl_ml_tensor_layout_qcom layout;
  cl_uint n, c, h, w, d;
  cl_uint num_dimensions;
  cl_uint padding[2];
} cl_ml_tensor_desc_qcom;
typedef struct {
  cl_ml_tensor_qcom tensor;
  cl_mem memory;
} cl_ml_tensor_memory_desc_qcom;
typedef struct {
  cl_uint id, mode, count;
  cl_ml_tensor_qcom* scales;
  void* next;
} cl_ml_quantization_desc_qcom;
typedef struct {
  cl_activation_function_qcom op;
  cl_uint nan;
  cl_arithmetic_mode_qcom mode;
} cl_ml_op_activation_desc_qcom;
typedef struct {
  cl_uint spatial;
  cl_arithmetic_mode_qcom mode;
} cl_ml_op_batchnorm_desc_qcom;
typedef struct {
  cl_binary_op_qcom op;
  standin_value a, b, c;
  cl_arithmetic_mode_qcom mode;
} cl_ml_op_binary_desc_qcom;
typedef struct {
  cl_uint op;
  standin_value high, low;
  cl_arithmetic_mode_qcom mode;
} cl_ml_op_clip_desc_qcom;
typedef struct {
  cl_uint axis, count;
  cl_arithmetic_mode_qcom mode;
} cl_ml_op_concat_desc_qcom;
typedef struct {
  cl_convolution_mode_qcom op;
  cl_uint groups, dimensions;
  standin_pair before, after, strides, dilation;
  cl_uint reserved;
  cl_arithmetic_mode_qcom mode;
} cl_ml_op_convolution_desc_qcom;
typedef struct {
  cl_uint block;
  cl_arithmetic_mode_qcom mode;
} cl_ml_op_depthtospace_desc_qcom;
typedef struct {
  cl_uint axis;
  cl_fc_weight_transform_qcom weight;
  cl_arithmetic_mode_qcom mode;
} cl_ml_op_fully_connected_desc_qcom;
typedef struct {
  cl_uint m, n, k;
  cl_gemm_transform_qcom a, b;
  standin_value alpha, beta;
  cl_arithmetic_mode_qcom mode;
} cl_ml_op_gemm_desc_qcom;
typedef struct {
  cl_pad_mode_qcom op;
  standin_pair value;
  cl_uint padding[8];
  cl_arithmetic_mode_qcom mode;
} cl_ml_op_pad_desc_qcom;
typedef struct {
  cl_uint op, dimensions;
  standin_pair before, after, strides, window;
  cl_uint nan;
  cl_arithmetic_mode_qcom mode;
} cl_ml_op_pooling_desc_qcom;
typedef struct {
  cl_bool align, centers;
  cl_arithmetic_mode_qcom mode;
} cl_ml_op_resize_bilinear_desc_qcom;
typedef struct {
  cl_uint op;
  cl_softmax_mode_qcom softmax;
  cl_arithmetic_mode_qcom mode;
} cl_ml_op_softmax_desc_qcom;

// Takes whatever it is given: how the SDK's functions are called is not checked.
struct standin_function {
  template <class... Arguments>
  cl_int operator()(Arguments&&...) const;
};
struct standin_interface {
  standin_function clCreateMLOpActivationForwardQCOM, clCreateMLOpBatchNormForwardQCOM,
      clCreateMLOpBinaryQCOM, clCreateMLOpClipQCOM, clCreateMLOpConcatQCOM,
      clCreateMLOpConvolutionForwardQCOM, clCreateMLOpDepthToSpaceQCOM,
      clCreateMLOpFullyConnectedQCOM, clCreateMLOpFusedConvolutionActivationForwardQCOM,
      clCreateMLOpFusedConvolutionBatchNormActivationForwardQCOM,
      clCreateMLOpFusedConvolutionBatchNormForwardQCOM, clCreateMLOpGemmQCOM, clCreateMLOpPadQCOM,
      clCreateMLOpPoolingForwardQCOM, clCreateMLOpReshapeQCOM, clCreateMLOpResizeBilinearQCOM,
      clCreateMLOpSoftmaxQCOM, clCreateMLTensorMemoryDescriptorSetQCOM, clCreateMLTensorQCOM,
      clCreateMLTensorWithUsageQCOM, clCreateMLTuningCacheQCOM, clEnqueueCopyMLTensorDataQCOM,
      clEnqueueMLOpQCOM, clEnqueueReadMLTensorDataQCOM, clEnqueueRecordingMLOpQCOM,
      clEnqueueWriteMLTensorDataQCOM, clGetMLOpDeviceMemoryRequirementsQCOM,
      clGetMLTensorMemorySizeQCOM, clLoadMLTuningCacheQCOM, clReleaseMLOpQCOM,
      clReleaseMLTensorMemoryDescriptorSetQCOM, clReleaseMLTensorQCOM, clReleaseMLTuningCacheQCOM,
      clSaveMLTuningCacheQCOM, clSetMLTensorDimensionsQCOM, clTuneMLOpQCOM,
      clUpdateMLOpDeviceMemoryQCOM, clUpdateMLOpQCOM, clUpdateMLTensorMemoryDescriptorSetQCOM;
};
typedef standin_interface CLMLInterfaceV1QCOM;
typedef standin_interface CLMLInterfaceV2QCOM;
typedef standin_interface CLMLInterfaceV3QCOM;
typedef standin_interface CLMLInterfaceV4QCOM;
typedef standin_interface CLMLInterfaceV5QCOM;
static const standin_function clQueryMLInterfaceVersionsQCOM, clGetMLInterfaceQCOM;

cl_recording_qcom clNewRecordingQCOM(cl_command_queue queue, cl_int* error);
cl_int clEndRecordingQCOM(cl_recording_qcom recording);
