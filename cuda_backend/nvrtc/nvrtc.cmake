# Programs compiled at run time as far as no card is needed: bodies of MAP to text, text to cubins by libnvrtc, which is
# opened on first need. Device headers travel in the library.
set(nvrtc_headers
    cuda_backend/kernels/arguments.h
    cuda_backend/kernels/canonical.cuh
    cuda_backend/kernels/check.cuh
    cuda_backend/kernels/functions.cuh
    cuda_backend/kernels/hopper.cuh
    cuda_backend/kernels/map_compiled.cuh
    cuda_backend/kernels/tree.h
    cuda_backend/kernels/types.cuh
    cuda_backend/nvrtc/dtype.h
    cuda_backend/nvrtc/standard.h
    opcodes/device/functors.h
    opcodes/dtypes.def)
set(embedded ${CMAKE_BINARY_DIR}/nvrtc_headers.cpp)
list(JOIN nvrtc_headers "," joined)
list(TRANSFORM nvrtc_headers PREPEND ${PROJECT_SOURCE_DIR}/ OUTPUT_VARIABLE header_files)
add_custom_command(OUTPUT ${embedded}
  COMMAND ${CMAKE_COMMAND} -DROOT=${PROJECT_SOURCE_DIR} -DHEADERS=${joined} -DOUT=${embedded}
          -P ${PROJECT_SOURCE_DIR}/cuda_backend/nvrtc/embed.cmake
  DEPENDS ${header_files} ${PROJECT_SOURCE_DIR}/cuda_backend/nvrtc/embed.cmake VERBATIM)
set(tape_nvrtc_sources
    ${PROJECT_SOURCE_DIR}/cuda_backend/lower/map_body.cpp
    ${PROJECT_SOURCE_DIR}/cuda_backend/lower/values.cpp
    ${PROJECT_SOURCE_DIR}/cuda_backend/nvrtc/compiler.cpp
    ${PROJECT_SOURCE_DIR}/cuda_backend/nvrtc/generate.cpp)
add_library(tape_nvrtc STATIC ${tape_nvrtc_sources} ${embedded})
set_target_properties(tape_nvrtc PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
target_include_directories(tape_nvrtc PUBLIC ${PROJECT_SOURCE_DIR})
target_link_libraries(tape_nvrtc PUBLIC tape_opcodes PRIVATE PkgConfig::XXHASH ${CMAKE_DL_LIBS})
