// Text and binary say the same thing: for every tape of the tree, assembling the disassembly gives the same bytes, and
// the binary plays with the same bits as the text it came from.
#include <gtest/gtest.h>

#include "assembler/assembler.h"
#include "embed/backends.h"
#include "files.h"
#include "vm/machine.h"

namespace tape::test {
namespace {

std::vector<std::string> all_tapes() {
  std::vector<std::string> all = tapes_below("tests/golden");
  for (const char* folder : {"samples", "tests/format", "tests/assembler"})
    for (std::string& path : tapes_below(folder)) all.push_back(std::move(path));
  std::erase_if(all, [](const std::string& path) { return is_bad(path); });
  return all;
}

Module assembled(const std::string& text, const std::string& file) {
  Diagnostics diagnostics;
  std::optional<Assembly> assembly = assemble(text, file, {}, diagnostics);
  if (!assembly) throw std::runtime_error(diagnostics.text());
  return std::move(assembly->module);
}

Module decoded(const std::vector<std::byte>& bytes, const std::string& folder) {
  Diagnostics diagnostics;
  std::optional<Module> module = decode_module(bytes, nullptr, false, diagnostics);
  if (!module) throw std::runtime_error(diagnostics.text());
  module->folder = folder;
  return *std::move(module);
}

class RoundTrip : public testing::TestWithParam<std::string> {
 protected:
  std::string path = source_path(GetParam());
  Module module = assembled(read_text(path), path);
  std::vector<std::byte> bytes = encode_module(module);
};

TEST_P(RoundTrip, AssemblingTheDisassemblyGivesTheSameBytes) {
  const Disassembly text = disassemble(decoded(bytes, module.folder));
  EXPECT_EQ(encode_module(assembled(text.text, path)), bytes) << text.text;
}

TEST_P(RoundTrip, PlainDropsOnlyWhatStripDrops) {
  const Disassembly plain = disassemble(decoded(bytes, module.folder), {true, ""});
  EXPECT_EQ(encode_module(strip(assembled(plain.text, path))), encode_module(strip(decoded(bytes, module.folder))))
      << plain.text;
}

TEST_P(RoundTrip, StrippingTwiceIsStrippingOnce) {
  const std::vector<std::byte> once = encode_module(strip(module));
  EXPECT_EQ(encode_module(strip(decoded(once, module.folder))), once);
}

TEST_P(RoundTrip, FormattingIsIdempotentAndKeepsTheTape) {
  Diagnostics diagnostics;
  const std::optional<std::string> once = format_text(read_text(path), path, diagnostics);
  ASSERT_TRUE(once) << diagnostics.text();
  EXPECT_EQ(format_text(*once, path, diagnostics), once);
  EXPECT_EQ(encode_module(strip(assembled(*once, path))), encode_module(strip(module)));
}

struct Played {
  Snapshot state;
  std::string fault;
};
Played play(const Module& module) {
  Diagnostics diagnostics;
  const std::optional<VerifiedModule> verified = verify(module, diagnostics);
  if (!verified) throw std::runtime_error(diagnostics.text());
  Machine machine(open_backend("cpu", {2, false}));
  const ModuleId id = machine.add(*verified);
  Played played;
  for (const Tape& tape : module.tapes) {
    if (!verified->facts(module.find_tape(tape.name)).playable) continue;
    try {
      machine.run(id, tape.name);
    } catch (const Fault& fault) {
      played.fault += fault.mnemonic + " in " + fault.tape + "\n";
    } catch (const Error& error) {
      played.fault += error.what();  // a stream nobody bound
    }
  }
  played.state = machine.snapshot();
  return played;
}

TEST_P(RoundTrip, TheBinaryPlaysWithTheSameBits) {
  const Played from_text = play(module);
  const Played from_binary = play(decoded(bytes, module.folder));
  EXPECT_EQ(from_text.fault, from_binary.fault);
  ASSERT_EQ(from_text.state.tensors.size(), from_binary.state.tensors.size());
  for (size_t i = 0; i < from_text.state.tensors.size(); ++i)
    EXPECT_EQ(from_text.state.tensors[i].second.bytes, from_binary.state.tensors[i].second.bytes)
        << from_text.state.tensors[i].first;
  EXPECT_EQ(from_text.state.sinks, from_binary.state.sinks);
}

const auto name_of_file = [](const auto& file) { return test_name(file.param); };
INSTANTIATE_TEST_SUITE_P(Files, RoundTrip, testing::ValuesIn(all_tapes()), name_of_file);

}  // namespace
}  // namespace tape::test
