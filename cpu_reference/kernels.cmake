# The CPU kernels, built for the baseline and again for x86-64-v3 (AVX2, FMA, F16C); the backend picks one at run time.
# Both give the same bits. Nobody reads the floating-point exception flags: -fno-trapping-math changes no value and lets
# loops with selects (exp, maximum) become vector code. The v3 objects are linked into one relocatable object whose
# symbols, but for its table, are made local, so that no inline function built for v3 can be chosen for baseline code
# (-fno-gnu-unique: objcopy leaves unique symbols of inline variables global).
file(GLOB TAPE_KERNEL_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/cpu_reference/kernels/*.cpp)

if(NOT TAPE_KERNEL_SOURCES)
  return()
endif()
add_library(tape_cpu_kernels_base OBJECT ${TAPE_KERNEL_SOURCES})
target_compile_definitions(tape_cpu_kernels_base PRIVATE TAPE_CPU_LEVEL=base)
# Sanitizing does not ask for the alignment of every address: kernels compile sooner without.
target_compile_options(tape_cpu_kernels_base PRIVATE -fno-trapping-math $<$<CONFIG:Debug>:-fno-sanitize=alignment> ${TAPE_KERNEL_OPTIONS})
target_link_libraries(tape_cpu_kernels_base PRIVATE tape_vm PkgConfig::OPENBLAS)
target_sources(tape_cpu PRIVATE $<TARGET_OBJECTS:tape_cpu_kernels_base>)

if(TAPE_CPU_V3 AND CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
  add_library(tape_cpu_kernels_v3 OBJECT ${TAPE_KERNEL_SOURCES})
  target_compile_definitions(tape_cpu_kernels_v3 PRIVATE TAPE_CPU_LEVEL=v3)
  target_compile_options(tape_cpu_kernels_v3 PRIVATE -fno-trapping-math -march=x86-64-v3 -fno-gnu-unique ${TAPE_KERNEL_OPTIONS})
  target_link_libraries(tape_cpu_kernels_v3 PRIVATE tape_vm PkgConfig::OPENBLAS)
  set(v3_object ${CMAKE_CURRENT_BINARY_DIR}/tape_cpu_kernels_v3.o)
  add_custom_command(
    OUTPUT ${v3_object}
    COMMAND ${CMAKE_LINKER} -r --force-group-allocation -o ${v3_object} $<TARGET_OBJECTS:tape_cpu_kernels_v3>
    COMMAND ${CMAKE_OBJCOPY} --keep-global-symbol=tape_cpu_choosers_v3 ${v3_object}
    DEPENDS tape_cpu_kernels_v3 $<TARGET_OBJECTS:tape_cpu_kernels_v3>
    COMMAND_EXPAND_LISTS VERBATIM)
  target_sources(tape_cpu PRIVATE ${v3_object})
  set_source_files_properties(${v3_object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  target_compile_definitions(tape_cpu PRIVATE TAPE_HAVE_V3)
endif()
