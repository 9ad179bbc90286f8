# adt_build_info.json: what adt records of a build without running what was built.

# *text* as a JSON string.
function(adt_json_string out text)
  string(REPLACE "\\" "\\\\" text "${text}")
  string(REPLACE "\"" "\\\"" text "${text}")
  set(${out} "\"${text}\"" PARENT_SCOPE)
endfunction()

# The items after *out* as a JSON array of strings.
function(adt_json_array out)
  set(items "")
  foreach(item IN LISTS ARGN)
    adt_json_string(item "${item}")
    list(APPEND items "${item}")
  endforeach()
  list(JOIN items ", " joined)
  set(${out} "[${joined}]" PARENT_SCOPE)
endfunction()

# "true" or "false", as CMake's if() sees *value*.
function(adt_json_bool out value)
  if(value)
    set(${out} "true" PARENT_SCOPE)
  else()
    set(${out} "false" PARENT_SCOPE)
  endif()
endfunction()

# The compiler's target triple and the first line of its --version.
function(adt_ask_compiler triple_out banner_out)
  set(target "")
  if(CMAKE_CXX_COMPILER_TARGET)
    set(target "--target=${CMAKE_CXX_COMPILER_TARGET}")
  endif()
  execute_process(
    COMMAND "${CMAKE_CXX_COMPILER}" ${target} -dumpmachine
    OUTPUT_VARIABLE triple
    OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY
  )
  execute_process(
    COMMAND "${CMAKE_CXX_COMPILER}" --version
    OUTPUT_VARIABLE banner
    OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY
  )
  string(REGEX REPLACE "\n.*$" "" banner "${banner}")
  set(${triple_out} "${triple}" PARENT_SCOPE)
  set(${banner_out} "${banner}" PARENT_SCOPE)
endfunction()

# adt_write_build_info(FILE LIBRARIES target... PROGRAMS target...)
function(adt_write_build_info file)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "LIBRARIES;PROGRAMS")
  adt_ask_compiler(triple banner)

  set(api_level "null")
  set(ndk_revision "null")
  set(abi "${CMAKE_SYSTEM_PROCESSOR}")
  if(ANDROID)
    set(abi "${ANDROID_ABI}")
    string(REGEX REPLACE "^android-" "" api_level "${ANDROID_PLATFORM}")
    if(EXISTS "${ADT_NDK}/source.properties")
      file(STRINGS "${ADT_NDK}/source.properties" line REGEX "^Pkg\\.Revision *=")
      string(REGEX REPLACE "^.*= *" "" ndk_revision "${line}")
      adt_json_string(ndk_revision "${ndk_revision}")
    endif()
  endif()

  foreach(text IN ITEMS ADT_TVM_VERSION ADT_TVM_FFI_VERSION CMAKE_BUILD_TYPE CMAKE_SYSTEM_NAME
                        CMAKE_SYSTEM_PROCESSOR CMAKE_CXX_COMPILER CMAKE_CXX_COMPILER_ID
                        CMAKE_CXX_COMPILER_VERSION CMAKE_STRIP
  )
    adt_json_string(${text}_JSON "${${text}}")
  endforeach()
  adt_json_string(abi "${abi}")
  adt_json_string(triple "${triple}")
  adt_json_string(banner "${banner}")
  adt_json_array(symbols ${ADT_CONTEXT_SYMBOLS})
  adt_json_bool(opencl "${USE_OPENCL}")
  adt_json_bool(clml "${USE_CLML_GRAPH_EXECUTOR}")
  adt_json_bool(cuda "${ADT_CUDA}")
  adt_json_bool(xnnpack "${ADT_XNNPACK}")
  adt_json_bool(rpc "${USE_CPP_RPC}")
  adt_json_bool(one_library "${ADT_ONE_LIBRARY}")
  adt_json_bool(opencl_linked "${OpenCL_LIBRARIES}")
  set(clml_sdk "null")
  if(ADT_CLML_VERSION)
    adt_json_string(clml_sdk "${ADT_CLML_VERSION}")
  endif()
  list(TRANSFORM arg_LIBRARIES REPLACE "^(.+)$" "lib/$<TARGET_FILE_NAME:\\1>")
  list(TRANSFORM arg_PROGRAMS REPLACE "^(.+)$" "bin/$<TARGET_FILE_NAME:\\1>")
  adt_json_array(files ${arg_LIBRARIES} ${arg_PROGRAMS})

  # file(GENERATE) leaves an unchanged file alone.
  file(
    GENERATE
    OUTPUT "${file}"
    CONTENT
      "{
  \"schema\": \"adt.build-info\",
  \"schema_version\": 1,
  \"tvm_version\": ${ADT_TVM_VERSION_JSON},
  \"ffi_version\": ${ADT_TVM_FFI_VERSION_JSON},
  \"context_symbols\": ${symbols},
  \"alignment\": ${USE_KALLOC_ALIGNMENT},
  \"build_type\": ${CMAKE_BUILD_TYPE_JSON},
  \"opencl\": ${opencl},
  \"opencl_linked\": ${opencl_linked},
  \"clml\": ${clml},
  \"clml_sdk\": ${clml_sdk},
  \"cuda\": ${cuda},
  \"cudnn\": ${cuda},
  \"cublas\": ${cuda},
  \"xnnpack\": ${xnnpack},
  \"rpc\": ${rpc},
  \"one_library\": ${one_library},
  \"system_name\": ${CMAKE_SYSTEM_NAME_JSON},
  \"system_processor\": ${CMAKE_SYSTEM_PROCESSOR_JSON},
  \"abi\": ${abi},
  \"api_level\": ${api_level},
  \"ndk_revision\": ${ndk_revision},
  \"compiler\": {
    \"id\": ${CMAKE_CXX_COMPILER_ID_JSON},
    \"version\": ${CMAKE_CXX_COMPILER_VERSION_JSON},
    \"banner\": ${banner},
    \"path\": ${CMAKE_CXX_COMPILER_JSON},
    \"triple\": ${triple},
    \"strip\": ${CMAKE_STRIP_JSON}
  },
  \"files\": ${files}
}
"
  )
endfunction()

# The directory of the NDK's libraries for ANDROID_ABI. Its name is no triple of the compiler's: that says armv7 and
# android where the directory says arm and androideabi.
function(adt_ndk_libraries out)
  set(arm64-v8a aarch64-linux-android)
  set(armeabi-v7a arm-linux-androideabi)
  set(x86 i686-linux-android)
  set(x86_64 x86_64-linux-android)
  set(${out} "${CMAKE_SYSROOT}/usr/lib/${${ANDROID_ABI}}" PARENT_SCOPE)
endfunction()

# Install the NDK's libc++_shared.so beside the libraries that need it: a device has none of its own.
function(adt_install_android_stl)
  adt_ndk_libraries(directory)
  set(library "${directory}/libc++_shared.so")
  if(NOT EXISTS "${library}")
    message(FATAL_ERROR "The NDK has no ${library}, without which nothing that is built here starts on a device.")
  endif()
  install(FILES "${library}" DESTINATION lib COMPONENT adt PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE
                                                                       GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
  install(
    CODE "if(CMAKE_INSTALL_DO_STRIP)
  execute_process(COMMAND \"${CMAKE_STRIP}\" --strip-unneeded
                  \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/lib/libc++_shared.so\" COMMAND_ERROR_IS_FATAL ANY)
endif()"
    COMPONENT adt
  )
endfunction()
