#include "cpu_reference/kernel.h"

namespace tape::cpu {
Kernel choose_Map(Call&, const Context&) { throw Error(Code::Internal, "pending"); }
Kernel choose_MapReduce(Call&, const Context&) { throw Error(Code::Internal, "pending"); }
Kernel choose_LstmCell(Call&, const Context&) { throw Error(Code::Internal, "pending"); }
Kernel choose_LstmCellGrad(Call&, const Context&) { throw Error(Code::Internal, "pending"); }
Kernel choose_GruCell(Call&, const Context&) { throw Error(Code::Internal, "pending"); }
Kernel choose_GruCellGrad(Call&, const Context&) { throw Error(Code::Internal, "pending"); }
Kernel choose_AmsGrad(Call&, const Context&) { throw Error(Code::Internal, "pending"); }
Kernel choose_AdaGrad(Call&, const Context&) { throw Error(Code::Internal, "pending"); }
Kernel choose_RmsProp(Call&, const Context&) { throw Error(Code::Internal, "pending"); }
Kernel choose_Nag(Call&, const Context&) { throw Error(Code::Internal, "pending"); }
Kernel choose_Lion(Call&, const Context&) { throw Error(Code::Internal, "pending"); }
Kernel choose_ClipValue(Call&, const Context&) { throw Error(Code::Internal, "pending"); }
}
