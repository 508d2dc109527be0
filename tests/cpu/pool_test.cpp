// The thread pool: every task once, the lowest exception, any caller, no threads before they are needed.
#include "cpu_reference/pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <stdexcept>
#include <thread>
#include <vector>

namespace tape::cpu {
namespace {

size_t threads_now() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) ++count;
  return count;
}

/// Threads of this process once the number has held for 20 ms: a joined thread leaves the list a moment later.
size_t threads_of_process() {
  size_t count = threads_now();
  for (int held = 0; held < 20; ++held) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (const size_t now = threads_now(); now != count) {
      count = now;
      held = 0;
    }
  }
  return count;
}

/// Plays f(task) for tasks 0 .. tasks-1.
template <class F>
void play(Pool& pool, int64_t tasks, F f) {
  pool.run(
      tasks, [](void* state, int64_t task) { (*static_cast<F*>(state))(task); }, &f);
}

TEST(Pool, PlaysEveryTaskOnce) {
  for (const unsigned threads : {1u, 2u, 3u, 8u}) {
    const auto pool = make_pool(threads);
    EXPECT_EQ(pool->threads(), threads);
    for (const int64_t tasks : {0, 1, 2, 3, 7, 64, 1000}) {
      std::vector<std::atomic<int>> played(static_cast<size_t>(tasks));
      play(*pool, tasks, [&](int64_t task) { ++played[static_cast<size_t>(task)]; });
      for (const auto& count : played) EXPECT_EQ(count.load(), 1);
    }
  }
}

TEST(Pool, ManyShortRunsLoseNoTask) {
  const auto pool = make_pool(4);
  std::atomic<int64_t> sum{0};
  for (int run = 0; run < 20000; ++run) play(*pool, 5, [&](int64_t task) { sum += task; });
  EXPECT_EQ(sum.load(), 20000 * 10);
}

TEST(Pool, MakesNoThreadBeforeTheFirstParallelRun) {
  const size_t before = threads_of_process();
  {
    const auto pool = make_pool(4);
    play(*pool, 1, [](int64_t) {});
    EXPECT_EQ(threads_of_process(), before);
    play(*pool, 2, [](int64_t) {});
    EXPECT_EQ(threads_of_process(), before + 3);
  }
  EXPECT_EQ(threads_of_process(), before);
}

TEST(Pool, RethrowsTheExceptionOfTheLowestTask) {
  const auto pool = make_pool(4);
  for (int run = 0; run < 200; ++run) {
    try {
      play(*pool, 64, [](int64_t task) {
        if (task % 7 == 5) throw std::runtime_error(std::to_string(task));
      });
      FAIL() << "no exception";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "5");
    }
  }
  int64_t sum = 0;
  play(*pool, 1, [&](int64_t task) { sum += task + 1; });
  EXPECT_EQ(sum, 1) << "the pool goes on after an exception";
}

TEST(Pool, RunInsideATaskIsPlayedInPlace) {
  const auto pool = make_pool(3);
  std::atomic<int> inner{0};
  play(*pool, 8, [&](int64_t) { play(*pool, 8, [&](int64_t) { ++inner; }); });
  EXPECT_EQ(inner.load(), 64);
}

TEST(Pool, SeveralCallersShareIt) {
  const auto pool = make_pool(3);
  std::atomic<int64_t> sum{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller)
    callers.emplace_back([&] {
      for (int run = 0; run < 500; ++run) play(*pool, 9, [&](int64_t task) { sum += task; });
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum.load(), 4 * 500 * 36);
}

TEST(Pool, RangesCoverEveryElementOnce) {
  for (const unsigned threads : {1u, 2u, 5u}) {
    const auto pool = make_pool(threads);
    for (const int64_t n : {0, 1, 2, 31, 32, 33, 1000, 4097})
      for (const int64_t grain : {1, 7, 64, 5000}) {
        std::vector<std::atomic<int>> seen(static_cast<size_t>(n));
        pool->for_range(n, grain, [&](int64_t begin, int64_t end) {
          EXPECT_LT(begin, end);
          for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
        });
        for (const auto& count : seen) ASSERT_EQ(count.load(), 1) << n << " by " << grain;
      }
  }
}

}  // namespace
}  // namespace tape::cpu
