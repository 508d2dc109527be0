// See progress.h.
#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "cli/cli.h"

namespace tape::cli {

Progress::Progress(uint64_t total) : total_(total), terminal_(is_terminal(STDERR_FILENO)) {}
Progress::~Progress() {
  finish();
}

double Progress::seconds() const {
  return std::chrono::duration<double>(Clock::now() - start_).count();
}

void Progress::step(uint64_t done) {
  if (!terminal_ || total_ < 2) return;
  const Clock::time_point now = Clock::now();
  if (now < next_) return;
  next_ = now + std::chrono::milliseconds(100);
  draw(done);
}

void Progress::draw(uint64_t done) {
  constexpr uint64_t kWidth = 24;
  const uint64_t filled = total_ == 0 ? 0 : done * kWidth / total_;
  const double rate = static_cast<double>(done) / seconds();
  const std::string bar = std::string(filled, '=') + std::string(kWidth - filled, ' ');
  std::fputs(fmt::format("\r\x1b[K[{}] {}/{}  {:.0f} runs/s  {}", bar, done, total_, rate, note_).c_str(), stderr);
  std::fflush(stderr);
  drawn_ = true;
}

void Progress::log(const std::string& line) {
  finish();
  std::fputs((line + "\n").c_str(), stderr);
}

void Progress::finish() {
  if (!drawn_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
  drawn_ = false;
}

}  // namespace tape::cli
