// tape run from the shell: specs in and out, messages, exit codes, files whole or not at all, training that resumes.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/process.h"
#include "vm/io/files.h"

namespace tape {
namespace {

using test::Folder;
using test::read_text;
using test::Result;
using test::run_tape;

constexpr const char* kAdd =
    ".input a f32[2, 3]\n"
    ".input b f32[3]\n"
    ".output c f32[2, 3]\n"
    ".output s f32[]\n"
    ".tape main\n"
    "  ADD c, a, b\n"
    "  MUL t, c, 2\n"
    "  SUM s, t\n"
    ".end\n";

constexpr const char* kTrain =
    ".const B = 4\n"
    ".stream rows x f32[*, 2] = @\"x.npy\", y i32[*] = @\"y.npy\"\n"
    ".param w f32[2, 2] kaiming_normal seed=1\n"
    ".rng dice seed=3\n"
    ".output loss f32[]\n"
    ".local x f32[B, 2]\n"
    ".local y i32[B]\n"
    ".tape forward\n"
    "  MATMUL z, x, w\n"
    "  CROSS_ENTROPY loss, z, y\n"
    ".end\n"
    ".grad backward of=forward loss=loss\n"
    ".optimizer opt kind=adam params=* lr=0.1\n"
    ".tape main\n"
    "  LOAD x, y, rows, rows=B, shuffle_seed=5\n"
    "  RANDOM_NORMAL noise, dice, shape=[B, 2], dtype=f32, std=0.01\n"
    "  ADD x, x, noise\n"
    "  CALL forward\n"
    "  CALL backward\n"
    "  CALL opt\n"
    ".end\n";

template <class T>
HostArray array_of(DType dtype, Shape shape, std::initializer_list<T> values) {
  const auto bytes = std::as_bytes(std::span(values.begin(), values.size()));
  return {dtype, shape, {bytes.begin(), bytes.end()}};
}

void write_rows(const Folder& folder) {
  io::write_npy(folder / "x.npy",
                array_of<float>(DType::F32, {10, 2}, {0, 1, 1, 0, 2, 1, 1, 3, 0, 4, 5, 1, 1, 6, 7, 2, 3, 1, 1, 2}));
  io::write_npy(folder / "y.npy", array_of<int32_t>(DType::I32, {10}, {0, 1, 1, 0, 0, 1, 0, 1, 1, 0}));
}

TEST(Run, PlaysAndPrintsItsOutputs) {
  const Folder folder;
  folder.write("add.tape", kAdd);
  const Result result = run_tape(folder, "run add.tape --in a='1 2 3 4 5 6' --in b='3xf32=10 20 30'");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, "c f32[2,3] =\n  11 22 33\n  14 25 36\ns f32[] = 282\n");
  EXPECT_EQ(result.err.find("tape main of add.tape on cpu ("), 0u) << result.err;
  EXPECT_EQ(run_tape(folder, "run add.tape -q --in a=zeros --in b=zeros").err, "");
}

TEST(Run, ReadsAndWritesArrayFiles) {
  const Folder folder;
  folder.write("add.tape", kAdd);
  io::write_npy(folder / "a.npy", array_of<float>(DType::F32, {2, 3}, {1, 2, 3, 4, 5, 6}));
  io::write_npz(folder / "in.npz", {{"bias", array_of<float>(DType::F32, {3}, {10, 20, 30})}});
  const Result result =
      run_tape(folder,
               "run add.tape --in a=2x3xf32=@a.npy --in b=in.npz:bias --out c=c.npy --out s=all.npz:sum "
               "--out t=all.npz:twice --out c=-");
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, "c f32[2,3] =\n  11 22 33\n  14 25 36\n");
  EXPECT_EQ(io::read_npy(folder / "c.npy").bytes, array_of<float>(DType::F32, {6}, {11, 22, 33, 14, 25, 36}).bytes);
  EXPECT_EQ(io::read_npz(folder / "all.npz", "sum").bytes, array_of<float>(DType::F32, {1}, {282}).bytes);
  EXPECT_EQ(io::read_npz(folder / "all.npz", "twice").bytes,
            array_of<float>(DType::F32, {6}, {22, 44, 66, 28, 50, 72}).bytes);
}

