#include "nereus/core/batching/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "nereus/core/base/error.h"
#include "nereus/core/base/random.h"

namespace nereus {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A model of which the next token depends on all tokens so far, and on who draws it.
int64_t next_token(std::span<const int64_t> tokens, SequenceId sequence) {
  uint64_t state = static_cast<uint64_t>(sequence) * 7919;
  for (const int64_t token : tokens) state = state * 31 + static_cast<uint64_t>(token) + 1;
  return static_cast<int64_t>((state >> 7U) % 50);
}
constexpr int64_t kEnd = 3;  // a sequence that draws it ends

struct Request {
  std::vector<int64_t> prompt;
  int64_t limit = 0;
};

// What a sequence that is alone in the world becomes.
std::vector<int64_t> alone(const Request& request, SequenceId sequence) {
  std::vector<int64_t> tokens = request.prompt;
  for (int64_t i = 0; i < request.limit; ++i) {
    tokens.push_back(next_token(tokens, sequence));
    if (tokens.back() == kEnd) break;
  }
  return tokens;
}

// What was met on the way.
struct Seen {
  int64_t chunks = 0, forks = 0, copies = 0, preempted = 0, computed = 0, steps = 0,
          cut_prompts = 0;
};

// An engine that has tokens in its blocks in place of keys and values, so that it can be checked
// that every token is computed against exactly those before it.
class Engine {
 public:
  Engine(const SchedulerOptions& options, int64_t window)
      : options_(options),
        window_(window),
        scheduler_(options),
        cache_(options.blocks * options.block_tokens, -1) {}

  Scheduler& scheduler() { return scheduler_; }
  const Seen& seen() const { return seen_; }

  void run_step() {
    const BatchStep step = scheduler_.schedule(window_);
    ++seen_.steps;
    seen_.preempted += std::ssize(step.preempted);
    seen_.forks += std::ssize(step.forks);
    seen_.copies += std::ssize(step.copies);
    EXPECT_LE(scheduler_.running(), options_.max_sequences);
    check_blocks();
    compute_prompts(step);
    for (const BlockCopy& copy : step.copies) {
      std::copy_n(cache_.begin() + slot(copy.from, 0), options_.block_tokens,
                  cache_.begin() + slot(copy.to, 0));
    }
    draw_first(step);
    decode(step);
  }

 private:
  int64_t slot(BlockId block, int64_t token) const { return block * options_.block_tokens + token; }
  int64_t& cached(SequenceId id, int64_t position) {
    return cache_[slot(scheduler_.blocks(id)[position / options_.block_tokens],
                       position % options_.block_tokens)];
  }
  // A token at `position` is to see all tokens up to itself.
  void check_prefix(SequenceId id, const std::vector<int64_t>& tokens, int64_t position) {
    for (int64_t i = 0; i <= position; ++i) {
      ASSERT_EQ(cached(id, i), tokens[i]) << "sequence " << id << " token " << i;
    }
  }

  // Every block has as many users as say that they use it.
  void check_blocks() {
    std::map<BlockId, int> users;
    for (const SequenceId id : ids_) {
      std::set<BlockId> own;
      for (const BlockId block : scheduler_.blocks(id)) {
        ++users[block];
        EXPECT_TRUE(own.insert(block).second) << "twice in one sequence";
      }
    }
    for (BlockId block = 0; block < scheduler_.pool().size(); ++block) {
      EXPECT_EQ(scheduler_.pool().references(block), users.contains(block) ? users[block] : 0);
    }
    EXPECT_EQ(scheduler_.pool().available() + std::ssize(users), scheduler_.pool().size());
  }

