// tape diff: equal backends agree, a planted fault is named with its side, sensitivity is no fault, discrete results do
// not spread, and the first bad command is the first.
#include "difftest/diff.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "difftest/diff_report.h"
#include "embed/backends.h"
#include "embed/open.h"
#include "tests/difftest/faulty.h"
#include "tests/difftest/support.h"

namespace tape {
namespace {

using test::module_of;

constexpr const char* kText = R"(.module some
.input x f32[33,40]
.param w f32[40,7] normal seed=1
.output s f32[7]
.tape main
  MATMUL a, x, w
  TANH b, a
  SUM s, b, axes=[0]
  MUL s, s, 0.5
.end
)";

DiffOptions options_for(const std::string& a, const std::string& b = "cpu") {
  DiffOptions options;
  options.a = diff_side(a);
  options.b = diff_side(b);
  return options;
}

std::string said(const DiffReport& report) {
  return diff_text(report, true);
}

TEST(Diff, ABackendAgreesWithItself) {
  for (const char* b : {"cpu", "cpu64"}) {
    const DiffReport report = diff_tape(module_of(kText), options_for("cpu", b));
    EXPECT_EQ(report.verdict, DiffVerdict::Ok) << said(report);
    EXPECT_FALSE(report.first_bad.has_value() || report.signature.has_value());
    EXPECT_EQ(report.played, 4u);
    EXPECT_EQ(report.elements, 33u * 7 + 33 * 7 + 7 + 7);
    EXPECT_EQ(report.ill_conditioned, 0u) << said(report);
    EXPECT_GT(report.peak_bytes, (33u * 40 + 40 * 7) * 4);
  }
}

TEST(Diff, NamesTheCommandAndTheSide) {
  const test::FaultyBackends faulty;
  for (const char* kind : {"lane", "tf32", "index", "nan"}) {
    const std::string name = std::string("faulty:") + kind + ":MATMUL";
    for (const bool swapped : {false, true}) {
      const DiffReport report =
          diff_tape(module_of(kText), swapped ? options_for("cpu", name) : options_for(name, "cpu"));
      ASSERT_TRUE(report.first_bad.has_value()) << name << "\n" << said(report);
      EXPECT_EQ(report.verdict, swapped ? DiffVerdict::BWrong : DiffVerdict::AWrong) << said(report);
      EXPECT_EQ(report.first_bad->mnemonic, "MATMUL");
      EXPECT_EQ(report.first_bad->index, 0u);
      EXPECT_EQ(report.first_bad->place, "<text>:6:3");
      EXPECT_EQ(report.failed, 1u) << said(report);  // the commands behind it are right on the values they get
      EXPECT_EQ(report.signature->kind, "value");
      EXPECT_EQ(report.signature->opcode, Opcode::MatMul);
      ASSERT_FALSE(report.first_bad->results[0].worst.empty());
    }
    EXPECT_EQ(diff_tape(module_of(kText), options_for(name, name)).verdict, DiffVerdict::BothWrong) << name;
  }
}

TEST(Diff, AFaultInTheMiddle) {
  const test::FaultyBackends faulty;
  const DiffReport report = diff_tape(module_of(kText), options_for("faulty:lane:MUL"));
  ASSERT_TRUE(report.first_bad.has_value());
  EXPECT_EQ(report.first_bad->index, 3u);
  EXPECT_EQ(report.first_bad->place, "<text>:9:3");
  // What it found and what came out, under the names of the operands.
  std::vector<std::string> names;
  for (const auto& [name, array] : report.operands) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"a", "a.a", "a.b", "a.oracle"}));
}

TEST(Diff, DistancesAreCountedInUnitsOfTheLastPlace) {
  const test::FaultyBackends faulty;
  const DiffReport report = diff_tape(module_of(kText), options_for("faulty:lane:TANH"));
  ASSERT_TRUE(report.first_bad.has_value());
  const DiffTensor& result = report.first_bad->results[0];
  EXPECT_EQ(result.differing, 8u);  // every 32nd of 231 is 0 in A: millions of units away
  EXPECT_EQ(result.ulps[0], 231u - 8);
  EXPECT_EQ(result.ulps[kUlpBins - 1], 8u);
  EXPECT_EQ(result.worst.size(), 5u);
  for (const DiffElement& element : result.worst)
    EXPECT_EQ(element.index % 32, report.first_bad->results[0].worst[0].index % 32);
}

