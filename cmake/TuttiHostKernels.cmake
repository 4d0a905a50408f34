# tutti_add_host_kernels(TARGET [BESIDE_NVCC | ALONE] SOURCE.cu...)
#
# Compiles CUDA sources for virtual GPUs (docs/virtual-gpus.md) with the host compiler and links them into TARGET.
#   ALONE        nothing else compiles the sources: all that they define, host code too, comes from here.
#   BESIDE_NVCC  nvcc compiles them too; from here come only the kernels. The program runs on GPUs and on virtual ones.
# Without either: BESIDE_NVCC when the sources are among TARGET's own and CMake compiles CUDA, otherwise ALONE.
# Include folders, definitions and options are TARGET's.

# TUTTI_HOST_KERNELS_TOOL and TUTTI_KERNEL_SHIM are set by whoever includes this file.

function(tutti_add_host_kernels target)
  cmake_parse_arguments(ARG "BESIDE_NVCC;ALONE" "" "" ${ARGN})
  set(sources ${ARG_UNPARSED_ARGUMENTS})
  if(NOT sources)
    message(FATAL_ERROR "tutti_add_host_kernels(${target}): no sources")
  endif()
  get_target_property(own ${target} SOURCES)
  if(NOT ARG_BESIDE_NVCC AND NOT ARG_ALONE AND CMAKE_CUDA_COMPILER AND own)
    foreach(source IN LISTS sources)
      if(source IN_LIST own)
        set(ARG_BESIDE_NVCC TRUE)
      endif()
    endforeach()
  endif()

  set(objects ${target}_host_kernels)
  set(number 1)
  while(TARGET ${objects})
    math(EXPR number "${number} + 1")
    set(objects ${target}_host_kernels_${number})
  endwhile()
  set(units)
  foreach(source IN LISTS sources)
    get_filename_component(path ${source} ABSOLUTE)
    get_filename_component(name ${source} NAME)
    string(MAKE_C_IDENTIFIER ${source} identifier)
    # A unit of its own, so that the source's properties stay those of the program's own build.
    set(unit ${CMAKE_CURRENT_BINARY_DIR}/${objects}/${identifier}.cc)
    file(CONFIGURE OUTPUT ${unit} CONTENT "#include \"${path}\"\n" @ONLY)
    set_source_files_properties(${unit} PROPERTIES COMPILE_DEFINITIONS "TUTTI_TWIN_FILE=\"${name}\""
      OBJECT_DEPENDS ${TUTTI_HOST_KERNELS_TOOL} SKIP_UNITY_BUILD_INCLUSION ON)
    list(APPEND units ${unit})
  endforeach()
  add_library(${objects} OBJECT ${units})
  if(TARGET tutti-host-kernels)
    add_dependencies(${objects} tutti-host-kernels)
  endif()
  set(launcher ${TUTTI_HOST_KERNELS_TOOL})
  if(ARG_BESIDE_NVCC)
    list(APPEND launcher --beside)
  endif()
  set_target_properties(${objects} PROPERTIES UNITY_BUILD OFF
    CXX_COMPILER_LAUNCHER "${launcher};--shim;${TUTTI_KERNEL_SHIM};${CMAKE_CXX_COMPILER_LAUNCHER}")
  foreach(property INCLUDE_DIRECTORIES COMPILE_DEFINITIONS COMPILE_OPTIONS)
    set_property(TARGET ${objects} PROPERTY ${property} $<TARGET_PROPERTY:${target},${property}>)
  endforeach()
  set_property(TARGET ${objects} APPEND PROPERTY INCLUDE_DIRECTORIES
    $<TARGET_PROPERTY:tutti::cudart,INTERFACE_INCLUDE_DIRECTORIES>)
  get_target_property(position_independent ${target} POSITION_INDEPENDENT_CODE)
  if(position_independent)
    set_target_properties(${objects} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  endif()
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:${objects}>)
  target_link_libraries(${target} PRIVATE ${CMAKE_DL_LIBS})
endfunction()
