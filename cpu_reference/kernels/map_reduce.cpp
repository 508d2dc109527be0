// MAP_REDUCE: the body fills a buffer of some rows, or of one block of 65,536 elements of a long row, which is reduced
// in the canonical order of SUM, MEAN, PROD, REDUCE_MAX and REDUCE_MIN before the next. Nothing of full size is stored.
#include "cpu_reference/kernels/canonical.h"
#include "cpu_reference/kernels/map_program.h"
#include "cpu_reference/kernels/nest.h"

namespace tape::cpu {
namespace {

constexpr int64_t kBufferElements = 8 * MapProgram::kBlock;  // of short rows together

enum Reduce : int64_t { kSum, kMean, kProd, kMax, kMin };  // of sum|mean|prod|max|min

/// `rows` reductions of `count` values each: elements of the body, or the values of the blocks of a row.
struct Job {
  const std::byte* values = nullptr;
  int64_t rows = 0, count = 0;
  int64_t elements = 0;  // of a whole row
  int64_t lanes = 0;     // of the canonical order
  bool mean = false;
  const View* dst = nullptr;
  int64_t first = 0;  // row of dst
};

/// How one destination is reduced.
struct Reducer {
  void (*rows)(const Job&) = nullptr;
  void (*block)(const Job&, std::byte* value) = nullptr;  // the value of a block of a long row
  void (*fold)(const Job&) = nullptr;                     // values of blocks to results
};

template <class RuleT, class T, class D>
struct Reduction {
  using Acc = typename RuleT::Acc;
  [[nodiscard]] static Acc block_value(const T* x, int64_t begin, const Job& job) {
    const auto take = [x](Acc acc, int64_t i) { return RuleT::combine(acc, static_cast<Acc>(x[i])); };
    return canonical::reduce_block<RuleT>(begin, job.count, job.lanes, take);
  }
  static void finish(const Job& job, int64_t row, Acc value) {
    if constexpr (std::is_floating_point_v<Acc>) {
      if (job.elements == 0 && RuleT::identity() == 0) value = 0;  // the empty sum is +0
      if (job.mean) value /= static_cast<Acc>(job.elements);
    }
    const int64_t at = job.first + row;
    D& dst = job.dst->template as<D>()[is_dense(*job.dst) ? at : offset_of(*job.dst, at)];
    store(dst, static_cast<Accumulator<D>>(value), false);
  }

  static void rows(const Job& job) {
    const T* const x = reinterpret_cast<const T*>(job.values);
    for (int64_t row = 0; row < job.rows; ++row) finish(job, row, block_value(x, row * job.count, job));
  }
  static void block(const Job& job, std::byte* value) {
    *reinterpret_cast<Acc*>(value) = block_value(reinterpret_cast<const T*>(job.values), 0, job);
  }
  static void fold(const Job& job) {
    const auto* const values = reinterpret_cast<const Acc*>(job.values);
    for (int64_t row = 0; row < job.rows; ++row) {
      Acc value[1];
      canonical::fold<RuleT, 1>(
          job.count, 1, [&](int64_t j, Acc* out) { out[0] = values[row * job.count + j]; }, value, nullptr);
      finish(job, row, value[0]);
    }
  }
};

template <class RuleT, class T, class D>
Reducer reducer_of() {
  using R = Reduction<RuleT, T, D>;
  return {&R::rows, &R::block, &R::fold};
}

Reducer choose_reducer(int64_t kind, DType source, DType destination) {
  return dispatch(source, [&]<class T>(Type<T>) -> Reducer {
    if constexpr (std::is_same_v<T, bool>) {
      throw Error(Code::Internal, "MAP_REDUCE: reduces bools");
    } else {
      using C = ComputeType<T>;
      using A = Accumulator<T>;
      if (kind == kMax) return reducer_of<canonical::Maximum<C>, T, T>();
      if (kind == kMin) return reducer_of<canonical::Minimum<C>, T, T>();
      if constexpr (is_half_type<T>)
        if (destination == DType::F32)
          return kind == kProd ? reducer_of<canonical::Product<A>, T, float>()
                               : reducer_of<canonical::Sum<A>, T, float>();
      return kind == kProd ? reducer_of<canonical::Product<A>, T, T>() : reducer_of<canonical::Sum<A>, T, T>();
    }
  });
}

class ReduceProgram final : public MapProgram {
 public:
  ReduceProgram(Call& call, const Context& context, const Shape& full) : MapProgram(call, context, full, false) {
    const Command& command = *call.command;
    const auto axes = static_cast<int>(command.attr_int("axes"));
    for (int axis = 0; axis < full.rank(); ++axis) (axis < full.rank() - axes ? outputs_ : count_) *= full[axis];
    blocks_ = (count_ + canonical::kBlock - 1) / canonical::kBlock;
    if (is_long()) {
      chunks_ = outputs_ * blocks_;
      buffer_elements_ = canonical::kBlock;
    } else {
      rows_ = std::max<int64_t>(1, std::min(outputs_, kBufferElements / std::max<int64_t>(1, count_)));
      chunks_ = (outputs_ + rows_ - 1) / rows_;
      buffer_elements_ = rows_ * count_;
    }
    const int64_t threads = context.pool->threads();
    make_lanes(static_cast<size_t>(threads == 1 ? 1 : std::clamp<int64_t>(chunks_, 1, 2 * threads)), context);
    lay_out(call);
  }