TEST(Diff, OtherBitsForEqualInputsAreNotAWrongValue) {
  const test::FaultyBackends faulty;
  DiffOptions options = options_for("faulty:order:MATMUL");
  options.repeat = 16;
  const DiffReport report = diff_tape(module_of(kText), options);
  EXPECT_EQ(report.verdict, DiffVerdict::Nondeterministic) << said(report);
  EXPECT_EQ(report.signature->kind, "nondeterministic");
}

/// The CPU, but not in the canonical order of products: other bits, all of them within the bound.
DiffSide blas() {
  return {"blas", [] { return open_backend("cpu", {}); }};
}

TEST(Diff, SmallLocalErrorsThatGrowAreIllConditioned) {
  // (x + 1e4) - 1e4 keeps few digits: A and B round alike, the oracle does not.
  const DiffReport report = diff_tape(module_of(R"(.module some
.input x f32[64]
.output y f32[64]
.tape main
  MUL a, x, 0.001
  ADD b, a, 100000
  SUB y, b, 100000
.end
)"),
                                      options_for("cpu"));
  EXPECT_EQ(report.verdict, DiffVerdict::Ok) << said(report);
  EXPECT_EQ(report.ill_conditioned, 1u) << said(report);
  EXPECT_EQ(report.commands[2].verdict, DiffVerdict::IllConditioned);
  EXPECT_GT(report.commands[2].results[0].accumulated.rel, 0.1);
  EXPECT_EQ(report.commands[2].results[0].a.abs, 0);  // Sterbenz: the difference itself is exact
}

TEST(Diff, DiscreteResultsDoNotSpread) {
  // A tie that only the oracle's own chain breaks: without forcing, the oracle would gather another row.
  const DiffReport report = diff_tape(module_of(R"(.module some
.data x f32[2] = 0.1 0.3
.data rows f32[2] = 1 100
.output y f32[]
.output c f32[2]
.tape main
  MUL t, x, 3
  CONCAT both, t, t
  ARGMAX i, both, axis=0
  FLOOR c, t
  MOD i2, i, 2
  GATHER y, rows, i2
.end
)"),
                                      options_for("cpu"));
  EXPECT_EQ(report.verdict, DiffVerdict::Ok) << said(report);
  for (const DiffCommand& row : report.commands)
    if (row.mnemonic == "GATHER" || row.mnemonic == "FLOOR") {
      EXPECT_EQ(row.results[0].accumulated.abs, 0) << said(report);
    }
}

TEST(Diff, IntegersOweTheExactResult) {
  DiffOptions options = options_for("cpu");
  options.a = blas();
  options.inputs = InputKind::Integers;
  const VerifiedModule module = module_of(R"(.module some
.input x f32[32,100]
.input w f32[100,9]
.output y f32[32,9]
.tape main
  MATMUL y, x, w
.end
)");
  const DiffReport report = diff_tape(module, options);
  EXPECT_EQ(report.verdict, DiffVerdict::Ok) << said(report);
  EXPECT_TRUE(report.commands[0].results[0].exact);
  EXPECT_EQ(report.commands[0].results[0].differing, 0u);
  EXPECT_EQ(report.commands[0].results[0].a.abs, 0);
  options.inputs = InputKind::Normal;
  EXPECT_FALSE(diff_tape(module, options).commands[0].results[0].exact);
}

TEST(Diff, LoopsAndCallsArePlayedCommandByCommand) {
  const DiffReport report = diff_tape(module_of(R"(.module some
.state n i32[] = 0
.output y f32[]
.tape grow
  ADD y, y, 0.1
.end
.tape main
  FILL y, value=0
  REPEAT 3
    CALL grow
    ADVANCE n
  END
  LT go, n, 10
  WHILE go, max=100
    ADVANCE n
    LT go, n, 10
  END
.end
)"),
                                      options_for("cpu"));
  EXPECT_EQ(report.verdict, DiffVerdict::Ok) << said(report);
  EXPECT_EQ(report.played, 1u + 3 * 2 + 1 + 7 * 2);
  const auto adds = std::count_if(report.commands.begin(), report.commands.end(),
                                  [](const DiffCommand& row) { return row.mnemonic == "ADD"; });
  EXPECT_EQ(adds, 3);
  EXPECT_EQ(report.commands[5].pass, 2u);
}

