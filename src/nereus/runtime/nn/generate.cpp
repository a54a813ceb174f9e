#include "nereus/runtime/nn/generate.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "nereus/runtime/nn/kv_cache.h"

namespace nereus {

namespace {

// When fewer rows than this share of the batch still run, the others leave the cache.
constexpr double kCompactBelow = 0.75;
// Steps on an accelerator between two looks of the host at what was drawn.
constexpr int64_t kStepsUnseen = 16;

class Generation {
 public:
  Generation(const DecoderStage& stage, Communicator& tp, Communicator& pp,
             const std::vector<GenerationRequest>& requests, const GenerationOptions& options,
             cuda::Graph& graph)
      : stage_(stage),
        tp_(tp),
        pp_(pp),
        requests_(requests),
        options_(options),
        graph_(graph),
        device_(stage.options().device()),
        prompts_(pack_prompts(requests, device_)),
        cache_(stage, prompts_, options.max_new_tokens),
        interval_(device_.is_cpu() ? 1 : kStepsUnseen) {
    results_.resize(requests.size());
    std::vector<int64_t> rows(requests.size());
    std::iota(rows.begin(), rows.end(), 0);
    take_rows(std::move(rows));
  }

  ~Generation() { graph_.clear(); }
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  std::vector<GenerationResult> run() {
    options_.stop.check();
    draw_next(prompt_logits());
    while (step_ < options_.max_new_tokens && !rows_.empty()) {
      options_.stop.check();
      decode();
      draw_next(logits_);
    }
    return std::move(results_);
  }

 private:
  static Packing pack_prompts(const std::vector<GenerationRequest>& requests, at::Device device) {
    std::vector<int64_t> lengths;
    for (const GenerationRequest& request : requests) lengths.push_back(std::ssize(request.prompt));
    return pack(std::move(lengths), device);
  }

  at::Tensor on_device(const std::vector<int64_t>& numbers) const {
    return at::tensor(numbers, at::kLong).to(device_);
  }

  // Requests of the cache's rows from now on.
  void take_rows(std::vector<int64_t> rows) {
    rows_ = std::move(rows);
    std::vector<uint64_t> ids;
    for (const int64_t row : rows_) ids.push_back(requests_[row].sample_id);
    sampler_.emplace(options_.sampling, std::move(ids), device_);
    unseen_ = at::empty({interval_, 2, std::ssize(rows_)}, at::device(device_).dtype(at::kDouble));
  }

  // tokens [n] → hidden states behind this stage, which the next stage has got.
  at::Tensor through_blocks(const at::Tensor& tokens) {
    at::Tensor hidden;
    if (stage_.is_first()) {
      hidden = stage_.embed(tokens);
    } else {
      hidden = at::empty({tokens.size(0), stage_.spec().hidden_size}, stage_.options());
      pp_.recv(hidden, pp_.rank() - 1);
    }
    hidden = stage_.blocks(
        hidden, [&](int block, const at::Tensor& qkv) { return cache_.attend(block, qkv); });
    cache_.advance();
    if (!stage_.is_last()) pp_.send(hidden, pp_.rank() + 1);
    return hidden;
  }

  // hidden [rows, h] → [rows, vocab] on the last stage.
  at::Tensor all_logits(const at::Tensor& hidden) {
    return stage_.is_last() ? tp_.all_gather(stage_.logits(hidden), 1) : at::Tensor();
  }

  at::Tensor prompt_logits() {
    std::vector<int64_t> tokens, last;  // last: where each prompt ends
    for (const GenerationRequest& request : requests_) {
      tokens.insert(tokens.end(), request.prompt.begin(), request.prompt.end());
      last.push_back(std::ssize(tokens) - 1);
    }
    return all_logits(through_blocks(on_device(tokens)).index_select(0, on_device(last)));
  }

