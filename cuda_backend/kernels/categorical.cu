// A class for each row by inverse distribution function. Everything is f64 from shared functions and + - * / alone,
// sums in the order of CUMSUM: a warp takes a chunk of 1,024 classes, its lanes the runs of 32, one thread the chunks.
// Terms are not negative, so a running sum never falls, and what it first exceeds lies in the first chunk and the first
// run whose end exceeds it.
#include "cuda_backend/kernels/canonical.cuh"
#include "cuda_backend/kernels/categorical.h"
#include "cuda_backend/kernels/check.cuh"
#include "opcodes/device/random.h"

namespace tape::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32, kRun = 32;
constexpr int64_t kChunkSize = kCategoricalChunk;

template <class T>
__device__ __forceinline__ double logit(const void* logits, int64_t i) {
  return static_cast<double>(static_cast<ComputeType<T>>(static_cast<const T*>(logits)[i]));
}

/// What a thread has seen of a row: NaN, or the first largest of its elements.
struct Best {
  double value;
  int64_t place;
  bool nan;
  __device__ void meet(const Best& other) {
    nan = nan || other.nan;
    if (other.place < 0 || (place >= 0 && (other.value < value || (other.value == value && other.place > place))))
      return;
    value = other.value;
    place = other.place;
  }
};

template <class T>
__global__ void __launch_bounds__(kThreads) largest(const __grid_constant__ LargestArgs args) {
  TAPE_KERNEL_BEGIN(args);
  __shared__ double values[kThreads];
  __shared__ int64_t places[kThreads];
  __shared__ bool nans[kThreads];
  const int t = static_cast<int>(threadIdx.x);
  const int64_t row = blockIdx.x, base = row * args.classes;
  Best best{0, -1, false};
  for (int64_t i = t; i < args.classes; i += kThreads) {
    const double x = logit<T>(args.logits, base + i);
    if (x != x)
      best.nan = true;
    else
      best.meet({x, i, false});
  }
  for (int half = kThreads / 2; half >= 1; half /= 2) {
    values[t] = best.value;
    places[t] = best.place;
    nans[t] = best.nan;
    __syncthreads();
    if (t < half) best.meet({values[t + half], places[t + half], nans[t + half]});
    __syncthreads();
  }
  if (t == 0) args.largest[row] = best.nan || !device::is_finite(best.value) ? -1 : best.place;
}

__global__ void __launch_bounds__(kThreads) largest_check(const __grid_constant__ LargestCheckArgs args) {
  await_grids();
  release_grids();
  struct Test {
    const LargestCheckArgs& args;
    __device__ bool bad(int64_t row) const { return args.largest[row] < 0; }
    __device__ void describe(int64_t row, Fault& fault) const { fault.position = row * args.classes; }
  };
  find_first(args.fault, args.site, static_cast<uint64_t>(args.rows), Test{args});
}

/// Running sums of a row's n terms of at least 0 by the threads of a block.
template <class Term>
class RunningSums {
 public:
  /// `chunks` keeps a sum for every chunk; `staged` is a chunk of every warp.
  __device__ RunningSums(int64_t n, const Term& term, double* chunks, float (*staged)[kRun][kRun + 1])
      : n_(n), term_(term), chunks_(chunks), staged_(staged[threadIdx.x / 32]), lane_(threadIdx.x % 32) {
    for (int64_t j = threadIdx.x / 32; j < count(); j += kWarps) {
      stage(j);
      const double sum = through_runs(own_run(), runs_of(j));
      if (lane_ == runs_of(j) - 1) chunks_[j] = sum;
    }
    __syncthreads();
  }
  [[nodiscard]] __device__ double total() const {
    double sum = -0.0;
    for (int64_t j = 0; j < count(); ++j) sum = sum + chunks_[j];
    return sum;
  }
  /// The first element whose running sum passes; n when none does. The same for every thread of the first warp, and
  /// of no meaning to the others.
  template <class Passes>
  [[nodiscard]] __device__ int64_t first(const Passes& passes) {
    if (threadIdx.x >= 32) return n_;
    double before = -0.0;
    int64_t j = 0;
    for (; j < count() && !passes(before + chunks_[j]); ++j) before = before + chunks_[j];
    if (j == count()) return n_;
    stage(j);
    const double run = own_run();
    const double ends = through_runs(run, runs_of(j));
    // Its own runs before, summed one by one from the left.
    double runs = from_lane(ends, lane_ - 1);
    if (lane_ == 0) runs = -0.0;
    int place = kRun;
    double sum = -0.0;
    for (int i = 0; i < length_of(j, lane_); ++i) {
      sum = sum + static_cast<double>(staged_[lane_][i]);
      if (place == kRun && passes(before + (runs + sum))) place = i;
    }
    for (int lane = 0; lane < kRun; ++lane) {
      const int found = from_lane(place, lane);
      if (found < kRun) return j * kChunkSize + lane * kRun + found;
    }
    return n_;
  }

