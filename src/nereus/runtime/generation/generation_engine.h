// Computes what batching's Scheduler decides: one rank's part of a unit that generates.
#pragma once

#include <utility>
#include <vector>

#include "nereus/core/batching/scheduler.h"
#include "nereus/runtime/generation/generate.h"
#include "nereus/runtime/generation/paged_cache.h"
#include "nereus/runtime/nn/sampler.h"

namespace nereus {

struct EngineOptions {
  SchedulerOptions scheduler;
  int64_t longest = 0;  // sequence with its prompt, tokens
  SamplingParams sampling;
};

// Used by its device's worker; all ranks of the unit must make the same calls. Weights must not
// change while it lives. GPUs record a step in `graph`.
class GenerationEngine final {
 public:
  GenerationEngine(const DecoderStage& stage, Communicator& tp, Communicator& pp,
                   const EngineOptions& options, cuda::Graph& graph);
  ~GenerationEngine() { graph_.clear(); }
  GenerationEngine(const GenerationEngine&) = delete;
  GenerationEngine& operator=(const GenerationEngine&) = delete;

  // Queues a sequence that ends with any of `eos` or after max_new_tokens. Throws
  // Error(kInvalidInput) if the cache could not hold it.
  SequenceId submit(const GenerationRequest& request, std::vector<int64_t> eos);
  // Computes one step: chunks of prompts, or some tokens of all running sequences. False if there
  // is nothing left to do. Throws Error(kNumeric) for NaN logits.
  bool step();
  // The sequences that have ended since the last call.
  std::vector<SequenceId> take_finished() { return std::exchange(finished_, {}); }
  // What there is of a sequence so far.
  GenerationResult result(SequenceId sequence) const;
  const Scheduler& scheduler() const { return scheduler_; }

 private:
  struct Sequence {
    uint64_t sample_id = 0;
    std::vector<int64_t> eos;
    std::vector<double> log_probs;
    bool finished = false;
  };
  // Rows of the decoding batch, where a graph finds them again: sequences, and behind them rows
  // that stand for nobody.
  struct Batch {
    CacheRows cache;
    at::Tensor tokens, sample_ids, positions;  // [rows] int64: last token, its noise
    at::Tensor drawn;                          // [2, rows] fp64: tokens, log-probabilities
    at::Tensor unseen;                         // [steps, 2, rows]: drawn since the host last looked
    int64_t rows() const { return tokens.size(0); }
  };

  at::Tensor on_device(const std::vector<int64_t>& numbers) const;
  // tokens [n] → hidden states behind this stage, which the next stage has got.
  template <class Seen>
  at::Tensor through_blocks(const at::Tensor& tokens, const Seen& seen);
  // hidden [rows, h] → [rows, vocab] on the last stage.
  at::Tensor all_logits(const at::Tensor& hidden);
  void compute_prompts(const BatchStep& step);
  void decode(const BatchStep& step);
  void fit_batch(int64_t sequences);
  void fill_batch(const BatchStep& step);
  void decode_once();
  // The host learns what was drawn for sequences [first …]: numbers [steps, 2, rows] on the CPU.
  void take(const std::vector<SequenceId>& sequences, const at::Tensor& numbers);
  int64_t drawn_tokens(SequenceId sequence) const;  // so far

  const DecoderStage& stage_;
  Communicator& tp_;
  Communicator& pp_;
  cuda::Graph& graph_;
  at::Device device_;
  Scheduler scheduler_;
  PagedCache cache_;
  Sampler sampler_;
  int64_t window_;  // steps between two looks of the host
  bool recordable_;
  std::vector<Sequence> sequences_;
  std::vector<SequenceId> finished_;  // not taken yet
  Batch batch_;
  bool prepared_ = false;  // the batch has run once as it is
};

}  // namespace nereus
