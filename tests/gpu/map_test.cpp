// MAP and MAP_REDUCE on the card against the CPU in canonical order, and its compiled programs against its interpreter:
// random bodies over all rows, dtypes and shapes, to the bit. Functions of f64 are another library's and left out.
#include <gtest/gtest.h>

#include <cstdlib>

#include "../map_bodies.h"
#include "assembler/assembler.h"
#include "embed/backends.h"
#include "tests/gpu/card.h"
#include "vm/compare.h"
#include "vm/error.h"
#include "vm/machine.h"

namespace tape::test {
namespace {

VerifiedModule verified(const std::string& text) {
  Diagnostics diagnostics;
  auto assembly = assemble(text, "t.tape", {}, diagnostics);
  std::optional<VerifiedModule> module;
  if (assembly) module = verify(assembly->module, diagnostics);
  if (!module) throw std::runtime_error(diagnostics.text() + text);
  return *module;
}

struct Outcome {
  std::string fault;  // empty: none
  std::vector<HostArray> values;
};

struct Case {
  std::string text;
  std::vector<std::string> outputs;
  std::vector<HostArray> sources;
};

Outcome play(const Case& at, std::unique_ptr<Backend> backend) {
  Machine machine(std::move(backend));
  machine.add(verified(at.text));
  for (size_t i = 0; i < at.sources.size(); ++i) machine.load(fmt::format("x{}", i), at.sources[i]);
  Outcome outcome;
  try {
    machine.run("main");
  } catch (const Fault& fault) {
    outcome.fault = fault.mnemonic + ": " + fault.what();
  }
  for (const std::string& name : at.outputs) outcome.values.push_back(machine.retrieve(name));
  return outcome;
}

void expect_equal(const Outcome& expected, const Outcome& got, const Case& at, const char* how) {
  EXPECT_EQ(expected.fault, got.fault) << how << "\n" << at.text;
  if (!expected.fault.empty()) return;  // outputs hold what they held
  for (size_t i = 0; i < at.outputs.size(); ++i) {
    const Comparison exact = compare_exact(expected.values[i], got.values[i]);
    EXPECT_TRUE(exact.equal()) << how << ": " << at.outputs[i] << ": " << exact.text << "\n" << at.text;
  }
}

/// Without a compiler at run time both plays are the interpreter's.
void compare(const Case& at) {
  BackendOptions canonical;
  canonical.canonical_order = true;
  const Outcome expected = play(at, open_backend("cpu", canonical));
  expect_equal(expected, play(at, open_backend("cuda")), at, "compiled");
  const char* const given = std::getenv("TAPE_NVRTC");
  const std::string kept = given == nullptr ? "" : given;
  ASSERT_EQ(setenv("TAPE_NVRTC", "off", 1), 0);
  expect_equal(expected, play(at, open_backend("cuda")), at, "interpreted");
  ASSERT_EQ(setenv("TAPE_NVRTC", kept.c_str(), 1), 0);
}

std::vector<HostArray> sources_of(Random& random, DType dtype, const Shapes& at) {
  std::vector<HostArray> sources;
  for (const Shape& shape : at.sources) sources.push_back(random_array(random, dtype, shape));
  return sources;
}

/// Shapes that are whole vectors in every row, that are not, and long ones.
std::vector<Shapes> all_shapes() {
  std::vector<Shapes> all = shapes();
  all.push_back({{{64, 128}, {128}}, {64, 128}});
  all.push_back({{{64, 128}, {64, 1}}, {64, 128}});
  all.push_back({{{16, 4, 32}, {4, 1}, {16, 1, 32}}, {16, 4, 32}});
  all.push_back({{{20'000}, {}}, {20'000}});
  return all;
}

class MapOnTheCard : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override { SKIP_WITHOUT_CARD(); }
};

Case map_case(Random& random, DType dtype, const Shapes& at, const std::string& lines) {
  Case result;
  result.text = fmt::format(
      ".output y {0}{1}\n.output z {0}{1}\n{2}.tape main\n  MAP [y, z], [{3}] {{\n{4}    COPY z, "
      "y\n  }}\n.end\n",
      name_of(dtype), at.full.text(), declarations(dtype, at), source_list(at), lines);
  result.outputs = {"y", "z"};
  result.sources = sources_of(random, dtype, at);
  return result;
}

TEST_P(MapOnTheCard, IsTheCpu) {
  const DType dtype = GetParam();
  Random random(static_cast<unsigned>(dtype) * 31);
  for (const Shapes& at : all_shapes()) {
    RandomBody body(random, dtype, at.sources.size(), RandomBody::Rows::Exact);
    compare(map_case(random, dtype, at, body.lines(1 + static_cast<int>(random() % 12))));
  }
}

TEST_P(MapOnTheCard, PlaysEveryRow) {
  const DType dtype = GetParam();
  Random random(static_cast<unsigned>(dtype) * 37);
  for (const Shapes& at : {Shapes{{{1000}, {1000}}, {1000}}, Shapes{{{7, 33}, {33}}, {7, 33}}}) {
    RandomBody body(random, dtype, at.sources.size(), RandomBody::Rows::Exact);
    Case result;
    std::string outputs;
    for (const RandomBody::Name& name : body.every_row()) {
      if (name.name[0] == 'x') continue;
      result.outputs.push_back(name.name);
      outputs += fmt::format(".output {} {}{}\n", name.name, name_of(name.dtype), at.full.text());
    }
    result.text = fmt::format("{}{}.tape main\n  MAP [{}], [{}] {{\n{}  }}\n.end\n", outputs, declarations(dtype, at),
                              fmt::join(result.outputs, ", "), source_list(at), body.text());
    result.sources = sources_of(random, dtype, at);
    compare(result);
  }
}

TEST_P(MapOnTheCard, FindsTheFault) {
  const DType dtype = GetParam();
  if (!is_int(dtype)) return;
  Random random(static_cast<unsigned>(dtype) * 41);
  for (int round = 0; round < 6; ++round)
    for (const Shapes& at : {Shapes{{{5000}, {5000}}, {5000}}, Shapes{{{7, 1, 30}, {5, 1}}, {7, 5, 30}}}) {
      RandomBody body(random, dtype, at.sources.size(), RandomBody::Rows::Faulting);
      compare(map_case(random, dtype, at, body.lines(6)));
    }
}

TEST_P(MapOnTheCard, Reduces) {
  const DType dtype = GetParam();
  if (dtype == DType::Bool) return;
  Random random(static_cast<unsigned>(dtype) * 43);
  std::vector<Shapes> all = all_shapes();
  all.push_back({{{2, 70'001}, {70'001}}, {2, 70'001}});
  all.push_back({{{3, 0, 4}, {4}}, {3, 0, 4}});
  for (const Shapes& at : all)
    for (const char* const kind : {"sum", "mean", "prod", "max", "min"}) {
      const int rank = at.full.rank();
      if (rank == 0 || (!is_float(dtype) && kind == std::string("mean"))) continue;
      const int axes = 1 + static_cast<int>(random() % static_cast<unsigned>(rank));
      Shape shape;
      int64_t count = 1;
      for (int axis = 0; axis < rank; ++axis)
        if (axis < rank - axes)
          shape.push_back(at.full[axis]);
        else
          count *= at.full[axis];
      if ((count == 0 && kind[0] != 's' && kind[0] != 'p') || (count > 60'000 && random() % 3 != 0)) continue;
      const bool wide = is_half(dtype) && random() % 2 == 0 && kind[0] != 'm';
      RandomBody body(random, dtype, at.sources.size(), RandomBody::Rows::Exact);
      Case result;
      result.text = fmt::format(
          ".output r {0}{2}\n.output b {1}{2}\n{3}.tape main\n  MAP_REDUCE [r, b], [{4}], reduce={5}, axes={6} "
          "{{\n{7}    COPY r, y\n    ABS b, r\n  }}\n.end\n",
          wide ? "f32" : name_of(dtype), name_of(dtype), shape.text(), declarations(dtype, at), source_list(at), kind,
          axes, body.lines(1 + static_cast<int>(random() % 5)));
      result.outputs = {"r", "b"};
      result.sources = sources_of(random, dtype, at);
      compare(result);
    }
}

INSTANTIATE_TEST_SUITE_P(All, MapOnTheCard,
                         testing::Values(DType::F64, DType::F32, DType::F16, DType::BF16, DType::I64, DType::I32,
                                         DType::I16, DType::I8, DType::U8, DType::Bool),
                         [](const auto& at) { return std::string(name_of(at.param)); });

}  // namespace
}  // namespace tape::test
