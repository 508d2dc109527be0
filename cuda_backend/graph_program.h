// How a tape is cut into graphs: a graph goes on as far as nothing needs the host. Loops of a constant count that are
// small are unrolled, longer ones play a graph of some of their passes over and over; loops whose passes a tensor
// decides about are turned by the graph itself where it can do that, else by the host in every pass.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cuda_backend/graph.h"
#include "cuda_backend/steps.h"

namespace tape::cuda {

/// Commands side by side in a graph, as tape_cuda_options::branches.
enum class Branches : uint32_t { Off, Auto, All };

enum class PlayMode : uint32_t { Graph, Capture, Stream };

/// How a backend plays its tapes.
struct PlayOptions {
  PlayMode mode = PlayMode::Graph;
  Branches branches = Branches::Auto;
  bool programmatic = false;  // the card lets a kernel begin while the one before it ends
  uint32_t processors = 1;
  std::function<void(const std::string&)> note;  // takes what people must know
};

/// What a program is made from.
struct GraphTape {
  std::span<const Step> steps;
  std::span<const Loop> loops;
  GraphSource source;
  std::span<const uint32_t> before;  // as tape_cuda_plan::before; with before_ends empty: a chain
  std::span<const uint64_t> before_ends;
  std::span<const uint32_t> again;  // as tape_cuda_plan::again; with again_ends empty a pass follows a whole one
  std::span<const uint64_t> again_ends;
  std::span<const uint32_t> faulting;       // commands and loops outside of loops that may fault
  std::function<bool(const Step&)> hosted;  // a LOAD that needs the host, in every pass
  std::function<bool(const Step&)> fed;     // and may be in a graph of one pass all the same
  uint64_t slots = 0;                       // of the ring
  uint32_t processors = 1;
  static constexpr uint32_t kNoTick = ~uint32_t{1};
  uint32_t tick = kNoTick;   // the launch that counts passes
  bool ticks_alone = false;  // it belongs to no command and comes at the beginning of a pass
  Branches branches = Branches::Auto;
  bool conditional = false;  // a graph may turn loops by itself
};

struct GraphItem {
  enum class Kind : uint8_t { Graph, Load, Begin, End } kind = Kind::Graph;
  uint32_t graph = 0;            // in GraphProgram::graphs
  uint64_t times = 1;            // Graph: launches of it, one after another
  uint32_t step = 0, other = 0;  // Load, Begin, End: of the tape; the item of the partner
};

struct GraphProgram {
  std::vector<GraphItem> items;
  std::vector<GraphPlan> plans;
  std::vector<Graph> graphs;  // parallel to plans
  uint64_t passes = 1;        // of the tape

  /// The whole is one graph.
  [[nodiscard]] bool whole() const { return items.size() == 1 && items[0].kind == GraphItem::Kind::Graph; }
};

/// Plans without graphs. More than one pass: only where one pass is one graph.
[[nodiscard]] GraphProgram plan_program(const GraphTape& tape, uint64_t passes = 1);
/// How many passes of a whole program go well into one graph.
[[nodiscard]] uint64_t passes_together(const GraphProgram& program, const GraphTape& tape);

}  // namespace tape::cuda
