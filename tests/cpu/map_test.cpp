// MAP and MAP_REDUCE against the commands of their bodies played alone: equal bits, for random bodies, shapes and
// dtypes, any number of threads and on the oracle. Faults stop before anything is written.
#include <fmt/format.h>

#include "../map_bodies.h"
#include "assembler/assembler.h"
#include "kernel_call.h"
#include "opcodes/map_body.h"
#include "tapes.h"

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

/// The tape's assertions fault where bits differ.
void play(const std::string& text, DType dtype, const Shapes& at, Random& random) {
  const VerifiedModule module = verified(text);
  for (const auto& [threads, oracle] : {std::pair{1u, false}, std::pair{3u, false}, std::pair{2u, true}}) {
    CpuOptions cpu;
    cpu.threads = threads;
    cpu.oracle = oracle;
    MachineOptions options;
    options.poison = threads == 1;
    Machine machine(make_cpu_backend(cpu), options);
    machine.add(module);
    for (size_t i = 0; i < at.sources.size(); ++i)
      machine.load(fmt::format("x{}", i), random_array(random, dtype, at.sources[i]));
    try {
      machine.run("main");
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what() << "\n" << text;
      return;
    }
  }
}

class MapOfDtype : public testing::TestWithParam<DType> {};

TEST_P(MapOfDtype, IsTheCommandsOfItsBody) {
  const DType dtype = GetParam();
  Random random(static_cast<unsigned>(dtype) * 77);
  for (int round = 0; round < 4; ++round)
    for (const Shapes& at : shapes()) {
      const std::string lines = RandomBody(random, dtype, at.sources.size()).lines(1 + static_cast<int>(random() % 12));
      play(fmt::format("{}.output z {}{}\n.tape main\n  MAP [z], [{}] {{\n{}    COPY z, y\n  }}\n{}  BROADCAST w, y, "
                       "shape={}\n  ASSERT_EQUAL z, w\n.end\n",
                       declarations(dtype, at), name_of(dtype), at.full.text(), source_list(at), lines, lines,
                       at.full.text()),
           dtype, at, random);
    }
}

