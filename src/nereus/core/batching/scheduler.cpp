#include "nereus/core/batching/scheduler.h"

#include <algorithm>
#include <ranges>
#include <string>
#include <utility>

#include "nereus/core/base/error.h"

namespace nereus {

Scheduler::Scheduler(const SchedulerOptions& options)
    : options_(options), pool_(options.blocks, options.block_tokens) {
  NEREUS_CHECK(options.max_sequences > 0 && options.max_batched_tokens > 0,
               "a batch of at least one sequence and one token");
}

SequenceId Scheduler::submit(std::vector<int64_t> prompt, int64_t max_new_tokens) {
  const int64_t length = std::ssize(prompt);
  if (length < 1 || max_new_tokens < 1) {
    throw Error(ErrorCode::kInvalidInput,
                "a sequence needs a prompt and room for at least one token more: " +
                    std::to_string(length) + " and " + std::to_string(max_new_tokens) +
                    " tokens were given");
  }
  // Keys and values of the last token are never needed.
  const int64_t needed = blocks_for(length + max_new_tokens - 1);
  if (needed > pool_.size()) {
    throw Error(ErrorCode::kInvalidInput,
                "a sequence of " + std::to_string(length) + " + " + std::to_string(max_new_tokens) +
                    " tokens needs " + std::to_string(needed) + " blocks of " +
                    std::to_string(options_.block_tokens) + " tokens, the KV cache has " +
                    std::to_string(pool_.size()) +
                    ": give it more memory, or lower the limit of new tokens");
  }
  sequences_.push_back(
      {.tokens = std::move(prompt), .prompt = length, .limit = length + max_new_tokens});
  const SequenceId id = std::ssize(sequences_) - 1;
  queue(id);
  return id;
}

void Scheduler::queue(SequenceId id) {
  if (options_.admission == Admission::kFirstCome) {
    waiting_.push_back(id);
    return;
  }
  const auto left = [this](SequenceId other) {
    return at(other).limit - std::ssize(at(other).tokens);
  };
  const auto place =
      std::ranges::find_if(waiting_, [&](SequenceId other) { return left(other) < left(id); });
  waiting_.insert(place, id);
}

BatchStep Scheduler::schedule(int64_t most_tokens) {
  NEREUS_CHECK(most_tokens > 0, "a step of at least one token");
  BatchStep step;
  admit(step);
  if (step.prompts.empty()) decode(most_tokens, step);
  NEREUS_CHECK(!step.empty() || done(), "sequences are left, but none can go on");
  return step;
}

int64_t Scheduler::blocks_for(int64_t tokens) const {
  return (tokens + options_.block_tokens - 1) / options_.block_tokens;
}

void Scheduler::admit(BatchStep& step) {
  int64_t budget = options_.max_batched_tokens;
  const auto compute = [&](SequenceId id) {
    Sequence& sequence = sequences_[id];
    const int64_t left = std::ssize(sequence.tokens) - sequence.computed;
    if (left == 1) return;  // its one token is computed as a decode
    const int64_t count = std::min(left, budget);
    step.prompts.push_back({id, sequence.computed, count, count == left});
    sequence.computed += count;
    budget -= count;
    remember(sequence);
  };
  for (const SequenceId id : running_) {
    if (at(id).computed < std::ssize(at(id).tokens) - 1 && budget > 0) compute(id);
  }
  std::unordered_map<uint64_t, SequenceId> leaders;  // by all their tokens
  while (!waiting_.empty() && running() < options_.max_sequences && budget > 0) {
    const SequenceId id = waiting_.front();
    const uint64_t whole = key_of(0, at(id).tokens);
    const auto leader = leaders.find(whole);
    const bool alike = leader != leaders.end() && at(leader->second).tokens == at(id).tokens;
    if (alike ? !fork(id, leader->second, step) : !start(id)) break;
    waiting_.pop_front();
    running_.push_back(id);
    sequences_[id].state = State::kRunning;
    if (alike) continue;
    compute(id);
    const bool leads = !step.prompts.empty() && step.prompts.back().sequence == id &&
                       step.prompts.back().last && options_.share_prefixes;
    if (leads) leaders.emplace(whole, id);
  }
}

// Whether `count` blocks can be given to a sequence that is not running yet. Each running one may
// need a block soon, and would otherwise have to preempt the new one at once.
bool Scheduler::has_room(int64_t count) const { return count + running() <= pool_.available(); }

bool Scheduler::fork(SequenceId id, SequenceId leader, BatchStep& step) {
  const Sequence& from = at(leader);
  Sequence& sequence = sequences_[id];
  const int64_t whole = std::ssize(from.tokens) / options_.block_tokens;
  const bool parts = blocks_for(std::ssize(from.tokens)) > whole;
  if (!has_room(parts ? 1 : 0)) return false;
  sequence.blocks.assign(from.blocks.begin(), from.blocks.begin() + whole);
  for (const BlockId block : sequence.blocks) pool_.add_user(block);
  sequence.keys = from.keys;
  if (parts) {
    sequence.blocks.push_back(pool_.take());
    step.copies.push_back({from.blocks[whole], sequence.blocks.back()});
  }
  sequence.computed = from.computed;
  step.forks.push_back({id, leader});
  return true;
}

bool Scheduler::start(SequenceId id) {
  Sequence& sequence = sequences_[id];
  const int64_t length = std::ssize(sequence.tokens);
  if (options_.share_prefixes) share_prefix(sequence);
  const int64_t needed = blocks_for(length) - std::ssize(sequence.blocks);
  if (!has_room(needed)) {
    release(sequence);
    return false;
  }
  for (int64_t i = 0; i < needed; ++i) sequence.blocks.push_back(pool_.take());
  return true;
}

// Takes the blocks that hold its beginning. At least one token is left to be computed, so that
// there are logits of the last one.
void Scheduler::share_prefix(Sequence& sequence) {
  const std::span<const int64_t> tokens = sequence.tokens;
  const int64_t size = options_.block_tokens;
  uint64_t key = 0;
  while (sequence.computed + size < std::ssize(tokens)) {
    const std::span<const int64_t> next = tokens.subspan(sequence.computed, size);
    key = key_of(key, next);
    const std::optional<BlockId> block = pool_.share(key, next);
    if (!block) return;
    sequence.blocks.push_back(*block);
    sequence.keys.push_back(key);
    sequence.computed += size;
  }
}

// Those of its blocks that are full of computed tokens.
void Scheduler::remember(Sequence& sequence) {
  if (!options_.share_prefixes) return;
  const int64_t size = options_.block_tokens;
  while ((std::ssize(sequence.keys) + 1) * size <= sequence.computed) {
    const int64_t block = std::ssize(sequence.keys);
    const auto tokens = std::span<const int64_t>(sequence.tokens).subspan(block * size, size);
    sequence.keys.push_back(key_of(block == 0 ? 0 : sequence.keys.back(), tokens));
    pool_.remember(sequence.blocks[block], sequence.keys.back(), tokens);
  }
}

void Scheduler::decode(int64_t most_tokens, BatchStep& step) {
  if (running_.empty()) return;
  step.tokens = most_tokens;
  for (const SequenceId id : running_) {
    step.tokens = std::min(step.tokens, at(id).limit - std::ssize(at(id).tokens));
  }
  while (missing_blocks(step.tokens) > pool_.available()) {
    if (step.tokens > 1) {
      step.tokens /= 2;
      continue;
    }
    NEREUS_CHECK(running() > 1, "one sequence alone fits the pool");
    step.preempted.push_back(running_.back());
    preempt(running_.back());
  }
  step.decodes = running_;
  for (const SequenceId id : running_) {
    Sequence& sequence = sequences_[id];
    const int64_t needed = blocks_for(sequence.computed + step.tokens);
    while (std::ssize(sequence.blocks) < needed) sequence.blocks.push_back(pool_.take());
  }
}

// That the running sequences lack to be computed for so many tokens more.
int64_t Scheduler::missing_blocks(int64_t tokens) const {
  int64_t missing = 0;
  for (const SequenceId id : running_) {
    missing +=
        std::max<int64_t>(0, blocks_for(at(id).computed + tokens) - std::ssize(at(id).blocks));
  }
  return missing;
}

void Scheduler::append(SequenceId id, std::span<const int64_t> tokens, bool finished) {
  Sequence& sequence = sequences_.at(id);
  NEREUS_CHECK(sequence.state == State::kRunning && !tokens.empty(),
               "tokens are appended to running sequences");
  sequence.tokens.insert(sequence.tokens.end(), tokens.begin(), tokens.end());
  const int64_t length = std::ssize(sequence.tokens);
  NEREUS_CHECK(length <= sequence.limit, "a sequence is beyond its limit");
  sequence.computed = length - 1;
  NEREUS_CHECK(blocks_for(sequence.computed) <= std::ssize(sequence.blocks),
               "more tokens than the step was to give");
  remember(sequence);
  if (finished || length == sequence.limit) cancel(id);
}

void Scheduler::cancel(SequenceId id) {
  Sequence& sequence = sequences_.at(id);
  if (sequence.state == State::kWaiting) std::erase(waiting_, id);
  if (sequence.state == State::kRunning) std::erase(running_, id);
  release(sequence);
  sequence.state = State::kDone;
}

void Scheduler::recompute_all() {
  while (!running_.empty()) preempt(running_.back());
  pool_.forget_all();
}

void Scheduler::release(Sequence& sequence) {
  // The end first, so that it is taken again first: beginnings are shared more often.
  for (const BlockId block : std::views::reverse(sequence.blocks)) pool_.release(block);
  sequence.blocks.clear();
  sequence.keys.clear();
  sequence.computed = 0;
}

void Scheduler::preempt(SequenceId id) {
  release(sequences_[id]);
  std::erase(running_, id);
  sequences_[id].state = State::kWaiting;
  waiting_.push_front(id);
}

}  // namespace nereus
