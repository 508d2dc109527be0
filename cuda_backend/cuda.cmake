# The CUDA plugin: a shared library that embed/ opens at run time, so that nothing else links CUDA. Its file name carries
# the CUDA major. The runtime is static, the driver found by the runtime itself.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know the flag of CUDA 13
  set(CMAKE_CUDA_STANDARD_COMPUTED_DEFAULT 17)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
find_package(CUDAToolkit REQUIRED)
if(TAPE_CCACHE)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${TAPE_CCACHE})
endif()
set(TAPE_CUDA_ARCHITECTURES "80-real;90a-real;90-virtual" CACHE STRING "architectures of the CUDA kernels")

file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/cuda_backend/*.cpp
     ${PROJECT_SOURCE_DIR}/cuda_backend/*.cu)
list(FILTER cuda_sources EXCLUDE REGEX "/emulation/")
list(REMOVE_ITEM cuda_sources ${tape_nvrtc_sources})
# The objects by themselves are for bench/, which times kernels without the plugin.
add_library(tapedeck_cuda_objects OBJECT ${cuda_sources})
add_library(tapedeck_cuda SHARED $<TARGET_OBJECTS:tapedeck_cuda_objects>)
set_target_properties(tapedeck_cuda_objects PROPERTIES
  CUDA_ARCHITECTURES "${TAPE_CUDA_ARCHITECTURES}" CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden
  VISIBILITY_INLINES_HIDDEN ON)
set_target_properties(tapedeck_cuda PROPERTIES
  OUTPUT_NAME tapedeck_cuda${CUDAToolkit_VERSION_MAJOR} LINKER_LANGUAGE CXX CUDA_RESOLVE_DEVICE_SYMBOLS OFF
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
# No contraction: kernels that want a fused multiply-add say so.
target_compile_options(tapedeck_cuda_objects PRIVATE
  $<$<COMPILE_LANGUAGE:CUDA>:-fmad=false --expt-relaxed-constexpr -diag-suppress=186 -Xcompiler=-ffp-contract=off>)
target_include_directories(tapedeck_cuda_objects PUBLIC ${PROJECT_SOURCE_DIR})
target_link_libraries(tapedeck_cuda_objects PUBLIC tape_nvrtc tape_opcodes CUDA::cudart_static)
target_link_libraries(tapedeck_cuda PRIVATE tape_nvrtc tape_opcodes CUDA::cudart_static)
target_link_options(tapedeck_cuda PRIVATE -Wl,--exclude-libs,ALL)
