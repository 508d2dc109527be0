// Hazards: which commands of a tape must have ended before a command begins, so that each finds the bytes it would find
// if all were played one after another. Commands that touch a byte keep their order unless all of them only read it.
// A loop is one item among the commands around it: passes follow one another, and the commands of its body are ordered
// among themselves.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <span>
#include <vector>

namespace tape {

/// Bytes [begin, end) of an address space of the caller's.
struct Touch {
  uint64_t begin = 0, end = 0;
  bool writes = false;
};

/// Who follows whom in an acyclic graph that grows at its end. Items are cut into chains, and each knows how far along
/// every chain it reaches: a question costs one look. At most `limit` chains: an item beyond them is known to be
/// followed only where it is named.
class Reach {
 public:
  explicit Reach(size_t limit) : limit_(limit) {}
  /// Adds the next item, which follows the items `before`; of those, leaves the ones that no other of them follows,
  /// latest first.
  void add(std::vector<uint32_t>& before);
  /// Whether `later` follows `earlier`, as far as known.
  [[nodiscard]] bool follows(uint32_t later, uint32_t earlier) const;

 private:
  struct Item {
    uint32_t chain = 0, place = 0;  // from 1 on; place 0: in no chain
    uint32_t width = 0;             // chains known when it was added
    uint64_t row = 0;               // in rows_: by chain, the place reached, itself included
  };
  void join_chain(Item& item, std::span<const uint32_t> before);

  size_t limit_;
  std::vector<Item> items_;
  std::vector<uint32_t> rows_;
  std::vector<uint32_t> lengths_;  // by chain
  std::vector<uint32_t> merged_;
};

/// Who touched a byte last.
class Bytes {
 public:
  /// Appends to `before` the items that `item` must follow for this touch.
  void touch(uint32_t item, const Touch& touch, std::vector<uint32_t>& before);

 private:
  struct Piece {
    uint64_t end = 0;
    uint32_t writer = 0;
    std::vector<uint32_t> readers;  // since the writer
  };
  using Pieces = std::map<uint64_t, Piece>;  // by begin
  void cut(uint64_t at);
  void read(uint32_t item, const Touch& touch, std::vector<uint32_t>& before);
  void write(uint32_t item, const Touch& touch, std::vector<uint32_t>& before);

  Pieces pieces_;
};

/// The order of a tape's commands, near-linear in what they touch.
class Order {
 public:
  /// `matching` as Plan::matching; `touches_of` appends what a command touches by itself.
  Order(std::span<const uint32_t> matching,
        const std::function<void(uint32_t command, std::vector<Touch>& touches)>& touches_of);

  /// By command, one after another: those it must follow of its own loop level (a loop stands for itself by its head),
  /// without those it follows through another of them; latest first. An END has none: it follows its whole loop.
  [[nodiscard]] const std::vector<uint32_t>& before() const { return before_; }
  /// By command: one past its last in before().
  [[nodiscard]] const std::vector<uint64_t>& ends() const { return ends_; }
  /// Whether `later` follows `earlier`, a command before it, within the innermost loop that holds both. False also
  /// where the tape is so wide that it is not known.
  [[nodiscard]] bool follows(uint32_t later, uint32_t earlier) const;

 private:
  struct Level {
    Level(uint32_t loop, size_t limit) : head(loop), reach(limit) {}
    uint32_t head;  // kNone: the whole tape
    Bytes bytes;
    Reach reach;
    std::vector<uint32_t> commands;
    std::vector<Touch> touches;  // of the whole loop
  };
  void add(Level& level, uint32_t command, std::vector<Touch>& touches);

  std::deque<Level> levels_;
  std::vector<uint32_t> level_of_, item_of_;  // by command
  std::vector<uint32_t> enclosing_;           // by level: the level around it
  std::vector<uint32_t> depths_;              // by level
  std::vector<std::vector<uint32_t>> lists_;  // by command, while building
  std::vector<uint32_t> before_;
  std::vector<uint64_t> ends_;
};

}  // namespace tape
