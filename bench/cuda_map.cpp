// A chain of elementwise f32 commands over 2^28 elements: one by one, as one MAP, and with a reduction behind it. A MAP
// should take what its traffic takes: 0.88 of a device copy. Elements are computed again on the host, to the bit.
#include <fmt/format.h>

#include <bit>
#include <cstdlib>
#include <cstring>

#include "cuda_bench.h"

namespace tape::bench {
namespace {

constexpr size_t kElements = size_t{1} << 28;
constexpr double kGigabytes = kElements * 4.0 / 1e9;
constexpr const char* kChain =
    "  MUL t0, x, 1.5\n  ADD t1, t0, x\n  SQUARE t2, t1\n  SUB t3, t2, x\n  MUL y, t3, 0.5\n";

/// The chain on the host, each operation rounded.
float chain(float x) {
  const float t0 = x * 1.5f;
  const float t1 = t0 + x;
  const float t2 = t1 * t1;
  const float t3 = t2 - x;
  return t3 * 0.5f;
}

std::vector<float> values(Machine& machine, std::string_view name) {
  const HostArray array = machine.retrieve(name);
  std::vector<float> out(array.bytes.size() / 4);
  std::memcpy(out.data(), array.bytes.data(), array.bytes.size());
  return out;
}

std::string mapped(const std::string& body) {
  return "  MAP [y], [x] {\n" + body + "  }\n";
}

void chain_line(const std::string& name, const std::string& body, double gigabytes, unsigned times = 20) {
  CardTape tape(fmt::format(".param x f32[{0}] uniform lo=-2 hi=2\n.output y f32[{0}]\n", kElements), body, times);
  Line line{name, tape.time(), gigabytes, "GB"};
  const std::vector<float> x = values(tape.machine(), "x"), y = values(tape.machine(), "y");
  size_t wrong = 0;
  for (size_t i = 0; i < kElements; i += i < 4096 ? 1 : 977)
    if (std::bit_cast<uint32_t>(y[i]) != std::bit_cast<uint32_t>(chain(x[i]))) ++wrong;
  line.right = wrong == 0;
  line.check = fmt::format("{} elements differ", wrong);
  report(line);
}

/// Sources that are broadcast along either axis, halves, and what is no multiple of a vector.
void shape_line(const std::string& name, const std::string& declarations, const std::string& body, double gigabytes) {
  CardTape tape(declarations, body);
  report({name, tape.time(), gigabytes, "GB"});
}

void reduce_line(const std::string& name, int64_t rows, int64_t columns) {
  const std::string declarations =
      fmt::format(".param x f32[{0},{1}] uniform lo=-2 hi=2\n.output r f32[{0}]\n", rows, columns);
  CardTape tape(declarations, "  MAP_REDUCE [r], [x], reduce=sum {\n    SQUARE t, x\n    ADD r, t, x\n  }\n");
  Line line{name, tape.time(), kGigabytes, "GB"};
  // The same by separate commands, which the canonical order makes equal to the bit.
  CardTape separate(declarations, "  SQUARE t, x\n  ADD m, t, x\n  SUM r, m, axes=[1]\n", 4);
  line.peer = "separate commands";
  line.peer_time = separate.time();
  line.right = values(tape.machine(), "r") == values(separate.machine(), "r");
  line.check = "differs from the separate commands";
  report(line);
}

void map() {
  chain_line("5 f32 commands on 2^28 elements, one by one", kChain, 12 * kGigabytes, 4);
  chain_line("the same as one MAP", mapped(kChain), 2 * kGigabytes);
  setenv("TAPE_NVRTC", "off", 1);
  chain_line("the same, interpreted", mapped(kChain), 2 * kGigabytes, 1);
  unsetenv("TAPE_NVRTC");
  const std::string shape = fmt::format("[4096,{}]", kElements / 4096);
  const std::string row = fmt::format("[{}]", kElements / 4096);
  shape_line("MAP f32: a row added, a column multiplied, 2^28",
             fmt::format(".param x f32{0} uniform\n.param a f32{1} uniform\n.param b f32[4096,1] uniform\n"
                         ".output y f32{0}\n",
                         shape, row),
             "  MAP [y], [x, a, b] {\n    ADD t, x, a\n    MUL y, t, b\n  }\n", 2 * kGigabytes);
  shape_line("MAP bf16: silu(a) * b, 2^28",
             fmt::format(".param a bf16[{0}] uniform\n.param b bf16[{0}] uniform\n.output y bf16[{0}]\n", kElements),
             "  MAP [y], [a, b] {\n    SILU t, a\n    MUL y, t, b\n  }\n", 1.5 * kGigabytes);
  shape_line("MAP f32: gelu, 2^28", fmt::format(".param x f32[{0}] uniform\n.output y f32[{0}]\n", kElements),
             "  MAP [y], [x] {\n    GELU y, x\n  }\n", 2 * kGigabytes);
  shape_line("MAP f32 of 2^28 - 1 elements",
             fmt::format(".param x f32[{0}] uniform\n.output y f32[{0}]\n", kElements - 1),
             "  MAP [y], [x] {\n    SQUARE t, x\n    ADD y, t, x\n  }\n", 2 * kGigabytes);
  reduce_line("MAP_REDUCE sum f32 2^28, rows of 65536", 4096, 65'536);
  reduce_line("MAP_REDUCE sum f32 2^28, rows of 1024", 1 << 18, 1024);
  reduce_line("MAP_REDUCE sum f32 2^28, one row", 1, 1 << 28);
}

const Topic kMap("map", &map);

}  // namespace
}  // namespace tape::bench
