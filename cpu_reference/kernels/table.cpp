// The kernel table of one instruction-set level, in row order of opcodes.def: index it by row_of(op), not by code. Its
// name carries the level, so that both levels can be linked into one program.
#include "cpu_reference/kernels/map_program.h"

namespace tape::cpu {
namespace {

constexpr Chooser kChoosers[] = {
#define TAPE_OP(name, ...) &choose_##name,
#include "opcodes/opcodes.def"
};

}  // namespace

Chooser chooser_of(const OpInfo& op) {
  return kChoosers[row_of(op)];
}

#define TAPE_PASTE2(a, b) a##b
#define TAPE_PASTE(a, b) TAPE_PASTE2(a, b)
extern "C" const Chooser* TAPE_PASTE(tape_cpu_choosers_, TAPE_CPU_LEVEL)() {
  return kChoosers;
}
#undef TAPE_PASTE
#undef TAPE_PASTE2

}  // namespace tape::cpu
