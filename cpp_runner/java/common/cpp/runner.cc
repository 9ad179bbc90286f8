// The native methods of NativeRunner, each on one or two functions of libadt_runner. Nothing here
// keeps an object or starts a thread, or calls Java, but for a BuildProgress; an error is a status,
// 0 or a null pointer, and Java asks for its text. Text is UTF-8 with a zero at its end.

#include <adt/adt_runner.h>
#include <jni.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#define NATIVE(type, method) JNIEXPORT type JNICALL Java_org_adt_runtime_NativeRunner_##method

namespace {

static_assert(std::is_same_v<jlong, std::int64_t>, "a jlong[] is an array of extents");
static_assert(std::is_same_v<jint, std::int32_t>, "a jint is a number, count or status");

adt_runner_t* Runner(jlong handle) {
  return reinterpret_cast<adt_runner_t*>(static_cast<std::uintptr_t>(handle));
}

adt_ticket_t* Ticket(jlong handle) {
  return reinterpret_cast<adt_ticket_t*>(static_cast<std::uintptr_t>(handle));
}

adt_tensor_t* Tensor(jlong handle) {
  return reinterpret_cast<adt_tensor_t*>(static_cast<std::uintptr_t>(handle));
}

jlong Handle(const void* object) {
  return static_cast<jlong>(reinterpret_cast<std::uintptr_t>(object));
}

// A byte[] while a function uses it as text; a null array is a null pointer.
class Text {
 public:
  Text(JNIEnv* env, jbyteArray array)
      : env_(env),
        array_(array),
        bytes_(array == nullptr ? nullptr : env->GetByteArrayElements(array, nullptr)) {}
  ~Text() {
    if (bytes_ != nullptr) env_->ReleaseByteArrayElements(array_, bytes_, JNI_ABORT);
  }
  Text(const Text&) = delete;
  Text& operator=(const Text&) = delete;

  // False: Java has no memory left, and an exception waits for it.
  bool good() const { return array_ == nullptr || bytes_ != nullptr; }
  const char* get() const { return reinterpret_cast<const char*>(bytes_); }

 private:
  JNIEnv* env_;
  jbyteArray array_;
  jbyte* bytes_;
};

// A long[] while a function uses it; a null array has no extents.
class Extents {
 public:
  Extents(JNIEnv* env, jlongArray array)
      : env_(env),
        array_(array),
        extents_(array == nullptr ? nullptr : env->GetLongArrayElements(array, nullptr)),
        rank_(array == nullptr ? 0 : env->GetArrayLength(array)) {}
  ~Extents() {
    if (extents_ != nullptr) env_->ReleaseLongArrayElements(array_, extents_, JNI_ABORT);
  }
  Extents(const Extents&) = delete;
  Extents& operator=(const Extents&) = delete;

  bool good() const { return array_ == nullptr || extents_ != nullptr; }
  const std::int64_t* get() const { return extents_; }
  std::int32_t rank() const { return rank_; }

 private:
  JNIEnv* env_;
  jlongArray array_;
  jlong* extents_;
  jsize rank_;
};

// Null for a null pointer, or when Java has no memory left.
jbyteArray Bytes(JNIEnv* env, const char* text) {
  if (text == nullptr) return nullptr;
  const auto size = static_cast<jsize>(std::strlen(text));
  jbyteArray array = env->NewByteArray(size);
  if (array != nullptr) {
    env->SetByteArrayRegion(array, 0, size, reinterpret_cast<const jbyte*>(text));
  }
  return array;
}

jlongArray Longs(JNIEnv* env, const std::int64_t* values, std::int32_t count) {
  jlongArray array = env->NewLongArray(count);
  if (array != nullptr) env->SetLongArrayRegion(array, 0, count, values);
  return array;
}

// What *ask*, adt_runner_input_info or adt_runner_output_info, knows of a tensor.
class Info {
 public:
  template <typename Ask>
  Info(Ask ask, jlong runner, jint entry, jint index) {
    info_.struct_size = static_cast<std::uint32_t>(sizeof(info_));
    known_ = ask(Runner(runner), entry, index, &info_) == ADT_OK;
  }

  jbyteArray name(JNIEnv* env) const { return known_ ? Bytes(env, info_.name) : nullptr; }
  jbyteArray type(JNIEnv* env) const { return known_ ? Bytes(env, info_.dtype) : nullptr; }
  jlongArray shape(JNIEnv* env) const {
    return known_ ? Longs(env, info_.shape, info_.rank) : nullptr;
  }

