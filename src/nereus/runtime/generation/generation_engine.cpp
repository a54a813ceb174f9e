#include "nereus/runtime/generation/generation_engine.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace nereus {

namespace {

// Steps on an accelerator between two looks of the host at what was drawn.
constexpr int64_t kStepsUnseen = 16;
// When fewer rows than this share of the batch still run, it gets smaller.
constexpr double kShrinkBelow = 0.75;
constexpr int64_t kRowsMultiple = 8;  // of larger batches: few shapes, so that graphs serve longer

}  // namespace

GenerationEngine::GenerationEngine(const DecoderStage& stage, Communicator& tp, Communicator& pp,
                                   const EngineOptions& options, cuda::Graph& graph)
    : stage_(stage),
      tp_(tp),
      pp_(pp),
      graph_(graph),
      device_(stage.options().device()),
      scheduler_(options.scheduler),
      cache_(stage, options.scheduler.blocks, options.scheduler.block_tokens, options.longest),
      sampler_(options.sampling, device_),
      window_(device_.is_cpu() ? 1 : kStepsUnseen),
      recordable_(pp.size() == 1 && tp.is_recordable() && cache_.has_kernel()) {}

SequenceId GenerationEngine::submit(const GenerationRequest& request, std::vector<int64_t> eos) {
  const SequenceId id = scheduler_.submit(request.prompt, request.max_new_tokens);
  sequences_.push_back({.sample_id = request.sample_id, .eos = std::move(eos)});
  return id;
}

bool GenerationEngine::step() {
  const c10::InferenceMode inference;
  const BatchStep step = scheduler_.schedule(window_);
  if (step.empty()) return false;
  if (step.prompts.empty()) {
    decode(step);
  } else {
    compute_prompts(step);
  }
  return true;
}

GenerationResult GenerationEngine::result(SequenceId id) const {
  const std::span<const int64_t> tokens =
      scheduler_.tokens(id).subspan(scheduler_.prompt_length(id));
  const Sequence& sequence = sequences_.at(id);
  return {{tokens.begin(), tokens.end()}, sequence.log_probs, sequence.finished};
}

int64_t GenerationEngine::drawn_tokens(SequenceId id) const {
  return std::ssize(scheduler_.tokens(id)) - scheduler_.prompt_length(id);
}

at::Tensor GenerationEngine::on_device(const std::vector<int64_t>& numbers) const {
  return at::tensor(numbers, at::kLong).to(device_);
}

template <class Seen>
at::Tensor GenerationEngine::through_blocks(const at::Tensor& tokens, const Seen& seen) {
  at::Tensor hidden;
  if (stage_.is_first()) {
    hidden = stage_.embed(tokens);
  } else {
    hidden = at::empty({tokens.size(0), stage_.spec().hidden_size}, stage_.options());
    pp_.recv(hidden, pp_.rank() - 1);
  }
  hidden = stage_.blocks(
      hidden, [&](int block, const at::Tensor& qkv) { return cache_.attend(block, qkv, seen); });
  if (!stage_.is_last()) pp_.send(hidden, pp_.rank() + 1);
  return hidden;
}

at::Tensor GenerationEngine::all_logits(const at::Tensor& hidden) {
  return stage_.is_last() ? tp_.all_gather(stage_.logits(hidden), 1) : at::Tensor();
}

void GenerationEngine::compute_prompts(const BatchStep& step) {
  std::vector<int64_t> tokens, ends, ids, positions;
  std::vector<SequenceId> draw;
  std::vector<int64_t> logits_of(sequences_.size(), -1);  // of leaders: which row
  const auto draw_from = [&](SequenceId id, int64_t end) {
    logits_of[id] = end;
    ends.push_back(end);
    draw.push_back(id);
    ids.push_back(static_cast<int64_t>(sequences_[id].sample_id));
    positions.push_back(drawn_tokens(id));
  };
  for (const PromptChunk& chunk : step.prompts) {
    const auto all = scheduler_.tokens(chunk.sequence);
    tokens.insert(tokens.end(), all.begin() + chunk.begin, all.begin() + chunk.begin + chunk.count);
    if (chunk.last) draw_from(chunk.sequence, std::ssize(tokens) - 1);
  }
  for (const Fork& fork : step.forks) draw_from(fork.sequence, logits_of[fork.leader]);

  const at::Tensor hidden =
      through_blocks(on_device(tokens), cache_.chunks(step.prompts, scheduler_));
  cache_.copy(step.copies);
  if (draw.empty()) return;
  const at::Tensor logits = all_logits(hidden.index_select(0, on_device(ends)));
  at::Tensor drawn = at::empty({2, std::ssize(draw)}, at::device(device_).dtype(at::kDouble));
  if (stage_.is_last()) sampler_.draw(logits, on_device(ids), on_device(positions), drawn);
  pp_.broadcast(drawn, pp_.size() - 1);
  take(draw, drawn.to(at::kCPU).unsqueeze(0));
}

