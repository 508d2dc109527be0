// Damaged, newer and unsound files through every command: a message, the documented code, and no output file. Results
// that could not be written are refused before anything is played.
#include <gtest/gtest.h>

#include <cstring>

#include "assembler/assembler.h"
#include "process.h"
#include "vm/container.h"

namespace tape::test {
namespace {

constexpr const char* kText = R"(
.param w f32[2, 2] normal seed=1
.input x f32[2, 2] = 1 2 3 4
.output y f32[]
.tape f
  MATMUL h, x, w
  SUM y, h
.end
.grad b of=f loss=y
.tape main
  CALL f
  CALL b
  REPEAT 3
    ADD w, w, w_grad
  END
.end
)";

Module module_of_text() {
  Diagnostics diagnostics;
  std::optional<Assembly> assembly = assemble(kText, "good.tape", {}, diagnostics);
  if (!assembly) throw std::runtime_error(diagnostics.text());
  return std::move(assembly->module);
}

std::string bytes_of(const Module& module) {
  const std::vector<std::byte> bytes = encode_module(module);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Commands that copy a module into a file; "OUT" is its name.
constexpr const char* kCopying[] = {"asm F -o OUT.tbc",       "dis F -o OUT.tape",
                                    "strip F -o OUT.tbc",     "strip F -o OUT.tape",
                                    "opt F main -o OUT.tape", "grad F --of f --loss y --name bb -o OUT.tbc"};

std::string with_file(std::string command, const std::string& file) {
  return command.replace(command.find(" F") + 1, 1, file);
}

void expect_refused(const Folder& folder, const std::string& command, int code, const std::string& message) {
  const Result result = run_tape(folder, command);
  EXPECT_EQ(result.code, code) << command << ": " << result.err;
  EXPECT_NE(result.err.find(message), std::string::npos) << command << ": " << result.err;
  EXPECT_EQ(result.out, "") << command;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    EXPECT_NE(entry.path().filename().string().substr(0, 3), "OUT") << command << ": " << entry.path();
}

TEST(DamagedFiles, EveryCommandRefusesEveryKindOfDamage) {
  const Folder folder;
  const std::string good = bytes_of(module_of_text());
  std::string flipped = good, data = good;
  flipped[good.size() / 3] = static_cast<char>(flipped[good.size() / 3] ^ 4);
  const float x[] = {1, 2, 3, 4};
  const size_t at = good.find(std::string(reinterpret_cast<const char*>(x), sizeof x));
  ASSERT_NE(at, std::string::npos);
  data[at + 5] = static_cast<char>(data[at + 5] ^ 4);
  std::string text = good, swapped = good;
  for (size_t end = 0; (end = text.find("\r\n", end)) != std::string::npos;) text.erase(end, 1);
  for (size_t i = 0; i + 1 < swapped.size(); i += 2) std::swap(swapped[i], swapped[i + 1]);
  const std::pair<std::string, const char*> kinds[] = {
      {"", "the file is empty"},
      {good.substr(0, 40), "truncated"},
      {good.substr(0, good.size() - 1), "truncated"},
      {flipped, ""},
      {data, "damaged"},
      {text, "text-mode transfer"},
      {swapped, "bytes of the file are swapped"},
  };
  for (const auto& [bytes, message] : kinds) {
    folder.write("f.tbc", bytes);
    for (const char* command : kCopying) expect_refused(folder, with_file(command, "f.tbc"), 3, message);
    expect_refused(folder, "run f.tbc -q", 3, message);
    expect_refused(folder, "check f.tbc", 3, message);
    expect_refused(folder, "test f.tbc", 3, "");
  }
}

TEST(DamagedFiles, CutAnywhereEveryCommandSaysSo) {
  const Folder folder;
  const std::string good = bytes_of(module_of_text());
  for (size_t size = 1; size < good.size(); size += 149) {
    folder.write("f.tbc", good.substr(0, size));
    for (const char* command : {"run F -q", "check F", "info F", "dis F -o OUT.tape"})
      expect_refused(folder, with_file(command, "f.tbc"), 3, "f.tbc");
  }
}

TEST(NewerFiles, CanBeReadAndNotPlayed) {
  const Folder folder;
  Module module = module_of_text();
  module.minor = kMinor + 1;
  folder.write("f.tbc", bytes_of(module));
  for (const char* command : {"dis F", "info F", "strip F -o OUT.tbc"}) {
    const Result result = run_tape(folder, with_file(command, "f.tbc"));
    EXPECT_EQ(result.code, 0) << command << ": " << result.err;
    EXPECT_NE(result.err.find("it can be read, not played"), std::string::npos) << result.err;
  }
  std::filesystem::remove(folder / "OUT.tbc");
  const std::string both = std::to_string(kMajor) + "." + std::to_string(kMinor);
  for (const char* command : {"run F", "check F", "opt F main -o OUT.tape"})
    expect_refused(folder, with_file(command, "f.tbc"), 4, both);
}

TEST(TestCommand, NothingComparedIsSaidAndBinariesAreRefused) {
  const Folder folder;
  folder.write("none.tape", ".tape main\n  NOP\n.end\n");
  Result result = run_tape(folder, "test none.tape");
  EXPECT_EQ(result.code, 125);
  EXPECT_NE(result.err.find("nothing was compared"), std::string::npos);
  folder.write("f.tbc", bytes_of(module_of_text()));
  expect_refused(folder, "test f.tbc", 3, "f.tbc: is binary");
}

TEST(Outputs, PlacesThatCannotBeWrittenAreRefusedBeforeTheRun) {
  const Folder folder;
  folder.write("f.tape", kText);
  for (const char* option : {"--save none/w.npz", "--out y=none/y.npy", "--out y=none/y.npz:y"}) {
    const Result result = run_tape(folder, "run f.tape main --repeat 1000000000 " + std::string(option));
    EXPECT_EQ(result.code, 3) << option;
    EXPECT_NE(result.err.find("none/"), std::string::npos) << result.err;
  }
  folder.write("half.tape", ".param w bf16[2] ones\n.tape main\n  ADD w, w, 1\n.end\n");
  expect_refused(folder, "run half.tape --repeat 1000000000 --save OUT.npz", 2, "--save: w is bf16");
  for (const char* out : {"OUT.npy", "OUT.npz:w", "OUT.npz"})
    expect_refused(folder, "run half.tape --repeat 1000000000 --out w=" + std::string(out), 2, "--out w is bf16");
  EXPECT_EQ(run_tape(folder, "run half.tape -q --save w.safetensors --out w=v.safetensors").code, 0);
}

TEST(Load, EveryMistakeOfAFileIsReported) {
  const Folder folder;
  folder.write("a.tape", ".param a f32[2] ones\n.param b f32[3] ones\n.state c f32[] zeros\n.tape main\n  NOP\n.end\n");
  folder.write("b.tape", ".param a f32[3] ones\n.param b f32[3] ones\n.state d f32[] zeros\n.tape main\n  NOP\n.end\n");
  ASSERT_EQ(run_tape(folder, "run a.tape -q --save a.npz").code, 0);
  const Result strict = run_tape(folder, "run b.tape --load a.npz");
  EXPECT_EQ(strict.code, 2);
  for (const char* part : {"a: wanted f32[3], got f32[2]", "it has `c`", "it lacks d"})
    EXPECT_NE(strict.err.find(part), std::string::npos) << strict.err;
  const Result partial = run_tape(folder, "run b.tape --load a.npz --partial");
  EXPECT_EQ(partial.code, 2);  // a shape is never guessed
  EXPECT_EQ(partial.err.find("it has"), std::string::npos) << partial.err;
}

TEST(Messages, ColourIsAsAsked) {
  const Folder folder;
  folder.write("bad.tape", ".tape main\n  NOPE\n.end\n");
  folder.write("invalid.tape", ".tape main\n  CALL main\n.end\n");
  for (const char* command : {"asm bad.tape", "run bad.tape", "check bad.tape", "run invalid.tape"}) {
    EXPECT_EQ(run_tape(folder, command).err.find('\x1b'), std::string::npos) << command;
    EXPECT_NE(run_tape(folder, std::string(command) + " --color always").err.find('\x1b'), std::string::npos)
        << command;
  }
}

TEST(Messages, MistakesTheVerifierFindsShowTheirLines) {
  const Folder folder;
  folder.write("part.inc", ".tape a\n  .local u f32[2]\n  NEG z, u\n.end\n");
  folder.write("f.tape", ".include \"part.inc\"\n.tape main\n  CALL main\n.end\n");
  const Result result = run_tape(folder, "check f.tape");
  EXPECT_EQ(result.code, 4);
  EXPECT_NE(result.err.find("    3 |   NEG z, u\n"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("    3 |   CALL main\n"), std::string::npos) << result.err;
}

TEST(Options, NothingIsGivenTwice) {
  const Folder folder;
  folder.write("f.tape", ".input a f32[2]\n.input b f32[2]\n.output c f32[2]\n.tape main\n  ADD c, a, b\n.end\n");
  const std::pair<const char*, const char*> cases[] = {
      {"run f.tape --in a=zeros --in b=zeros --in a='1 2'", "--in a is given twice"},
      {"run f.tape --in a=- --in b=-", "standard input, which can be read once only"},
      {"run - --in a=- --in b=zeros < f.tape", "standard input, which can be read once only"},
      {"run f.tape --in a=zeros --in b=zeros --out c=OUT.npy --out a=OUT.npy", "two outputs go to OUT.npy"},
      {"run f.tape --in a=zeros --in b=zeros --out c=OUT.npz:k --out a=OUT.npz:k", "two outputs go to OUT.npz:k"},
      {"run f.tape --in a=zeros --in b=zeros --out a=OUT.safetensors --out b=OUT.safetensors:a",
       "two outputs go to OUT.safetensors:a"},
      {"run f.tape --in a=zeros --in b=zeros --save OUT.npz --out a=OUT.npz:k", "--save and --out both write OUT.npz"},
      {"run f.tape --in a=zeros --in b=zeros --threads -1", "--threads is 0 (all processors) to 4096, not -1"},
      {"asm f.tape -o ./f.tape", "-o names the text itself"},
  };
  for (const auto& [command, message] : cases) expect_refused(folder, command, 2, message);
  EXPECT_EQ(run_tape(folder, "run f.tape -q --in a=zeros --in b=zeros --out c=z.npz:k --out a=z.npz:l").code, 0);
}

TEST(Inputs, WhatIsNeitherValuesNorAFileIsSaidToBe) {
  const Folder folder;
  folder.write("f.tape", ".input k u8[3]\n.output o u8[3]\n.tape main\n  COPY o, k\n.end\n");
  Result result = run_tape(folder, "run f.tape --in 'k=1 2 x'");
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.err.find("k: `1 2 x` is neither values nor a file"), std::string::npos) << result.err;
  result = run_tape(folder, "run f.tape --in 'k=1 2 256'");
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.err.find("element 2 is 256, which does not fit"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace tape::test
