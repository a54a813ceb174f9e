// The prompts of a job, tokenized, in an order that is a function of (seed, position) alone.
#pragma once

#include <memory>
#include <vector>

#include "nereus/runtime/bridge/tokenizer.h"
#include "nereus/runtime/data/prompts.h"
#include "nereus/runtime/live/options.h"
#include "nereus/runtime/rl/sample.h"

namespace nereus {

class PromptSource final {
 public:
  // Reads, tokenizes and filters. Messages go through the tokenizer's chat template; without one, a
  // single user message counts as a text. Throws Error(kInvalidInput), naming the row: messages
  // that the tokenizer has no template for or that its template refuses; a prompt longer than
  // max_prompt_length (row, tokens, limit, how many there are) unless filtering is on; none left; a
  // token that is not in [0, vocab_size).
  PromptSource(const DataOptions& options, const Tokenizer& tokenizer, int64_t vocab_size,
               uint64_t seed);

  struct Entry {
    int64_t index = 0;  // row of the file
    Prompt prompt;
    std::vector<int64_t> tokens;
  };
  // The prompt at `position` of the endless sequence of (shuffled) epochs. Not thread-safe.
  const Entry& at(int64_t position);
  // The prompt of a row of the file (Entry::index).
  const Prompt& row(int64_t index) const;
  // All of them, in the order of the file.
  const std::vector<Entry>& entries() const { return entries_; }
  int64_t size() const { return static_cast<int64_t>(entries_.size()); }
  int64_t dropped() const { return dropped_; }
  int64_t longest() const;
  // Of the rows, their tokens and whether they are shuffled: equal for the same sequence of
  // prompts, wherever the file lies.
  std::string fingerprint() const;

 private:
  std::vector<Entry> entries_;
  int64_t dropped_ = 0;
  bool shuffle_ = true;
  uint64_t seed_ = 0;
  std::vector<int64_t> order_;  // of the epoch that was last asked for
  int64_t epoch_ = -1;
};

// The samples of a step whose first prompt is at `position`, with prompts only; `drawn`: the
// prompts of the whole run before them, which number the samples. Each row of the batch is a group,
// also if a prompt is in it twice because an epoch ended or the data is small.
Experience start_batch(PromptSource& prompts, const DataOptions& data, int64_t position,
                       int64_t drawn);

}  // namespace nereus
