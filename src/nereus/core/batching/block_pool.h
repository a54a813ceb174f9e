// Who uses which block of a paged KV cache, and which blocks hold a prefix that others may share.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

namespace nereus {

using BlockId = int32_t;

// Blocks of equal size, counted by their users. A block whose content is final (all its tokens are
// computed) may be remembered under a key, so that sequences that begin alike share it. Blocks that
// nobody uses are available; those that hold a remembered prefix keep it until they are taken,
// which happens after all others, the longest unused first. Not thread-safe; the same calls give
// the same blocks.
class BlockPool final {
 public:
  BlockPool(int64_t blocks, int block_tokens);

  int block_tokens() const { return block_tokens_; }
  int64_t size() const { return static_cast<int64_t>(blocks_.size()); }
  int64_t available() const { return available_; }
  int references(BlockId block) const { return blocks_.at(block).references; }

  // A block with one user, whose content is forgotten. Throws Error(kInternal) if none is
  // available.
  BlockId take();
  void add_user(BlockId block);
  // Throws Error(kInternal) if the block has no user.
  void release(BlockId block);

  // `tokens` are those of the block, `key` stands for them and all before them (key_of()). If
  // another block has that key already, this one is not remembered.
  void remember(BlockId block, uint64_t key, std::span<const int64_t> tokens);
  // The block that holds these tokens after the prefix that the key stands for, with one user more.
  std::optional<BlockId> share(uint64_t key, std::span<const int64_t> tokens);
  // After a change of weights no content can be shared any more.
  void forget_all();

 private:
  struct Block {
    int references = 0;
    uint64_t key = 0;
    std::vector<int64_t> tokens;            // of a remembered block, else empty
    BlockId before = kNone, after = kNone;  // in the list of available blocks
  };
  static constexpr BlockId kNone = -1;

  bool is_remembered(BlockId block) const { return !blocks_[block].tokens.empty(); }
  void forget(BlockId block);
  void make_available(BlockId block);
  void unlink(BlockId block);

  int block_tokens_;
  std::vector<Block> blocks_;
  int64_t available_ = 0;
  BlockId first_ = kNone, last_ = kNone;  // of the available blocks, in the order of taking
  std::unordered_map<uint64_t, BlockId> remembered_;
};

// The key of a block after the blocks that `before` stands for (0: the first of a sequence).
uint64_t key_of(uint64_t before, std::span<const int64_t> tokens);

}  // namespace nereus