TEST_P(MapOfDtype, ReducesLikeTheReductions) {
  const DType dtype = GetParam();
  if (dtype == DType::Bool) return;
  Random random(static_cast<unsigned>(dtype) * 99);
  const std::pair<const char*, const char*> kinds[] = {
      {"sum", "SUM"}, {"mean", "MEAN"}, {"prod", "PROD"}, {"max", "REDUCE_MAX"}, {"min", "REDUCE_MIN"}};
  std::vector<Shapes> all = shapes();
  all.push_back({{{2, 70'001}, {70'001}}, {2, 70'001}});
  all.push_back({{{140'000}}, {140'000}});
  all.push_back({{{3, 0, 4}, {4}}, {3, 0, 4}});
  for (const Shapes& at : all)
    for (const auto& [kind, op] : kinds) {
      const int rank = at.full.rank();
      if (rank == 0 || (!is_float(dtype) && op == std::string("MEAN"))) continue;
      const int axes = 1 + static_cast<int>(random() % static_cast<unsigned>(rank));
      int64_t count = 1;
      std::string list;
      for (int axis = rank - axes; axis < rank; ++axis) {
        count *= at.full[axis];
        list += fmt::format("{}{}", list.empty() ? "" : ", ", axis);
      }
      if (count > 60'000 && random() % 3 != 0) continue;
      if (count == 0 && op[0] != 'S' && op[0] != 'P') continue;
      const bool wide = is_half(dtype) && random() % 2 == 0 && op[0] != 'R';
      const std::string type = wide ? ", dtype=f32" : "", keep = random() % 2 == 0 ? ", keepdims=1" : "";
      const std::string lines = RandomBody(random, dtype, at.sources.size()).lines(1 + static_cast<int>(random() % 5));
      std::string text = fmt::format("{}.tape main\n{}  BROADCAST w, y, shape={}\n  {} s, w, axes=[{}]{}{}\n",
                                     declarations(dtype, at), lines, at.full.text(), op, list, keep, type);
      text += "  COPY r, s\n";  // of its type and shape
      text += fmt::format("  MAP_REDUCE [r, e], [{}], reduce={}, axes={}{} {{\n{}    COPY r, y\n    COPY e, r\n  }}\n",
                          source_list(at), kind, axes, keep, lines);
      text += "  ASSERT_EQUAL r, s\n";
      if (!wide) text += "  ASSERT_EQUAL e, s\n";
      play(text + ".end\n", dtype, at, random);
    }
}

INSTANTIATE_TEST_SUITE_P(All, MapOfDtype,
                         testing::Values(DType::F64, DType::F32, DType::F16, DType::BF16, DType::I64, DType::I32,
                                         DType::I16, DType::I8, DType::U8, DType::Bool),
                         [](const auto& at) { return std::string(name_of(at.param)); });

testing::AssertionResult says(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << text;
}

TEST(Map, FaultsNameTheElementAndWriteNothing) {
  for (const unsigned threads : {1u, 4u}) {
    CpuOptions cpu;
    cpu.threads = threads;
    Machine machine(make_cpu_backend(cpu), {});
    machine.add(
        verified(".input a i32[5000, 2]\n.input b i32[5000, 2]\n.state q i32[5000, 2] fill value=7\n"
                 ".state s i32[5000] fill value=8\n"
                 ".tape main\n  MAP [q], [a, b] {\n    SUB d, b, 1\n    MOD m, a, d\n    POW p, a, b\n"
                 "    ADD q, m, p\n  }\n.end\n"
                 ".tape reduce\n  MAP_REDUCE [s], [a, b], reduce=sum {\n    FLOOR_DIV s, a, b\n  }\n.end\n"
                 ".tape constant\n  MAP [q], [a] {\n    MOD q, a, 0\n  }\n.end\n"
                 ".tape fine\n  MAP [q], [a] {\n    MOD q, a, 3\n  }\n.end\n"));
    std::vector<int32_t> b(10'000, 5);
    b[7001] = 0;   // an exponent of 0 is none; but 0 divides in `reduce`
    b[6001] = -2;  // a negative exponent
    b[9000] = 1;   // d = 0
    machine.load("a", array<int32_t>(DType::I32, {5000, 2}, std::vector<int32_t>(10'000, 11)));
    machine.load("b", array<int32_t>(DType::I32, {5000, 2}, b));
    const auto fault = [&](const char* tape) -> std::string {
      try {
        machine.run(tape);
      } catch (const Fault& found) {
        return found.what();
      }
      return "none";
    };
    EXPECT_TRUE(says(fault("main"), "MAP: element [3000,1]: POW: b is -2: negative exponent of an integer power"));
    EXPECT_TRUE(says(fault("reduce"), "MAP_REDUCE: element [3500,1]: FLOOR_DIV: b is 0: integer division by zero"));
    EXPECT_TRUE(says(fault("constant"), "MAP: element [0,0]: MOD: the constant is 0: integer division by zero"));
    EXPECT_EQ(values<int32_t>(machine.retrieve("q")), std::vector<int32_t>(10'000, 7));
    EXPECT_EQ(values<int32_t>(machine.retrieve("s")), std::vector<int32_t>(5000, 8));
    EXPECT_EQ(fault("fine"), "none");
    EXPECT_EQ(values<int32_t>(machine.retrieve("q")), std::vector<int32_t>(10'000, 2));
  }
}

/// y = x + x of one source and one destination.
std::vector<int64_t> doubling() {
  MapBody body;
  body.sources = body.destinations = 1;
  body.dtypes = {DType::F32, DType::F32};
  Command add = make_command(op_info(Opcode::Add));
  for (const uint32_t slot : {1u, 0u, 0u}) add.push_operand(slot);
  body.commands.push_back(add);
  return encode_map_body(body);
}

TEST(Map, StridedViews) {
  const std::vector<float> memory{1, 2, 3, 4, 5, 6};
  cpu::testing::KernelCall map("MAP");
  map.begin_list().destination<float>({12}).end_list().begin_list().operand<float>({6}, memory).end_list();
  map.view(0, {2, 3}, {6, 2}).view(1, {2, 3}, {1, 2}).attr("body", doubling()).run();
  EXPECT_EQ(map.view(0, {12}, {1}).values<float>(0), (std::vector<float>{2, 1, 6, 1, 10, 1, 4, 1, 8, 1, 12, 1}));

  cpu::testing::KernelCall reduce("MAP_REDUCE");
  reduce.begin_list().destination<float>({4}).end_list().begin_list().operand<float>({6}, memory).end_list();
  reduce.view(0, {2}, {2}).view(1, {2, 3}, {1, 2}).attr("body", doubling()).attr("reduce", int64_t{0}).run();
  EXPECT_EQ(reduce.view(0, {4}, {1}).values<float>(0), (std::vector<float>{18, 1, 24, 1}));
}

/// No command is contracted with the next.
TEST(Map, DoesNotFuseMultiplyAndAdd) {
  Machine machine(make_cpu_backend({}), {});
  machine.add(verified(
      fmt::format(".data a f32[3] = {0} {0} {0}\n.data c f32[] = {1}\n.output alone f32[3]\n.output mapped f32[3]\n"
                  ".output added f32[3]\n.tape main\n  MUL p, a, a\n  ADD alone, p, c\n"
                  "  MAP [mapped], [a, c] {{\n    MUL p, a, a\n    ADD mapped, p, c\n  }}\n"
                  "  BROADCAST added, c\n  MUL added, a, a, acc=1\n.end\n",
                  1 + 0x1p-12, -(1 + 0x1p-11))));
  machine.run("main");
  for (const char* name : {"alone", "mapped", "added"})
    EXPECT_EQ(values<float>(machine.retrieve(name)), std::vector<float>(3, 0.0f)) << name;
}

}  // namespace
}  // namespace tape::test
