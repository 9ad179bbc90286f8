// STAND-IN for the NDK's header: what TVM's NNAPI runtime uses of it. The numbers of operations are
// not Android's.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ANeuralNetworksModel ANeuralNetworksModel;
typedef struct ANeuralNetworksCompilation ANeuralNetworksCompilation;
typedef struct ANeuralNetworksExecution ANeuralNetworksExecution;
typedef struct ANeuralNetworksEvent ANeuralNetworksEvent;

typedef enum {
  ANEURALNETWORKS_FLOAT32 = 0,
  ANEURALNETWORKS_INT32 = 1,
  ANEURALNETWORKS_TENSOR_FLOAT32 = 3,
  ANEURALNETWORKS_TENSOR_INT32 = 4,
  ANEURALNETWORKS_BOOL = 6,
  ANEURALNETWORKS_TENSOR_FLOAT16 = 8,
  ANEURALNETWORKS_TENSOR_BOOL8 = 9
} OperandCode;

typedef enum {
  ANEURALNETWORKS_ABS,
  ANEURALNETWORKS_ADD,
  ANEURALNETWORKS_BATCH_MATMUL,
  ANEURALNETWORKS_CAST,
  ANEURALNETWORKS_CONV_2D,
  ANEURALNETWORKS_DIV,
  ANEURALNETWORKS_EQUAL,
  ANEURALNETWORKS_EXP,
  ANEURALNETWORKS_FLOOR,
  ANEURALNETWORKS_FULLY_CONNECTED,
  ANEURALNETWORKS_GREATER,
  ANEURALNETWORKS_GREATER_EQUAL,
  ANEURALNETWORKS_GROUPED_CONV_2D,
  ANEURALNETWORKS_LESS,
  ANEURALNETWORKS_LESS_EQUAL,
  ANEURALNETWORKS_LOG,
  ANEURALNETWORKS_LOGISTIC,
  ANEURALNETWORKS_MAXIMUM,
  ANEURALNETWORKS_MAX_POOL_2D,
  ANEURALNETWORKS_MEAN,
  ANEURALNETWORKS_MINIMUM,
  ANEURALNETWORKS_MUL,
  ANEURALNETWORKS_NEG,
  ANEURALNETWORKS_NOT_EQUAL,
  ANEURALNETWORKS_POW,
  ANEURALNETWORKS_RELU,
  ANEURALNETWORKS_RESHAPE,
  ANEURALNETWORKS_RSQRT,
  ANEURALNETWORKS_SOFTMAX,
  ANEURALNETWORKS_SQRT,
  ANEURALNETWORKS_SUB,
  ANEURALNETWORKS_TANH,
  ANEURALNETWORKS_TRANSPOSE
} OperationCode;

typedef enum { ANEURALNETWORKS_FUSED_NONE = 0 } FuseCode;
typedef enum { ANEURALNETWORKS_PREFER_FAST_SINGLE_ANSWER = 1 } PreferenceCode;
typedef enum { ANEURALNETWORKS_NO_ERROR = 0, ANEURALNETWORKS_BAD_STATE = 6 } ResultCode;

typedef int32_t ANeuralNetworksOperationType;

typedef struct ANeuralNetworksOperandType {
  int32_t type;
  uint32_t dimensionCount;
  const uint32_t* dimensions;
  float scale;
  int32_t zeroPoint;
} ANeuralNetworksOperandType;

int ANeuralNetworksModel_create(ANeuralNetworksModel** model);
void ANeuralNetworksModel_free(ANeuralNetworksModel* model);
int ANeuralNetworksModel_finish(ANeuralNetworksModel* model);
int ANeuralNetworksModel_addOperand(ANeuralNetworksModel* model,
                                    const ANeuralNetworksOperandType* type);
int ANeuralNetworksModel_setOperandValue(ANeuralNetworksModel* model, int32_t index,
                                         const void* buffer, size_t length);
int ANeuralNetworksModel_addOperation(ANeuralNetworksModel* model,
                                      ANeuralNetworksOperationType type, uint32_t inputCount,
                                      const uint32_t* inputs, uint32_t outputCount,
                                      const uint32_t* outputs);
int ANeuralNetworksModel_identifyInputsAndOutputs(ANeuralNetworksModel* model, uint32_t inputCount,
                                                  const uint32_t* inputs, uint32_t outputCount,
                                                  const uint32_t* outputs);
int ANeuralNetworksCompilation_create(ANeuralNetworksModel* model,
                                      ANeuralNetworksCompilation** compilation);
int ANeuralNetworksCompilation_setPreference(ANeuralNetworksCompilation* compilation,
                                             int32_t preference);
int ANeuralNetworksCompilation_finish(ANeuralNetworksCompilation* compilation);
int ANeuralNetworksExecution_create(ANeuralNetworksCompilation* compilation,
                                    ANeuralNetworksExecution** execution);
void ANeuralNetworksExecution_free(ANeuralNetworksExecution* execution);
int ANeuralNetworksExecution_setInput(ANeuralNetworksExecution* execution, int32_t index,
                                      const ANeuralNetworksOperandType* type, const void* buffer,
                                      size_t length);
int ANeuralNetworksExecution_setOutput(ANeuralNetworksExecution* execution, int32_t index,
                                       const ANeuralNetworksOperandType* type, void* buffer,
                                       size_t length);
int ANeuralNetworksExecution_startCompute(ANeuralNetworksExecution* execution,
                                          ANeuralNetworksEvent** event);
int ANeuralNetworksEvent_wait(ANeuralNetworksEvent* event);
void ANeuralNetworksEvent_free(ANeuralNetworksEvent* event);

#ifdef __cplusplus
}
#endif