  // One step; its logits are in logits_. The first one after the batch has changed prepares for the
  // second one, which is recorded for all that follow.
  void decode() {
    const auto work = [&] { logits_ = all_logits(through_blocks(drawn_[0].to(at::kLong))); };
    const bool recordable = cache_.repeats() && pp_.size() == 1 && tp_.is_recordable();
    if (!recordable || !prepared_) {
      work();
      prepared_ = true;
      return;
    }
    if (!graph_.recorded()) graph_.record(work);
    graph_.replay();
    tp_.barrier();  // the graph may hold collectives, which all ranks must have launched
  }

  // The next token of each row, on all ranks.
  void draw_next(const at::Tensor& logits) {
    if (!drawn_.defined()) drawn_ = at::empty_like(unseen_[0]);
    if (stage_.is_last()) sampler_->draw(logits, step_, drawn_);
    pp_.broadcast(drawn_, pp_.size() - 1);
    unseen_[step_ - seen_].copy_(drawn_);
    ++step_;
    if (step_ - seen_ == interval_ || step_ == options_.max_new_tokens) look();
  }

  void look() {
    const at::Tensor drawn = unseen_.narrow(0, 0, step_ - seen_).to(at::kCPU);
    const auto numbers = drawn.accessor<double, 3>();
    for (int64_t step = 0; step < drawn.size(0); ++step) {
      for (size_t i = 0; i < rows_.size(); ++i)
        accept(rows_[i], numbers[step][0][i], numbers[step][1][i]);
    }
    seen_ = step_;
    compact();
  }

  void accept(int64_t row, double token, double log_prob) {
    GenerationResult& result = results_[row];
    if (result.finished) return;  // it has not left the batch yet
    if (std::isnan(log_prob)) throw_nan(requests_[row].sample_id, std::ssize(result.tokens));
    result.tokens.push_back(static_cast<int64_t>(token));
    result.log_probs.push_back(log_prob);
    result.finished = !options_.ignore_eos &&
                      std::ranges::count(options_.eos_token_ids, result.tokens.back()) > 0;
  }

  void compact() {
    std::vector<int64_t> kept;  // indices into the cache's rows
    std::vector<int64_t> rows;
    for (size_t i = 0; i < rows_.size(); ++i) {
      if (results_[rows_[i]].finished) continue;
      kept.push_back(static_cast<int64_t>(i));
      rows.push_back(rows_[i]);
    }
    if (std::ssize(rows) >= kCompactBelow * std::ssize(rows_)) return;
    graph_.clear();
    prepared_ = false;
    if (!rows.empty()) {
      cache_.keep_rows(kept);
      drawn_ = drawn_.index_select(1, on_device(kept));
    }
    take_rows(std::move(rows));
  }

  const DecoderStage& stage_;
  Communicator& tp_;
  Communicator& pp_;
  const std::vector<GenerationRequest>& requests_;
  const GenerationOptions& options_;
  cuda::Graph& graph_;
  at::Device device_;
  Packing prompts_;
  KvCache cache_;
  int64_t interval_;  // steps between looks
  std::vector<GenerationResult> results_;
  std::vector<int64_t> rows_;  // request of each row of the cache
  std::optional<Sampler> sampler_;
  at::Tensor logits_;
  at::Tensor drawn_;   // [2, rows] fp64, exact for token ids: tokens, log-probabilities
  at::Tensor unseen_;  // [interval, 2, rows]: what was drawn since the last look
  int64_t step_ = 0, seen_ = 0;
  bool prepared_ = false;
};

}  // namespace

std::vector<GenerationResult> generate(const DecoderStage& stage, Communicator& tp,
                                       Communicator& pp,
                                       const std::vector<GenerationRequest>& requests,
                                       const GenerationOptions& options, cuda::Graph& graph) {
  if (requests.empty() || options.max_new_tokens == 0) {
    return std::vector<GenerationResult>(requests.size());
  }
  const c10::InferenceMode inference;
  return Generation(stage, tp, pp, requests, options, graph).run();
}

}  // namespace nereus
