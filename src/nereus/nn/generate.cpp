#include "nereus/nn/generate.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <numeric>

#include "nereus/base/error.h"

namespace nereus {

namespace {

// When fewer rows than this share of the batch still run, the others leave the cache.
constexpr double kCompactBelow = 0.75;

class Generation {
 public:
  Generation(const DecoderStage& stage, Communicator& tp, Communicator& pp,
             const std::vector<GenerationRequest>& requests, const GenerationOptions& options)
      : stage_(stage), tp_(tp), pp_(pp), requests_(requests), options_(options) {
    results_.resize(requests.size());
    rows_.resize(requests.size());
    std::iota(rows_.begin(), rows_.end(), 0);
    for (const GenerationRequest& request : requests) {
      NEREUS_CHECK(!request.prompt.empty(), "the prompt of a sample is empty");
      prompt_lengths_.push_back(std::ssize(request.prompt));
    }
  }

  std::vector<GenerationResult> run() {
    if (requests_.empty() || options_.max_new_tokens == 0) return std::move(results_);
    cache_ = make_kv_cache(stage_.spec(), stage_.layout(), stage_.rank(), prompt_lengths_,
                           options_.max_new_tokens, stage_.options());
    std::vector<int64_t> last;  // flat index of each row's last real token
    last.reserve(prompt_lengths_.size());
    const int64_t longest = std::ranges::max(prompt_lengths_);
    for (size_t row = 0; row < prompt_lengths_.size(); ++row) {
      last.push_back(static_cast<int64_t>(row) * longest + prompt_lengths_[row] - 1);
    }
    const at::Tensor hidden = through_blocks(padded_prompts(longest));
    accept(next_tokens(hidden.flatten(0, 1).index_select(0, on_device(last))));
    while (step_ < options_.max_new_tokens && running() > 0) {
      compact();
      accept(next_tokens(through_blocks(latest_tokens()).flatten(0, 1)));
    }
    return std::move(results_);
  }

 private:
  at::Tensor on_device(const std::vector<int64_t>& numbers) const {
    return at::tensor(numbers, at::kLong).to(stage_.options().device());
  }

  at::Tensor padded_prompts(int64_t longest) const {
    at::Tensor tokens = at::zeros({std::ssize(requests_), longest}, at::kLong);
    for (size_t row = 0; row < requests_.size(); ++row) {
      std::ranges::copy(requests_[row].prompt, tokens.data_ptr<int64_t>() + row * longest);
    }
    return tokens.to(stage_.options().device());
  }

  at::Tensor latest_tokens() const {
    std::vector<int64_t> tokens;
    tokens.reserve(rows_.size());
    for (const int64_t row : rows_) tokens.push_back(results_[row].tokens.back());
    return on_device(tokens).unsqueeze(1);
  }

  // tokens [b, T] → hidden states behind this stage, which the next stage has got.
  at::Tensor through_blocks(const at::Tensor& tokens) {
    at::Tensor hidden;
    if (stage_.is_first()) {
      hidden = stage_.embed(tokens);
    } else {
      hidden =
          at::empty({tokens.size(0), tokens.size(1), stage_.spec().hidden_size}, stage_.options());
      pp_.recv(hidden, pp_.rank() - 1);
    }
    hidden = stage_.blocks_cached(hidden, cache_);
    if (!stage_.is_last()) pp_.send(hidden, pp_.rank() + 1);
    return hidden;
  }

  // hidden [b, h] of the last stage → a token and its log-probability per row, on every rank.
  at::Tensor next_tokens(const at::Tensor& hidden) {
    at::Tensor drawn = at::empty({2, std::ssize(rows_)}, at::kDouble);  // exact for token ids
    if (stage_.is_last()) {
      std::vector<uint64_t> ids;
      ids.reserve(rows_.size());
      for (const int64_t row : rows_) ids.push_back(requests_[row].sample_id);
      const std::vector<int64_t> positions(rows_.size(), step_);
      const Drawn next =
          draw(tp_.all_gather(stage_.logits(hidden), 1), ids, positions, options_.sampling);
      std::ranges::copy(next.tokens, drawn[0].data_ptr<double>());
      std::ranges::copy(next.log_probs, drawn[1].data_ptr<double>());
    }
    pp_.broadcast(drawn, pp_.size() - 1);
    return drawn;
  }

  void accept(const at::Tensor& drawn) {
    const auto numbers = drawn.accessor<double, 2>();
    for (size_t i = 0; i < rows_.size(); ++i) {
      GenerationResult& result = results_[rows_[i]];
      if (result.finished) {
        continue;  // it has not left the batch yet
      }
      const auto token = static_cast<int64_t>(numbers[0][i]);
      result.tokens.push_back(token);
      result.log_probs.push_back(numbers[1][i]);
      result.finished =
          !options_.ignore_eos && std::ranges::count(options_.eos_token_ids, token) > 0;
    }
    ++step_;
  }

  int64_t running() const {
    return std::ranges::count_if(rows_, [&](int64_t row) { return !results_[row].finished; });
  }

  void compact() {
    if (static_cast<double>(running()) >= kCompactBelow * std::ssize(rows_)) return;
    std::vector<int64_t> kept;  // indices into the cache's rows
    std::vector<int64_t> rows;
    for (size_t i = 0; i < rows_.size(); ++i) {
      if (results_[rows_[i]].finished) continue;
      kept.push_back(static_cast<int64_t>(i));
      rows.push_back(rows_[i]);
    }
    keep_rows(cache_, kept);
    rows_ = std::move(rows);
  }

  const DecoderStage& stage_;
  Communicator& tp_;
  Communicator& pp_;
  const std::vector<GenerationRequest>& requests_;
  const GenerationOptions& options_;
  std::vector<GenerationResult> results_;
  std::vector<int64_t> prompt_lengths_;
  std::vector<int64_t> rows_;  // request of each row of the cache
  KvCache cache_;
  int64_t step_ = 0;
};

}  // namespace

std::vector<GenerationResult> generate(const DecoderStage& stage, Communicator& tp,
                                       Communicator& pp,
                                       const std::vector<GenerationRequest>& requests,
                                       const GenerationOptions& options) {
  const c10::InferenceMode inference;
  return Generation(stage, tp, pp, requests, options).run();
}

}  // namespace nereus