TEST(Run, ReadsItsTapeFromStdin) {
  const Folder folder;
  folder.write("add.tape", kAdd);
  const Result result = run_tape(folder, "run - -q --in a=zeros --in b='1 2 3' --out s=- < add.tape");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, "s f32[] = 24\n");
}

TEST(Run, ListsMissingInputsAndSuggestsNames) {
  const Folder folder;
  folder.write("add.tape", kAdd);
  Result result = run_tape(folder, "run add.tape --in b=zeros");
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.err.find("tape main needs inputs that were not given:\n  --in a=SPEC   f32[2,3]\n"),
            std::string::npos)
      << result.err;
  result = run_tape(folder, "run add.tape --in aa=zeros");
  EXPECT_NE(result.err.find("--in aa: nothing of that name takes data; did you mean `a`?"), std::string::npos)
      << result.err;
  result = run_tape(folder, "run add.tape mian");
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.err.find("no tape `mian`; did you mean `main`?"), std::string::npos) << result.err;
  result = run_tape(folder, "run add.tape --in a=zeros --in b=zeros --out main:u=-");
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.err.find("nothing of that name in tape main"), std::string::npos) << result.err;
}

TEST(Run, NamesTensorWantedAndGot) {
  const Folder folder;
  folder.write("add.tape", kAdd);
  io::write_npy(folder / "d.npy", array_of<double>(DType::F64, {3}, {1, 2, 3}));
  const std::pair<const char*, const char*> cases[] = {
      {"--in a=3x2xf32='1 2 3 4 5 6'", "a: wanted f32[2,3], got f32[3,2]"},
      {"--in b=d.npy", "b: wanted f32, got f64: a float converts only to a wider float"},
      {"--in b='1 2'", "b: wanted 3 values, got 2"},
      {"--in b=3xf32='1 2 x'", "b: `x` is not a number"},
      {"--in b=2xf32=@d.npy", "b: d.npy holds f64[3], not f32[2]"},
      {"--in b=random:cauchy", "b: random:cauchy is not one of"},
      {"--in b", "--in wants NAME=SPEC, got `b`"},
      {"--out c=c.txt", "an output is -, file.npy, file.npz[:key], file.safetensors[:key] or @file"},
      {"--repeat often", "--repeat wants a number or epoch, got `often`"},
      {"--repeat epoch --in a=zeros --in b=zeros", "tape main loads from no stream"},
      {"--mode often", "--mode is one of graph, capture, stream, not often"},
      {"--branches many", "--branches is one of off, auto, all, not many"},
      {"--save w.txt", "--save writes .npz or .safetensors, not w.txt"},
  };
  for (const auto& [options, message] : cases) {
    const Result result = run_tape(folder, std::string("run add.tape ") + options);
    EXPECT_EQ(result.code, 2) << options << result.err;
    EXPECT_NE(result.err.find(message), std::string::npos) << options << ": " << result.err;
    EXPECT_EQ(result.out, "") << options;
  }
}

TEST(Run, RefusesOptionsOfAbsentParts) {
  const Folder folder;
  folder.write("add.tape", kAdd);
  Result result = run_tape(folder, "run add.tape --tune t");
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.err.find(", which this build does not have"), std::string::npos) << result.err;
  result = run_tape(folder, "run add.tape -O2");
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.err.find("-O2 needs numeric passes"), std::string::npos) << result.err;
  result = run_tape(folder, "run add.tape --repaet 2");
  EXPECT_NE(result.err.find("unknown option --repaet; did you mean --repeat?"), std::string::npos) << result.err;
  result = run_tape(folder, "run add.tape --backend cuda");
  EXPECT_EQ(result.code, 6) << result.err;
  result = run_tape(folder, "run add.tape --backend gpu");
  EXPECT_EQ(result.code, 2) << result.err;
}

TEST(Run, ExpectComparesAndCodesTheResult) {
  const Folder folder;
  folder.write("add.tape", kAdd);
  const std::string inputs = "run add.tape -q --in a='1 2 3 4 5 6' --in b='10 20 30' ";
  EXPECT_EQ(run_tape(folder, inputs + "--expect s=282 --expect t='22 44 66 28 50 72'").code, 0);
  const Result off = run_tape(folder, inputs + "--expect s=283");
  EXPECT_EQ(off.code, 1);
  EXPECT_NE(off.err.find("s: "), std::string::npos) << off.err;
  EXPECT_EQ(run_tape(folder, inputs + "--expect s=283,atol=1").code, 0);
  EXPECT_EQ(run_tape(folder, inputs + "--expect s=283,rtol=0.001,atol=0").code, 1);
  EXPECT_EQ(run_tape(folder, inputs + "--expect s=283,atol=0,rtol=0.01").code, 0);
  EXPECT_EQ(run_tape(folder, inputs + "--expect s=283,atol=x").code, 2);
}

