// See fuzz_campaign.h. Children share a board with the parent: which tape each is at, and sums. What they find comes
// through a pipe of each.
#include "difftest/fuzz_campaign.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>

#include "vm/error.h"

namespace tape {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kNothing = ~uint64_t{0};
constexpr size_t kSums = 10;
constexpr char kField = '\x1f', kRecord = '\x1e';

/// In memory that parent and children share: plain sums that one writer adds to.
struct Board {
  struct Job {
    std::atomic<uint64_t> number{kNothing}, done{0};
    std::atomic<uint64_t> sums[kSums]{};
  };
  Job* jobs = nullptr;
  std::atomic<uint64_t>* cells = nullptr;
};

class SharedMemory {
 public:
  explicit SharedMemory(size_t bytes) : bytes_(bytes) {
    void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw Error(Code::Limit, fmt::format("no memory to share: {}", std::strerror(errno)));
    at_ = static_cast<std::byte*>(at);
  }
  ~SharedMemory() { ::munmap(at_, bytes_); }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  [[nodiscard]] std::byte* at(size_t offset) const { return at_ + offset; }

 private:
  std::byte* at_ = nullptr;
  size_t bytes_;
};

std::string plain(std::string text) {
  text.erase(std::remove_if(text.begin(), text.end(), [](char c) { return c == kField || c == kRecord; }), text.end());
  return text;
}

void send(int pipe, const FuzzFinding& found) {
  const std::string record = fmt::format("{}{}{}{}{}{}{}{}", found.number, kField, plain(found.kind), kField,
                                         plain(found.signature), kField, plain(found.what), kRecord);
  for (size_t at = 0; at < record.size();) {
    const ssize_t n = ::write(pipe, record.data() + at, record.size() - at);
    if (n <= 0) return;
    at += static_cast<size_t>(n);
  }
}

FuzzFinding received(const std::string& record) {
  std::vector<std::string> fields;
  for (size_t at = 0; at <= record.size();) {
    const size_t end = std::min(record.find(kField, at), record.size());
    fields.push_back(record.substr(at, end - at));
    at = end + 1;
  }
  fields.resize(4);
  return {std::strtoull(fields[0].c_str(), nullptr, 10), fields[1], fields[2], fields[3]};
}

void set_sums(Board::Job& job, const std::vector<uint64_t>& base, const std::vector<uint64_t>& sums) {
  for (size_t i = 0; i < sums.size(); ++i) job.sums[i].store(base[i] + sums[i], std::memory_order_relaxed);
}

/// What a child does: every jobs-th tape from `next` on.
void work(const CampaignOptions& options, const Board& board, size_t at, uint64_t next, int pipe) {
  Board::Job& job = board.jobs[at];
  std::vector<uint64_t> base(kSums);
  for (size_t i = 0; i < kSums; ++i) base[i] = job.sums[i];
  const uint64_t end = options.first + options.count;
  const auto each = [&](const auto& play) {
    for (uint64_t number = next; number < end; number += options.jobs) {
      job.number = number;
      if (const std::optional<FuzzFinding> found = play(number)) send(pipe, *found);
      ++job.done;
    }
    job.number = kNothing;
  };
  if (options.format) {
    FormatFuzzer fuzzer(options.fuzz.tapes);
    each([&](uint64_t number) {
      auto found = fuzzer.play(number);
      const FormatTally& t = fuzzer.tally();
      set_sums(job, base, {t.cases, t.binaries, t.accepted, t.verified, t.played});
      return found;
    });
    return;
  }
  Fuzzer fuzzer(options.fuzz);
  std::vector<uint64_t> told(fuzzer.tally().cells.size());
  each([&](uint64_t number) {
    auto found = fuzzer.play(number);
    const FuzzTally& t = fuzzer.tally();
    set_sums(job, base, {t.tapes, t.commands, t.faults, t.differentiated, t.compared, t.checked});
    for (size_t i = 0; i < told.size(); ++i)
      if (t.cells[i] != told[i]) {
        board.cells[i] += t.cells[i] - told[i];
        told[i] = t.cells[i];
      }
    return found;
  });
}

struct Child {
  pid_t process = -1;
  int pipe = -1;
  std::string received;
  uint64_t number = kNothing;
  Clock::time_point since;
  bool killed = false;
};

class Campaign {
 public:
  explicit Campaign(const CampaignOptions& options)
      : options_(options),
        cells_(all_rows_and_types().size()),
        memory_(options.jobs * sizeof(Board::Job) + cells_ * sizeof(std::atomic<uint64_t>)),
        children_(options.jobs) {
    board_.jobs = reinterpret_cast<Board::Job*>(memory_.at(0));
    board_.cells = reinterpret_cast<std::atomic<uint64_t>*>(memory_.at(options.jobs * sizeof(Board::Job)));
    for (unsigned i = 0; i < options.jobs; ++i) new (board_.jobs + i) Board::Job;
    for (size_t i = 0; i < cells_; ++i) new (board_.cells + i) std::atomic<uint64_t>(0);
  }

