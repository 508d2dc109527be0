// The program around the topics.
#include "cuda_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "assembler/assembler.h"
#include "embed/backends.h"
#include "vm/error.h"

namespace tape::bench {
namespace {

struct Entry {
  const char* name;
  void (*play)();
};
std::vector<Entry>& topics() {
  static std::vector<Entry> all;
  return all;
}
nlohmann::json results = nlohmann::json::array();
bool all_right = true;

}  // namespace

Topic::Topic(const char* name, void (*play)()) {
  topics().push_back({name, play});
}

void report(const Line& line) {
  const auto rate = [&](const Timing& t) { return line.amount / t.microseconds * 1e6; };
  std::string text =
      fmt::format("{:<58} {:>10.2f} us +-{:>4.1f}%", line.name, line.own.microseconds, line.own.spread * 50);
  if (line.amount > 0) text += fmt::format(" {:>10.1f} {}/s", rate(line.own), line.unit);
  if (!line.peer.empty())
    text += fmt::format("   {} {:.2f} us, ours {:.2f}x", line.peer, line.peer_time.microseconds,
                        line.peer_time.microseconds / line.own.microseconds);
  if (!line.right) text += "   WRONG: " + line.check;
  std::puts(text.c_str());
  std::fflush(stdout);
  all_right = all_right && line.right;
  nlohmann::json entry{{"name", line.name},
                       {"us", line.own.microseconds},
                       {"spread", line.own.spread},
                       {"right", line.right},
                       {"check", line.check}};
  if (line.amount > 0) entry.update({{"amount", line.amount}, {"unit", line.unit}});
  if (!line.peer.empty())
    entry.update(
        {{"peer", line.peer}, {"peer_us", line.peer_time.microseconds}, {"peer_spread", line.peer_time.spread}});
  results.push_back(std::move(entry));
}

Timing time_of(const std::function<void()>& play, unsigned passes, unsigned samples) {
  for (int i = 0; i < 3; ++i) play();
  std::vector<double> times;
  for (unsigned i = 0; i < samples; ++i) {
    const auto start = std::chrono::steady_clock::now();
    play();
    times.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() /
                    passes);
  }
  std::sort(times.begin(), times.end());
  const double median = times[times.size() / 2];
  return {median, (times[times.size() * 3 / 4] - times[times.size() / 4]) / median};
}

CardTape::CardTape(std::string_view declarations, std::string_view body, unsigned times) : times_(times) {
  const std::string text = fmt::format("{}\n.tape main\n  REPEAT {}\n{}\n  END\n.end\n", declarations, times, body);
  Diagnostics diagnostics;
  const auto assembly = assemble(text, "<bench>", {}, diagnostics);
  const auto verified = assembly ? verify(assembly->module, diagnostics) : std::nullopt;
  if (!verified) throw Error(Code::Usage, diagnostics.text());
  MachineOptions options;
  options.share_common = options.eliminate_dead = false;
  machine_ = std::make_unique<Machine>(open_backend("cuda"), options);
  main_.push_back(machine_->prepare(machine_->add(*verified), "main"));
}

Timing CardTape::time(unsigned samples) {
  return time_of([&] { main_[0].run(); }, times_, samples);
}

}  // namespace tape::bench

int main(int count, char** values) {
  using namespace tape::bench;
  const char* json = nullptr;
  std::vector<std::string> wanted;
  for (int i = 1; i < count; ++i) {
    if (std::strcmp(values[i], "--json") == 0 && i + 1 < count)
      json = values[++i];
    else
      wanted.emplace_back(values[i]);
  }
  for (const auto& topic : topics()) {
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), topic.name) == wanted.end()) continue;
    std::printf("== %s\n", topic.name);
    try {
      topic.play();
    } catch (const std::exception& error) {
      std::printf("%s: %s\n", topic.name, error.what());
      all_right = false;
    }
  }
  if (json != nullptr) {
    std::FILE* const file = std::fopen(json, "w");
    if (file == nullptr) return 2;
    std::fputs((results.dump(1) + "\n").c_str(), file);
    std::fclose(file);
  }
  return all_right ? 0 : 1;
}
