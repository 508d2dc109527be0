#include "vm/arena.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace tape {
namespace {

/// Free ranges of an arena that grows at its end.
class TightArena {
 public:
  uint64_t take(uint64_t bytes, uint32_t) {
    if (const auto fit = by_size_.lower_bound({bytes, 0}); fit != by_size_.end()) {
      const auto [size, offset] = *fit;
      erase(offset);
      if (size > bytes) insert(offset + bytes, size - bytes);
      return offset;
    }
    uint64_t offset = end_;
    if (!by_offset_.empty()) {
      const auto [start, size] = *by_offset_.rbegin();
      if (start + size == end_) {
        offset = start;
        erase(start);
      }
    }
    if (__builtin_add_overflow(offset, bytes, &end_)) end_ = kNoRoom;
    return offset;
  }

  void give(const Block& block) {
    uint64_t offset = block.offset, bytes = block.bytes;
    auto next = by_offset_.lower_bound(offset);
    if (next != by_offset_.end() && next->first == offset + bytes) {
      bytes += next->second;
      erase(next->first);
    }
    auto before = by_offset_.lower_bound(offset);
    if (before != by_offset_.begin() && (--before)->first + before->second == offset) {
      offset = before->first;
      bytes += before->second;
      erase(offset);
    }
    insert(offset, bytes);
  }

  [[nodiscard]] uint64_t end() const { return end_; }

 private:
  void insert(uint64_t offset, uint64_t bytes) {
    by_offset_.emplace(offset, bytes);
    by_size_.emplace(bytes, offset);
  }
  void erase(uint64_t offset) {
    const auto at = by_offset_.find(offset);
    by_size_.erase({at->second, offset});
    by_offset_.erase(at);
  }

  std::map<uint64_t, uint64_t> by_offset_;
  std::set<std::pair<uint64_t, uint64_t>> by_size_;
  uint64_t end_ = 0;
};

/// The same with those who used a range last.
class BranchArena {
 public:
  BranchArena(const Order& order, uint64_t limit) : order_(order), limit_(limit) {}

  uint64_t take(uint64_t bytes, uint32_t command) {
    Run run = best(bytes, [&](const Range& range) { return may_have(command, range.users); });
    if (run.bytes < bytes && (bytes > limit_ || run.begin > limit_ - bytes)) {
      const Run any = best(bytes, [](const Range&) { return true; });
      if (any.bytes >= bytes || any.begin < run.begin) run = any;
    }
    cut(run.begin, bytes);
    uint64_t end = 0;
    if (__builtin_add_overflow(run.begin, bytes, &end)) end = kNoRoom;
    end_ = std::max(end_, end);
    return run.begin;
  }

  void give(const Block& block) {
    Range range{block.bytes, block.users};
    auto next = ranges_.lower_bound(block.offset);
    if (next != ranges_.end() && next->first == block.offset + range.bytes && join(range, next->second))
      next = ranges_.erase(next);
    if (next != ranges_.begin())
      if (const auto before = std::prev(next);
          before->first + before->second.bytes == block.offset && join(before->second, range))
        return;
    ranges_.emplace_hint(next, block.offset, std::move(range));
  }

  [[nodiscard]] uint64_t end() const { return end_; }

 private:
  struct Range {
    uint64_t bytes = 0;
    std::vector<uint32_t> users;
  };
  struct Run {
    uint64_t begin = 0, bytes = 0;
  };
  static constexpr int kLooks = 512;  // at ranges, for one block

  template <class Users>
  [[nodiscard]] bool may_have(uint32_t command, const Users& users) const {
    return std::all_of(users.begin(), users.end(), [&](uint32_t user) { return order_.follows(command, user); });
  }

  /// Makes one of two neighbours where whoever follows the users of one follows those of the other.
  bool join(Range& range, const Range& other) const {
    const auto covers = [&](const Range& late, const Range& early) {
      return std::all_of(early.users.begin(), early.users.end(), [&](uint32_t user) {
        return std::any_of(late.users.begin(), late.users.end(),
                           [&](uint32_t by) { return by == user || (by > user && order_.follows(by, user)); });
      });
    };
    if (!covers(range, other)) {
      if (!covers(other, range)) return false;
      range.users = other.users;
    }
    range.bytes += other.bytes;
    return true;
  }

  /// The smallest run of neighbours that `may` be had with room for `bytes`, else the one that the end cuts off, which
  /// may be empty.
  template <class May>
  [[nodiscard]] Run best(uint64_t bytes, May&& may) const {
    Run found, run;
    int looks = 0;
    const auto close = [&] {
      if (run.bytes >= bytes && (found.bytes == 0 || run.bytes < found.bytes)) found = run;
    };
    for (auto at = ranges_.begin(); at != ranges_.end() && ++looks <= kLooks; ++at) {
      const bool usable = may(at->second);
      if (usable && run.bytes != 0 && run.begin + run.bytes == at->first) {
        run.bytes += at->second.bytes;
        continue;
      }
      close();
      run = usable ? Run{at->first, at->second.bytes} : Run{};
    }
    close();
    if (found.bytes != 0) return found;
    run = {end_, 0};
    for (auto at = ranges_.rbegin(); at != ranges_.rend() && ++looks <= 2 * kLooks; ++at) {
      if (at->first + at->second.bytes != run.begin || !may(at->second)) break;
      run.begin = at->first;
      run.bytes += at->second.bytes;
    }
    return run;
  }

  /// Takes [begin, begin + bytes) out of the free ranges.
  void cut(uint64_t begin, uint64_t bytes) {
    auto at = ranges_.lower_bound(begin);
    while (at != ranges_.end() && at->first - begin < bytes) {
      const uint64_t used = bytes - (at->first - begin);
      if (at->second.bytes > used) {
        const uint64_t rest = at->first + used;
        at->second.bytes -= used;
        ranges_.emplace_hint(std::next(at), rest, std::move(at->second));
      }
      at = ranges_.erase(at);
    }
  }

  const Order& order_;
  uint64_t limit_;
  std::map<uint64_t, Range> ranges_;  // by offset
  uint64_t end_ = 0;
};

template <class Arena>
uint64_t place(std::span<Block> blocks, size_t commands, Arena&& arena) {
  std::vector<uint32_t> starts(blocks.size());
  for (uint32_t i = 0; i < blocks.size(); ++i) starts[i] = i;
  std::sort(starts.begin(), starts.end(), [&](uint32_t a, uint32_t b) {
    if (blocks[a].first != blocks[b].first) return blocks[a].first < blocks[b].first;
    return blocks[a].bytes != blocks[b].bytes ? blocks[a].bytes > blocks[b].bytes : a < b;
  });
  std::vector<uint32_t> ends = starts;
  std::stable_sort(ends.begin(), ends.end(), [&](uint32_t a, uint32_t b) { return blocks[a].last < blocks[b].last; });
  size_t start = 0, end = 0;
  for (uint32_t command = 0; command < commands && arena.end() != kNoRoom; ++command) {
    for (; end < ends.size() && blocks[ends[end]].last < command; ++end) arena.give(blocks[ends[end]]);
    for (; start < starts.size() && blocks[starts[start]].first == command; ++start) {
      Block& block = blocks[starts[start]];
      block.offset = arena.take(block.bytes, command);
    }
  }
  return arena.end();
}

}  // namespace

uint64_t place_tight(std::span<Block> blocks, size_t commands) {
  return place(blocks, commands, TightArena());
}

uint64_t place_by_branch(std::span<Block> blocks, size_t commands, const Order& order, uint64_t limit) {
  return place(blocks, commands, BranchArena(order, limit));
}

}  // namespace tape
