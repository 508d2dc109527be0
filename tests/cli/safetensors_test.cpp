// .safetensors from the shell: specs in and out, constants, and state that is saved and loaded so that training goes on
// to the bit.
#include "vm/io/safetensors.h"

#include <gtest/gtest.h>

#include "tests/cli/process.h"

namespace tape {
namespace {

using test::Folder;
using test::read_text;
using test::Result;
using test::run_tape;

template <class T>
HostArray array_of(DType dtype, Shape shape, std::initializer_list<T> values) {
  const auto bytes = std::as_bytes(std::span(values.begin(), values.size()));
  return {dtype, shape, {bytes.begin(), bytes.end()}};
}

constexpr const char* kAdd =
    ".input a f32[2]\n.input b bf16[2]\n.output c f32[2]\n.output d bf16[2]\n.tape main\n  ADD c, a, a\n  ADD d, b, "
    "b\n  "
    "NEG e, c\n.end\n";

TEST(Safetensors, SpecsInAndOut) {
  const Folder folder;
  folder.write("add.tape", kAdd);
  io::write_safetensors(folder / "in.safetensors", {{"first", array_of<float>(DType::F32, {2}, {1, 2})},
                                                    {"half", array_of<uint16_t>(DType::BF16, {2}, {0x3F80, 0xC000})}});
  const Result result = run_tape(folder,
                                 "run add.tape -q --in a=in.safetensors:first --in b=2xbf16=@in.safetensors:half "
                                 "--out c=out.safetensors --out d=out.safetensors:twice --out main:e=out.safetensors "
                                 "--expect d=in.safetensors:half,atol=4");
  ASSERT_EQ(result.code, 0) << result.err;
  const io::NamedArrays out = io::read_safetensors(folder / "out.safetensors");
  ASSERT_EQ(out.size(), 3u);
  EXPECT_EQ(out[0].first, "c");
  EXPECT_EQ(out[0].second.bytes, array_of<float>(DType::F32, {2}, {2, 4}).bytes);
  EXPECT_EQ(out[1].first, "e");
  EXPECT_EQ(out[1].second.bytes, array_of<float>(DType::F32, {2}, {-2, -4}).bytes);
  EXPECT_EQ(out[2].first, "twice");
  EXPECT_EQ(out[2].second.bytes, array_of<uint16_t>(DType::BF16, {2}, {0x4000, 0xC080}).bytes);
  io::write_safetensors(folder / "one.safetensors", {{"only", array_of<float>(DType::F32, {2}, {5, 6})}});
  EXPECT_EQ(run_tape(folder, "run add.tape -q --in a=one.safetensors --in b=zeros --out c=-").out,
            "c f32[2] = 10 12\n");
}

TEST(Safetensors, MistakesNameFileAndTensor) {
  const Folder folder;
  folder.write("add.tape", kAdd);
  io::write_safetensors(folder / "in.safetensors", {{"first", array_of<float>(DType::F32, {3}, {1, 2, 3})},
                                                    {"wide", array_of<double>(DType::F64, {2}, {1, 2})}});
  const std::string good = read_text(folder / "in.safetensors");
  folder.write("cut.safetensors", good.substr(0, good.size() - 1));
  folder.write("data.tape", ".data w f32[3] = @\"in.safetensors:frist\"\n.tape main\n  COPY y, w\n.end\n");
  const std::tuple<const char*, int, const char*> cases[] = {
      {"run add.tape --in b=zeros --in a=in.safetensors:first", 2, "a: wanted f32[2], got f32[3]"},
      {"run add.tape --in b=zeros --in a=in.safetensors:wide", 2, "a: wanted f32, got f64"},
      {"run add.tape --in b=zeros --in a=in.safetensors:frist", 3,
       "in.safetensors: no tensor named frist, did you mean first?; it holds: first, wide"},
      {"run add.tape --in b=zeros --in a=in.safetensors", 2, "in.safetensors: name one of its 2 arrays"},
      {"run add.tape --in b=zeros --in a=none.safetensors:a", 3, "none.safetensors: cannot open"},
      {"run add.tape --in b=zeros --in a=cut.safetensors:first", 3,
       "cut.safetensors: tensor first: data_offsets [16, 28] are not within the 27 bytes of data"},
      {"run add.tape --in b=zeros --in a=zeros --load cut.safetensors", 3, "cut.safetensors: tensor first: "},
      {"asm data.tape", 3, "data.tape:1:18: error: "},
      {"asm data.tape", 3, "in.safetensors: no tensor named frist, did you mean first?"},
  };
  for (const auto& [command, code, message] : cases) {
    const Result result = run_tape(folder, command);
    EXPECT_EQ(result.code, code) << command << ": " << result.err;
    EXPECT_NE(result.err.find(message), std::string::npos) << command << ": " << result.err;
  }
}

// Dropout draws from a generator, the stream is shuffled and wraps in the middle of a batch, AdamW has moments and a
// step, the rate follows the step: all of it is state.
constexpr const char* kTrain =
    ".include <std/schedules.tape>\n"
    ".const B = 4\n"
    ".stream rows x f32[*, 3] = @\"rows.safetensors:x\", y i32[*] = @\"rows.safetensors:y\"\n"
    ".param w1 f32[3, 8] kaiming_normal seed=1\n"
    ".param b1 f32[8] zeros\n"
    ".param w2 bf16[8, 2] kaiming_normal seed=2\n"
    ".rng dice seed=3\n"
    ".output loss f32[]\n"
    ".local x f32[B, 3]\n"
    ".local y i32[B]\n"
    ".tape forward\n"
    "  MATMUL h, x, w1\n"
    "  ADD h, h, b1\n"
    "  RELU h, h\n"
    "  DROPOUT kept, mask, h, dice, p=0.5\n"
    "  CAST wide, w2, dtype=f32\n"
    "  MATMUL z, kept, wide\n"
    "  CROSS_ENTROPY loss, z, y\n"
    ".end\n"
    ".grad backward of=forward loss=loss\n"
    ".optimizer opt kind=adamw params=* lr=0.1 master=1\n"
    ".tape main\n"
    "  LOAD x, y, rows, rows=B, shuffle_seed=5\n"
    "  warmup opt.lr, 0.1, 5, opt.t\n"
    "  CALL forward\n"
    "  CALL backward\n"
    "  CALL opt\n"
    ".end\n";

void write_train(const Folder& folder, std::string_view w2 = "bf16") {
  std::string text = kTrain;
  text.replace(text.find("bf16[8, 2]"), 4, w2);
  folder.write("train.tape", text);
  io::write_safetensors(
      folder / "rows.safetensors",
      {{"x", array_of<float>(DType::F32, {6, 3}, {0, 1, 1, 0, 2, 1, 1, 3, 0, 4, 5, 1, 1, 6, 7, 2, 3, 1})},
       {"y", array_of<int32_t>(DType::I32, {6}, {0, 1, 1, 0, 0, 1})}});
}

class Resume : public testing::TestWithParam<const char*> {};

TEST_P(Resume, TenAndTenStepsAreTwenty) {
  const Folder folder;
  const std::string ending = GetParam();
  write_train(folder, ending == "npz" ? "f16" : "bf16");
  const auto run = [&](const std::string& options) {
    const Result result = run_tape(folder, "run train.tape -q " + options);
    EXPECT_EQ(result.code, 0) << result.err;
    return result.out;
  };
  const std::string loss = run("--repeat 20 --save all." + ending);
  run("--repeat 10 --save half." + ending);
  EXPECT_EQ(run("--repeat 10 --load half." + ending + " --save rest." + ending), loss);
  EXPECT_EQ(read_text(folder / ("rest." + ending)), read_text(folder / ("all." + ending)));
  EXPECT_NE(read_text(folder / ("half." + ending)), read_text(folder / ("all." + ending)));
  // Every step may be a run of its own.
  run("--save one." + ending);
  for (int step = 1; step < 20; ++step) run("--load one." + ending + " --save one." + ending);
  EXPECT_EQ(read_text(folder / ("one." + ending)), read_text(folder / ("all." + ending)));
}
INSTANTIATE_TEST_SUITE_P(Formats, Resume, testing::Values("npz", "safetensors"),
                         [](const auto& format) { return std::string(format.param); });

TEST(Safetensors, SavesStateByNameAndLoadsItStrictlyUnlessPartial) {
  const Folder folder;
  write_train(folder);
  ASSERT_EQ(run_tape(folder, "run train.tape -q --repeat 3 --save all.safetensors").code, 0);
  std::vector<std::string> names;
  const io::NamedArrays saved = io::read_safetensors(folder / "all.safetensors");
  for (const auto& [name, array] : saved) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"b1", "b1.opt.m", "b1.opt.master", "b1.opt.v", "dice", "opt.lr", "opt.t",
                                             "rows.cursor", "w1", "w1.opt.m", "w1.opt.master", "w1.opt.v", "w2",
                                             "w2.opt.m", "w2.opt.master", "w2.opt.v"}));
  EXPECT_EQ(io::read_safetensors(folder / "all.safetensors", "opt.t").bytes,
            array_of<int64_t>(DType::I64, {}, {3}).bytes);
  io::write_safetensors(folder / "some.safetensors", {{"w1", io::read_safetensors(folder / "all.safetensors", "w1")}});
  Result result = run_tape(folder, "run train.tape -q --load some.safetensors");
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.err.find("it lacks rows.cursor; --partial keeps the initial value"), std::string::npos)
      << result.err;
  result = run_tape(folder, "run train.tape -q --load some.safetensors --partial --repeat 0 --out w1=w.safetensors");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(io::read_safetensors(folder / "w.safetensors", "w1").bytes,
            io::read_safetensors(folder / "all.safetensors", "w1").bytes);
}

}  // namespace
}  // namespace tape
