#include "nereus/core/batching/block_pool.h"

#include <algorithm>

#include "nereus/core/base/error.h"
#include "nereus/core/base/hash.h"

namespace nereus {

BlockPool::BlockPool(int64_t blocks, int block_tokens)
    : block_tokens_(block_tokens), blocks_(static_cast<size_t>(blocks)) {
  NEREUS_CHECK(blocks >= 0 && block_tokens > 0, "a pool of blocks of at least one token");
  for (BlockId block = 0; block < blocks; ++block) make_available(block);
}

BlockId BlockPool::take() {
  NEREUS_CHECK(first_ != kNone, "no block is available");
  const BlockId block = first_;
  unlink(block);
  forget(block);
  blocks_[block].references = 1;
  return block;
}

void BlockPool::add_user(BlockId block) {
  if (blocks_.at(block).references == 0) unlink(block);
  ++blocks_[block].references;
}

void BlockPool::release(BlockId block) {
  NEREUS_CHECK(blocks_.at(block).references > 0, "a block without a user is released");
  if (--blocks_[block].references == 0) make_available(block);
}

void BlockPool::remember(BlockId block, uint64_t key, std::span<const int64_t> tokens) {
  NEREUS_CHECK(blocks_.at(block).references > 0, "a block without a user is remembered");
  NEREUS_CHECK(std::ssize(tokens) == block_tokens_, "only whole blocks are remembered");
  if (is_remembered(block) || !remembered_.emplace(key, block).second) return;
  blocks_[block].key = key;
  blocks_[block].tokens.assign(tokens.begin(), tokens.end());
}

std::optional<BlockId> BlockPool::share(uint64_t key, std::span<const int64_t> tokens) {
  const auto found = remembered_.find(key);
  // Different tokens may have one key.
  if (found == remembered_.end() || !std::ranges::equal(blocks_[found->second].tokens, tokens)) {
    return std::nullopt;
  }
  add_user(found->second);
  return found->second;
}

void BlockPool::forget_all() {
  for (BlockId block = 0; block < size(); ++block) forget(block);
}

void BlockPool::forget(BlockId block) {
  if (!is_remembered(block)) return;
  remembered_.erase(blocks_[block].key);
  blocks_[block].tokens.clear();
}

void BlockPool::make_available(BlockId block) {
  ++available_;
  Block& self = blocks_[block];
  // What holds nothing of use is taken first.
  const bool at_end = is_remembered(block);
  self.before = at_end ? last_ : kNone;
  self.after = at_end ? kNone : first_;
  (self.before == kNone ? first_ : blocks_[self.before].after) = block;
  (self.after == kNone ? last_ : blocks_[self.after].before) = block;
}

void BlockPool::unlink(BlockId block) {
  --available_;
  const Block& self = blocks_[block];
  (self.before == kNone ? first_ : blocks_[self.before].after) = self.after;
  (self.after == kNone ? last_ : blocks_[self.after].before) = self.before;
}

uint64_t key_of(uint64_t before, std::span<const int64_t> tokens) {
  return hash_bytes(std::as_bytes(tokens), before);
}

}  // namespace nereus