 private:
  [[nodiscard]] __device__ int64_t count() const { return (n_ + kChunkSize - 1) / kChunkSize; }
  [[nodiscard]] __device__ int64_t size_of_chunk(int64_t j) const {
    return n_ - j * kChunkSize < kChunkSize ? n_ - j * kChunkSize : kChunkSize;
  }
  [[nodiscard]] __device__ int runs_of(int64_t j) const {
    return static_cast<int>((size_of_chunk(j) + kRun - 1) / kRun);
  }
  [[nodiscard]] __device__ int length_of(int64_t j, int run) const {
    const int64_t left = size_of_chunk(j) - run * kRun;
    return static_cast<int>(left < 0 ? 0 : left < kRun ? left : kRun);
  }
  /// The terms of chunk j, which are f32 values, run by run.
  __device__ void stage(int64_t j) {
    length_ = length_of(j, lane_);
    const int64_t size = size_of_chunk(j);
    for (int i = lane_; i < size; i += 32) staged_[i / kRun][i % kRun] = static_cast<float>(term_(j * kChunkSize + i));
    __syncwarp();
  }
  [[nodiscard]] __device__ double own_run() const {
    double sum = -0.0;
    for (int i = 0; i < length_; ++i) sum = sum + static_cast<double>(staged_[lane_][i]);
    return sum;
  }
  /// Runs 0 .. own lane, one after another; lanes are visited from the left.
  [[nodiscard]] __device__ double through_runs(double run, int runs) const {
    double sum = -0.0, own = 0;
    for (int lane = 0; lane < runs; ++lane) {
      sum = sum + from_lane(run, lane);
      if (lane == lane_) own = sum;
    }
    __syncwarp();  // `staged` is written again
    return own;
  }

  int64_t n_;
  const Term& term_;
  double* chunks_;
  float (*staged_)[kRun + 1];
  int lane_, length_ = 0;
};

/// e^((x - max) / temperature) rounded to f32.
__device__ __forceinline__ float weight_of(double x, double max, double temperature) {
  const double exponent = (x - max) / temperature;
  return exponent - exponent == 0.0 ? static_cast<float>(device::exp_f64(exponent)) : 0.0f;
}

template <class T>
__global__ void __launch_bounds__(kThreads) categorical(const __grid_constant__ CategoricalArgs args) {
  TAPE_KERNEL_BEGIN(args);
  __shared__ float staged[kWarps][kRun][kRun + 1];
  __shared__ int64_t shared_kept;
  const int64_t row = blockIdx.x, base = row * args.classes, largest = args.largest[row];
  const auto put = [&](int64_t choice) {
    if (threadIdx.x != 0) return;
    if (args.wide != 0)
      static_cast<int64_t*>(args.dst)[row] = choice;
    else
      static_cast<int32_t*>(args.dst)[row] = static_cast<int32_t>(choice);
  };
  if (args.temperature == 0) return put(largest);
  double* const chunks = args.sums + row * ((args.classes + kChunkSize - 1) / kChunkSize);
  const double max = logit<T>(args.logits, base + largest);
  const auto weight = [&](int64_t i) { return weight_of(logit<T>(args.logits, base + i), max, args.temperature); };
  uint8_t* const kept = args.order == nullptr ? nullptr : args.kept + base;
  if (kept != nullptr) {
    const int32_t* const order = args.order + row * args.count;
    for (int64_t i = threadIdx.x; i < args.classes; i += kThreads) kept[i] = 0;
    const auto ranked = [&](int64_t i) { return weight(order[i]); };
    RunningSums sums(args.count, ranked, chunks, staged);
    const double limit = args.top_p * sums.total();
    // The fewest that reach the limit, and at least one.
    const int64_t last = sums.first([&](double sum) { return sum >= limit; });
    if (threadIdx.x == 0) shared_kept = last < args.count ? last + 1 : args.count;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < shared_kept; i += kThreads) kept[order[i]] = 1;
    __syncthreads();
  }
  const auto term = [&](int64_t i) { return kept != nullptr && kept[i] == 0 ? 0.0f : weight(i); };
  RunningSums sums(args.classes, term, chunks, staged);
  const uint64_t block = static_cast<uint64_t>(row) / 4;
  const device::RandomBlock drawn =
      device::random_block(static_cast<device::U64>(args.rng[0]), static_cast<device::U64>(args.rng[1]) + block);
  const double wanted = static_cast<double>(drawn.word[row % 4]) * 0x1p-32 * sums.total();
  const int64_t choice = sums.first([&](double sum) { return sum > wanted; });
  put(choice < args.classes ? choice : args.classes - 1);
}

}  // namespace

const void* largest_kernel(DType dtype) {
  return dispatch_float(dtype, [](auto type) { return address_of(&largest<typename decltype(type)::type>); });
}
const void* largest_check_kernel() {
  return address_of(&largest_check);
}
const void* categorical_kernel(DType dtype) {
  return dispatch_float(dtype, [](auto type) { return address_of(&categorical<typename decltype(type)::type>); });
}

}  // namespace tape::cuda
