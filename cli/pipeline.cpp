// See pipeline.h.
#include "cli/pipeline.h"

#include <fmt/format.h>

#include <algorithm>

namespace tape::cli {
namespace {

constexpr size_t kMostBatches = 64;
constexpr std::chrono::milliseconds kShort{10}, kLong{40};  // a batch is to take a time between the two

bool traces(const Plan& plan) {
  return std::any_of(plan.commands.begin(), plan.commands.end(),
                     [](const PlacedCommand& placed) { return placed.command.op->opcode == Opcode::Trace; });
}

}  // namespace

Pipeline::Pipeline(Prepared& prepared, uint64_t runs)
    : prepared_(prepared), runs_(runs), progress_(runs), traces_(traces(prepared.plan())) {}

/// The first run behind those begun after which something is logged or a batch is full.
uint64_t Pipeline::next_stop() const {
  uint64_t stop = begun_ + std::min(batch_, runs_ - begun_);
  for (const Logged& logged : logged_)
    if (const uint64_t left = logged.every - begun_ % logged.every; left < stop - begun_) stop = begun_ + left;
  return stop;
}

void Pipeline::begin() {
  Batch batch;
  batch.run = next_stop();
  batch.begun = Clock::now();
  if (runs_ == 1)
    prepared_.run();  // whose fault does not say that it was run 1
  else
    prepared_.start(batch.run - begun_);
  begun_ = batch.run;
  std::vector<std::string> names;
  for (size_t i = 0; i < logged_.size(); ++i) {
    if (batch.run % logged_[i].every != 0 && batch.run != runs_) continue;
    batch.logged.push_back(i);
    names.push_back(logged_[i].name);
  }
  batch.values = prepared_.fetch(names);
  batches_.push_back(std::move(batch));
}

bool Pipeline::take(const Log& seen) {
  const Batch batch = std::move(batches_.front());
  batches_.pop_front();
  const std::optional<std::vector<HostArray>> values = batch.values.wait();
  if (!values) return false;
  const Clock::time_point now = Clock::now();
  const Clock::duration took = now - std::max(batch.begun, taken_);
  taken_ = now;
  if (took < kShort) batch_ = std::min(2 * batch_, uint64_t{1} << 20);
  if (took > kLong) batch_ = std::max<uint64_t>(batch_ / 2, 1);
  if (traces_ && !batch.logged.empty()) prepared_.finish();  // what it traced comes before
  std::string line;
  for (size_t i = 0; i < values->size(); ++i) {
    const HostArray& value = (*values)[i];
    const Logged& logged = logged_[batch.logged[i]];
    if (logged.shown) line += fmt::format("  {} {}", logged.name, element_text(value.bytes, value.dtype, 0));
    seen({batch.run, logged.name, value, progress_.seconds(), logged.shown});
  }
  if (!line.empty()) {
    progress_.note(line.substr(2));
    progress_.log(fmt::format("run {:>{}}{}", batch.run, fmt::formatted_size("{}", runs_), line));
  }
  progress_.step(batch.run);
  return true;
}

bool Pipeline::full() const {
  if (batches_.empty()) return false;
  if (traces_ && !batches_.front().logged.empty()) return true;
  return batches_.size() >= kMostBatches || begun_ - batches_.front().run >= 2 * batch_;
}

void Pipeline::play(const Log& seen) {
  bool sound = true;
  while (sound && begun_ < runs_) {
    begin();
    while (sound && !batches_.empty() && (full() || batches_.front().values.ready())) sound = take(seen);
  }
  while (sound && !batches_.empty()) sound = take(seen);
  progress_.finish();
  prepared_.finish();
  seconds_ = progress_.seconds();
}

}  // namespace tape::cli
