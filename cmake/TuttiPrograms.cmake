# How our own programs find their libraries at run time.

# tutti_program(TARGET): the run path of a program in bin/ that links libnccl.so.2, tutti_cudart or both. The same
# relative path serves the build tree and an install prefix. lib/host comes last and is a fallback that lets the
# program start on a machine without a CUDA toolkit: LD_LIBRARY_PATH goes before it, and selectRuntime
# (tools/common/runtime_select.h) restarts the program when the wrong runtime was found.
function(tutti_program target)
  set(path "$ORIGIN/../lib")
  if(NOT CMAKE_INSTALL_LIBDIR STREQUAL "lib")
    list(APPEND path "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
  endif()
  foreach(folder IN LISTS path)
    list(APPEND host "${folder}/host")
  endforeach()
  set_target_properties(${target} PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "${path};${host}")
endfunction()
