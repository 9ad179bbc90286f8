# Debug information of a stripped install, in files of its own: symbols/<file>.debug.

# Call after install(TARGETS): when installing with --strip, keep each target's debug information in
# <prefix>/symbols and leave a link to it (.gnu_debuglink: name and checksum) in the stripped file.
function(adt_install_symbols directory)
  if(NOT CMAKE_BUILD_TYPE MATCHES "^(Debug|RelWithDebInfo)$")
    return()
  endif()
  if(NOT CMAKE_OBJCOPY)
    message(FATAL_ERROR "A ${CMAKE_BUILD_TYPE} build keeps its symbols with objcopy, and there is none.")
  endif()
  foreach(target IN LISTS ARGN)
    install(
      CODE "
if(CMAKE_INSTALL_DO_STRIP)
  set(prefix \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}\")
  file(MAKE_DIRECTORY \"\${prefix}/symbols\")
  set(symbols \"\${prefix}/symbols/$<TARGET_FILE_NAME:${target}>.debug\")
  execute_process(
    COMMAND \"${CMAKE_OBJCOPY}\" --only-keep-debug \"$<TARGET_FILE:${target}>\" \"\${symbols}\"
    COMMAND_ERROR_IS_FATAL ANY)
  execute_process(
    COMMAND \"${CMAKE_OBJCOPY}\" \"--add-gnu-debuglink=\${symbols}\"
            \"\${prefix}/${directory}/$<TARGET_FILE_NAME:${target}>\"
    COMMAND_ERROR_IS_FATAL ANY)
endif()"
      COMPONENT adt
    )
  endforeach()
endfunction()
