// Programs that are compiled at run time, as far as no card is needed: the text of every MAP of the golden tapes, and
// of bodies with every row, becomes a cubin; the cache gives the same bytes, and is not trusted.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "../map_bodies.h"
#include "assembler/assembler.h"
#include "cuda_backend/nvrtc/compiler.h"
#include "cuda_backend/nvrtc/generate.h"
#include "vm/command_buffer.h"
#include "vm/error.h"
#include "vm/io/files.h"
#include "vm/verify.h"

namespace tape::test {
namespace {

namespace fs = std::filesystem;
using cuda::Compiler;

const std::string kElf{0x7f, 'E', 'L', 'F'};

std::string text_of(const fs::path& path) {
  const std::vector<std::byte> bytes = io::read_file(path.string());
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

VerifiedModule verified(const std::string& text, const std::string& name) {
  Diagnostics diagnostics;
  auto assembly = assemble(text, name, {}, diagnostics);
  std::optional<VerifiedModule> module;
  if (assembly) module = verify(assembly->module, diagnostics);
  if (!module) throw std::runtime_error(diagnostics.text() + text);
  return *module;
}

/// The MAP and MAP_REDUCE of a module, as the card is given them.
std::vector<cuda::Call> maps_of(const Module& module) {
  std::vector<cuda::Call> calls;
  for (const Tape& tape : module.tapes)
    for (const PlacedCommand& placed : commands_of(module, tape)) {
      const Command& command = placed.command;
      if (command.op->opcode != Opcode::Map && command.op->opcode != Opcode::MapReduce) continue;
      cuda::Call call;
      call.command = command;
      call.index = calls.size();
      for (const uint32_t id : command.ids) {
        const Tensor& tensor = module.tensors[id];
        cuda::View view;
        view.address = cuda::make_address(cuda::kTensors + id, 0);
        view.dtype = tensor.dtype;
        view.shape = tensor.shape;
        view.strides = row_major_strides(tensor.shape);
        view.elements = tensor.shape.elements();
        call.operands.push_back(view);
      }
      calls.push_back(std::move(call));
    }
  return calls;
}

class Nvrtc : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    compiler_ = Compiler::find(&why);
    if (compiler_ == nullptr) GTEST_SKIP() << why;
  }
  /// Every call alone has kernels, all together are one program.
  std::string compile(const std::vector<cuda::Call>& calls, int major, int minor) {
    cuda::MapSource source;
    for (const cuda::Call& call : calls) {
      const cuda::MapCall map(call);
      const bool empty = (map.reduces ? map.outputs : map.nest.elements) == 0;
      EXPECT_EQ(source.add(map).empty(), empty);
    }
    if (source.empty()) return {};
    try {
      return compiler_->compile(source.text(), compiler_->options(major, minor));
    } catch (const Error& error) {
      ADD_FAILURE() << error.what() << "\n" << source.text();
      return {};
    }
  }
  const Compiler* compiler_ = nullptr;
};

TEST_F(Nvrtc, EveryMapOfTheGoldenTapesBecomesACubin) {
  size_t maps = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(TAPE_SOURCE_DIR) / "tests" / "golden")) {
    if (entry.path().extension() != ".tape") continue;
    const std::string text = text_of(entry.path());
    if (text.find(".expect error") != std::string::npos || text.find("MAP") == std::string::npos) continue;
    const VerifiedModule module = verified(text, entry.path().string());
    const std::vector<cuda::Call> calls = maps_of(module.module());
    if (calls.empty()) continue;
    maps += calls.size();
    EXPECT_EQ(compile(calls, 9, 0).substr(0, 4), kElf) << entry.path();
  }
  EXPECT_GE(maps, 50u);
}

