// Which sequences are computed next, and in which blocks of the KV cache: continuous batching.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <unordered_map>
#include <vector>

#include "nereus/core/batching/block_pool.h"

namespace nereus {

using SequenceId = int64_t;  // counted from 0 in the order of submit()

enum class Admission {
  kFirstCome,
  kLongestFirst,  // by max_new_tokens: shortens the tail, in which few sequences are left
};

struct SchedulerOptions {
  int64_t blocks = 0;
  int block_tokens = 16;
  int64_t max_sequences = 0;       // in the batch at once
  int64_t max_batched_tokens = 0;  // of prompts, in one step
  bool share_prefixes = true;
  Admission admission = Admission::kFirstCome;
};

// Tokens [begin, begin + count) of a sequence, to be computed against all before them.
struct PromptChunk {
  SequenceId sequence = 0;
  int64_t begin = 0;
  int64_t count = 0;
  bool last = false;  // then its next token is drawn
  bool operator==(const PromptChunk&) const = default;
};

// A sequence whose prompt is that of `leader`, of which the last chunk is in the same step: its
// first token is drawn from the leader's logits.
struct Fork {
  SequenceId sequence = 0;
  SequenceId leader = 0;
  bool operator==(const Fork&) const = default;
};

struct BlockCopy {
  BlockId from = 0;
  BlockId to = 0;
  bool operator==(const BlockCopy&) const = default;
};

// What to compute next: first the chunks of prompts, then the copies of blocks that sequences part
// on, then `tokens` tokens one after the other for each of `decodes`.
struct BatchStep {
  std::vector<PromptChunk> prompts;
  std::vector<Fork> forks;
  std::vector<BlockCopy> copies;
  std::vector<SequenceId> decodes;
  int64_t tokens = 0;
  std::vector<SequenceId> preempted;  // gave their blocks up, and will be computed anew
  bool empty() const { return prompts.empty() && decodes.empty(); }
};

// Prompts come before tokens of running sequences: a batch that is full is decoded fastest. Where
// blocks run out, the sequence that came last gives its own up and waits at the front of the queue;
// its tokens are computed anew, so that it ends with the tokens that it would have had. The first
// of the running sequences is never preempted, and any sequence alone fits the pool: so all come to
// their ends. Not thread-safe; the same calls give the same steps.
class Scheduler final {
 public:
  explicit Scheduler(const SchedulerOptions& options);

  // Queues a sequence. Throws Error(kInvalidInput) with the numbers if the pool could not hold it
  // to its end, or if prompt or limit are empty.
  SequenceId submit(std::vector<int64_t> prompt, int64_t max_new_tokens);
  // What to compute next: at most `most_tokens` tokens for each running sequence, and never more
  // than the one with the least left may have. Empty if nothing is queued or running.
  BatchStep schedule(int64_t most_tokens);
  // The tokens that a step gave a sequence: one for a last chunk or a fork, at least one for a
  // decode. `finished`: it ended of itself; it also ends at its limit. To be called for all
  // sequences of a step before the next schedule().
  void append(SequenceId sequence, std::span<const int64_t> tokens, bool finished);
  // Ends a sequence at any time between steps.
  void cancel(SequenceId sequence);
  // After a change of weights: running sequences go back to the queue and are computed anew, and
  // no prefix is shared with what was computed before.
  void recompute_all();

  bool done() const { return running_.empty() && waiting_.empty(); }
  bool done(SequenceId sequence) const { return at(sequence).state == State::kDone; }
  int64_t running() const { return std::ssize(running_); }
  int64_t waiting() const { return std::ssize(waiting_); }
  const BlockPool& pool() const { return pool_; }
  // Prompt and what was appended.
  std::span<const int64_t> tokens(SequenceId sequence) const { return at(sequence).tokens; }
  int64_t prompt_length(SequenceId sequence) const { return at(sequence).prompt; }
  // In the order of positions; of a running sequence.
  std::span<const BlockId> blocks(SequenceId sequence) const { return at(sequence).blocks; }

 private:
  enum class State { kWaiting, kRunning, kDone };
  struct Sequence {
    std::vector<int64_t> tokens;
    int64_t prompt = 0;
    int64_t limit = 0;  // of tokens.size()
    int64_t computed =
        0;  // tokens whose keys and values are in the blocks, or will be by this step
    std::vector<BlockId> blocks;
    std::vector<uint64_t> keys;  // of the blocks that are remembered or shared
    State state = State::kWaiting;
  };

  const Sequence& at(SequenceId sequence) const { return sequences_.at(sequence); }
  int64_t blocks_for(int64_t tokens) const;
  void admit(BatchStep& step);
  bool has_room(int64_t blocks) const;
  bool fork(SequenceId id, SequenceId leader, BatchStep& step);
  bool start(SequenceId id);
  void share_prefix(Sequence& sequence);
  void remember(Sequence& sequence);
  void decode(int64_t most_tokens, BatchStep& step);
  int64_t missing_blocks(int64_t tokens) const;
  void release(Sequence& sequence);
  void preempt(SequenceId id);
  void queue(SequenceId id);

  SchedulerOptions options_;
  BlockPool pool_;
  std::vector<Sequence> sequences_;
  std::vector<SequenceId> running_;  // in the order of their admission
  std::deque<SequenceId> waiting_;
};

}  // namespace nereus
