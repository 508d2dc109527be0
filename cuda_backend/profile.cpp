#include "cuda_backend/profile.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

#include "cuda_backend/cupti.h"

namespace tape::cuda {
namespace {

constexpr size_t kMostIntervals = 256;  // below what a stream holds before a launch waits
constexpr auto kLongestHold = std::chrono::milliseconds(5);

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

#ifdef TAPE_CUDA_EMULATION
std::chrono::steady_clock::time_point launched;  // one stream, which plays at once
#else
/// Keeps the stream from playing until the host has launched what follows, so that no launch is waited for.
void hold(void* user) {
  auto& held = *static_cast<std::atomic<bool>*>(user);
  const auto until = std::chrono::steady_clock::now() + kLongestHold;
  while (held && std::chrono::steady_clock::now() < until) std::this_thread::yield();
}
#endif

}  // namespace

bool Profile::sees_graphs() {
  return why_no_trace().empty();
}

void Profile::add_graph(const GraphPlan& plan, const std::vector<Launch>& launches, bool captured) {
  std::vector<std::vector<uint32_t>> commands;  // by node: its own, or those a join waits for
  for (const GraphPlan::Node& node : plan.nodes) {
    std::vector<uint32_t> before;
    if (captured && !commands.empty()) before = commands.back();
    if (!captured)
      for (const uint32_t earlier : plan.before_of(node))
        before.insert(before.end(), commands[earlier].begin(), commands[earlier].end());
    if (node.launch == GraphPlan::kJoin) {
      commands.push_back(std::move(before));
      continue;
    }
    const uint32_t command = launches[node.launch].command;
    for (const uint32_t earlier : before)
      if (std::find(before_[command].begin(), before_[command].end(), earlier) == before_[command].end())
        before_[command].push_back(earlier);
    commands.push_back({command});
  }
  for (const GraphPlan& loop : plan.loops) add_graph(loop, launches, captured);
}

Profile::~Profile() {
  held_ = false;
#ifndef TAPE_CUDA_EMULATION
  for (const Interval& interval : intervals_) {
    static_cast<void>(cudaEventSynchronize(interval.end));
    cudaEventDestroy(interval.begin);
    cudaEventDestroy(interval.end);
  }
#endif
}

void Profile::begin(uint32_t command, const Stream& stream) {
#ifdef TAPE_CUDA_EMULATION
  static_cast<void>(stream);
  if (intervals_.empty()) intervals_.emplace_back();
  intervals_[0].command = command;
  launched = std::chrono::steady_clock::now();
#else
  if (used_ == kMostIntervals) flush(stream);
  if (used_ == intervals_.size()) {
    Interval& made = intervals_.emplace_back();
    check(cudaEventCreate(&made.begin), "cudaEventCreate");
    check(cudaEventCreate(&made.end), "cudaEventCreate");
  }
  if (used_ == 0) {
    held_ = true;
    check(cudaLaunchHostFunc(stream.get(), &hold, &held_), "cudaLaunchHostFunc");
  }
  intervals_[used_].command = command;
  check(cudaEventRecord(intervals_[used_].begin, stream.get()), "cudaEventRecord");
#endif
}

void Profile::end(const Stream& stream) {
#ifdef TAPE_CUDA_EMULATION
  static_cast<void>(stream);
  seconds_[intervals_[0].command] += seconds_since(launched);
  ++kernels_[intervals_[0].command];
#else
  check(cudaEventRecord(intervals_[used_++].end, stream.get()), "cudaEventRecord");
#endif
}

void Profile::flush(const Stream& stream) {
  held_ = false;
#ifdef TAPE_CUDA_EMULATION
  static_cast<void>(stream);
#else
  if (used_ == 0) return;
  stream.wait();
  for (size_t i = 0; i < used_; ++i) {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, intervals_[i].begin, intervals_[i].end), "cudaEventElapsedTime");
    seconds_[intervals_[i].command] += milliseconds * 1e-3;
    ++kernels_[intervals_[i].command];
  }
  used_ = 0;
#endif
}

