// Trains samples/tic_tac_toe.tape by games of the policy against itself, then plays it against random moves: the rules
// are here, everything that learns is in the tape.
//   tic_tac_toe [UPDATES]
#include <array>
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

constexpr size_t kGames = 64;  // at a time
constexpr int kTestBatches = 16;

using Random = std::mt19937_64;

class Game {
 public:
  /// Fields as the player to move sees them: 1 its own marks, -1 the other's.
  [[nodiscard]] float seen(size_t field) const { return static_cast<float>(fields_[field] * to_move_); }
  [[nodiscard]] bool over() const { return winner_ != 0 || moves_ == 9; }
  /// 1 the first player, -1 the second, 0 nobody (yet).
  [[nodiscard]] int winner() const { return winner_; }
  void play(size_t field) {
    fields_.at(field) = to_move_;
    ++moves_;
    static constexpr size_t kLines[8][3] = {{0, 1, 2}, {3, 4, 5}, {6, 7, 8}, {0, 3, 6},
                                            {1, 4, 7}, {2, 5, 8}, {0, 4, 8}, {2, 4, 6}};
    for (const auto& [a, b, c] : kLines)
      if (fields_[a] == to_move_ && fields_[b] == to_move_ && fields_[c] == to_move_) winner_ = to_move_;
    to_move_ = -to_move_;
  }
  void play_randomly(Random& random) {
    size_t skip = random() % (9 - moves_);
    for (size_t field = 0; field < 9; ++field)
      if (fields_[field] == 0 && skip-- == 0) return play(field);
  }

 private:
  std::array<int, 9> fields_{};  // 1 first player, -1 second
  int to_move_ = 1, winner_ = 0;
  size_t moves_ = 0;
};

/// The tape as a player of many games at once.
class Player {
 public:
  Player()
      : machine_(tape::open_backend("cpu", {.threads = 1})),
        module_(machine_.add(tape::open_module(TAPE_SAMPLES "/tic_tac_toe.tape"))),
        explore_(machine_.prepare(module_, "explore")),
        choose_(machine_.prepare(module_, "choose")),
        train_(machine_.prepare(module_, "train")) {}

  /// One move in every game that is not over; false when all are.
  bool explore(std::vector<Game>& games) { return move(games, explore_); }
  bool choose(std::vector<Game>& games) { return move(games, choose_); }
  /// Learns from the games explored since the last call and returns the loss.
  float train(const std::vector<Game>& games) {
    std::array<float, kGames> outcome{};
    for (size_t i = 0; i < kGames; ++i) outcome[i] = static_cast<float>(games[i].winner());
    machine_.load("outcome", std::as_bytes(std::span(outcome)));
    train_.run();
    float loss = 0;
    machine_.retrieve("loss", std::as_writable_bytes(std::span(&loss, 1)));
    return loss;
  }

 private:
  bool move(std::vector<Game>& games, tape::Prepared& tape) {
    std::array<float, kGames * 9> board{};
    std::array<float, kGames> playing{};
    bool any = false;
    for (size_t i = 0; i < kGames; ++i) {
      for (size_t field = 0; field < 9; ++field) board[i * 9 + field] = games[i].seen(field);
      playing[i] = games[i].over() ? 0 : 1;
      any = any || playing[i] != 0;
    }
    if (!any) return false;
    machine_.load("board", std::as_bytes(std::span(board)));
    machine_.load("playing", std::as_bytes(std::span(playing)));
    tape.run();
    std::array<int32_t, kGames> field{};
    machine_.retrieve("move", std::as_writable_bytes(std::span(field)));
    for (size_t i = 0; i < kGames; ++i)
      if (playing[i] != 0) games[i].play(static_cast<size_t>(field[i]));
    return true;
  }

  tape::Machine machine_;
  tape::ModuleId module_;
  tape::Prepared explore_, choose_, train_;
};

struct Score {
  int won = 0, drawn = 0, lost = 0;
  [[nodiscard]] double not_lost() const { return static_cast<double>(won + drawn) / (won + drawn + lost); }
};

/// The best moves against random ones, half of the games as first player.
Score against_random(Player& player, int batches) {
  Random random(99);
  Score score;
  for (int batch = 0; batch < batches; ++batch) {
    std::vector<Game> games(kGames);
    const int side = batch % 2 == 0 ? 1 : -1;
    for (int turn = 0; turn < 9; ++turn) {
      if ((turn % 2 == 0) == (side == 1)) {
        player.choose(games);
      } else {
        for (Game& game : games)
          if (!game.over()) game.play_randomly(random);
      }
    }
    for (const Game& game : games)
      ++(game.winner() == side ? score.won : game.winner() == 0 ? score.drawn : score.lost);
  }
  return score;
}

void train(int updates) {
  Player player;
  for (int update = 1; update <= updates; ++update) {
    std::vector<Game> games(kGames);
    while (player.explore(games)) {
    }
    const float loss = player.train(games);
    if (update % 100 == 0)
      std::printf("update %4d  loss %8.4f  not lost %.3f\n", update, loss, against_random(player, 2).not_lost());
  }
  const Score score = against_random(player, kTestBatches);
  std::printf("%d games against random moves: won %d, drawn %d, lost %d, not lost %.4f\n",
              score.won + score.drawn + score.lost, score.won, score.drawn, score.lost, score.not_lost());
}

}  // namespace

int main(int count, char** words) try {
  const int updates = count > 1 ? std::atoi(words[1]) : 1200;
  if (count > 2 || updates < 1) {
    std::fputs("tic_tac_toe [UPDATES]: trains samples/tic_tac_toe.tape, one update or more\n", stderr);
    return 2;
  }
  train(updates);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "tic_tac_toe: %s\n", error.what());
  return 70;
}
