# The interface as compilers and linkers see it: headers, symbols, programs built elsewhere.

function(abi_facts name function)
  add_library(${name} OBJECT abi/facts.cc)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(${name} PRIVATE FACTS_FUNCTION=${function} ${ARGN})
  target_compile_options(${name} PRIVATE -Wno-deprecated-declarations)
  target_link_libraries(${name} PRIVATE tutti_flags)
  target_link_libraries(test_api PRIVATE ${name})
endfunction()
abi_facts(abi_facts_own ownAbiFacts)
abi_facts(abi_facts_timeout ownAbiFactsWithTimeout TUTTI_NCCL_TIMEOUT)
target_include_directories(abi_facts_own PRIVATE ${PROJECT_SOURCE_DIR}/include)
target_include_directories(abi_facts_timeout PRIVATE ${PROJECT_SOURCE_DIR}/include)

target_compile_definitions(test_api PRIVATE ABI_LIBRARY="$<TARGET_FILE:nccl>" ABI_BIN="${CMAKE_BINARY_DIR}/bin"
  ABI_SANITIZE="${TUTTI_SANITIZE}" TUTTI_SOURCE_DIR="${PROJECT_SOURCE_DIR}")

# A program in C99 that knows nothing of CUDA, and one compiled against NVIDIA's headers.
add_executable(abi_plain_c abi/plain_c.c)
target_include_directories(abi_plain_c PRIVATE ${PROJECT_SOURCE_DIR}/include)
target_compile_options(abi_plain_c PRIVATE -std=c99 -pedantic -Wall -Wextra -Werror)
target_link_libraries(abi_plain_c PRIVATE nccl tutti_flags)
add_dependencies(test_api abi_plain_c tutti_hostrt)

find_path(TUTTI_NCCL_INCLUDE nccl_device/core.h NO_DEFAULT_PATH HINTS ${TUTTI_CUDA_INCLUDE} ENV CUDA_HOME
  PATHS /usr/local/cuda/include /usr/local/cuda-13.0/include PATH_SUFFIXES . include)
if(TUTTI_NCCL_INCLUDE AND NOT TUTTI_CUDA STREQUAL "OFF")
  abi_facts(abi_facts_toolkit toolkitAbiFacts)
  target_include_directories(abi_facts_toolkit SYSTEM BEFORE PRIVATE ${TUTTI_NCCL_INCLUDE})
  target_compile_definitions(test_api PRIVATE ABI_HAVE_TOOLKIT=1)
  # Linked by file name, so that our include folder does not come with it.
  add_executable(abi_nvidia_program abi/nvidia_program.cc)
  target_include_directories(abi_nvidia_program SYSTEM PRIVATE ${TUTTI_NCCL_INCLUDE})
  target_link_libraries(abi_nvidia_program PRIVATE $<TARGET_FILE:nccl> $<TARGET_FILE:tutti_cudart> tutti_flags)
  set_target_properties(abi_nvidia_program PROPERTIES BUILD_RPATH "${CMAKE_BINARY_DIR}/lib;${CMAKE_BINARY_DIR}/lib/host")
  add_dependencies(abi_nvidia_program nccl tutti_cudart)
  add_dependencies(test_api abi_nvidia_program)
  get_filename_component(toolkit ${TUTTI_NCCL_INCLUDE} DIRECTORY)
  find_file(TUTTI_NCCL_LIBRARY libnccl.so.2 NO_DEFAULT_PATH
    PATHS ${toolkit}/lib64 ${toolkit}/lib ${toolkit}/targets/x86_64-linux/lib)
  if(TUTTI_NCCL_LIBRARY)
    target_compile_definitions(test_api PRIVATE ABI_TOOLKIT_LIBRARY="${TUTTI_NCCL_LIBRARY}")
  endif()
  target_compile_definitions(test_api PRIVATE ABI_TOOLKIT_INCLUDE="${TUTTI_NCCL_INCLUDE}")
endif()