  CampaignReport run() {
    const Clock::time_point begin = Clock::now();
    for (unsigned i = 0; i < options_.jobs; ++i) start(i, options_.first + i);
    while (watch()) {
    }
    report_.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    finish();
    return std::move(report_);
  }

 private:
  void start(size_t i, uint64_t next) {
    if (next >= options_.first + options_.count) return;
    int ends[2];
    if (::pipe(ends) != 0) throw Error(Code::Limit, fmt::format("no pipe: {}", std::strerror(errno)));
    const pid_t process = ::fork();
    if (process < 0) throw Error(Code::Limit, fmt::format("no process: {}", std::strerror(errno)));
    if (process == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // no campaign goes on alone
      ::close(ends[0]);
      int code = 0;
      try {
        work(options_, board_, i, next, ends[1]);
      } catch (const Error& error) {
        send(ends[1], {board_.jobs[i].number, "error", "error outside a tape", error.what()});
        code = static_cast<int>(error.code());
      }
      ::_exit(code);
    }
    ::close(ends[1]);
    Child& child = children_[i];
    child = Child{};
    child.process = process;
    child.pipe = ends[0];
    child.since = Clock::now();
  }

  /// Waits a little for what children say; false when none is left.
  bool watch() {
    std::vector<pollfd> polled;
    std::vector<size_t> which;
    for (size_t i = 0; i < children_.size(); ++i)
      if (children_[i].process > 0) {
        polled.push_back({children_[i].pipe, POLLIN, 0});
        which.push_back(i);
      }
    if (polled.empty()) return false;
    ::poll(polled.data(), polled.size(), 200);
    for (size_t k = 0; k < polled.size(); ++k) {
      if (polled[k].revents != 0) read(which[k]);
      if (children_[which[k]].process > 0) look_at_clock(which[k]);
    }
    if (options_.progress) options_.progress(done());
    return true;
  }

  void read(size_t i) {
    Child& child = children_[i];
    char bytes[4096];
    const ssize_t n = ::read(child.pipe, bytes, sizeof bytes);
    if (n > 0) {
      child.received.append(bytes, static_cast<size_t>(n));
      for (size_t end = child.received.find(kRecord); end != std::string::npos; end = child.received.find(kRecord)) {
        add(received(child.received.substr(0, end)));
        child.received.erase(0, end + 1);
      }
      return;
    }
    int status = 0;
    ::close(child.pipe);
    ::waitpid(child.process, &status, 0);
    child.process = -1;
    const uint64_t number = board_.jobs[i].number;
    const bool well = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (well || stopping_) return;
    if (!WIFEXITED(status) || number != kNothing) {
      const std::string how = child.killed          ? fmt::format("no end after {} s", options_.timeout.count())
                              : WIFSIGNALED(status) ? fmt::format("signal {}", WTERMSIG(status))
                                                    : fmt::format("exit code {}", WEXITSTATUS(status));
      if (number == kNothing) throw Error(Code::Internal, "a child ended before its first tape: " + how);
      add({number, child.killed ? "hang" : "crash", (child.killed ? "hang: " : "crash: ") + how, how});
      if (report_.failed < options_.most_findings) start(i, number + options_.jobs);
      return;
    }
    if (!findings_.empty()) throw Error(Code::Unavailable, findings_.begin()->second.first.what);
    throw Error(Code::Internal, fmt::format("a child ended with exit code {}", WEXITSTATUS(status)));
  }

