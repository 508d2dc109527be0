// tape info --graph: the order of a tape's commands, and why.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/process.h"

namespace tape {
namespace {

using nlohmann::json;
using test::Folder;
using test::Result;
using test::run_tape;

constexpr const char* kTape =
    ".input x f32[1000]\n.state s f32[1000]\n.output y f32[]\n.output z f32[]\n"
    ".tape main\n"
    "  NEG a, x\n"         // 0
    "  SUM y, a\n"         // 1
    "  EXP b, x\n"         // 2
    "  SUM z, b\n"         // 3
    "  REPEAT 2\n"         // 4
    "    ADD s, s, 1\n"    // 5
    "  END\n"              // 6
    "  ASSERT_FINITE s\n"  // 7
    "  TRACE z\n"          // 8
    ".end\n";

/// {"0 1 a", ...}: earlier, later, why.
std::vector<std::string> edges(const json& graph) {
  std::vector<std::string> found;
  for (const json& command : graph["commands"])
    for (const json& before : command["before"]) {
      std::string edge = before["command"].dump() + " " + command["index"].dump();
      for (const json& why : before["why"]) edge += " " + why.get<std::string>();
      found.push_back(edge);
    }
  return found;
}

TEST(InfoGraph, SaysWhatFollowsWhatAndWhy) {
  const Folder folder;
  folder.write("g.tape", kTape);
  const Result tight = run_tape(folder, "info g.tape --graph json");
  ASSERT_EQ(tight.code, 0) << tight.err;
  const json graph = json::parse(tight.out);
  EXPECT_EQ(graph["tape"], "main");
  EXPECT_EQ(graph["arena_bytes"], 4096);
  // b takes the bytes of a; the check waits for the writers before it (outputs outlive the run), the trace for the
  // check.
  EXPECT_EQ(edges(graph),
            (std::vector<std::string>{"0 1 a", "1 2 memory", "2 3 b", "4 7 s fault", "3 7 fault", "7 8 fault"}));
  EXPECT_EQ(graph["edges"], 6);
  EXPECT_EQ(graph["longest_path"], 6);
  EXPECT_EQ(graph["commands"][5]["loop"], 4);
  EXPECT_EQ(graph["commands"][5]["text"], "ADD s, s, 1");
  EXPECT_EQ(graph["commands"][5]["place"], "g.tape:11:5");
  EXPECT_TRUE(graph["commands"][0]["loop"].is_null());

  const json apart = json::parse(run_tape(folder, "info g.tape main --graph json --arena branches").out);
  EXPECT_EQ(apart["arena_bytes"], 2 * 4096);
  EXPECT_EQ(edges(apart),
            (std::vector<std::string>{"0 1 a", "2 3 b", "4 7 s fault", "3 7 fault", "1 7 fault", "7 8 fault"}));
  EXPECT_EQ(apart["longest_path"], 4);
}

TEST(InfoGraph, AViewIsItsSource) {
  const Folder folder;
  folder.write("v.tape",
               ".input x f32[8, 8]\n.output y f32[]\n.tape main\n  NEG a, x\n  RESHAPE b, a, shape=[64]\n  SUM y, b\n"
               ".end\n");
  const Result result = run_tape(folder, "info v.tape --graph json");
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(edges(json::parse(result.out)), std::vector<std::string>{"0 2 a"});
}

TEST(InfoGraph, DrawsLoopsAsBoxes) {
  const Folder folder;
  folder.write("g.tape", kTape);
  const Result dot = run_tape(folder, "info g.tape --graph dot");
  ASSERT_EQ(dot.code, 0) << dot.err;
  EXPECT_EQ(dot.out, R"(digraph "main" {
  node [shape=box, fontname=monospace];
  c0 [label="0 NEG a, x"];
  c1 [label="1 SUM y, a"];
  c2 [label="2 EXP b, x"];
  c3 [label="3 SUM z, b"];
  subgraph cluster_4 {
    c4 [label="4 REPEAT 2"];
    c5 [label="5 ADD s, s, 1"];
  }
  c7 [label="7 ASSERT_FINITE s"];
  c8 [label="8 TRACE z"];
  c0 -> c1 [label="a"];
  c1 -> c2 [label="memory", style=dashed];
  c2 -> c3 [label="b"];
  c4 -> c5 [style=dotted];
  c4 -> c7 [label="s, fault"];
  c3 -> c7 [label="fault"];
  c7 -> c8 [label="fault"];
}
)");
}

TEST(InfoGraph, RefusesOtherForms) {
  const Folder folder;
  folder.write("g.tape", kTape);
  EXPECT_EQ(run_tape(folder, "info g.tape --graph svg").code, 2);
  EXPECT_EQ(run_tape(folder, "info g.tape --arena wide").code, 2);
}

}  // namespace
}  // namespace tape
