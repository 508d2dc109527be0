#include "vm/hazards.h"

#include <algorithm>

namespace tape {
namespace {

constexpr uint32_t kNobody = ~uint32_t{0};

/// Disjoint ranges in rising order instead of `touches`; a byte that is written anywhere counts as written.
void merge(std::vector<Touch>& touches) {
  const auto by_begin = [](const Touch& a, const Touch& b) { return a.begin < b.begin; };
  const auto joined = [&](bool writes) {
    std::vector<Touch> some;
    std::copy_if(touches.begin(), touches.end(), std::back_inserter(some),
                 [&](const Touch& touch) { return touch.writes == writes; });
    std::sort(some.begin(), some.end(), by_begin);
    size_t kept = 0;
    for (const Touch& touch : some)
      if (kept != 0 && touch.begin <= some[kept - 1].end)
        some[kept - 1].end = std::max(some[kept - 1].end, touch.end);
      else
        some[kept++] = touch;
    some.resize(kept);
    return some;
  };
  std::vector<Touch> reads = joined(false);
  const std::vector<Touch> writes = joined(true);
  touches.swap(reads);
  touches.insert(touches.end(), writes.begin(), writes.end());
}

}  // namespace

void Reach::add(std::vector<uint32_t>& before) {
  std::sort(before.begin(), before.end(), std::greater<>());
  before.erase(std::unique(before.begin(), before.end()), before.end());
  merged_.assign(lengths_.size(), 0);
  size_t kept = 0;
  for (const uint32_t item : before) {
    const Item& at = items_[item];
    // What an earlier one reaches has been merged too, since it comes from an item behind it.
    if (at.place != 0 && merged_[at.chain] >= at.place) continue;
    before[kept++] = item;
    const uint32_t* const row = rows_.data() + at.row;
    for (uint32_t chain = 0; chain < at.width; ++chain) merged_[chain] = std::max(merged_[chain], row[chain]);
  }
  before.resize(kept);
  Item item;
  join_chain(item, before);
  item.width = static_cast<uint32_t>(merged_.size());
  item.row = rows_.size();
  rows_.insert(rows_.end(), merged_.begin(), merged_.end());
  items_.push_back(item);
}

void Reach::join_chain(Item& item, std::span<const uint32_t> before) {
  const auto join = [&](uint32_t chain) {
    item.chain = chain;
    item.place = merged_[chain] = ++lengths_[chain];
  };
  for (const uint32_t each : before)
    if (const Item& at = items_[each]; at.place != 0 && at.place == lengths_[at.chain]) return join(at.chain);
  for (uint32_t chain = 0; chain < merged_.size(); ++chain)
    if (merged_[chain] == lengths_[chain]) return join(chain);
  if (lengths_.size() == limit_) return;
  lengths_.push_back(0);
  merged_.push_back(0);
  join(static_cast<uint32_t>(lengths_.size() - 1));
}

bool Reach::follows(uint32_t later, uint32_t earlier) const {
  const Item &a = items_[later], &b = items_[earlier];
  return b.place != 0 && b.chain < a.width && rows_[a.row + b.chain] >= b.place;
}

void Bytes::cut(uint64_t at) {
  auto next = pieces_.lower_bound(at);
  if (next == pieces_.begin() || (next != pieces_.end() && next->first == at)) return;
  const auto piece = std::prev(next);
  if (piece->second.end <= at) return;
  pieces_.emplace_hint(next, at, piece->second);
  piece->second.end = at;
}

void Bytes::touch(uint32_t item, const Touch& touch, std::vector<uint32_t>& before) {
  if (touch.begin >= touch.end) return;
  cut(touch.begin);
  cut(touch.end);
  if (touch.writes)
    write(item, touch, before);
  else
    read(item, touch, before);
}

void Bytes::read(uint32_t item, const Touch& touch, std::vector<uint32_t>& before) {
  auto piece = pieces_.lower_bound(touch.begin);
  for (uint64_t at = touch.begin; at < touch.end; ++piece) {
    const uint64_t next = piece == pieces_.end() ? touch.end : std::min(piece->first, touch.end);
    if (at < next) piece = pieces_.emplace_hint(piece, at, Piece{next, kNobody, {}});  // touched for the first time
    at = piece->second.end;
    if (piece->second.writer != kNobody && piece->second.writer != item) before.push_back(piece->second.writer);
    auto& readers = piece->second.readers;
    if (readers.empty() || readers.back() != item) readers.push_back(item);
  }
}

void Bytes::write(uint32_t item, const Touch& touch, std::vector<uint32_t>& before) {
  auto piece = pieces_.lower_bound(touch.begin);
  while (piece != pieces_.end() && piece->first < touch.end) {
    const Piece& at = piece->second;
    for (const uint32_t reader : at.readers)
      if (reader != item) before.push_back(reader);
    if (at.readers.empty() && at.writer != kNobody && at.writer != item) before.push_back(at.writer);
    piece = pieces_.erase(piece);
  }
  pieces_.emplace_hint(piece, touch.begin, Piece{touch.end, item, {}});
}

Order::Order(std::span<const uint32_t> matching,
             const std::function<void(uint32_t command, std::vector<Touch>& touches)>& touches_of)
    : level_of_(matching.size()), item_of_(matching.size()), lists_(matching.size()) {
  // Rows of chains take at most 16 MB for tapes of up to 260,000 commands, 64 bytes a command for longer ones.
  const size_t limit = std::clamp<size_t>((size_t{1} << 22) / std::max<size_t>(matching.size(), 1), 16, 256);
  std::vector<uint32_t> open{0};
  levels_.emplace_back(kNobody, limit);
  enclosing_.push_back(kNobody);
  depths_.push_back(0);
  std::vector<Touch> touches;
  for (uint32_t i = 0; i < matching.size(); ++i) {
    touches.clear();
    if (matching[i] < i) {
      Level& loop = levels_[open.back()];
      open.pop_back();
      touches.swap(loop.touches);
      loop.bytes = {};
      merge(touches);
      add(levels_[open.back()], loop.head, touches);
      level_of_[i] = open.back();
      item_of_[i] = item_of_[loop.head];
      continue;
    }
    touches_of(i, touches);
    level_of_[i] = open.back();
    if (matching[i] == i) {
      add(levels_[open.back()], i, touches);
      continue;
    }
    levels_.emplace_back(i, limit).touches.swap(touches);
    enclosing_.push_back(open.back());
    depths_.push_back(static_cast<uint32_t>(open.size()));
    open.push_back(static_cast<uint32_t>(levels_.size() - 1));
  }
  ends_.reserve(matching.size());
  for (std::vector<uint32_t>& list : lists_) {
    before_.insert(before_.end(), list.begin(), list.end());
    ends_.push_back(before_.size());
  }
  lists_.clear();
}

void Order::add(Level& level, uint32_t command, std::vector<Touch>& touches) {
  const auto item = static_cast<uint32_t>(level.commands.size());
  std::vector<uint32_t>& before = lists_[command];
  for (const Touch& touch : touches) level.bytes.touch(item, touch, before);
  level.reach.add(before);
  for (uint32_t& each : before) each = level.commands[each];
  level.commands.push_back(command);
  item_of_[command] = item;
  if (level.head != kNobody) level.touches.insert(level.touches.end(), touches.begin(), touches.end());
}

bool Order::follows(uint32_t later, uint32_t earlier) const {
  uint32_t a = level_of_[later], b = level_of_[earlier];
  while (a != b) {
    const bool inner = depths_[a] > depths_[b];
    uint32_t& level = inner ? a : b;
    (inner ? later : earlier) = levels_[level].head;
    level = enclosing_[level];
  }
  return later == earlier || levels_[a].reach.follows(item_of_[later], item_of_[earlier]);
}

}  // namespace tape
