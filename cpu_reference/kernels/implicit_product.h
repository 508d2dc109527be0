// Products whose factors are written tile by tile where they are needed (convolutions): their tiles, and how BLAS plays
// them or the canonical order. Tiles, splits of k and scratch are functions of the
// shape alone, so the number of threads never changes a bit.
//
// A problem has
//   using C                 the compute type
//   kTransposedB            whether columns() writes b with its columns as rows
//   rows(index, i0, rows, k0, depth, to, ld)     a[i0 + r][k0 + k] -> to[r * ld + k]
//   columns(index, k0, depth, j0, cols, to, ld)  b[k0 + k][j0 + c] -> to[k * ld + c], or to[c * ld + k] transposed
//   dense(index, i0, k0)    a where it lies in memory with rows `dense_ld` apart, or nullptr
//   store(index, i0, rows, j0, cols, tile, ld)   takes the finished sums
// where index counts independent products.
#pragma once

#include "cpu_reference/kernels/product.h"

namespace tape::cpu::product {

/// `batch` products of [m, k] by [k, n].
struct ImplicitPlan {
  int64_t batch = 1, m = 0, n = 0, k = 0;
  int64_t tile_m = 0, tile_n = 0, tile_k = 0;
  int64_t splits = 1;  // parts of k, each of whole tiles, summed in rising order
  int64_t slots = 1;   // tasks, each with panels of its own

  [[nodiscard]] int64_t down() const { return (m + tile_m - 1) / tile_m; }
  [[nodiscard]] int64_t across() const { return (n + tile_n - 1) / tile_n; }
  [[nodiscard]] int64_t tiles() const { return batch * down() * across(); }
  [[nodiscard]] int64_t steps() const { return (k + tile_k - 1) / tile_k; }
  [[nodiscard]] int64_t panels() const { return tile_k * (tile_m + tile_n); }
  [[nodiscard]] int64_t tile() const { return tile_m * tile_n; }
  /// Elements of scratch: of each slot its panels and a tile, and all parts of the tiles where k is split.
  [[nodiscard]] int64_t scratch() const {
    return splits == 1 ? slots * (panels() + tile()) : slots * panels() + tiles() * splits * tile();
  }
};

inline constexpr int64_t kSlotElements = int64_t{1} << 20;   // of all slots
inline constexpr int64_t kPanelElements = int64_t{1} << 15;  // a larger panel leaves the cache: 1.3 times the time
inline constexpr int64_t kTasks = 16;                        // wanted, and the most slots
inline constexpr int64_t kLeastWork = int64_t{1} << 22;

[[nodiscard]] inline int64_t slots_for(int64_t tasks, int64_t elements) {
  return std::clamp<int64_t>(std::min(tasks, kSlotElements / elements), 1, kTasks);
}

/// Tiles for short k and long n: outputs of a convolution.
[[nodiscard]] inline ImplicitPlan plan_outputs(int64_t batch, int64_t m, int64_t n, int64_t k) {
  ImplicitPlan p{batch, m, n, k};
  p.tile_m = std::min<int64_t>(256, round_up(std::max<int64_t>(m, 1), 16));
  p.tile_k = k <= 512 ? std::max<int64_t>(k, 1) : 256;
  const int64_t columns = round_up(kPanelElements / (p.tile_k + p.tile_m), 16);
  p.tile_n = std::min(std::clamp<int64_t>(columns, 128, 1024), round_up(std::max<int64_t>(n, 1), 16));
  while (p.tiles() < kTasks / 2 && p.tile_m * p.tile_n * k > kLeastWork && std::max(p.tile_m, p.tile_n) > 64) {
    int64_t& longer = p.tile_m >= p.tile_n ? p.tile_m : p.tile_n;
    longer = round_up(longer / 2, 16);
  }
  p.slots = slots_for(p.tiles(), p.panels() + p.tile());
  return p;
}

/// Tiles for long k: gradients of weights. Few tiles split k.
[[nodiscard]] inline ImplicitPlan plan_weights(int64_t batch, int64_t m, int64_t n, int64_t k) {
  ImplicitPlan p{batch, m, n, k};
  p.tile_m = std::min<int64_t>(128, round_up(std::max<int64_t>(m, 1), 16));
  p.tile_n = std::min<int64_t>(256, round_up(std::max<int64_t>(n, 1), 16));
  p.tile_k = std::clamp<int64_t>(kPanelElements / (p.tile_m + p.tile_n) / 64 * 64, 128, 2048);
  p.splits = std::max<int64_t>(1, std::min(kTasks / std::max<int64_t>(1, p.tiles()), p.steps()));
  p.slots = slots_for(p.tiles() * p.splits, p.panels() + (p.splits == 1 ? p.tile() : 0));
  return p;
}

template <class Problem>
class Implicit {
 public:
  using C = typename Problem::C;
  Implicit(const Problem& problem, const ImplicitPlan& plan, std::byte* scratch)
      : problem_(problem), plan_(plan), scratch_(reinterpret_cast<C*>(scratch)) {}

  void play(Context& context, bool canonical) {
    if (canonical) return play_canonical(context);
    if (plan_.tiles() == 0) return;
    run(plan_.slots, context, [](Implicit& self, int64_t slot) { self.play_slot(slot); });
    if (plan_.splits > 1) run(plan_.tiles(), context, [](Implicit& self, int64_t tile) { self.join(tile); });
  }