/// A kernel behind a programmatic edge begins while the one before still runs: its time counts from the end of those
/// that its command follows.
void Profile::add_traced(const std::vector<Launch>& launches) {
  std::vector<uint64_t> ended(seconds_.size());
  for (const TracedKernel& kernel : take_trace(&launches)) {
    if (kernel.command >= seconds_.size()) continue;
    uint64_t begin = std::max(kernel.begin, ended[kernel.command]);
    for (const uint32_t before : before_[kernel.command]) begin = std::max(begin, ended[before]);
    seconds_[kernel.command] += static_cast<double>(kernel.end - std::min(begin, kernel.end)) * 1e-9;
    ++kernels_[kernel.command];
    ended[kernel.command] = std::max(ended[kernel.command], kernel.end);
  }
}

void Profile::take(const std::vector<Launch>& launches, const std::vector<CapturedCall>& captured, const Stream& stream,
                   tape_cuda_profile& into) {
  flush(stream);
  if (sees_graphs()) add_traced(launches);
  std::vector<uint64_t> each(seconds_.size());  // kernels that a play of the command launches
  for (const Launch& launch : launches) {
    const size_t read_back = launch.foreign < 0 ? 1 : captured[static_cast<size_t>(launch.foreign)].kernels();
    each[launch.command] += sees_graphs() ? std::max<size_t>(read_back, 1) : 1;
  }
  for (size_t i = 0; i < std::min<size_t>(seconds_.size(), into.commands_count); ++i)
    into.commands[i] = {seconds_[i], kernels_[i] / std::max<uint64_t>(each[i], 1)};
  std::fill(seconds_.begin(), seconds_.end(), 0);
  std::fill(kernels_.begin(), kernels_.end(), 0);
  into.copy_rate = copy_rate(stream);
  math_rates(into.math_rates);
#ifdef TAPE_CUDA_EMULATION
  std::snprintf(into.how, sizeof into.how, "the emulation's clock");
#else
  const uint64_t lost = take_untraced();
  if (!sees_graphs())
    std::snprintf(into.how, sizeof into.how, "events around each launch in a stream: %s", why_no_trace().c_str());
  else if (lost != 0)
    std::snprintf(into.how, sizeof into.how, "CUPTI, without the last %llu kernels: play fewer runs",
                  static_cast<unsigned long long>(lost));
  else
    std::snprintf(into.how, sizeof into.how, "CUPTI");
#endif
}

double copy_rate(const Stream& stream) {
  constexpr uint64_t kBytes = uint64_t{256} << 20;
#ifdef TAPE_CUDA_EMULATION
  static_cast<void>(stream);
  const std::vector<std::byte> from(kBytes / 16, std::byte{1});
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<std::byte> to = from;
  return 2 * static_cast<double>(to.size()) / seconds_since(begin);
#else
  try {
    const DeviceMemory from(kBytes), to(kBytes);
    double best = 0;
    for (int i = 0; i < 8; ++i) {
      stream.wait();
      const auto begin = std::chrono::steady_clock::now();
      for (int k = 0; k < 8; ++k)
        check(cudaMemcpyAsync(to.get(), from.get(), kBytes, cudaMemcpyDeviceToDevice, stream.get()), "cudaMemcpyAsync");
      stream.wait();
      best = std::max(best, 8 * 2 * static_cast<double>(kBytes) / seconds_since(begin));
    }
    return best;
  } catch (const Error& error) {
    if (error.code() == Code::Limit) return 0;
    throw;
  }
#endif
}

void math_rates(double (&rates)[4]) {
  std::fill(std::begin(rates), std::end(rates), 0);
#ifndef TAPE_CUDA_EMULATION
  int device = 0, major = 0, minor = 0, processors = 0, kilohertz = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  const auto ask = [&](int& value, cudaDeviceAttr attribute) {
    check(cudaDeviceGetAttribute(&value, attribute, device), "cudaDeviceGetAttribute");
  };
  ask(major, cudaDevAttrComputeCapabilityMajor);
  ask(minor, cudaDevAttrComputeCapabilityMinor);
  ask(processors, cudaDevAttrMultiProcessorCount);
  ask(kilohertz, cudaDevAttrClockRate);
  // Operations of a multiprocessor in a cycle.
  struct Card {
    int major, minor;
    double each[4];
  };
  constexpr Card kCards[] = {{8, 0, {64, 128, 1024, 2048}}, {9, 0, {128, 256, 2048, 4096}}};
  for (const Card& card : kCards)
    if (card.major == major && card.minor == minor)
      for (int i = 0; i < 4; ++i) rates[i] = card.each[i] * processors * kilohertz * 1e3;
#endif
}

}  // namespace tape::cuda
