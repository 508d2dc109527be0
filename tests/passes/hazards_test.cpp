// The order of commands against a judge that compares every pair of them, and what faults, the host, cursors and
// generators add to it.
#include "vm/hazards.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/passes/planning_backend.h"
#include "tests/passes/random_tape.h"
#include "tests/passes/support.h"
#include "vm/passes/passes.h"

namespace tape {
namespace {

using test::PlanningBackend;
using Edges = std::set<std::pair<uint32_t, uint32_t>>;  // (earlier, later)

/// Bytes by the letter of their space: (a)rena, (p)ersistent by tensor, (f)ault word, (h)ost.
struct Bytes {
  char space;
  uint64_t begin, end;
  bool writes;
};

bool meet(const std::vector<Bytes>& a, const std::vector<Bytes>& b) {
  for (const Bytes& x : a)
    for (const Bytes& y : b)
      if (x.space == y.space && (x.writes || y.writes) && x.begin < y.end && y.begin < x.end) return true;
  return false;
}

/// Whether a GATHER that may fault is always played before i, which is one too: x and i of `effects` never change.
bool gathered_before(const Plan& plan, size_t i) {
  const auto faults = [&](size_t at) {
    const Command& command = plan.commands[at].command;
    return command.op->opcode == Opcode::Gather && command.attr_int("oob") == 0;
  };
  for (size_t j = 0; faults(i) && j < i; ++j) {
    bool always = faults(j);
    for (size_t head = 0; head < j; ++head) always = always && (plan.matching[head] < j || plan.matching[head] > i);
    if (always) return true;
  }
  return false;
}

/// `apart`: as if every local and every scratch had bytes of its own.
std::vector<Bytes> bytes_of(const Plan& plan, size_t i, bool apart) {
  const Module& module = plan.module.module();
  const Command& command = plan.commands[i].command;
  std::vector<Bytes> bytes;
  bool outlives = false;
  const auto add = [&](TensorId id, bool writes) {
    const Placement& at = plan.tensors[id];
    if (at.segment == Segment::Arena && !apart) return bytes.push_back({'a', at.offset, at.offset + at.bytes, writes});
    bytes.push_back({'p', id * 100ull, id * 100ull + 1, writes});
    outlives = outlives || (writes && at.segment != Segment::Arena);
  };
  test::for_accesses(
      command, [&](TensorId id) { add(id, false); }, [&](TensorId id) { add(id, true); });
  if (plan.selections[i].scratch != 0 && !apart)
    bytes.push_back({'a', plan.scratch[i], plan.scratch[i] + plan.selections[i].scratch, true});
  static const std::set<std::string_view> faulting{"ASSERT_FINITE", "LOAD", "GATHER"};
  bool faults = faulting.contains(command.op->mnemonic);
  if (command.op->opcode == Opcode::Gather) faults = command.attr_int("oob") == 0;
  if (command.op->opcode == Opcode::Load) add(module.streams[command.id(1)].cursor, true);
  if (command.op->opcode == Opcode::Repeat && command.id(0) != kAbsent) faults = true;
  const bool host = command.op->opcode == Opcode::Store || command.op->opcode == Opcode::Trace;
  if (host) bytes.push_back({'h', 0, 1, true});
  if (faults) bytes.push_back({'f', 0, 1, !gathered_before(plan, i)});
  if (host || outlives) bytes.push_back({'f', 0, 1, false});
  return bytes;
}

/// Everything that must be kept apart, of one loop level after another.
void judge(const Plan& plan, bool apart, uint32_t begin, uint32_t end, Edges& wanted, std::vector<Bytes>& all) {
  std::vector<std::pair<uint32_t, std::vector<Bytes>>> items;
  for (uint32_t i = begin; i < end; i = plan.matching[i] + 1) {
    std::vector<Bytes> bytes = bytes_of(plan, i, apart);
    if (plan.matching[i] != i) judge(plan, apart, i + 1, plan.matching[i], wanted, bytes);
    for (const auto& [earlier, its] : items)
      if (meet(its, bytes)) wanted.emplace(earlier, i);
    all.insert(all.end(), bytes.begin(), bytes.end());
    items.emplace_back(i, std::move(bytes));
  }
}

/// By command: everything it follows, through others too.
std::vector<std::set<uint32_t>> closure(const Edges& edges, size_t commands) {
  std::vector<std::set<uint32_t>> follows(commands);
  std::vector<std::vector<uint32_t>> direct(commands);
  for (const auto& [earlier, later] : edges) direct[later].push_back(earlier);
  for (size_t i = 0; i < commands; ++i)
    for (const uint32_t each : direct[i]) {
      follows[i].insert(each);
      follows[i].insert(follows[each].begin(), follows[each].end());
    }
  return follows;
}

Edges edges_of(const Plan& plan) {
  Edges edges;
  for (uint32_t i = 0; i < plan.commands.size(); ++i)
    for (uint64_t at = i == 0 ? 0 : plan.before_ends[i - 1]; at < plan.before_ends[i]; ++at)
      EXPECT_TRUE(edges.emplace(plan.before[at], i).second) << "named twice";
  return edges;
}

/// Returns how many pairs are free of each other.
size_t expect_order(const Plan& plan, bool apart = false) {
  Edges wanted;
  std::vector<Bytes> all;
  judge(plan, apart, 0, static_cast<uint32_t>(plan.commands.size()), wanted, all);
  const Edges got = edges_of(plan);
  const auto follows = closure(got, plan.commands.size());
  EXPECT_EQ(follows, closure(wanted, plan.commands.size()));
  for (const auto& [earlier, later] : got)
    for (const auto& [other, same] : got)
      if (same == later && other != earlier) {
        EXPECT_FALSE(follows[other].contains(earlier)) << earlier << " before " << later << " goes without saying";
      }
  size_t ordered = 0;
  for (const auto& each : follows) ordered += each.size();
  return plan.commands.size() * (plan.commands.size() - 1) / 2 - ordered;
}

TEST(Hazards, RandomTapesAreOrderedByTheirBytesAndNothingElse) {
  PlanningBackend backend;
  size_t free = 0;
  for (uint32_t seed = 0; seed < 200; ++seed)
    for (const bool reuse : {true, false}) {
      PlanOptions options;
      options.reuse = reuse;
      free += expect_order(*make_plan(test::verified(test::RandomTape(seed).make(40)), backend, options));
      if (testing::Test::HasFailure()) FAIL() << "seed " << seed << " reuse " << reuse;
    }
  EXPECT_GT(free, 1000u);
}

/// Commands with effects, in constant loops too.
std::string effects(uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&](uint32_t n) { return random() % n; };
  std::string text =
      ".input  x f32[64]\n.state  s f32[64]\n.state  t f32[64]\n.state  c i64[]\n.output o f32[64]\n.rng    g seed=1\n"
      ".rng    h seed=2\n.input  i i32[64]\n.stream rows v f32[*, 64]\n.sink   out f32[*, 64]\n"
      ".tape main\n  COPY a, x\n  COPY b, x\n  LOAD v, rows, rows=1\n  COPY d, x\n";
  int open = 0;
  const char* const values[] = {"x", "s", "t", "a", "b", "d"};
  const char* const targets[] = {"s", "t", "a", "b", "d", "o"};
  for (int line = 0; line < 40; ++line) {
    const std::string from = values[below(6)], to = targets[below(6)];
    switch (below(12)) {
      case 0:
        text += "  ASSERT_FINITE " + from;
        break;
      case 1:
        text += "  ADVANCE c";
        break;
      case 2:
        text += "  STORE out, " + from;
        break;
      case 3:
        text += "  TRACE " + from;
        break;
      case 4:
        text += "  LOAD v, rows, rows=1";
        break;
      case 5:
        text += "  RANDOM_UNIFORM " + to + ", " + (below(2) == 0 ? "g" : "h");
        break;
      case 6:
        text += "  GATHER " + to + ", x, i" + (below(2) == 0 ? "" : ", oob=zero");
        break;
      case 7:
        if (open < 2 && below(2) == 0) {
          text += "  REPEAT 2";
          ++open;
        } else if (open > 0) {
          text += "  END";
          --open;
        }
        break;
      case 8:
        text += "  ADD " + to + ", x, x";
        break;
      default:
        text += "  NEG " + to + ", " + from;
        break;
    }
    text += "\n";
  }
  for (; open > 0; --open) text += "  END\n";
  return text + ".end\n";
}

TEST(Hazards, EffectsKeepTheirOrder) {
  PlanningBackend backend;
  size_t free = 0;
  for (uint32_t seed = 0; seed < 150; ++seed) {
    const VerifiedModule module = test::assembled(effects(seed));
    const auto plan = make_plan(test::verified(inline_entry(module, 0).module), backend, {});
    free += expect_order(*plan);
    if (testing::Test::HasFailure()) FAIL() << "seed " << seed << "\n" << effects(seed);
  }
  EXPECT_GT(free, 1000u);
}

/// What command i touches, a loop all that is in it. `again`: in a pass behind another, where a LOAD finds its cursor
/// inside the stream.
std::vector<Bytes> item_bytes(const Plan& plan, uint32_t i, bool again) {
  std::vector<Bytes> all;
  for (uint32_t j = i; j <= plan.matching[i]; ++j) {
    if (plan.matching[j] < j) continue;
    for (Bytes each : bytes_of(plan, j, false)) {
      if (again && each.space == 'f' && plan.commands[j].command.op->opcode == Opcode::Load) each.writes = false;
      all.push_back(each);
    }
  }
  return all;
}

TEST(Hazards, ASecondPassFollowsWhatItMust) {
  PlanningBackend backend(uint64_t{1} << 40, false, true);
  size_t free = 0;
  for (uint32_t seed = 0; seed < 100; ++seed) {
    const VerifiedModule module = test::assembled(effects(seed));
    const auto plan = make_plan(test::verified(inline_entry(module, 0).module), backend, {});
    const auto n = static_cast<uint32_t>(plan->commands.size());
    ASSERT_EQ(plan->again_ends.size(), n);
    std::vector<std::pair<uint32_t, std::vector<Bytes>>> items;  // of both passes
    std::set<uint32_t> outside;
    for (const uint32_t pass : {0u, n})
      for (uint32_t i = 0; i < n; i = plan->matching[i] + 1) {
        items.emplace_back(pass + i, item_bytes(*plan, i, pass != 0));
        outside.insert(i);
      }
    Edges wanted, got;
    for (size_t later = 0; later < items.size(); ++later)
      for (size_t earlier = 0; earlier < later; ++earlier)
        if (meet(items[earlier].second, items[later].second)) wanted.emplace(items[earlier].first, items[later].first);
    for (const auto& [earlier, later] : edges_of(*plan))
      if (outside.contains(later)) {
        for (Edges* const edges : {&wanted, &got}) {  // of one pass: others judge them
          edges->emplace(earlier, later);
          edges->emplace(earlier + n, later + n);
        }
      }
    for (uint32_t i = 0; i < n; ++i)
      for (uint64_t at = i == 0 ? 0 : plan->again_ends[i - 1]; at < plan->again_ends[i]; ++at) {
        EXPECT_TRUE(outside.contains(i) && outside.contains(plan->again[at]));
        got.emplace(plan->again[at], i + n);
      }
    const auto follows = closure(got, size_t{2} * n);
    const auto must = closure(wanted, size_t{2} * n);
    for (uint32_t i = 0; i < 2 * n; ++i) {
      for (const uint32_t each : must[i])
        EXPECT_TRUE(follows[i].contains(each)) << each << " before " << i << " of " << n;
      for (const uint32_t each : follows[i]) EXPECT_TRUE(must[i].contains(each)) << each << " needlessly before " << i;
    }
    if (testing::Test::HasFailure()) FAIL() << "seed " << seed << "\n" << effects(seed);
    for (const uint32_t i : outside)
      for (const uint32_t j : outside) free += follows[i + n].contains(j) ? 0 : 1;
  }
  EXPECT_GT(free, 1000u);
}

TEST(Hazards, BytesByBranchAddNoOrder) {
  PlanningBackend backend;
  PlanOptions options;
  options.arena = ArenaUse::Branches;
  uint64_t saved = 0, tight = 0, spread = 0;
  for (uint32_t seed = 0; seed < 150; ++seed) {
    const VerifiedModule random = test::verified(test::RandomTape(seed).make(40));
    const VerifiedModule text = test::assembled(effects(seed));
    for (const VerifiedModule& module : {random, test::verified(inline_entry(text, 0).module)}) {
      const auto plan = make_plan(module, backend, options);
      expect_order(*plan);
      expect_order(*plan, true);
      if (testing::Test::HasFailure()) FAIL() << "seed " << seed;
      uint64_t apart = 0;  // of every local and every scratch
      const auto aligned = [](uint64_t bytes) { return (bytes + 255) / 256 * 256; };
      for (const Placement& at : plan->tensors) apart += at.segment == Segment::Arena ? aligned(at.bytes) : 0;
      for (const Selection& selection : plan->selections) apart += aligned(selection.scratch);
      EXPECT_LE(plan->arena_bytes, apart);
      saved += plan->arena_bytes < apart ? 1 : 0;
      spread += plan->arena_bytes;
      tight += make_plan(module, backend, {})->arena_bytes;
    }
  }
  EXPECT_GT(saved, 100u) << "bytes of those who are followed are used again";
  EXPECT_GT(spread, tight);
}

std::shared_ptr<const Plan> planned(const std::string& text, PlanOptions options = {}) {
  static PlanningBackend backend;
  const VerifiedModule module = test::assembled(text + ".end\n");
  return make_plan(test::verified(inline_entry(module, 0).module), backend, options);
}

TEST(Hazards, BranchesThatMeetAgain) {
  const auto plan =
      planned(".input x f32[4]\n.output y f32[4]\n.tape main\n  NEG a, x\n  ABS b, a\n  EXP c, a\n  ADD y, b, c\n");
  EXPECT_EQ(edges_of(*plan), (Edges{{0, 1}, {0, 2}, {1, 3}, {2, 3}}));
}

TEST(Hazards, WhatIsOverwrittenWaitsForItsReaders) {
  const auto plan = planned(
      ".input x f32[4]\n.state s f32[4]\n.output y f32[4]\n.output z f32[4]\n.tape main\n  NEG y, s\n  ABS z, s\n"
      "  COPY s, x\n  NEG y, x\n");
  EXPECT_EQ(edges_of(*plan), (Edges{{0, 2}, {1, 2}, {0, 3}}));
}

TEST(Hazards, AFaultComesBeforeTheWritersBehindItAndBehindThoseBeforeIt) {
  const auto plan = planned(
      ".input x f32[4]\n.input y f32[4]\n.state s f32[4]\n.state t f32[4]\n.tape main\n  COPY s, y\n"
      "  ASSERT_FINITE x\n  NEG a, y\n  COPY t, a\n  FLOOR_DIV b, a, a\n");
  EXPECT_EQ(edges_of(*plan), (Edges{{0, 1}, {1, 3}, {2, 3}, {2, 4}}));
}

TEST(Hazards, WhatCannotFaultWaitsForNobody) {
  // The state is written first; whoever may fault must not stop the tape before that.
  const auto waits = [](const std::string& line) {
    const auto plan = planned(
        ".input x f32[4]\n.input q f32[4, 4]\n.input n i32[]\n.input i i32[4]\n.state s f32[4]\n.tape main\n"
        "  COPY s, x\n  " +
        line + "\n");
    return edges_of(*plan).contains({0, 1});
  };
  EXPECT_TRUE(waits("FLOOR_DIV a, i, i"));
  EXPECT_TRUE(waits("MOD a, i, 0"));
  EXPECT_FALSE(waits("MOD a, i, 3"));
  EXPECT_FALSE(waits("MOD a, x, x"));
  EXPECT_TRUE(waits("POW a, i, -1"));
  EXPECT_FALSE(waits("POW a, i, 2"));
  EXPECT_FALSE(waits("POW a, x, -1"));
  EXPECT_TRUE(waits("GATHER a, x, i"));
  EXPECT_FALSE(waits("GATHER a, x, i, oob=zero"));
  EXPECT_TRUE(waits("ATTENTION a, q, q, q, kv_len=n"));
  EXPECT_FALSE(waits("ATTENTION a, q, q, q"));
  EXPECT_TRUE(waits("REPEAT n, max=2\n  END"));
  EXPECT_FALSE(waits("REPEAT 2\n  END"));
  EXPECT_TRUE(waits("MAP [a], [i] {\n  ADD t, i, 1\n  FLOOR_DIV a, t, i\n}"));
  EXPECT_FALSE(waits("MAP [a], [i] {\n  ADD t, i, 1\n  FLOOR_DIV a, t, 2\n}"));
}

/// Commands that need not check.
std::vector<uint32_t> checked(const std::string& body) {
  const auto plan = planned(
      ".input x f32[8, 4]\n.input y f32[9, 4]\n.state i i32[2]\n.state n i32[]\n.state m i32[]\n.input z f32[2, 4]\n"
      ".state c f32[8, 4]\n.stream rows v i64[*]\n.tape main\n" +
      body);
  std::vector<uint32_t> found;
  for (uint32_t i = 0; i < plan->commands.size(); ++i)
    if (plan->checked[i] != 0) found.push_back(i);
  return found;
}

TEST(Checks, TheSameIndicesAgainstTheSameBoundsAreLookedAtOnce) {
  using Found = std::vector<uint32_t>;
  EXPECT_EQ(checked("  GATHER a, x, i\n  GATHER b, x, i\n  NEG c, x\n  GATHER d, c, i\n"), (Found{1, 3}));
  EXPECT_EQ(checked("  GATHER a, x, i\n  GATHER b, y, i\n  GATHER d, x, i, axis=1\n"), Found{});
  EXPECT_EQ(checked("  GATHER a, x, i\n  ADD i, i, 1\n  GATHER b, x, i\n"), Found{});
  EXPECT_EQ(checked("  GATHER a, x, i, oob=clip\n  GATHER b, x, i\n  GATHER d, x, i, oob=zero\n"), Found{});
  EXPECT_EQ(checked("  SCATTER_ADD c, i, z\n  GATHER b, x, i\n"), Found{1});
  EXPECT_EQ(checked("  ROPE a, x, n\n  ROPE b, y, n\n  ROPE d, y, m\n"), Found{1});
  EXPECT_EQ(checked("  ATTENTION a, z, x, x, kv_len=n\n  ATTENTION b, z, c, x, kv_len=n\n  ATTENTION d, z, y, y, "
                    "kv_len=n\n  ATTENTION e, z, x, x\n"),
            Found{1});
  EXPECT_EQ(checked("  DYNAMIC_UPDATE_SLICE c, z, n, m\n  DYNAMIC_SLICE a, x, n, m, shape=[2, 4]\n"
                    "  DYNAMIC_SLICE b, x, n, m, shape=[3, 4]\n  DYNAMIC_SLICE d, x, m, n, shape=[2, 4]\n"
                    "  DYNAMIC_SLICE e, x, n, shape=[2, 4]\n"),
            Found{1});
}

TEST(Checks, HoldWhereTheyWereSurelyMade) {
  using Found = std::vector<uint32_t>;
  EXPECT_EQ(checked("  REPEAT n, max=3\n    GATHER a, x, i\n    GATHER b, x, i\n  END\n  GATHER d, x, i\n"), Found{2})
      << "a body may not be played";
  EXPECT_EQ(checked("  GATHER d, x, i\n  REPEAT 2\n    GATHER a, x, i\n  END\n  GATHER e, x, i\n"), (Found{2, 4}));
  EXPECT_EQ(checked("  GATHER d, x, i\n  REPEAT 2\n    GATHER a, x, i\n    ADD i, i, 1\n  END\n  GATHER e, x, i\n"),
            Found{})
      << "a pass changes what the next one looks at";
  EXPECT_EQ(checked("  LOAD v, rows, rows=1\n  GATHER a, x, rows.cursor\n  GATHER b, x, rows.cursor\n"
                    "  LOAD v, rows, rows=1\n  GATHER d, x, rows.cursor\n"),
            Found{2})
      << "LOAD moves its cursor";
}

TEST(Hazards, ALoopIsOneItemAndItsBodyHasItsOwnOrder) {
  const auto plan = planned(
      ".input x f32[4]\n.state s f32[4]\n.state n i64[]\n.output y f32[4]\n.output z f32[4]\n.tape main\n"
      "  NEG z, x\n  COPY y, x\n  REPEAT n, max=3\n    ADVANCE n\n    NEG a, s\n    COPY s, a\n  END\n  NEG y, s\n"
      "  ABS z, x\n");
  // The loop may fault on entry, so the writers before it are waited for and those behind it wait.
  EXPECT_EQ(edges_of(*plan), (Edges{{0, 2}, {1, 2}, {4, 5}, {2, 7}, {2, 8}}));
}

TEST(Hazards, ReusedBytesOrderThoseWhoShareNothingElse) {
  const std::string text =
      ".input x f32[1000]\n.output y f32[]\n.output z f32[]\n.tape main\n  NEG a, x\n  SUM y, a\n  NEG b, x\n"
      "  SUM z, b\n";
  EXPECT_EQ(edges_of(*planned(text)), (Edges{{0, 1}, {1, 2}, {2, 3}}));
  PlanOptions apart;
  apart.reuse = false;
  EXPECT_EQ(edges_of(*planned(text, apart)), (Edges{{0, 1}, {2, 3}}));
}

/// Eight branches of three commands over values of 4 KiB each.
std::string eight_branches() {
  std::string text = ".input x f32[1000]\n";
  for (int i = 0; i < 8; ++i) text += ".output y" + std::to_string(i) + " f32[]\n";
  text += ".tape main\n";
  for (int i = 0; i < 8; ++i) {
    const std::string n = std::to_string(i);
    text += "  NEG a" + n + ", x\n  NEG b" + n + ", a" + n + "\n  SUM y" + n + ", b" + n + "\n";
  }
  return text + ".end\n";
}

TEST(Hazards, BranchesGetBytesOfTheirOwnWhileTheArenaMayGrow) {
  const VerifiedModule module = test::verified(inline_entry(test::assembled(eight_branches()), 0).module);
  constexpr uint64_t kBlock = 4096, kPersistent = 4000 + 8 * 4;
  const auto bytes = [&](uint64_t memory, ArenaUse use, bool branches = true) {
    PlanningBackend backend(memory, false, branches);
    PlanOptions options;
    options.arena = use;
    return make_plan(module, backend, options)->arena_bytes;
  };
  EXPECT_EQ(bytes(1 << 30, ArenaUse::Tight), 2 * kBlock);
  EXPECT_EQ(bytes(1 << 30, ArenaUse::Auto, false), 2 * kBlock) << "a backend that plays one after another";
  EXPECT_EQ(bytes(1 << 30, ArenaUse::Auto), 16 * kBlock);
  EXPECT_EQ(bytes(1 << 30, ArenaUse::Branches, false), 16 * kBlock);
  // An eighth of what is left beside the persistent tensors, in whole branches.
  EXPECT_EQ(bytes(kPersistent + 8 * 6 * kBlock, ArenaUse::Auto), 6 * kBlock);
  EXPECT_EQ(bytes(kPersistent + 16 * kBlock, ArenaUse::Auto), 2 * kBlock);
  EXPECT_EQ(bytes(kPersistent + 16 * kBlock, ArenaUse::Branches), 16 * kBlock);
  EXPECT_EQ(bytes(kPersistent + 5 * kBlock, ArenaUse::Branches), 5 * kBlock);
}

TEST(Hazards, WiderThanTheChainsKnownIsStillOrdered) {
  // 600 values at once, summed two by two: more branches than chains. Every edge is there, few go without saying.
  std::string text = ".input x f32[4]\n.output y f32[4]\n.tape main\n";
  for (int i = 0; i < 600; ++i) text += "  NEG a" + std::to_string(i) + ", x\n";
  text += "  COPY s0, a0\n";
  for (int i = 1; i < 600; ++i)
    text += "  MUL s" + std::to_string(i) + ", s" + std::to_string(i - 1) + ", a" + std::to_string(i) + "\n";
  text += "  COPY y, s599\n";
  PlanOptions apart;
  apart.reuse = false;
  Edges wanted{{0, 600}, {1199, 1200}};
  for (uint32_t i = 1; i < 600; ++i) {
    wanted.emplace(i, 600 + i);
    wanted.emplace(599 + i, 600 + i);
  }
  EXPECT_EQ(edges_of(*planned(text, apart)), wanted);
}

TEST(Hazards, ReachKnowsWhoFollowsWhom) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    Reach reach(round % 2 == 0 ? 256 : 3);
    std::vector<std::set<uint32_t>> follows;
    for (uint32_t item = 0; item < 120; ++item) {
      std::vector<uint32_t> before;
      for (uint32_t k = static_cast<uint32_t>(random() % 4); k > 0 && item > 0; --k)
        before.push_back(item - 1 - static_cast<uint32_t>(random() % std::min<uint32_t>(item, 12)));
      const std::set<uint32_t> asked(before.begin(), before.end());
      reach.add(before);
      follows.emplace_back();
      for (const uint32_t each : asked) {
        follows[item].insert(each);
        follows[item].insert(follows[each].begin(), follows[each].end());
      }
      for (uint32_t other = 0; other < item; ++other) {
        const bool known = reach.follows(item, other);
        if (round % 2 == 0) {
          ASSERT_EQ(known, follows[item].contains(other)) << item << " " << other;
        } else {
          ASSERT_TRUE(!known || follows[item].contains(other)) << item << " " << other;
        }
      }
    }
  }
}

}  // namespace
}  // namespace tape