TEST_F(Nvrtc, EveryRowOfEveryDtypeBecomesACubin) {
  Random random(5);
  for (const DTypeInfo& info : kDTypes) {
    const Shapes at{{{6, 64}, {64}}, {6, 64}};
    RandomBody body(random, info.dtype, 2, RandomBody::Rows::Faulting);
    std::string all, numbers;
    for (const RandomBody::Name& name : body.every_row()) {
      if (name.name[0] == 'x') continue;
      all += (all.empty() ? "" : ", ") + name.name;
      if (name.dtype != DType::Bool) numbers += (numbers.empty() ? "" : ", ") + name.name;
    }
    const std::string text = fmt::format(
        "{0}.tape main\n  MAP [{1}], [x0, x1] {{\n{3}  }}\n.end\n.tape reduce\n  MAP_REDUCE [{2}], [x0, x1], "
        "reduce=max {{\n{3}  }}\n.end\n",
        declarations(info.dtype, at), all, numbers, body.text());
    EXPECT_EQ(compile(maps_of(verified(text, "rows").module()), 9, 0).substr(0, 4), kElf) << info.name;
  }
}

/// The least card the backend runs on has no programmatic launches.
TEST_F(Nvrtc, OlderCards) {
  const auto module = verified(
      ".input x f32[64]\n.tape main\n  MAP [y], [x] {\n    TANH t, x\n    ADD y, t, x\n  }\n"
      "  MAP_REDUCE [s], [x], reduce=max {\n    NEG s, x\n  }\n.end\n",
      "old");
  EXPECT_EQ(compile(maps_of(module.module()), 8, 0).substr(0, 4), kElf);
  EXPECT_TRUE(compiler_->options(3, 5).empty());
}

TEST_F(Nvrtc, WrongTextsAreRefusedWithTheReason) {
  try {
    static_cast<void>(compiler_->compile("int f() { return nothing; }", compiler_->options(9, 0)));
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("map.cu(1): error"), std::string::npos) << error.what();
  }
}

TEST_F(Nvrtc, TheCacheIsNotTrusted) {
  const fs::path folder = fs::path(testing::TempDir()) / ("tape_cache_" + std::to_string(getpid()));
  ASSERT_EQ(setenv("XDG_CACHE_HOME", folder.c_str(), 1), 0);
  const std::string text = "extern \"C\" __global__ void k(int* x) { *x = 5; }\n";
  const auto options = compiler_->options(9, 0);
  const std::string image = compiler_->compile_cached(text, options);
  const auto files = [&] {
    std::vector<fs::path> all;
    for (const auto& entry : fs::recursive_directory_iterator(folder))
      if (entry.is_regular_file()) all.push_back(entry.path());
    return all;
  };
  ASSERT_EQ(files().size(), 1u);
  const fs::path file = files()[0];
  const std::string kept = text_of(file);
  ASSERT_GT(kept.size(), image.size());
  // What the file holds is what is given back: another text's image under this one's name would be noticed.
  EXPECT_EQ(kept.substr(kept.size() - image.size()), image);
  for (const std::string& damaged : {kept.substr(0, kept.size() / 2), std::string(), kept + "x",
                                     [&] {
                                       std::string flipped = kept;
                                       flipped[flipped.size() - 9] ^= 1;
                                       return flipped;
                                     }(),
                                     [&] {
                                       std::string other = kept;
                                       other[8] ^= 1;  // of another key
                                       return other;
                                     }()}) {
    std::ofstream(file, std::ios::binary | std::ios::trunc) << damaged;
    EXPECT_EQ(compiler_->compile_cached(text, options), image);
    EXPECT_EQ(text_of(file), kept);
  }
  static_cast<void>(compiler_->compile_cached(text, compiler_->options(8, 0)));
  EXPECT_EQ(files().size(), 2u);
  fs::remove_all(folder);
  // A folder that cannot be made is no cache.
  ASSERT_EQ(setenv("XDG_CACHE_HOME", "/proc/none", 1), 0);
  EXPECT_EQ(compiler_->compile_cached(text, options), image);
  unsetenv("XDG_CACHE_HOME");
}

}  // namespace
}  // namespace tape::test
