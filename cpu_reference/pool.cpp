// Workers sleep on a generation number and spin briefly before they do, so that the parallel commands of one tape wake
// them in well under a microsecond. A job's fields are only read between join and leave, which `gate_` guards: the
// caller closes the gate and waits for it to empty before the next job may overwrite them.
#include "cpu_reference/pool.h"

#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "cpu_reference/cpu_info.h"

namespace tape::cpu {
namespace {

// About 20 microseconds: longer than the gap between two parallel commands, too short to be seen in a process list.
constexpr int kSpins = 600;
constexpr uint32_t kOpen = 0x80000000u;

thread_local bool inside_task = false;

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// Waits until `word` no longer holds `old`; returns what it holds then.
uint32_t await_change(std::atomic<uint32_t>& word, uint32_t old) {
  for (int spin = 0; spin < kSpins; ++spin) {
    const uint32_t now = word.load(std::memory_order_acquire);
    if (now != old) return now;
    relax();
  }
  word.wait(old, std::memory_order_acquire);
  return word.load(std::memory_order_acquire);
}

class ThreadPool final : public Pool {
 public:
  explicit ThreadPool(unsigned threads) : threads_(threads) {}
  ~ThreadPool() override;
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] unsigned threads() const override { return threads_; }
  void run(int64_t tasks, Task task, void* state) override;

 private:
  void start_workers();
  void worker();
  void play();
  void close_gate();

  const unsigned threads_;
  std::mutex caller_;  // held by the one caller that has the workers
  std::vector<std::thread> workers_;
  bool started_ = false;

  std::atomic<uint32_t> generation_{0};
  std::atomic<uint32_t> gate_{0};  // kOpen while a job may be joined, plus the number of workers inside
  std::atomic<bool> stop_{false};

  Task task_ = nullptr;
  void* state_ = nullptr;
  int64_t tasks_ = 0;
  std::atomic<int64_t> next_{0};

  std::mutex failure_mutex_;
  std::exception_ptr failure_;
  int64_t failed_task_ = 0;
};

ThreadPool::~ThreadPool() {
  stop_.store(true);
  generation_.fetch_add(1);
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::start_workers() {
  started_ = true;
  try {
    for (unsigned i = 1; i < threads_; ++i) workers_.emplace_back([this] { worker(); });
  } catch (const std::system_error&) {
    // The process may have no more threads: fewer workers give the same bits, only later.
  }
}

void ThreadPool::worker() {
  uint32_t seen = 0;
  while (true) {
    seen = await_change(generation_, seen);
    if (stop_.load()) return;
    uint32_t gate = gate_.load();
    while ((gate & kOpen) != 0 && !gate_.compare_exchange_weak(gate, gate + 1)) {
    }
    if ((gate & kOpen) == 0) continue;
    play();
    if (gate_.fetch_sub(1) == 1) gate_.notify_all();
  }
}

// Tasks are taken in rising order, so when one fails, every lower one has been taken and will report its own failure:
// the lowest is known although the rest is not played.
void ThreadPool::play() {
  inside_task = true;
  for (int64_t task = next_.fetch_add(1); task < tasks_; task = next_.fetch_add(1)) {
    try {
      task_(state_, task);
    } catch (...) {
      const std::lock_guard lock(failure_mutex_);
      if (!failure_ || task < failed_task_) {
        failure_ = std::current_exception();
        failed_task_ = task;
      }
      next_.store(tasks_);
    }
  }
  inside_task = false;
}

void ThreadPool::close_gate() {
  uint32_t inside = gate_.fetch_and(~kOpen) & ~kOpen;
  while (inside != 0) inside = await_change(gate_, inside);
}

void ThreadPool::run(int64_t tasks, Task task, void* state) {
  std::unique_lock lock(caller_, std::defer_lock);
  if (tasks <= 1 || threads_ == 1 || inside_task || !lock.try_lock()) {
    for (int64_t i = 0; i < tasks; ++i) task(state, i);
    return;
  }
  if (!started_) start_workers();
  task_ = task;
  state_ = state;
  tasks_ = tasks;
  next_.store(0);
  gate_.store(kOpen);
  generation_.fetch_add(1);
  generation_.notify_all();
  play();
  close_gate();
  if (failure_) {
    const std::exception_ptr failure = std::exchange(failure_, nullptr);
    std::rethrow_exception(failure);
  }
}

}  // namespace

std::unique_ptr<Pool> make_pool(unsigned threads) {
  return std::make_unique<ThreadPool>(threads == 0 ? processors() : threads);
}

}  // namespace tape::cpu