TEST(Run, RandomInputsAreKeyedBySeedAndName) {
  const Folder folder;
  folder.write("add.tape", kAdd);
  const auto out = [&](const std::string& options) {
    return run_tape(folder, "run add.tape -q --in a=random --out c=- " + options).out;
  };
  const std::string first = out("--in b=zeros");
  EXPECT_EQ(out("--in b=zeros"), first);
  EXPECT_NE(out("--in b=zeros --seed 1"), first);
  EXPECT_NE(out("--in b=random:integers"), first);
}

TEST(Run, JsonHasOutputsAndLog) {
  const Folder folder;
  folder.write("nan.tape",
               ".input x f32[2] = 1 0\n.output y f32[2]\n.output n f32[]\n.tape main\n  LOG y, x\n  SUM n, y\n.end\n");
  const Result result = run_tape(folder, "run nan.tape --format json --repeat 2 --log n,every=2");
  ASSERT_EQ(result.code, 0) << result.err;
  const nlohmann::json json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json["runs"], 2);
  EXPECT_EQ(json["backend"], "cpu");
  EXPECT_EQ(json["outputs"]["y"]["dtype"], "f32");
  EXPECT_EQ(json["outputs"]["y"]["values"], nlohmann::json::parse("[0.0, \"-inf\"]"));
  ASSERT_EQ(json["log"].size(), 1u);
  EXPECT_EQ(json["log"][0]["run"], 2);
  EXPECT_GT(json["log"][0]["seconds"], 0);
  EXPECT_LE(json["log"][0]["seconds"], json["seconds"]);
}

constexpr const char* kFaultingRun =
    ".state n i64[] = 0\n.input limit i64[] = -1\n.output half f32[]\n.sink log i64[*]\n.tape main\n  ADVANCE n\n"
    "  STORE log, n\n  CAST half, n, dtype=f32\n  MUL half, half, 0.5\n  NE fine, n, limit\n  CAST d, fine, dtype=i64\n"
    "  FLOOR_DIV q, n, d\n  CAST done, n, dtype=f64\n.end\n";

std::string lines_of(const std::string& text, const std::string& start) {
  std::string found;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
    if (text.compare(at, start.size(), start) == 0) found += text.substr(at, end - at);
    at = end;
  }
  return found;
}

TEST(Run, LogsAtTheirRunsAndAtTheLast) {
  const Folder folder;
  folder.write("count.tape", kFaultingRun);
  const Result result =
      run_tape(folder, "run count.tape --repeat 11 --log half,every=4 --log n,every=3 --log done --out log=-");
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(lines_of(result.err, "run "),
            "run  1  main:done 1\nrun  2  main:done 2\nrun  3  n 3  main:done 3\nrun  4  half 2  main:done 4\n"
            "run  5  main:done 5\nrun  6  n 6  main:done 6\nrun  7  main:done 7\nrun  8  half 4  main:done 8\n"
            "run  9  n 9  main:done 9\nrun 10  main:done 10\nrun 11  half 5.5  n 11  main:done 11\n");
  EXPECT_NE(result.out.find("1 2 3 4 5 6 7 8 9 10 11"), std::string::npos) << result.out;
  const Result none = run_tape(folder, "run count.tape --repeat 0 --log n --save s.npz");
  EXPECT_EQ(none.code, 0) << none.err;
  EXPECT_EQ(lines_of(none.err, "run "), "");
}

TEST(Run, AFaultNamesItsRunBehindTheLogOfThoseBefore) {
  const Folder folder;
  folder.write("count.tape", kFaultingRun);
  const Result result = run_tape(folder, "run count.tape --repeat 1000000 --in limit=5 --log n,every=2 --out log=-");
  EXPECT_EQ(result.code, 5);
  EXPECT_EQ(lines_of(result.err, "run "), "run       2  n 2\nrun       4  n 4\n");
  EXPECT_NE(result.err.find("in tape main, run 5, command "), std::string::npos) << result.err;
  EXPECT_EQ(result.out, "");
}