  void look_at_clock(size_t i) {
    Child& child = children_[i];
    const uint64_t number = board_.jobs[i].number;
    if (number != child.number) {
      child.number = number;
      child.since = Clock::now();
    } else if (number != kNothing && Clock::now() - child.since > options_.timeout && !child.killed) {
      child.killed = true;
      ::kill(child.process, SIGKILL);
    }
  }

  void add(FuzzFinding found) {
    ++report_.failed;
    const auto [at, fresh] = findings_.try_emplace(found.signature, CampaignFinding{found, 0});
    ++at->second.times;
    if (!fresh && found.number < at->second.first.number) at->second.first = std::move(found);
    if (report_.failed < options_.most_findings || stopping_) return;
    stopping_ = true;
    for (Child& child : children_)
      if (child.process > 0) ::kill(child.process, SIGTERM);
  }

  [[nodiscard]] uint64_t done() const {
    uint64_t sum = 0;
    for (unsigned i = 0; i < options_.jobs; ++i) sum += board_.jobs[i].done;
    return sum;
  }

  void finish() {
    std::vector<uint64_t> sums(kSums);
    for (unsigned i = 0; i < options_.jobs; ++i)
      for (size_t k = 0; k < kSums; ++k) sums[k] += board_.jobs[i].sums[k];
    if (options_.format) {
      report_.format = {sums[0], sums[1], sums[2], sums[3], sums[4]};
    } else {
      report_.tally.tapes = sums[0];
      report_.tally.commands = sums[1];
      report_.tally.faults = sums[2];
      report_.tally.differentiated = sums[3];
      report_.tally.compared = sums[4];
      report_.tally.checked = sums[5];
      for (size_t i = 0; i < cells_; ++i) report_.tally.cells.push_back(board_.cells[i]);
    }
    for (auto& [signature, found] : findings_) report_.findings.push_back(std::move(found));
    std::sort(report_.findings.begin(), report_.findings.end(),
              [](const CampaignFinding& a, const CampaignFinding& b) { return a.first.number < b.first.number; });
  }

  const CampaignOptions& options_;
  size_t cells_;
  SharedMemory memory_;
  Board board_;
  std::vector<Child> children_;
  std::map<std::string, CampaignFinding> findings_;
  CampaignReport report_;
  bool stopping_ = false;  // enough was found: children were told to end
};

}  // namespace

CampaignReport run_campaign(const CampaignOptions& options) {
  return Campaign(options).run();
}

void run_apart(std::chrono::seconds timeout, const std::function<void()>& what) {
  const pid_t process = ::fork();
  if (process < 0) throw Error(Code::Limit, fmt::format("no process: {}", std::strerror(errno)));
  if (process != 0) {
    ::waitpid(process, nullptr, 0);
    return;
  }
  ::alarm(static_cast<unsigned>(std::min<int64_t>(timeout.count(), 100'000)));
  try {
    what();
  } catch (const std::exception& error) {
    static_cast<void>(::write(STDERR_FILENO, error.what(), std::strlen(error.what())) +
                      ::write(STDERR_FILENO, "\n", 1));
    ::_exit(1);
  }
  ::_exit(0);
}

}  // namespace tape