// A batch keeps its size while it holds the sequences and few rows are idle, so that its graph can
// be replayed.
void GenerationEngine::fit_batch(int64_t sequences) {
  const bool fits = batch_.tokens.defined() && sequences <= batch_.rows() &&
                    static_cast<double>(sequences) >= kShrinkBelow * batch_.rows();
  if (fits) return;
  int64_t rows = sequences;
  if (!device_.is_cpu() && rows > kRowsMultiple) {
    rows = (rows + kRowsMultiple - 1) / kRowsMultiple * kRowsMultiple;
  }
  graph_.clear();
  prepared_ = false;
  const auto numbers = at::device(device_).dtype(at::kLong);
  const auto reals = at::device(device_).dtype(at::kDouble);
  batch_ = {.cache = {.tables = at::empty({rows, cache_.width()}, numbers.dtype(at::kInt)),
                      .lengths = at::empty({rows}, numbers)},
            .tokens = at::empty({rows}, numbers),
            .sample_ids = at::empty({rows}, numbers),
            .positions = at::empty({rows}, numbers),
            .drawn = at::empty({2, rows}, reals),
            .unseen = at::empty({window_, 2, rows}, reals)};
}

void GenerationEngine::fill_batch(const BatchStep& step) {
  const int64_t rows = batch_.rows();
  std::vector<int32_t> tables(rows * cache_.width(), cache_.nobodys());
  std::vector<int64_t> lengths(rows), tokens(rows), ids(rows), positions(rows);
  for (size_t row = 0; row < step.decodes.size(); ++row) {
    const SequenceId id = step.decodes[row];
    std::ranges::copy(scheduler_.blocks(id),
                      tables.begin() + static_cast<int64_t>(row) * cache_.width());
    tokens[row] = scheduler_.tokens(id).back();
    lengths[row] = std::ssize(scheduler_.tokens(id)) - 1;
    ids[row] = static_cast<int64_t>(sequences_[id].sample_id);
    positions[row] = drawn_tokens(id);
  }
  batch_.cache.tables.copy_(at::tensor(tables, at::kInt).view({rows, cache_.width()}));
  batch_.cache.lengths.copy_(at::tensor(lengths, at::kLong));
  batch_.tokens.copy_(at::tensor(tokens, at::kLong));
  batch_.sample_ids.copy_(at::tensor(ids, at::kLong));
  batch_.positions.copy_(at::tensor(positions, at::kLong));
}

void GenerationEngine::decode(const BatchStep& step) {
  fit_batch(std::ssize(step.decodes));
  fill_batch(step);
  for (int64_t i = 0; i < step.tokens; ++i) {
    decode_once();
    batch_.unseen[i].copy_(batch_.drawn);
  }
  take(step.decodes, batch_.unseen.narrow(0, 0, step.tokens).to(at::kCPU));
}

// One token more for each row. The first time that a batch runs prepares for the second, which is
// recorded for all that follow.
void GenerationEngine::decode_once() {
  const auto work = [&] {
    if (!cache_.has_kernel()) batch_.cache.slots = cache_.next_slots(batch_.cache);
    const at::Tensor logits = all_logits(through_blocks(batch_.tokens, batch_.cache));
    if (stage_.is_last()) {
      sampler_.draw(logits, batch_.sample_ids, batch_.positions, batch_.drawn);
    }
    pp_.broadcast(batch_.drawn, pp_.size() - 1);
    batch_.tokens.copy_(batch_.drawn[0]);
    batch_.cache.lengths.add_(1);
    batch_.positions.add_(1);
  };
  if (!recordable_ || !prepared_) {
    work();
    prepared_ = true;
    return;
  }
  if (!graph_.recorded()) graph_.record(work);
  graph_.replay();
  tp_.barrier();  // the graph may hold collectives, which all ranks must have launched
}

void GenerationEngine::take(const std::vector<SequenceId>& sequences, const at::Tensor& numbers) {
  const auto drawn = numbers.accessor<double, 3>();
  std::vector<int64_t> tokens;
  for (size_t row = 0; row < sequences.size(); ++row) {
    const SequenceId id = sequences[row];
    Sequence& sequence = sequences_[id];
    tokens.clear();
    for (int64_t step = 0; step < numbers.size(0) && !sequence.finished; ++step) {
      const double log_prob = drawn[step][1][static_cast<int64_t>(row)];
      if (std::isnan(log_prob)) {
        throw_nan(sequence.sample_id, drawn_tokens(id) + std::ssize(tokens));
      }
      tokens.push_back(static_cast<int64_t>(drawn[step][0][static_cast<int64_t>(row)]));
      sequence.log_probs.push_back(log_prob);
      sequence.finished = std::ranges::count(sequence.eos, tokens.back()) > 0;
    }
    scheduler_.append(id, tokens, sequence.finished);
    if (scheduler_.done(id)) finished_.push_back(id);
  }
}

}  // namespace nereus
