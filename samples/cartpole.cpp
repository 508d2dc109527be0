// Trains samples/cartpole.tape: the cart and pole are simulated here, everything that learns is in the tape.
//   cartpole [UPDATES]
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <random>
#include <span>
#include <vector>

#include "embed/backends.h"
#include "embed/open.h"
#include "vm/machine.h"

namespace {

constexpr int kEnvironments = 16;
constexpr int kSteps = 200;
constexpr int kWindow = 5;  // updates, 80 episodes

/// Barto, Sutton and Anderson (1983), by Euler's method: the pole stands while it leans less than 12 degrees and the
/// cart is within 2.4 m of the middle.
class CartPole {
 public:
  explicit CartPole(std::mt19937_64& random) {
    for (float& value : state_) value = static_cast<float>(static_cast<double>(random() >> 11) * 0x1p-53 * 0.1 - 0.05);
  }
  [[nodiscard]] const std::array<float, 4>& state() const { return state_; }
  [[nodiscard]] bool stands() const {
    return std::abs(state_[0]) < 2.4f && std::abs(state_[2]) < 12 * 3.14159265f / 180;
  }
  void push(bool right) {
    constexpr float kGravity = 9.8f, kPole = 0.1f, kTotal = 1.1f, kHalfLength = 0.5f, kTick = 0.02f;
    auto& [place, speed, angle, turn] = state_;
    const float cosine = std::cos(angle), sine = std::sin(angle);
    const float push = ((right ? 10.0f : -10.0f) + kPole * kHalfLength * turn * turn * sine) / kTotal;
    const float turning =
        (kGravity * sine - cosine * push) / (kHalfLength * (4.0f / 3 - kPole * cosine * cosine / kTotal));
    const float speeding = push - kPole * kHalfLength * turning * cosine / kTotal;
    place += kTick * speed;
    speed += kTick * speeding;
    angle += kTick * turn;
    turn += kTick * turning;
  }

 private:
  std::array<float, 4> state_{};  // m, m/s, rad, rad/s
};

/// Plays one episode in every environment; the tape remembers them.
void play_episodes(tape::Machine& machine, tape::Prepared& act, std::mt19937_64& random) {
  std::vector<CartPole> carts;
  carts.reserve(kEnvironments);
  for (int i = 0; i < kEnvironments; ++i) carts.emplace_back(random);
  std::array<float, kEnvironments * 4> observation{};
  std::array<float, kEnvironments> playing{};
  std::array<int32_t, kEnvironments> action{};
  playing.fill(1);
  bool any = true;
  for (int step = 0; step < kSteps && any; ++step) {
    for (size_t i = 0; i < carts.size(); ++i)
      for (size_t j = 0; j < 4; ++j) observation[i * 4 + j] = carts[i].state()[j];
    machine.load("observation", std::as_bytes(std::span(observation)));
    machine.load("playing", std::as_bytes(std::span(playing)));
    act.run();
    machine.retrieve("action", std::as_writable_bytes(std::span(action)));
    any = false;
    for (size_t i = 0; i < carts.size(); ++i) {
      if (playing[i] == 0) continue;
      carts[i].push(action[i] == 1);
      playing[i] = carts[i].stands() ? 1 : 0;
      any = any || playing[i] != 0;
    }
  }
}

float scalar(tape::Machine& machine, const char* name) {
  float value = 0;
  machine.retrieve(name, std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

void train(int updates) {
  tape::Machine machine(tape::open_backend("cpu", {.threads = 1}));
  const tape::ModuleId module = machine.add(tape::open_module(TAPE_SAMPLES "/cartpole.tape"));
  tape::Prepared act = machine.prepare(module, "act"), learn = machine.prepare(module, "train");
  std::mt19937_64 random(1);
  std::vector<float> lengths;
  const auto recent = [&] {
    float sum = 0;
    for (size_t i = lengths.size() - kWindow; i < lengths.size(); ++i) sum += lengths[i];
    return sum / kWindow;
  };
  for (int update = 1; update <= updates; ++update) {
    play_episodes(machine, act, random);
    learn.run();
    lengths.push_back(scalar(machine, "length"));
    if (update % 20 == 0)
      std::printf("update %3d  loss %8.4f  steps %5.1f\n", update, scalar(machine, "loss"), recent());
  }
  std::printf("mean of the last %d episodes: %.1f steps of %d\n", kWindow * kEnvironments, recent(), kSteps);
}

}  // namespace

int main(int count, char** words) try {
  const int updates = count > 1 ? std::atoi(words[1]) : 100;
  if (count > 2 || updates < kWindow) {
    std::fprintf(stderr, "cartpole [UPDATES]: trains samples/cartpole.tape, %d updates or more\n", kWindow);
    return 2;
  }
  train(updates);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "cartpole: %s\n", error.what());
  return 70;
}
