// STAND-IN for Android's libneuralnetworks, to link with: it computes nothing.

#include <android/NeuralNetworks.h>

int ANeuralNetworksModel_create(ANeuralNetworksModel** model) {
  (void)model;
  return ANEURALNETWORKS_BAD_STATE;
}
void ANeuralNetworksModel_free(ANeuralNetworksModel* model) { (void)model; }
int ANeuralNetworksModel_finish(ANeuralNetworksModel* model) {
  (void)model;
  return ANEURALNETWORKS_BAD_STATE;
}
int ANeuralNetworksModel_addOperand(ANeuralNetworksModel* model,
                                    const ANeuralNetworksOperandType* type) {
  (void)model;
  (void)type;
  return ANEURALNETWORKS_BAD_STATE;
}
int ANeuralNetworksModel_setOperandValue(ANeuralNetworksModel* model, int32_t index,
                                         const void* buffer, size_t length) {
  (void)model;
  (void)index;
  (void)buffer;
  (void)length;
  return ANEURALNETWORKS_BAD_STATE;
}
int ANeuralNetworksModel_addOperation(ANeuralNetworksModel* model,
                                      ANeuralNetworksOperationType type, uint32_t inputCount,
                                      const uint32_t* inputs, uint32_t outputCount,
                                      const uint32_t* outputs) {
  (void)model;
  (void)type;
  (void)inputCount;
  (void)inputs;
  (void)outputCount;
  (void)outputs;
  return ANEURALNETWORKS_BAD_STATE;
}
int ANeuralNetworksModel_identifyInputsAndOutputs(ANeuralNetworksModel* model, uint32_t inputCount,
                                                  const uint32_t* inputs, uint32_t outputCount,
                                                  const uint32_t* outputs) {
  (void)model;
  (void)inputCount;
  (void)inputs;
  (void)outputCount;
  (void)outputs;
  return ANEURALNETWORKS_BAD_STATE;
}
int ANeuralNetworksCompilation_create(ANeuralNetworksModel* model,
                                      ANeuralNetworksCompilation** compilation) {
  (void)model;
  (void)compilation;
  return ANEURALNETWORKS_BAD_STATE;
}
int ANeuralNetworksCompilation_setPreference(ANeuralNetworksCompilation* compilation,
                                             int32_t preference) {
  (void)compilation;
  (void)preference;
  return ANEURALNETWORKS_BAD_STATE;
}
int ANeuralNetworksCompilation_finish(ANeuralNetworksCompilation* compilation) {
  (void)compilation;
  return ANEURALNETWORKS_BAD_STATE;
}
int ANeuralNetworksExecution_create(ANeuralNetworksCompilation* compilation,
                                    ANeuralNetworksExecution** execution) {
  (void)compilation;
  (void)execution;
  return ANEURALNETWORKS_BAD_STATE;
}
void ANeuralNetworksExecution_free(ANeuralNetworksExecution* execution) { (void)execution; }
int ANeuralNetworksExecution_setInput(ANeuralNetworksExecution* execution, int32_t index,
                                      const ANeuralNetworksOperandType* type, const void* buffer,
                                      size_t length) {
  (void)execution;
  (void)index;
  (void)type;
  (void)buffer;
  (void)length;
  return ANEURALNETWORKS_BAD_STATE;
}
int ANeuralNetworksExecution_setOutput(ANeuralNetworksExecution* execution, int32_t index,
                                       const ANeuralNetworksOperandType* type, void* buffer,
                                       size_t length) {
  (void)execution;
  (void)index;
  (void)type;
  (void)buffer;
  (void)length;
  return ANEURALNETWORKS_BAD_STATE;
}
int ANeuralNetworksExecution_startCompute(ANeuralNetworksExecution* execution,
                                          ANeuralNetworksEvent** event) {
  (void)execution;
  (void)event;
  return ANEURALNETWORKS_BAD_STATE;
}
int ANeuralNetworksEvent_wait(ANeuralNetworksEvent* event) {
  (void)event;
  return ANEURALNETWORKS_BAD_STATE;
}
void ANeuralNetworksEvent_free(ANeuralNetworksEvent* event) { (void)event; }
