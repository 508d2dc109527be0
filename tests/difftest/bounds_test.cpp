// Bounds of single commands against formulas that others use.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "difftest/op_bounds.h"
#include "embed/backends.h"

namespace tape {
namespace {

/// z (1 + tanh(..)) / 2 in f32, term by term.
float written_out(float z) {
  return 0.5f * z * (1.0f + std::tanh(0.7978845608f * (z + 0.044715f * z * z * z)));
}

TEST(Bounds, GeluTanhOfAProductMayRoundOnePlusTanh) {
  difftest::CasePlayer oracle(open_backend("cpu64"), 0xA5);
  const OpInfo& op = *find_op(static_cast<uint16_t>(Opcode::MatMul));
  int cases = 0, deep = 0, lost = 0;
  for (OpCase& one : make_op_cases(op, DType::F32, 5, CaseSet::All)) {
    const Module& module = one.module->module();
    if (one.inputs == CaseInputs::Edge || one.name.find("act=gelu_tanh") == std::string::npos) continue;
    size_t dst = 0, aux = 0;
    for (size_t id = 0; id < module.tensors.size(); ++id) {
      const std::string& name = module.tensors[id].name;
      dst = name == "dst" ? id : dst;
      aux = name == "aux" ? id : aux;
      // Results of deviation 5, so that many results lie where the sum of 1 and tanh is a few units.
      if (name == "a" || name == "b")
        for (size_t i = 0; i < one.values[id].bytes.size() / 4; ++i) {
          float x = 0;
          std::memcpy(&x, one.values[id].bytes.data() + 4 * i, 4);
          x *= 2.2f / std::pow(static_cast<float>(std::max<int64_t>(one.size, 1)), 0.25f);
          std::memcpy(one.values[id].bytes.data() + 4 * i, &x, 4);
        }
    }
    if (aux == dst || module.tensors[dst].dtype != DType::F32) continue;
    const difftest::OracleBounds bounds(one, oracle, 4);
    const difftest::TensorBound bound = bounds.of(dst);
    const HostArray& before = bounds.values().tensors[aux];
    ++cases;
    for (size_t i = 0; i < bound.oracle.size(); ++i) {
      const double z = element_as_f64(before.bytes, before.dtype, i);
      const double y = static_cast<double>(written_out(static_cast<float>(z)));
      EXPECT_LE(std::abs(y - bound.oracle[i]), bound.allowed[i]) << one.name << " at " << z;
      if (z > -4 || z < -8) continue;
      // Where the sum loses digits; and a result that is wrong in the fourth.
      ++deep;
      lost += std::abs(y - bound.oracle[i]) > 0x1p-20 * std::abs(bound.oracle[i]) ? 1 : 0;
      EXPECT_GT(1e-3 * std::abs(z), bound.allowed[i]) << one.name << " at " << z;
    }
  }
  EXPECT_GT(cases, 0);
  EXPECT_GT(deep, 10);
  EXPECT_GT(lost, 5);
}

}  // namespace
}  // namespace tape
