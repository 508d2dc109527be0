#include "cpu_reference/kernel.h"

namespace tape::cpu {
Kernel choose_Map(Call&, const Context&) { throw Error(Code::Internal, "pending"); }
Kernel choose_MapReduce(Call&, const Context&) { throw Error(Code::Internal, "pending"); }
}