  void run(const Call& call, Context& context) {
    check(call, context);
    for_lanes(context, chunks_, [&](size_t lane, int64_t first, int64_t last) {
      for (int64_t chunk = first; chunk < last; ++chunk)
        is_long() ? play_block(call, context, lane, chunk) : play_rows(call, context, lane, chunk);
    });
    if (!is_long()) return;
    for (size_t k = 0; k < reducers_.size(); ++k) {
      Job job = job_of(call, k);
      job.values = call.scratch + values_at_[k];
      job.rows = outputs_;
      job.count = blocks_;
      reducers_[k].fold(job);
    }
  }

 private:
  [[nodiscard]] bool is_long() const { return blocks_ > 1; }

  /// Scratch: registers of the lanes, their buffers, values of the blocks of long rows.
  void lay_out(Call& call) {
    const int64_t kind = call.command->attr_int("reduce");
    mean_ = kind == kMean;
    uint64_t at = lanes() * lane_bytes();
    for (size_t k = 0; k < body().destinations; ++k) {
      const size_t slot = body().sources + k;
      reducers_.push_back(choose_reducer(kind, storage(slot), call.operands[k].storage));
      buffers_at_.push_back(at);
      buffer_bytes_.push_back((static_cast<uint64_t>(buffer_elements_) * size_of(storage(slot)) + 63) / 64 * 64);
      at += lanes() * buffer_bytes_[k];
    }
    for (size_t k = 0; is_long() && k < body().destinations; ++k) {
      values_at_.push_back(at);
      at += static_cast<uint64_t>(chunks_) * sizeof(double);
    }
    call.scratch_bytes = at;
  }

  [[nodiscard]] Job job_of(const Call& call, size_t k) const {
    Job job;
    job.elements = count_;
    job.lanes = canonical::lanes_of(body().dtypes[body().sources + k]);
    job.mean = mean_;
    job.dst = &call.operands[k];
    return job;
  }

  std::byte* aim(const Call& call, size_t lane, size_t k, int64_t first) {
    std::byte* const buffer = call.scratch + buffers_at_[k] + lane * buffer_bytes_[k];
    target(lane, k, buffer, first);
    return buffer;
  }

  void play_rows(const Call& call, Context& context, size_t lane, int64_t chunk) {
    const int64_t first = chunk * rows_, last = std::min(outputs_, first + rows_);
    for (size_t k = 0; k < reducers_.size(); ++k) aim(call, lane, k, first * count_);
    play(call, context, lane, first * count_, last * count_);
    for (size_t k = 0; k < reducers_.size(); ++k) {
      Job job = job_of(call, k);
      job.values = aim(call, lane, k, 0);
      job.rows = last - first;
      job.count = count_;
      job.first = first;
      reducers_[k].rows(job);
    }
  }

  void play_block(const Call& call, Context& context, size_t lane, int64_t chunk) {
    const int64_t row = chunk / blocks_ * count_;
    const int64_t begin = row + chunk % blocks_ * canonical::kBlock;
    const int64_t end = std::min(row + count_, begin + canonical::kBlock);
    for (size_t k = 0; k < reducers_.size(); ++k) aim(call, lane, k, begin);
    play(call, context, lane, begin, end);
    for (size_t k = 0; k < reducers_.size(); ++k) {
      Job job = job_of(call, k);
      job.values = aim(call, lane, k, 0);
      job.count = end - begin;
      const auto size = static_cast<int64_t>(value_size(k));
      reducers_[k].block(job, call.scratch + values_at_[k] + chunk * size);
    }
  }

  /// Bytes of an accumulator.
  [[nodiscard]] size_t value_size(size_t k) const { return size_of(compute_of(storage(body().sources + k))); }

  int64_t outputs_ = 1, count_ = 1, blocks_ = 1;
  int64_t rows_ = 1, chunks_ = 0, buffer_elements_ = 0;
  bool mean_ = false;
  std::vector<Reducer> reducers_;
  std::vector<uint64_t> buffers_at_, buffer_bytes_, values_at_;
};

void map_reduce_kernel(const Call& call, Context& context) {
  static_cast<ReduceProgram&>(*call.program).run(call, context);
}

}  // namespace

Kernel choose_MapReduce(Call& call, const Context& context) {
  call.program = std::make_shared<ReduceProgram>(call, context, map_shape(call));
  return &map_reduce_kernel;
}

}  // namespace tape::cpu