TEST(Diff, BothSidesStopAtAFault) {
  const DiffReport report = diff_tape(module_of(R"(.module some
.data i i32[] = 7
.data x f32[3] = 1 2 3
.tape main
  GATHER y, x, i
.end
)"),
                                      options_for("cpu"));
  EXPECT_EQ(report.verdict, DiffVerdict::Ok);
  EXPECT_NE(report.fault.find("GATHER"), std::string::npos) << report.fault;
  EXPECT_EQ(report.elements, 0u);
}

TEST(Diff, ValuesDependOnSeedAndNameAlone) {
  const VerifiedModule small = module_of(".input b f32[5]\n.output y f32[5]\n.tape main\n  COPY y, b\n.end\n");
  const VerifiedModule large = module_of(
      ".input a f32[9]\n.input b f32[5]\n.output y f32[5]\n.output z f32[9]\n.tape main\n  EXP z, a\n  COPY y, b\n"
      ".end\n");
  const NamedValues one = draw_inputs(small, 0, InputKind::Normal, 3),
                    two = draw_inputs(large, 0, InputKind::Normal, 3);
  ASSERT_EQ(one.size(), 1u);
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(one[0].second.bytes, two[1].second.bytes);
  EXPECT_NE(one[0].second.bytes, draw_inputs(small, 0, InputKind::Normal, 4)[0].second.bytes);
}

TEST(Diff, IndicesAreInTheRangeOfTheirReaders) {
  const VerifiedModule module = module_of(R"(.module some
.input x f32[3,4]
.input i i64[50]
.input labels i32[3]
.output y f32[50,4]
.output loss f32[]
.tape main
  RESHAPE j, i, shape=[5, 10]
  RESHAPE k, j, shape=[50]
  GATHER y, x, k
  CROSS_ENTROPY loss, x, labels
.end
)");
  for (const InputKind kind : {InputKind::Declared, InputKind::Integers, InputKind::Edge})
    for (const auto& [name, array] : draw_inputs(module, 0, kind, 1))
      for (uint64_t e = 0; !is_float(array.dtype) && e < static_cast<uint64_t>(array.shape.elements()); ++e) {
        EXPECT_GE(element_as_i64(array.bytes, array.dtype, e), 0);
        EXPECT_LT(element_as_i64(array.bytes, array.dtype, e), name == "i" ? 3 : 4);
      }
}

TEST(Diff, RefusesWhatItCannotPlay) {
  DiffOptions options = options_for("cpu");
  options.tape = "nothing";
  EXPECT_THROW(static_cast<void>(diff_tape(module_of(kText), options)), Error);
  options.tape = "main";
  options.values.emplace_back("nothing", HostArray{DType::F32, {}, std::vector<std::byte>(4)});
  EXPECT_THROW(static_cast<void>(diff_tape(module_of(kText), options)), Error);
}

TEST(Diff, JsonHasAVersion) {
  const test::FaultyBackends faulty;
  const nlohmann::json json = diff_json(diff_tape(module_of(kText), options_for("faulty:nan:SUM")));
  EXPECT_EQ(json.at("schema"), "tape.diff/1");
  EXPECT_EQ(json.at("verdict"), "a-wrong");
  EXPECT_EQ(json.at("first_bad").at("opcode"), "SUM");
  EXPECT_TRUE(json.at("first_bad").at("results")[0].at("worst")[0].at("a").is_null());  // NaN
  EXPECT_EQ(json.at("commands").size(), 4u);
}

TEST(Diff, SamplesAgree) {
  const std::string folder = TAPE_SOURCE_DIR "/samples/";
  for (const char* file : {"xor.tape", "kan.tape", "mlp_sin.tape"})
    for (const InputKind kind : {InputKind::Declared, InputKind::Integers, InputKind::Edge}) {
      const VerifiedModule module = open_module(folder + file);
      DiffOptions options = options_for("cpu");
      options.inputs = kind;
      options.max_commands = 150;
      options.b = diff_side(kind == InputKind::Declared ? "cpu64" : "cpu");
      const DiffReport report = diff_tape(module, options);
      EXPECT_EQ(report.verdict, DiffVerdict::Ok) << file << " " << name_of(kind) << "\n" << diff_text(report, false);
      EXPECT_GT(report.elements, 0u);
    }
}

}  // namespace
}  // namespace tape
