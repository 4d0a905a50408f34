# What `cmake --install` gives, besides what the folders install themselves (perf, tools, src/hostrt):
#   include/            nccl.h, tutti/*.h; hostrt/: the CUDA runtime's headers for machines without a toolkit
#   lib/                libnccl.so.2; host/: the host runtime
#   lib/pkgconfig/      nccl.pc (the library), tutti.pc (the library and the host runtime)
#   lib/cmake/          find_package(tutti): tutti::nccl, tutti::cudart; find_package(NCCL): NCCL::NCCL
#   share/doc/tutti/    README.md, docs/, examples/ (as source)
include(CMakePackageConfigHelpers)

install(FILES include/nccl.h include/nccl_device.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(EXISTS ${PROJECT_SOURCE_DIR}/include/tutti)
  install(DIRECTORY include/tutti DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endif()
# Beside the headers of the library, for tutti_add_host_kernels.
install(DIRECTORY src/base/kernel_shim DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tutti/shim/base)
install(FILES LICENSE README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
# Beside the README, so that its links work there too.
install(DIRECTORY docs examples DESTINATION ${CMAKE_INSTALL_DOCDIR} PATTERN CMakeLists.txt EXCLUDE)

set_target_properties(tutti_cudart PROPERTIES EXPORT_NAME cudart)
install(TARGETS nccl EXPORT tuttiTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS tutti_cudart EXPORT tuttiTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/host)

set(cmake_folder ${CMAKE_INSTALL_LIBDIR}/cmake)
install(EXPORT tuttiTargets NAMESPACE tutti:: DESTINATION ${cmake_folder}/tutti)
configure_package_config_file(cmake/tuttiConfig.cmake.in ${PROJECT_BINARY_DIR}/tuttiConfig.cmake
  INSTALL_DESTINATION ${cmake_folder}/tutti PATH_VARS CMAKE_INSTALL_BINDIR CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tuttiConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tuttiConfig.cmake ${PROJECT_BINARY_DIR}/tuttiConfigVersion.cmake
  cmake/TuttiHostKernels.cmake DESTINATION ${cmake_folder}/tutti)

# The version of the API that we are compatible with, for find_package(NCCL 2.x) and pkg-config.
file(STRINGS include/nccl.h lines REGEX "#define NCCL_(MAJOR|MINOR|PATCH) ")
string(REGEX REPLACE "[^0-9;]" "" numbers "${lines}")
string(REPLACE ";" "." TUTTI_NCCL_VERSION "${numbers}")
configure_package_config_file(cmake/NCCLConfig.cmake.in ${PROJECT_BINARY_DIR}/NCCLConfig.cmake
  INSTALL_DESTINATION ${cmake_folder}/NCCL)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/NCCLConfigVersion.cmake
  VERSION ${TUTTI_NCCL_VERSION} COMPATIBILITY SameMajorVersion)
install(FILES ${PROJECT_BINARY_DIR}/NCCLConfig.cmake ${PROJECT_BINARY_DIR}/NCCLConfigVersion.cmake
  DESTINATION ${cmake_folder}/NCCL)

foreach(package nccl tutti)
  configure_file(cmake/${package}.pc.in ${PROJECT_BINARY_DIR}/${package}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${package}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()
