// Every limit of the formats and of a verified module. Each is named in the error that enforces it
// and printed by `tape limits`.
#pragma once

#include <cstdint>

namespace tape {

// TAPE_LIMIT(name, value, meaning)
#define TAPE_LIMITS(TAPE_LIMIT)                                                             \
  TAPE_LIMIT(max_rank, 8, "dimensions of a tensor")                                         \
  TAPE_LIMIT(max_name, 255, "bytes of a name")                                              \
  TAPE_LIMIT(max_tensors, 1u << 20, "tensors of a module")                                  \
  TAPE_LIMIT(max_tapes, 1u << 16, "tapes of a module")                                      \
  TAPE_LIMIT(max_streams, 1u << 12, "streams and sinks of a module, each")                  \
  TAPE_LIMIT(max_columns, 64, "columns of a stream")                                        \
  TAPE_LIMIT(max_command_words, 65535, "words of one command")                              \
  TAPE_LIMIT(max_body, 4096, "commands of the body of a MAP, and its slots")                \
  TAPE_LIMIT(max_nesting, 64, "nested REPEAT and WHILE of an entry, CALLs inlined")         \
  TAPE_LIMIT(max_call_depth, 256, "CALLs inside one another")                               \
  TAPE_LIMIT(max_inlined, 1'000'000, "commands of one entry after inlining")                \
  TAPE_LIMIT(max_executed, int64_t{1} << 40, "commands one run of an entry may execute")    \
  TAPE_LIMIT(max_elements, int64_t{1} << 46, "elements of a tensor")                        \
  TAPE_LIMIT(max_bytes, int64_t{1} << 60, "bytes of all tensors of a module")               \
  TAPE_LIMIT(max_flow, 32'000'000, "common locals read or written, summed over all CALLs")  \
  TAPE_LIMIT(max_chain, 8192, "links of the expansion chain of a place")                    \
  TAPE_LIMIT(max_include_depth, 32, "nested .include files")                                \
  TAPE_LIMIT(max_expansion, 4'000'000, "lines produced by .macro and .for")                 \
  TAPE_LIMIT(max_expansion_bytes, 256 * 1024 * 1024, "bytes of lines that paste something") \
  TAPE_LIMIT(max_expansion_depth, 64, "nested macro expansions")                            \
  TAPE_LIMIT(max_diagnostics, 200, "mistakes reported in one pass")                         \
  TAPE_LIMIT(max_inline_blob, 64 * 1024, "bytes of data that dis writes inline")            \
  TAPE_LIMIT(max_module_commands, 16'000'000, "commands of a module")

namespace limits {
#define TAPE_LIMIT(name, value, meaning) inline constexpr int64_t name = value;
TAPE_LIMITS(TAPE_LIMIT)
#undef TAPE_LIMIT
}  // namespace limits

}  // namespace tape
