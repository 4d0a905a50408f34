# Warnings, sanitizers and the helper that turns a folder of src/ into a layer.

add_library(tutti_flags INTERFACE)
target_compile_options(tutti_flags INTERFACE
  -Wall -Wextra -Wshadow $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor> -Wno-missing-field-initializers -fno-semantic-interposition)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 warns of overlapping copies in "text" + std::string (GCC bug 105651): a false alarm.
  target_compile_options(tutti_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
  if(CMAKE_UNITY_BUILD)
    # GCC takes sources that are included into another for headers.
    target_compile_options(tutti_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
  endif()
endif()
# Our own code uses no __half and its like: without their headers a source compiles half a second faster.
target_compile_definitions(tutti_flags INTERFACE TUTTI_NCCL_WITHOUT_CUDA_TYPES)
find_package(Threads REQUIRED)
target_link_libraries(tutti_flags INTERFACE Threads::Threads)
if(TUTTI_SANITIZE)
  target_compile_options(tutti_flags INTERFACE -fsanitize=${TUTTI_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  target_link_options(tutti_flags INTERFACE -fsanitize=${TUTTI_SANITIZE})
  if(TUTTI_SANITIZE MATCHES undefined)
    # These four make GCC three times as slow on tests; null pointers and overruns are AddressSanitizer's catch anyway.
    # And C callers may pass an enum value that does not exist: entry points check it, and tests do so on purpose.
    target_compile_options(tutti_flags INTERFACE -fno-sanitize=null,vptr,object-size,alignment,enum)
  endif()
endif()
find_program(TUTTI_CCACHE ccache)
if(TUTTI_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${TUTTI_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${TUTTI_CCACHE})
endif()

# tutti_layer(NAME [LINK lib...]): every .cc of the current folder (and below) becomes the static library
# tutti_NAME. Layers see all of src/ as include root ("base/status.h"); tools/check_layers keeps them to
# the order of docs/architecture.md.
function(tutti_layer name)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  if(NOT sources)
    add_library(tutti_${name} INTERFACE)
    target_link_libraries(tutti_${name} INTERFACE tutti_flags ${ARG_LINK})
    return()
  endif()
  add_library(tutti_${name} STATIC ${sources})
  target_include_directories(tutti_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(tutti_${name} PUBLIC tutti_flags ${ARG_LINK})
endfunction()