 private:
  adt_tensor_info_t info_{};
  bool known_ = false;
};

std::uintptr_t Address(JNIEnv* env, jobject buffer) {
  return reinterpret_cast<std::uintptr_t>(env->GetDirectBufferAddress(buffer));
}

std::uintptr_t End(JNIEnv* env, jobject buffer) {
  return Address(env, buffer) + static_cast<std::uintptr_t>(env->GetDirectBufferCapacity(buffer));
}

bool IsCpu(const char* device) { return std::strcmp(device, "cpu") == 0; }

bool IsAligned(adt_runner_t* runner, std::uintptr_t address) {
  return address % static_cast<std::uintptr_t>(adt_runner_alignment(runner)) == 0;
}

// A BuildProgress while a package is loaded; a null one is not called.
class BuildProgress {
 public:
  BuildProgress(JNIEnv* env, jobject listener)
      : env_(env),
        listener_(listener),
        method_(listener == nullptr
                    ? nullptr
                    : env->GetMethodID(env->GetObjectClass(listener), "onProgress", "(II)V")) {}

  // What adt_runner_options has. Java may not be called again after it has thrown.
  static void Report(void* data, std::int32_t done, std::int32_t total) {
    const auto* self = static_cast<const BuildProgress*>(data);
    if (self->method_ == nullptr || self->thrown()) return;
    self->env_->CallVoidMethod(self->listener_, self->method_, done, total);
  }
  bool thrown() const { return env_->ExceptionCheck() == JNI_TRUE; }

 private:
  JNIEnv* env_;
  jobject listener_;
  jmethodID method_;
};

// What was loaded, unless an exception waits for Java.
jlong Loaded(adt_runner_t* runner, const BuildProgress& progress) {
  if (!progress.thrown()) return Handle(runner);
  adt_runner_free(runner);
  return 0;
}

adt_runner_options_t Options(const Text& device, const Text& program_cache, const Text& scratch,
                             jboolean own_executor, BuildProgress* progress) {
  adt_runner_options_t options = ADT_RUNNER_OPTIONS_INIT;
  options.own_executor = own_executor;
  options.build_progress = BuildProgress::Report;
  options.build_progress_data = progress;
  options.device = device.get();
  options.program_cache = program_cache.get();
  options.scratch = scratch.get();
  return options;
}

adt_blob_t FilePart(jint fd, jlong offset, jlong size) {
  adt_blob_t blob = ADT_BLOB_NONE;
  blob.fd = fd;
  blob.offset = offset;
  blob.size = size;
  return blob;
}

constexpr const char* kAbi =
#if defined(__aarch64__)
    "arm64-v8a";
#elif defined(__arm__)
    "armeabi-v7a";
#elif defined(__x86_64__)
    "x86_64";
#elif defined(__i386__)
    "x86";
#else
    "";
#endif

}  // namespace

