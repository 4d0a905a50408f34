# Programs that load the library in unusual ways. system_loading does not link it.
add_executable(system_loading loading/loading_program.cc)
target_include_directories(system_loading PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(system_loading PRIVATE tutti_flags ${CMAKE_DL_LIBS})
add_executable(system_static_destroy loading/static_destroy.cc)
target_link_libraries(system_static_destroy PRIVATE nccl tutti_flags)
add_dependencies(test_system system_loading system_static_destroy tutti_hostrt nccl)
target_compile_definitions(test_system PRIVATE LOADING_BIN="${CMAKE_BINARY_DIR}/bin"
  LOADING_LIBRARY="${CMAKE_BINARY_DIR}/lib/libnccl.so.2" LOADING_HOST="${CMAKE_BINARY_DIR}/lib/host"
  LOADING_SANITIZE="${TUTTI_SANITIZE}")
