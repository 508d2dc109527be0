// asm(dis(b)) == b: for modules the assembler wrote, for modules nobody verified, and for words nobody understands.
#include <random>

#include "support.h"

namespace tape::test {
namespace {

Module decoded(const std::vector<std::byte>& bytes) {
  Diagnostics diagnostics;
  auto module = decode_module(bytes, nullptr, false, diagnostics);
  EXPECT_TRUE(module) << diagnostics.text();
  return module ? std::move(*module) : Module{};
}

/// Whether the text of a module gives its bytes back, in full and without locations.
void expect_round_trip(const Module& module, const std::string& what) {
  const std::vector<std::byte> bytes = encode_module(module);
  const Module read = decoded(bytes);
  for (const bool plain : {false, true}) {
    const std::string text = disassemble(read, {plain, ""}).text;
    Diagnostics diagnostics;
    const auto again = assemble(text, "other.tape", {}, diagnostics);
    ASSERT_TRUE(again) << what << "\n" << diagnostics.text() << text;
    const bool same = plain ? encode_module(strip(again->module)) == encode_module(strip(read))
                            : encode_module(again->module) == bytes;
    EXPECT_TRUE(same) << what << (plain ? " plain\n" : "\n") << text << disassemble(again->module).text;
  }
}

/// A module with one tensor of every role and a tape over them, to be bent.
Module sample() {
  return module_of(
      ".input a f32[2, 3]\n.param p f32[2, 3] uniform lo=-1 hi=1 seed=3\n.state s f64[] fill value=0.1\n"
      ".data d u8[3] = 1 2 3\n.output o f32[2]\n.local l f32[2, 3]\n.extern e f32[1] write\n.rng r seed=5\n"
      ".stream rows x u8[*, 2] = @\"x.npy\", y i32[*]\n.sink log f32[*]\n"
      ".tape helper\n  ADD l, a, p\n.end\n"
      ".tape main\n  CALL helper\n  LOAD xs, ys, rows, rows=4, end=pad, valid=n\n  SUM o, l, axes=1, acc=1\n"
      "  REPEAT 3\n    MUL l, l, 0.5\n  END\n  TRACE o, label=\"out; #1\"\n  RANDOM_UNIFORM u, r, dtype=f32, "
      "shape=[2]\n.end\n");
}

TEST(Disassemble, GivesTheTextOfACommand) {
  EXPECT_EQ(commands_of(".input a f32[2, 2]\n.tape main\nMATMUL c, a, a, trans_b=1, alpha=0.1\nPOW d, a, 2\n"
                        "SLICE e, a, start=[0, 1], stop=[2, 2]\nMSE_LOSS f, a, a, reduction=none\n.end\n"),
            "MATMUL c, a, a, trans_b=1, alpha=0.1\nPOW d, a, 2\nSLICE e, a, start=[0, 1], stop=[2, 2]\n"
            "MSE_LOSS f, a, a, reduction=none\n");
}

TEST(Disassemble, PrintsPrivatesAsLocals) {
  const std::string text = disassemble(module_of(".input x f32[2]\n.tape main\n  NEG y, x\n.end\n"), {true, ""}).text;
  EXPECT_EQ(text, ".module t\n.input x f32[2]\n.tape main\n  .local y f32[2]\n  NEG y, x\n.end\n");
}

TEST(Disassemble, PrintsPlaces) {
  const std::string text = disassemble(module_of(".input x f32[2]\n.tape main\n  NEG y, x\n.end\n")).text;
  EXPECT_EQ(text,
            ".module t\n.line_map \"t.tape\"\n.loc 1:8\n.input x f32[2]\n.loc 2:7\n.tape main\n  .loc 3:7\n"
            "  .local y f32[2]\n  .loc 3:3\n  NEG y, x\n.end\n");
}

TEST(RoundTrip, Sample) {
  expect_round_trip(sample(), "sample");
}

TEST(RoundTrip, MacroChains) {
  expect_round_trip(
      module_of(".input x f32[2]\n.macro m a\nNEG y$a, x\n.endmacro\n.tape main\n.for i = 0, 2\nm $i\n.endfor\n.end\n"),
      "chains");
}

TEST(RoundTrip, HeaderAndExtras) {
  Module module = sample();
  module.name = "we \"ird\"\n\xc3\xa4";
  module.producer = "";
  module.metadata = {{"key", "value\twith tab"}, {"", ""}};
  module.extra_sections = {{77, {std::byte{0}, std::byte{255}}}, {78, {}}};
  module.minor = 9;
  expect_round_trip(module, "header");
}

TEST(RoundTrip, RecordsNobodyWouldDeclare) {
  Module module = sample();
  const auto add = [&](std::string name, Role role, auto&& change) {
    Tensor tensor;
    tensor.name = std::move(name);
    tensor.role = role;
    tensor.shape = Shape{2};
    change(tensor);
    module.tensors.push_back(tensor);
  };
  add("odd", Role::Output, [](Tensor& t) { t.init.kind = InitKind::Ones; });
  add("vague", Role::Data, [](Tensor&) {});
  add("flat", Role::Param, [](Tensor& t) { t.init.kind = InitKind::KaimingNormal; });
  add("fraction", Role::State, [](Tensor& t) {
    t.dtype = DType::I32;
    t.init = {InitKind::Fill, 0.5, 0, 0};
  });
  add("strange_grad", Role::Local, [](Tensor&) {});
  add("real_grad", Role::Grad, [](Tensor& t) {
    t.link = 1;
    t.persistent_grad = true;
  });
  add("seedless", Role::Rng, [](Tensor&) {});
  add("owned_param", Role::Param, [](Tensor& t) { t.owner = 1; });
  add("later", Role::State, [&](Tensor& t) { t.link = static_cast<uint32_t>(module.tensors.size() + 1); });
  add("last", Role::Saved, [](Tensor& t) {
    t.owner = 0;
    t.link = 0;
  });
  add("nan_init", Role::Param, [](Tensor& t) {
    t.init = {InitKind::Uniform, -0.0, std::numeric_limits<double>::quiet_NaN(), -1};
  });
  expect_round_trip(module, "records");
}

TEST(RoundTrip, TensorsInAnyOrder) {
  Module module = module_of(
      ".input a f32[2]\n.tape one\n.local x f32[2]\nNEG x, a\n.end\n.tape two\n.local y f32[2]\nNEG y, a\n.end\n");
  std::swap(module.tensors[1], module.tensors[2]);  // y is private to the second tape and now stands first
  module.tapes[0].words[1] = 2;
  module.tapes[1].words[1] = 1;
  expect_round_trip(module, "order");
}

TEST(RoundTrip, StreamsWithAnyCursor) {
  Module module = sample();
  module.streams[0].cursor = kNone;
  expect_round_trip(module, "no cursor");
  module = sample();
  module.streams[0].cursor = 0;
  expect_round_trip(module, "another cursor");
  module = sample();
  module.streams[0].columns[0].path = "../up.npy";
  module.streams[0].columns[1].path = "/abs\"olute.npy";
  expect_round_trip(module, "paths");
  module.streams[0].columns.clear();
  expect_round_trip(module, "no columns");
}

TEST(RoundTrip, SavedValuesAndGradients) {
  Module module = sample();
  module.tapes[1].gradient_of = 0;
  module.tapes[0].gradient_of = 1;  // a circle, which only the verifier refuses
  Tensor saved;
  saved.name = "kept";
  saved.role = Role::Saved;
  saved.shape = Shape{2, 3};
  saved.owner = 0;
  const auto id = static_cast<uint32_t>(module.tensors.size());
  module.tensors.push_back(saved);
  for (uint32_t& word : module.tapes[1].words)
    if (word == module.find_tensor("l")) word = id;
  expect_round_trip(module, "saved");
}

TEST(RoundTrip, NanWithAPayloadAndBoolsThatAreNone) {
  Module module =
      module_of(".data a f32[2] = 1 2\n.data b bool[2] = 0 1\n.data c f16[1] = nan\n.data d f64[2] = -0 nan\n");
  const auto set = [&](size_t blob, std::vector<std::byte> bytes) {
    auto owned = std::make_shared<std::vector<std::byte>>(std::move(bytes));
    module.blobs[blob] = {owned, *owned, 0, true};
  };
  set(0, {std::byte{1}, std::byte{0}, std::byte{0xc0}, std::byte{0x7f}, std::byte{0}, std::byte{0}, std::byte{0},
          std::byte{0x80}});
  set(1, {std::byte{7}, std::byte{1}});
  expect_round_trip(module, "payload");
}

TEST(RoundTrip, ALargeBlobGoesToTheSidecar) {
  std::string text = ".data a i32[20000] =";
  for (int i = 0; i < 20000; ++i) text += " " + std::to_string(i * 7);
  text += "\n.data b u8[2] = 3 4\n.data c f64[10000] =";
  for (int i = 0; i < 10000; ++i) text += " 0.5";
  const Module module = module_of(text + "\n");
  const TemporaryFolder folder;
  const Disassembly parts = disassemble(module, {false, "side.bin"});
  EXPECT_EQ(parts.sidecar.size(), 160000u);
  EXPECT_LT(parts.text.size(), 1000u);
  folder.write("side.bin", {reinterpret_cast<const char*>(parts.sidecar.data()), parts.sidecar.size()});
  const Assembly again = assembly_of(parts.text, {}, folder.file("dis.tape"));
  EXPECT_EQ(encode_module(again.module), encode_module(module));
  expect_round_trip(module, "inline");
}

TEST(RoundTrip, WordsThatAreNoCommands) {
  for (const std::vector<uint32_t>& words : std::vector<std::vector<uint32_t>>{{0},
                                                                               {0x0001ffff},
                                                                               {0x00050340, 1},
                                                                               {0xffffffff, 2, 3},
                                                                               {0x00010001, 0x00030300, 99, 99},
                                                                               {0x00020002, 500},
                                                                               {0x00040300, 0, 0, 0},
                                                                               {0x00040300, 8, 8, 7}}) {
    Module module = sample();
    for (Tape& tape : module.tapes) {
      tape.words.insert(tape.words.end(), words.begin(), words.end());
      tape.lines.clear();
    }
    expect_round_trip(module, std::to_string(words[0]));
  }
}

TEST(RoundTrip, CommandsThatBreakTheRules) {
  // They decode, and only the verifier would refuse them: shapes that differ, unmatched END, a string in such words.
  Module module = sample();
  Tape& tape = module.tapes[0];
  tape.words = {0x00050340, 0, 3, 4, 0, 0x00010005};  // ADD a, d, o and END
  tape.lines.clear();
  Command trace = make_command(*find_op(std::string_view("TRACE")));
  trace.push_operand(0);
  set_int(trace, "label", 0);
  std::string reason;
  module.strings = {"first", "out; #1"};
  ASSERT_TRUE(encode(trace, module, tape.words, reason));
  module.tapes[1].words.clear();
  module.tapes[1].lines.clear();
  set_int(trace, "label", 1);
  ASSERT_TRUE(encode(trace, module, module.tapes[1].words, reason));
  expect_round_trip(module, "rules");
}

/// Places that a text does not give are none, wherever its first .line_map or .loc stands.
TEST(RoundTrip, PlacesOfATextThatGivesItsOwn) {
  for (const char* text :
       {".line_map\n.input x f32[2]\n.tape main\n  COPY t, x\n.end\n",
        ".input x f32[2]\n.line_map\n.tape main\n  COPY t, x\n  ADD y, t, t\n.end\n",
        ".stream rows a f32[*, 2]\n.sink s f32[*]\n.tape main\n  LOAD t, rows, rows=3\n.end\n.line_map\n",
        ".input x f32[2]\n.tape main\n  COPY t, x\n.end\n.line_map \"a\"\n.loc 3:4\n.input z f32[2]\n"}) {
    const Module module = module_of(text);
    for (const Tensor& tensor : module.tensors) EXPECT_EQ(tensor.location.line != 0, tensor.name == "z") << text;
    for (const Tape& tape : module.tapes) EXPECT_TRUE(tape.lines.empty()) << text;
    expect_round_trip(module, text);
  }
}

TEST(RoundTrip, PlacesNameFilesAndChainsThatAreThere) {
  EXPECT_EQ(errors_of(".loc 1:1\n.input x f32[2]\n"), "1:6 file 0 of the 0 that .line_map names\n");
  EXPECT_EQ(errors_of(".line_map \"a\", \"b\"\n.loc 1:1 file=1\n.input x f32[2]\n.loc 1:1 file=2\n.input y f32[2]\n"),
            "4:6 file 2 of the 2 that .line_map names\n");
  EXPECT_EQ(errors_of(".line_map \"a\"\n.chain \"CALL f\" 2:3\n.loc 1:1 chain=2\n.input x f32[2]\n"),
            "3:6 chain 2 of 1 so far\n");
}

TEST(RoundTrip, RandomWords) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    Module module = sample();
    for (Tape& tape : module.tapes) {
      tape.lines.clear();
      for (int change = 0; change < 3 && !tape.words.empty(); ++change) {
        uint32_t& word = tape.words[random() % tape.words.size()];
        switch (random() % 4) {
          case 0:
            word = static_cast<uint32_t>(random());
            break;
          case 1:
            word = static_cast<uint32_t>(random() % 16);
            break;
          case 2:
            word ^= 1u << random() % 32;
            break;
          default:
            word = 0xFFFFFFFFu;
        }
      }
    }
    Diagnostics diagnostics;
    if (!decode_module(encode_module(module), nullptr, false, diagnostics)) continue;
    expect_round_trip(module, "round " + std::to_string(round));
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace tape::test