 private:
  void play_canonical(Context& context) const {
    const int64_t down = (plan_.m + kTileM - 1) / kTileM, across = (plan_.n + kTileN - 1) / kTileN;
    context.pool->for_range(plan_.batch * down * across, 1, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) one_canonical(t / (down * across), t / across % down, t % across);
    });
  }

  struct Place {
    int64_t index, i, j, rows, cols;
  };
  [[nodiscard]] Place place(int64_t tile) const {
    const int64_t down = plan_.down(), across = plan_.across();
    Place p{tile / (down * across), tile / across % down * plan_.tile_m, tile % across * plan_.tile_n, 0, 0};
    p.rows = std::min(plan_.tile_m, plan_.m - p.i);
    p.cols = std::min(plan_.tile_n, plan_.n - p.j);
    return p;
  }
  [[nodiscard]] C* part(int64_t tile, int64_t split) const {
    return scratch_ + plan_.slots * plan_.panels() + (tile * plan_.splits + split) * plan_.tile();
  }

  using Task = void (*)(Implicit&, int64_t);
  void run(int64_t tasks, Context& context, Task task) {
    struct State {
      Implicit& self;
      Task task;
    } state{*this, task};
    context.pool->run(
        tasks,
        [](void* raw, int64_t at) {
          auto& s = *static_cast<State*>(raw);
          s.task(s.self, at);
        },
        &state);
  }

  void play_slot(int64_t slot) {
    if (plan_.splits > 1) {
      C* const panels = scratch_ + slot * plan_.panels();
      Packed packed;
      for (int64_t unit = slot; unit < plan_.tiles() * plan_.splits; unit += plan_.slots) {
        const int64_t tile = unit / plan_.splits, split = unit % plan_.splits;
        sum(place(tile), plan_.steps() * split / plan_.splits, plan_.steps() * (split + 1) / plan_.splits, panels,
            packed, part(tile, split));
      }
      return;
    }
    C* const panels = scratch_ + slot * (plan_.panels() + plan_.tile());
    C* const tile = panels + plan_.panels();
    Packed packed;
    for (int64_t unit = slot; unit < plan_.tiles(); unit += plan_.slots) {
      const Place at = place(unit);
      sum(at, 0, plan_.steps(), panels, packed, tile);
      problem_.store(at.index, at.i, at.rows, at.j, at.cols, tile, plan_.tile_n);
    }
  }

  /// The rows that a slot's panel holds.
  struct Packed {
    int64_t index = -1, i = -1, step = -1;
    bool operator==(const Packed&) const = default;
  };

  /// The steps [begin, end) of k of one tile.
  void sum(const Place& at, int64_t begin, int64_t end, C* panels, Packed& packed, C* tile) const {
    if (begin >= end) std::fill_n(tile, at.rows * plan_.tile_n, C{});
    C* const a = panels + plan_.tile_k * plan_.tile_n;
    constexpr bool kTransposed = Problem::kTransposedB;
    const int64_t ldb = kTransposed ? plan_.tile_k : plan_.tile_n;
    for (int64_t step = begin; step < end; ++step) {
      const int64_t k0 = step * plan_.tile_k, depth = std::min(plan_.tile_k, plan_.k - k0);
      problem_.columns(at.index, k0, depth, at.j, at.cols, panels, ldb);
      const C* rows = problem_.dense(at.index, at.i, k0);
      const int64_t lda = rows != nullptr ? problem_.dense_ld : plan_.tile_k;
      if (rows == nullptr) {
        const Packed wanted{at.index, at.i, step};
        if (!(packed == wanted)) problem_.rows(at.index, at.i, at.rows, k0, depth, a, lda);
        packed = wanted;
        rows = a;
      }
      gemm(false, kTransposed, at.rows, at.cols, depth, C{1}, rows, lda, panels, ldb, step == begin ? C{0} : C{1}, tile,
           plan_.tile_n);
    }
  }

  void join(int64_t tile) {
    const Place at = place(tile);
    C* const total = part(tile, 0);
    for (int64_t split = 1; split < plan_.splits; ++split) {
      const C* const more = part(tile, split);
      for (int64_t i = 0; i < at.rows; ++i)
        for (int64_t j = 0; j < at.cols; ++j) total[i * plan_.tile_n + j] += more[i * plan_.tile_n + j];
    }
    problem_.store(at.index, at.i, at.rows, at.j, at.cols, total, plan_.tile_n);
  }

  void one_canonical(int64_t index, int64_t row, int64_t column) const {
    const int64_t i0 = row * kTileM, rows = std::min(kTileM, plan_.m - i0);
    const int64_t j0 = column * kTileN, cols = std::min(kTileN, plan_.n - j0);
    alignas(64) C tile[kTileM * kTileN];
    canonical_tile(
        rows, cols, plan_.k,
        [&](int64_t k0, int64_t depth, C* to) { problem_.rows(index, i0, rows, k0, depth, to, kDepth); },
        [&](int64_t k0, int64_t depth, C* to) {
          alignas(64) C block[kDepth * kTileN];
          constexpr bool kTransposed = Problem::kTransposedB;
          problem_.columns(index, k0, depth, j0, cols, block, kTransposed ? kDepth : kTileN);
          pack_panels(block, kTransposed ? 1 : kTileN, kTransposed ? kDepth : 1, depth, cols, to);
        },
        tile);
    problem_.store(index, i0, rows, j0, cols, tile, kTileN);
  }

  const Problem& problem_;
  const ImplicitPlan& plan_;
  C* scratch_;
};

}  // namespace tape::cpu::product