extern "C" {

NATIVE(jboolean, fits)(JNIEnv*, jclass) {
  return adt_runner_abi_version() == ADT_RUNNER_ABI_VERSION ? JNI_TRUE : JNI_FALSE;
}

NATIVE(jbyteArray, version)(JNIEnv* env, jclass) { return Bytes(env, adt_runner_version()); }

NATIVE(jbyteArray, abi)(JNIEnv* env, jclass) { return Bytes(env, kAbi); }

NATIVE(jint, lastStatus)(JNIEnv*, jclass) { return adt_last_status(); }

NATIVE(jbyteArray, lastError)(JNIEnv* env, jclass) { return Bytes(env, adt_last_error()); }

NATIVE(jbyteArray, lastRemedy)(JNIEnv* env, jclass) { return Bytes(env, adt_last_remedy()); }

NATIVE(jint, setThreads)(JNIEnv* env, jclass, jint count, jbyteArray affinity) {
  const Text cores(env, affinity);
  if (!cores.good()) return ADT_ERROR_OUT_OF_MEMORY;
  return adt_set_threads(count, cores.get());
}

NATIVE(jlong, create)(JNIEnv* env, jclass, jbyteArray directory, jbyteArray device,
                      jbyteArray program_cache, jbyteArray scratch, jboolean own_executor,
                      jobject build_progress) {
  const Text path(env, directory);
  const Text device_text(env, device);
  const Text cache_text(env, program_cache);
  const Text scratch_text(env, scratch);
  if (!path.good() || !device_text.good() || !cache_text.good() || !scratch_text.good()) return 0;
  BuildProgress progress(env, build_progress);
  const adt_runner_options_t options =
      Options(device_text, cache_text, scratch_text, own_executor, &progress);
  adt_runner_t* runner = nullptr;
  adt_runner_create(path.get(), &options, &runner);
  return Loaded(runner, progress);
}

NATIVE(jlong, createFrom)(JNIEnv* env, jclass, jint manifest_fd, jlong manifest_offset,
                          jlong manifest_size, jint params_fd, jlong params_offset,
                          jlong params_size, jbyteArray library, jbyteArray device,
                          jbyteArray program_cache, jbyteArray scratch, jboolean own_executor,
                          jobject build_progress) {
  const Text name(env, library);
  const Text device_text(env, device);
  const Text cache_text(env, program_cache);
  const Text scratch_text(env, scratch);
  if (!name.good() || !device_text.good() || !cache_text.good() || !scratch_text.good()) return 0;
  adt_package_source_t source = ADT_PACKAGE_SOURCE_INIT;
  source.manifest = FilePart(manifest_fd, manifest_offset, manifest_size);
  source.params = FilePart(params_fd, params_offset, params_size);
  source.library_name = name.get();
  BuildProgress progress(env, build_progress);
  const adt_runner_options_t options =
      Options(device_text, cache_text, scratch_text, own_executor, &progress);
  adt_runner_t* runner = nullptr;
  adt_runner_create_from(&source, &options, &runner);
  return Loaded(runner, progress);
}

NATIVE(jlong, createSession)(JNIEnv*, jclass, jlong runner) {
  adt_runner_t* session = nullptr;
  adt_runner_create_session(Runner(runner), &session);
  return Handle(session);
}

NATIVE(void, free)(JNIEnv*, jclass, jlong runner) { adt_runner_free(Runner(runner)); }

NATIVE(void, trim)(JNIEnv*, jclass) { adt_trim(); }

NATIVE(jbyteArray, packageName)(JNIEnv* env, jclass, jlong runner) {
  return Bytes(env, adt_runner_package_name(Runner(runner)));
}

NATIVE(jbyteArray, device)(JNIEnv* env, jclass, jlong runner) {
  return Bytes(env, adt_runner_device(Runner(runner)));
}

NATIVE(jbyteArray, deviceName)(JNIEnv* env, jclass, jlong runner) {
  return Bytes(env, adt_runner_device_name(Runner(runner)));
}

NATIVE(jbyteArray, deviceDriver)(JNIEnv* env, jclass, jlong runner) {
  return Bytes(env, adt_runner_device_driver(Runner(runner)));
}

NATIVE(jbyteArray, programCache)(JNIEnv* env, jclass, jlong runner) {
  return Bytes(env, adt_runner_program_cache(Runner(runner)));
}

NATIVE(jbyteArray, programCacheWarning)(JNIEnv* env, jclass, jlong runner) {
  return Bytes(env, adt_runner_program_cache_warning(Runner(runner)));
}

NATIVE(jint, entryCount)(JNIEnv*, jclass, jlong runner) {
  return adt_runner_entry_count(Runner(runner));
}

NATIVE(jbyteArray, entryName)(JNIEnv* env, jclass, jlong runner, jint entry) {
  return Bytes(env, adt_runner_entry_name(Runner(runner), entry));
}

NATIVE(jint, inputCount)(JNIEnv*, jclass, jlong runner, jint entry) {
  return adt_runner_input_count(Runner(runner), entry);
}

NATIVE(jint, outputCount)(JNIEnv*, jclass, jlong runner, jint entry) {
  return adt_runner_output_count(Runner(runner), entry);
}

NATIVE(jbyteArray, inputName)(JNIEnv* env, jclass, jlong runner, jint entry, jint input) {
  return Info(adt_runner_input_info, runner, entry, input).name(env);
}

NATIVE(jbyteArray, inputType)(JNIEnv* env, jclass, jlong runner, jint entry, jint input) {
  return Info(adt_runner_input_info, runner, entry, input).type(env);
}

NATIVE(jlongArray, inputShape)(JNIEnv* env, jclass, jlong runner, jint entry, jint input) {
  return Info(adt_runner_input_info, runner, entry, input).shape(env);
}

NATIVE(jbyteArray, outputName)(JNIEnv* env, jclass, jlong runner, jint entry, jint output) {
  return Info(adt_runner_output_info, runner, entry, output).name(env);
}

NATIVE(jbyteArray, outputType)(JNIEnv* env, jclass, jlong runner, jint entry, jint output) {
  return Info(adt_runner_output_info, runner, entry, output).type(env);
}

NATIVE(jlongArray, outputShape)(JNIEnv* env, jclass, jlong runner, jint entry, jint output) {
  return Info(adt_runner_output_info, runner, entry, output).shape(env);
}

NATIVE(jlong, misalignment)(JNIEnv* env, jclass, jobject array, jint alignment) {
  return static_cast<jlong>(Address(env, array) % static_cast<std::uintptr_t>(alignment));
}

NATIVE(jint, setInput)(JNIEnv* env, jobject, jlong runner, jint entry, jint input, jobject array,
                       jlong size, jlongArray shape) {
  const Extents extents(env, shape);
  if (!extents.good()) return ADT_ERROR_OUT_OF_MEMORY;
  const void* data = env->GetDirectBufferAddress(array);
  adt_runner_t* handle = Runner(runner);
  if (!IsCpu(adt_runner_device(handle)) || !IsAligned(handle, Address(env, array))) {
    return adt_runner_set_input_shaped(handle, entry, input, data, size, extents.get(),
                                       extents.rank());
  }
  adt_tensor_info_t info{};
  info.struct_size = static_cast<std::uint32_t>(sizeof(info));
  adt_status_t status = adt_runner_input_info(handle, entry, input, &info);
  if (status != ADT_OK) return status;
  const std::int64_t* own = extents.get() == nullptr ? info.shape : extents.get();
  const std::int32_t rank = extents.get() == nullptr ? info.rank : extents.rank();
  adt_tensor_t* tensor = nullptr;
  status = adt_tensor_from_memory(const_cast<void*>(data), size, info.type, own, rank, nullptr,
                                  nullptr, &tensor);
  if (status == ADT_OK) status = adt_runner_set_input_tensor(handle, entry, input, tensor);
  adt_tensor_free(tensor);
  return status;
}

NATIVE(jboolean, reads)(JNIEnv*, jclass, jlong runner, jlong tensor) {
  const char* device = adt_tensor_device(Tensor(tensor));
  adt_runner_t* handle = Runner(runner);
  if (!IsCpu(device)) return std::strcmp(device, adt_runner_device(handle)) == 0;
  return IsAligned(handle, reinterpret_cast<std::uintptr_t>(adt_tensor_data(Tensor(tensor))));
}

NATIVE(jint, setTensor)(JNIEnv*, jclass, jlong runner, jint entry, jint input, jlong tensor) {
  return adt_runner_set_input_tensor(Runner(runner), entry, input, Tensor(tensor));
}

NATIVE(jboolean, overlap)(JNIEnv* env, jclass, jobject one, jobject other) {
  return Address(env, one) < End(env, other) && Address(env, other) < End(env, one);
}

NATIVE(jint, run)(JNIEnv*, jobject, jlong runner, jint entry) {
  return adt_runner_run(Runner(runner), entry);
}

NATIVE(jlong, startRun)(JNIEnv*, jclass, jlong runner, jint entry) {
  adt_ticket_t* ticket = nullptr;
  adt_runner_run_async(Runner(runner), entry, nullptr, nullptr, &ticket);
  return Handle(ticket);
}

NATIVE(jint, awaitRun)(JNIEnv*, jclass, jlong ticket) { return adt_ticket_wait(Ticket(ticket)); }

NATIVE(void, cancelRun)(JNIEnv*, jclass, jlong ticket) { adt_ticket_cancel(Ticket(ticket)); }

NATIVE(void, freeRun)(JNIEnv*, jclass, jlong ticket) { adt_ticket_free(Ticket(ticket)); }

NATIVE(jlongArray, resultShape)(JNIEnv* env, jobject, jlong runner, jint entry, jint output) {
  std::array<std::int64_t, 16> shape{};
  const auto capacity = static_cast<std::int32_t>(shape.size());
  const std::int32_t rank =
      adt_runner_output_shape(Runner(runner), entry, output, shape.data(), capacity);
  return rank < 0 ? nullptr : Longs(env, shape.data(), std::min(rank, capacity));
}

NATIVE(jlong, takeOutput)(JNIEnv*, jobject, jlong runner, jint entry, jint output) {
  adt_tensor_t* tensor = nullptr;
  adt_runner_take_output(Runner(runner), entry, output, &tensor);
  return Handle(tensor);
}

NATIVE(jobject, tensorMemory)(JNIEnv* env, jclass, jlong tensor) {
  adt_tensor_t* handle = Tensor(tensor);
  adt_tensor_info_t info{};
  info.struct_size = static_cast<std::uint32_t>(sizeof(info));
  if (!IsCpu(adt_tensor_device(handle)) || adt_tensor_describe(handle, &info) != ADT_OK ||
      info.size <= 0 || info.size > std::numeric_limits<jint>::max()) {
    return nullptr;
  }
  return env->NewDirectByteBuffer(adt_tensor_data(handle), info.size);
}

NATIVE(jint, copyTensor)(JNIEnv* env, jclass, jlong tensor, jobject array, jlong size) {
  return adt_tensor_copy(Tensor(tensor), env->GetDirectBufferAddress(array), size);
}

NATIVE(void, freeTensor)(JNIEnv*, jclass, jlong tensor) { adt_tensor_free(Tensor(tensor)); }

}  // extern "C"