  void compute_prompts(const BatchStep& step) {
    int64_t tokens = 0;
    for (const PromptChunk& chunk : step.prompts) {
      ++seen_.chunks;
      seen_.cut_prompts += chunk.last ? 0 : 1;
      tokens += chunk.count;
      for (int64_t i = chunk.begin; i < chunk.begin + chunk.count; ++i) {
        cached(chunk.sequence, i) = scheduler_.tokens(chunk.sequence)[i];
      }
    }
    seen_.computed += tokens;
    EXPECT_LE(tokens, options_.max_batched_tokens);
    for (const PromptChunk& chunk : step.prompts) {
      const auto all = scheduler_.tokens(chunk.sequence);
      check_prefix(chunk.sequence, {all.begin(), all.end()}, chunk.begin + chunk.count - 1);
    }
  }

  void append(SequenceId id, const std::vector<int64_t>& drawn) {
    scheduler_.append(id, drawn, drawn.back() == kEnd);
  }

  void draw_first(const BatchStep& step) {
    std::map<SequenceId, std::vector<int64_t>> logits;  // of what leaders' logits depend on
    for (const PromptChunk& chunk : step.prompts) {
      const auto all = scheduler_.tokens(chunk.sequence);
      if (chunk.last) logits[chunk.sequence] = {all.begin(), all.end()};
    }
    for (const Fork& fork : step.forks) {
      ASSERT_TRUE(logits.contains(fork.leader));
      append(fork.sequence, {next_token(logits[fork.leader], fork.sequence)});
    }
    for (const auto& [id, tokens] : logits) append(id, {next_token(tokens, id)});
  }

  void decode(const BatchStep& step) {
    EXPECT_LE(step.tokens, window_);
    std::map<SequenceId, std::vector<int64_t>> drawn;
    for (const SequenceId id : step.decodes) {
      const auto all = scheduler_.tokens(id);
      std::vector<int64_t> tokens(all.begin(), all.end());
      for (int64_t i = 0; i < step.tokens; ++i) {
        // As a batch does, it goes on behind the end of a sequence until it is looked at.
        cached(id, std::ssize(tokens) - 1) = tokens.back();
        check_prefix(id, tokens, std::ssize(tokens) - 1);
        tokens.push_back(next_token(tokens, id));
        std::vector<int64_t>& own = drawn[id];
        if (own.empty() || own.back() != kEnd) own.push_back(tokens.back());
      }
    }
    for (const auto& [id, tokens] : drawn) append(id, tokens);
  }

 public:
  void submit(const Request& request) {
    ids_.push_back(scheduler_.submit(request.prompt, request.limit));
  }

 private:
  SchedulerOptions options_;
  int64_t window_;
  Scheduler scheduler_;
  std::vector<int64_t> cache_;
  std::vector<SequenceId> ids_;
  Seen seen_;
};

class Dice {
 public:
  explicit Dice(uint64_t seed) : seed_(seed) {}
  int64_t between(int64_t low, int64_t high) {
    const double share = uniform({.seed = seed_, .position = count_++});
    return low + static_cast<int64_t>(share * static_cast<double>(high - low + 1));
  }