TEST(Run, PlotsACurve) {
  const Folder folder;
  folder.write("t.tape",
               ".state n f32[] = 0\n.output v f32[]\n.tape main\n  ADD n, n, 1\n  SUB d, n, 3\n  RECIP v, d\n.end\n");
  Result result = run_tape(folder, "run t.tape -q --repeat 128 --plot n");
  ASSERT_EQ(result.code, 0) << result.err;
  std::vector<std::string> lines;
  std::istringstream text(result.err);
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  ASSERT_EQ(lines.size(), 18u) << result.err;
  EXPECT_EQ(lines[0], "n");
  EXPECT_TRUE(lines[1].starts_with("128 |")) << lines[1];
  EXPECT_EQ(lines[1].substr(lines[1].size() - 3), "\u2809");       // dots (126,0) and (127,0)
  EXPECT_TRUE(lines[16].starts_with("  1 |\u28c0")) << lines[16];  // dots (0,63) and (1,63)
  EXPECT_EQ(lines[17], "     1" + std::string(60, ' ') + "128");
  // A pole is a gap.
  result = run_tape(folder, "run t.tape -q --repeat 5 --plot v --plot-file v.svg");
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  const std::string svg = read_text(folder / "v.svg");
  EXPECT_NE(svg.find("<polyline points=\"56.00,212.00 188.00,264.00\" "), std::string::npos) << svg;
  EXPECT_NE(svg.find("<polyline points=\"452.00,56.00 584.00,108.00\" "), std::string::npos) << svg;
  EXPECT_EQ(run_tape(folder, "run t.tape --plot-file v.svg").code, 2);
  EXPECT_EQ(run_tape(folder, "run t.tape --plot w").code, 2);
}

TEST(Run, TracesAndLogKeepTheirOrder) {
  const Folder folder;
  folder.write("t.tape", ".state n i64[] = 0\n.tape main\n  ADVANCE n\n  TRACE n, label=\"see\"\n.end\n");
  const Result result = run_tape(folder, "run t.tape -q --repeat 3 --log n,every=2");
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.err, "see: n i64[] = 1\nsee: n i64[] = 2\nrun 2  n 2\nsee: n i64[] = 3\nrun 3  n 3\n");
}

TEST(Run, AProfileNamesCommandsAndLines) {
  const Folder folder;
  folder.write(
      "sum.tape",
      ".param a f32[512, 512] normal seed=1\n.output n f32[]\n.tape main\n  MATMUL c, a, a\n  SUM n, c\n.end\n");
  const Result result = run_tape(folder, "run sum.tape --backend cpu --format json --repeat 3 --profile");
  ASSERT_EQ(result.code, 0) << result.err;
  const nlohmann::json profile = nlohmann::json::parse(result.out)["profile"];
  EXPECT_EQ(profile["runs"], 3);
  ASSERT_EQ(profile["commands"].size(), 2u);
  const nlohmann::json& product = profile["commands"][0];
  EXPECT_EQ(product["text"], "MATMUL c f32[512,512]");
  EXPECT_EQ(product["place"], "sum.tape:4:3");
  EXPECT_EQ(product["plays"], 3);
  EXPECT_EQ(product["flops"], 2.0 * 512 * 512 * 512);
  EXPECT_LE(profile["seconds"].get<double>(), nlohmann::json::parse(result.out)["seconds"].get<double>());
  const Result text = run_tape(folder, "run sum.tape --backend cpu --profile");
  EXPECT_NE(text.out.find("MATMUL c f32[512,512]  sum.tape:4:3\n"), std::string::npos) << text.out;
}

