# Libraries that the build finds on the system (scripts/quickstart installs them).

# fmt is compiled into our libraries (hidden), so that nothing of it is exported or needed at run time.
find_path(TUTTI_FMT_INCLUDE fmt/format-inl.h REQUIRED)
add_library(tutti_fmt STATIC ${CMAKE_CURRENT_LIST_DIR}/fmt_library.cc)
target_include_directories(tutti_fmt SYSTEM PUBLIC ${TUTTI_FMT_INCLUDE})
target_link_libraries(tutti_fmt PRIVATE tutti_flags)

find_library(TUTTI_PUGIXML_STATIC NAMES libpugixml.a REQUIRED)
add_library(tutti_pugixml INTERFACE)
target_link_libraries(tutti_pugixml INTERFACE ${TUTTI_PUGIXML_STATIC})

# JSON for Modern C++: only its headers, in one source of base.
find_path(TUTTI_JSON_INCLUDE nlohmann/json.hpp REQUIRED)

# Highway: only its headers. Its dispatcher lives in a shared library, ours in executor/host/simd.
find_path(TUTTI_HIGHWAY_INCLUDE hwy/highway.h REQUIRED)

if(NOT TUTTI_CUDA STREQUAL "OFF")
  find_path(TUTTI_CUDA_INCLUDE cuda_runtime_api.h HINTS ENV CUDA_HOME PATHS /usr/local/cuda/include
    /usr/local/cuda/targets/x86_64-linux/include)
  find_program(TUTTI_NVCC nvcc PATHS /usr/local/cuda/bin)
  if(TUTTI_CUDA STREQUAL "ON" AND NOT TUTTI_CUDA_INCLUDE)
    message(FATAL_ERROR "TUTTI_CUDA=ON, but no cuda_runtime_api.h was found: set CUDA_HOME, or use AUTO")
  endif()
endif()
if(NOT TUTTI_MPI STREQUAL "OFF")
  find_package(MPI COMPONENTS C)
  if(TUTTI_MPI STREQUAL "ON" AND NOT MPI_C_FOUND)
    message(FATAL_ERROR "TUTTI_MPI=ON, but no MPI was found")
  endif()
endif()