 private:
  uint64_t seed_;
  uint64_t count_ = 0;
};

std::vector<Request> random_requests(Dice& dice) {
  std::vector<Request> requests;
  std::vector<int64_t> conversation;
  for (int64_t i = dice.between(1, 12); i > 0; --i) {
    Request request{.limit = dice.between(1, 20)};
    if (dice.between(0, 2) > 0) request.prompt = conversation;  // goes on with another's beginning
    for (int64_t more = dice.between(request.prompt.empty() ? 1 : 0, 14); more > 0; --more) {
      request.prompt.push_back(dice.between(4, 9));
    }
    conversation = request.prompt;
    for (int64_t n = dice.between(1, 4); n > 0; --n) requests.push_back(request);
  }
  return requests;
}

// No block is lost or used twice, nobody starves, no budget is exceeded, and every sequence ends
// with the tokens that it would have alone, whatever is shared, cut, copied and preempted.
TEST(Scheduler, RandomBatchesEndAsTheSequencesWouldAlone) {
  Seen met;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    Dice dice(seed);
    const std::vector<Request> requests = random_requests(dice);
    SchedulerOptions options{
        .block_tokens = static_cast<int>(dice.between(1, 5)),
        .max_sequences = dice.between(1, 9),
        .max_batched_tokens = dice.between(1, 40),
        .share_prefixes = dice.between(0, 3) > 0,
        .admission = dice.between(0, 1) == 0 ? Admission::kFirstCome : Admission::kLongestFirst};
    for (const Request& request : requests) {
      const int64_t tokens = std::ssize(request.prompt) + request.limit - 1;
      options.blocks =
          std::max(options.blocks, (tokens + options.block_tokens - 1) / options.block_tokens);
    }
    options.blocks += dice.between(0, 20);
    Engine engine(options, dice.between(1, 6));
    Engine twin(options, 1);
    size_t submitted = 0;
    for (int64_t step = 0; submitted < requests.size() || !engine.scheduler().done(); ++step) {
      ASSERT_LT(step, 20'000) << "starves";
      // They come in while others run.
      while (submitted < requests.size() && (dice.between(0, 2) > 0 || engine.scheduler().done())) {
        engine.submit(requests[submitted]);
        twin.submit(requests[submitted++]);
      }
      engine.run_step();
      if (HasFatalFailure()) return;
    }
    while (!twin.scheduler().done()) twin.run_step();
    for (size_t id = 0; id < requests.size(); ++id) {
      const auto expected = alone(requests[id], static_cast<SequenceId>(id));
      const auto tokens = engine.scheduler().tokens(static_cast<SequenceId>(id));
      EXPECT_TRUE(std::ranges::equal(tokens, expected)) << "seed " << seed << " sequence " << id;
      EXPECT_TRUE(
          std::ranges::equal(twin.scheduler().tokens(static_cast<SequenceId>(id)), expected));
    }
    EXPECT_EQ(engine.scheduler().pool().available(), options.blocks) << "blocks were lost";
    met.chunks += engine.seen().chunks;
    met.cut_prompts += engine.seen().cut_prompts;
    met.forks += engine.seen().forks;
    met.copies += engine.seen().copies;
    met.preempted += engine.seen().preempted;
  }
  EXPECT_GT(met.cut_prompts, 100);
  EXPECT_GT(met.forks, 100);
  EXPECT_GT(met.copies, 100);
  EXPECT_GT(met.preempted, 100);
}

std::vector<int64_t> counted(int64_t length, int64_t first = 10) {
  std::vector<int64_t> tokens(length);
  for (int64_t i = 0; i < length; ++i) tokens[i] = first + i;
  return tokens;
}

TEST(Scheduler, ResponsesToOnePromptShareIt) {
  Scheduler scheduler(
      {.blocks = 100, .block_tokens = 4, .max_sequences = 8, .max_batched_tokens = 99});
  for (int i = 0; i < 3; ++i) scheduler.submit(counted(10), 5);
  const BatchStep step = scheduler.schedule(1);
  EXPECT_THAT(step.prompts, ElementsAre(PromptChunk{0, 0, 10, true}));
  EXPECT_THAT(step.forks, ElementsAre(Fork{1, 0}, Fork{2, 0}));
  EXPECT_EQ(step.copies.size(), 2u) << "the third block is theirs alone";
  EXPECT_EQ(scheduler.pool().available(), 100 - 3 - 2);
  EXPECT_EQ(scheduler.pool().references(scheduler.blocks(0)[0]), 3);
}

// The next turn of a conversation, and a system prompt: only what is new is computed.
TEST(Scheduler, ALaterPromptSharesTheBeginning) {
  Scheduler scheduler(
      {.blocks = 100, .block_tokens = 4, .max_sequences = 8, .max_batched_tokens = 99});
  scheduler.submit(counted(8), 3);
  scheduler.schedule(1);
  scheduler.append(0, counted(1, 18), false);
  scheduler.schedule(2);
  scheduler.append(0, counted(2, 19), false);
  ASSERT_EQ(scheduler.running(), 0);
  scheduler.submit(counted(20), 1);
  const BatchStep step = scheduler.schedule(1);
  // Of the eleven tokens so far ten are computed, and two blocks are full of them.
  EXPECT_THAT(step.prompts, ElementsAre(PromptChunk{1, 8, 12, true}));
}

TEST(Scheduler, NoPrefixIsSharedBetweenWeights) {
  Scheduler scheduler(
      {.blocks = 100, .block_tokens = 4, .max_sequences = 8, .max_batched_tokens = 99});
  scheduler.submit(counted(9), 3);
  scheduler.schedule(1);
  scheduler.append(0, counted(1, 50), false);
  scheduler.recompute_all();
  scheduler.submit(counted(11), 3);
  const BatchStep step = scheduler.schedule(1);
  EXPECT_THAT(step.prompts, ElementsAre(PromptChunk{0, 0, 10, true}, PromptChunk{1, 8, 3, true}))
      << "both are computed anew, the second after the first";
}

TEST(Scheduler, TheLongestComeFirstIfToldSo) {
  Scheduler scheduler({.blocks = 100,
                       .block_tokens = 4,
                       .max_sequences = 1,
                       .max_batched_tokens = 99,
                       .admission = Admission::kLongestFirst});
  for (const int64_t limit : {3, 7, 5, 7}) scheduler.submit(counted(2), limit);
  std::vector<SequenceId> order;
  while (!scheduler.done()) {
    const SequenceId id = scheduler.schedule(1).prompts.front().sequence;
    order.push_back(id);
    scheduler.cancel(id);
  }
  EXPECT_THAT(order, ElementsAre(1, 3, 2, 0));
}

TEST(Scheduler, WhatCanNeverFitIsRefusedWithItsNumbers) {
  Scheduler scheduler(
      {.blocks = 4, .block_tokens = 4, .max_sequences = 1, .max_batched_tokens = 9});
  scheduler.submit(counted(10), 7);
  try {
    scheduler.submit(counted(10), 8);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidInput);
    EXPECT_THAT(error.what(),
                HasSubstr("10 + 8 tokens needs 5 blocks of 4 tokens, the KV cache has 4"));
  }
  EXPECT_THROW(scheduler.submit({}, 1), Error);
  EXPECT_THROW(scheduler.submit(counted(1), 0), Error);
}