TEST(Run, AFaultWritesNoFileAndHasItsCode) {
  const Folder folder;
  folder.write(
      "bad.tape",
      ".input i i32[2] = 0 9\n.param t f32[3] ones\n.output y f32[2]\n.tape main\n  GATHER y, t, i, axis=0\n.end\n");
  folder.write("y.npy", "old");
  const Result result = run_tape(folder, "run bad.tape --out y=y.npy --save w.npz");
  EXPECT_EQ(result.code, 5);
  EXPECT_NE(result.err.find("bad.tape:5:3"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("GATHER"), std::string::npos) << result.err;
  EXPECT_EQ(read_text(folder / "y.npy"), "old");
  EXPECT_FALSE(std::filesystem::exists(folder / "w.npz"));
}

TEST(Run, TrainingResumesToTheBit) {
  const Folder folder;
  folder.write("train.tape", kTrain);
  write_rows(folder);
  ASSERT_EQ(run_tape(folder, "run train.tape -q --repeat 17 --save all.npz").code, 0);
  ASSERT_EQ(run_tape(folder, "run train.tape -q --repeat 6 --save some.npz").code, 0);
  ASSERT_EQ(run_tape(folder, "run train.tape -q --repeat 11 --load some.npz --save rest.npz").code, 0);
  EXPECT_EQ(read_text(folder / "rest.npz"), read_text(folder / "all.npz"));
  // The same tape as a binary, and with any number of threads.
  ASSERT_EQ(run_tape(folder, "asm train.tape -o train.tbc").code, 0);
  ASSERT_EQ(run_tape(folder, "run train.tbc -q --repeat 17 --threads 3 --save bin.npz").code, 0);
  EXPECT_EQ(read_text(folder / "bin.npz"), read_text(folder / "all.npz"));
  const io::NamedArrays saved = io::read_npz(folder / "all.npz");
  std::vector<std::string> names;
  for (const auto& [name, array] : saved) names.push_back(name);
  for (const char* name : {"w", "dice", "rows.cursor", "opt.t", "opt.lr", "w.opt.m", "w.opt.v"})
    EXPECT_NE(std::find(names.begin(), names.end(), name), names.end()) << name;
}

TEST(Run, RepeatEpochIsOncePerRow) {
  const Folder folder;
  folder.write("train.tape", kTrain);
  write_rows(folder);
  Result result = run_tape(folder, "run train.tape --repeat epoch --format json");
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(nlohmann::json::parse(result.out)["runs"], 3);  // ceil(10 / 4)
  result = run_tape(folder, "run train.tape --repeat epoch --format json --set B=5");
  EXPECT_EQ(nlohmann::json::parse(result.out)["runs"], 2);
  result = run_tape(folder, "run train.tape --in rows.y='3xi32=0 1 0'");
  EXPECT_NE(result.code, 0);
  EXPECT_NE(result.err.find("rows"), std::string::npos) << result.err;
}

TEST(Run, LoadIsStrictUnlessPartial) {
  const Folder folder;
  folder.write("train.tape", kTrain);
  write_rows(folder);
  io::write_npz(folder / "w.npz", {{"w", array_of<float>(DType::F32, {2, 2}, {1, 2, 3, 4})}});
  Result result = run_tape(folder, "run train.tape -q --load w.npz");
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.err.find("--load w.npz:\n  it lacks "), std::string::npos) << result.err;
  EXPECT_EQ(run_tape(folder, "run train.tape -q --load w.npz --partial").code, 0);
  io::write_npz(folder / "v.npz", {{"ww", array_of<float>(DType::F32, {2, 2}, {1, 2, 3, 4})}});
  result = run_tape(folder, "run train.tape -q --load v.npz");
  EXPECT_NE(result.err.find("it has `ww`, which is no parameter or state here; did you mean `w`?"), std::string::npos)
      << result.err;
}

TEST(Run, ModulesShareTensorsThroughWith) {
  const Folder folder;
  folder.write("owner.tape", ".param w f32[2] = 3 4\n.tape init\n  NOP\n.end\n");
  folder.write("norm.tape", ".extern w f32[2]\n.output size f32[]\n.tape main\n  NORM2 size, w\n.end\n");
  const Result result = run_tape(folder, "run norm.tape -q --with owner.tape");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, "size f32[] = 5\n");
  EXPECT_EQ(run_tape(folder, "run norm.tape -q").code, 4);
}

TEST(Run, DryRunPlaysNothing) {
  const Folder folder;
  folder.write("train.tape", kTrain);
  write_rows(folder);
  const Result result = run_tape(folder, "run train.tape --dry-run --save w.npz");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("bytes of arena"), std::string::npos) << result.out;
  EXPECT_FALSE(std::filesystem::exists(folder / "w.npz"));
}

}  // namespace
}  // namespace tape