TEST(BlockPool, WhatIsRememberedIsTakenLastAndTheLongestUnusedFirst) {
  BlockPool pool(3, 1);
  const BlockId a = pool.take(), b = pool.take(), c = pool.take();
  const std::vector<int64_t> tokens = {7};
  pool.remember(a, key_of(0, tokens), tokens);
  pool.remember(c, key_of(1, tokens), tokens);
  pool.release(c);
  pool.release(a);
  pool.release(b);
  EXPECT_EQ(pool.share(key_of(0, tokens), tokens), a);
  pool.release(a);
  EXPECT_EQ(pool.take(), b);
  EXPECT_EQ(pool.take(), c);
  EXPECT_EQ(pool.share(key_of(1, tokens), tokens), std::nullopt) << "it was taken";
  EXPECT_EQ(pool.take(), a);
  EXPECT_THROW(pool.take(), Error);
}

TEST(BlockPool, TokensAreComparedAndNotOnlyTheirKeys) {
  BlockPool pool(2, 1);
  const BlockId a = pool.take();
  pool.remember(a, /*key=*/5, std::vector<int64_t>{7});
  EXPECT_EQ(pool.share(5, std::vector<int64_t>{8}), std::nullopt);
  pool.forget_all();
  EXPECT_EQ(pool.share(5, std::vector<int64_t>{7}), std::nullopt);
}

}  // namespace
}  // namespace nereus
