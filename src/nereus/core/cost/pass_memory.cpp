#include "nereus/core/cost/pass_memory.h"

#include <algorithm>

#include "nereus/core/workflow/capabilities.h"
#include "nereus/core/workflow/response_lengths.h"

namespace nereus {
namespace {

// What autograd keeps of one token in one block, counted in our decoder: input and output of two
// RMSNorms; rotated q and k, v, what attention gives and its copy for o_proj; and of SwiGLU gate,
// up, silu(gate) and their product. Fused attention needs no copy, fused SwiGLU no silu(gate).
constexpr double kHiddenCopies = 4;  // cut along the sequence, if at all
constexpr double kQueryCopies = 3;
constexpr double kKeyValueCopies = 2;
constexpr double kFeedForwardCopies = 4;
constexpr double kFusedSavings = 1;  // of the query's and of SwiGLU's copies
// The head's input: hidden states of response tokens, normalised, and their gradient.
constexpr double kHeadCopies = 3;
// Logits, the same less the largest of them, exponentials, and the product of these two. Fused: the
// logits, in the weights' precision, which their gradient overwrites.
constexpr double kLogProbLogits = 4;
constexpr double kFusedLogProbLogits = 1;
// Logits exist in chunks of rows with at most so many elements (nn's LogProbOptions).
constexpr double kLogProbChunk = double(kLogitChunk);
// Of a rank and of all ranks; then sampling that is not fused is in double precision: logits,
// log-probabilities and probabilities.
constexpr double kGenerationLogits = 2;
constexpr double kSamplingBytes = 3 * 8;

// What is kept for backward.
double kept_elements(const TokenWidths& width, const Execution& execution) {
  const double saved = execution.fused_kernels ? kFusedSavings : 0;
  return kHiddenCopies * width.sequence + (kQueryCopies - saved) * width.query +
         kKeyValueCopies * width.key_value + (kFeedForwardCopies - saved) * width.ffn;
}

// Without autograd a block's tensors die as soon as they are used: the larger half counts.
double workspace_elements(const TokenWidths& width) {
  return 3 * width.sequence +
         std::max(kQueryCopies * width.query + kKeyValueCopies * width.key_value, 3 * width.ffn);
}

double logit_columns(const ModelSpec& spec, int tp) {
  return spec.head == Head::kScalar ? 1 : double(largest_share(spec.vocab_size, tp));
}

// Log-probabilities, gradients and optimizer state are in at least single precision.
double single_size(DType weights) { return std::max<double>(4, double(size_of(weights).count())); }

int64_t longest(const Workload& workload) {
  return workload.prompt_tokens + workload.response_limit;
}

// One rank of a unit: what all the formulas start from.
struct RankShape {
  RankShape(const StagePlan& stage, const JobSpec& job, int index)
      : model(job.models.at(stage.model_stage.role)),
        rank(rank_at(stage.layout, index)),
        last(rank.pp == stage.layout.pp - 1),
        size(double(size_of(model.weights).count())),
        logit_size(single_size(model.weights)),
        width(token_widths(model.spec, stage.layout.tp, job.execution)),
        columns(logit_columns(model.spec, stage.layout.tp)),
        fused(job.execution.fused_kernels) {
    const LayerRange layers = stage_layers(model.spec.num_layers, stage.layout.pp, rank.pp);
    blocks = layers.end - layers.begin;
  }
  const ModelUse& model;
  Rank rank;
  bool last = false;
  double size = 0;
  double logit_size = 0;
  TokenWidths width;
  double columns = 0;  // of the head here
  bool fused = false;
  double blocks = 0;
};

// For the log-probabilities of so many tokens.
double log_prob_bytes(double tokens, const RankShape& shape) {
  const double elements = std::min(tokens * shape.columns, kLogProbChunk);
  return elements *
         (shape.fused ? kFusedLogProbLogits * shape.size : kLogProbLogits * shape.logit_size);
}

class Components {
 public:
  void add(const char* component, double bytes) {
    if (bytes < 1) return;
    sum_ += bytes;
    list_.push_back({component, Bytes(static_cast<int64_t>(bytes))});
  }
  double sum() const { return sum_; }
  std::vector<NamedBytes> take() { return std::move(list_); }

 private:
  double sum_ = 0;
  std::vector<NamedBytes> list_;
};

std::vector<NamedBytes> training_transient(const StagePlan& stage, const JobSpec& job, int index,
                                           int64_t weights) {
  const RankShape shape(stage, job, index);
  const Layout layout = stage.layout;
  const MicroBatches batches = micro_batches(job.workload.mini_batch, stage);
  const double tokens = double(batches.size * longest(job.workload));
  // 1F1B: an early stage holds a micro-batch until its gradient comes back.
  const double alive = double(std::min<int64_t>(layout.pp - shape.rank.pp, batches.count));

  Components components;
  // One flat buffer, there during the training pass only, in the precision of the master copy.
  components.add("gradients", double(weights) * shape.logit_size);
  const double full = kept_elements(shape.width, job.execution);
  // What goes to the next stage stays until its gradient has come.
  const double boundary = shape.last ? 0 : (alive + 1) * shape.width.sequence;
  const double kept =
      alive * shape.blocks * (stage.recompute ? shape.width.sequence : full) + boundary;
  const double responses = shape.last ? double(batches.size * job.workload.response_limit) : 0;
  const double head_input = responses * kHeadCopies * shape.width.sequence * shape.size;
  // Beside the logits there is the gradient of the head's weights, before it joins the others.
  const double head_gradient =
      shape.last ? shape.columns * double(shape.model.spec.hidden_size) * shape.size : 0;
  const double logits = log_prob_bytes(responses, shape) + head_gradient;
  // Backward works on one block at a time, with its gradients and its recomputed tensors. By then
  // the logits are gone, so only what exceeds them adds to the peak.
  const double block = tokens * (workspace_elements(shape.width) + (stage.recompute ? full : 0));
  const double working = std::max(0.0, block * shape.size - logits);
  components.add("activations", tokens * kept * shape.size + head_input + working);
  components.add("logits", logits);
  return components.take();
}

std::vector<NamedBytes> inference_transient(const StagePlan& stage, const JobSpec& job, int index) {
  const RankShape shape(stage, job, index);
  const MicroBatches batches = micro_batches(job.workload.samples, stage);
  const double responses = shape.last ? double(batches.size * job.workload.response_limit) : 0;
  const double logits = log_prob_bytes(responses, shape);
  const double block =
      double(batches.size * longest(job.workload)) * workspace_elements(shape.width) * shape.size;
  Components components;
  components.add("activations", block - logits);  // gone before there are logits
  components.add("logits", logits);
  return components.take();
}

std::vector<NamedBytes> generation_transient(const StagePlan& stage, const JobSpec& job, int index,
                                             int64_t weights) {
  const RankShape shape(stage, job, index);
  const ModelSpec& spec = shape.model.spec;
  const double sequences =
      double(ceil_div(ceil_div(job.workload.samples, stage.dp()), stage.waves));
  // Ours has whole blocks for the limit of each sequence, and one block more.
  const double limits =
      double(ceil_div(longest(job.workload), kCacheBlockTokens) * kCacheBlockTokens);
  const double cached = job.execution.paged_cache ? most_cached_tokens(job.workload, sequences)
                                                  : sequences * limits + kCacheBlockTokens;
  Components components;
  components.add("kv_cache", cached * 2 * shape.blocks * shape.width.key_value * shape.size);
  // Every rank samples from the whole vocabulary.
  const double bytes_each = shape.fused ? kGenerationLogits * shape.size
                                        : kGenerationLogits * shape.logit_size + kSamplingBytes;
  const double logits = shape.last ? sequences * logit_columns(spec, 1) * bytes_each : 0;
  const double prompts =
      std::min(sequences * double(job.workload.prompt_tokens), double(kPromptTokensAtOnce));
  components.add("activations", prompts * workspace_elements(shape.width) * shape.size - logits);
  components.add("logits", logits);
  // Weights arrive in chunks of about one block before there is a cache, so only what exceeds the
  // rest adds to the peak.
  const double chunk = double(weights) / std::max(1.0, shape.blocks) * shape.size;
  components.add("staging", chunk - components.sum());
  return components.take();
}

double sum(const std::vector<NamedBytes>& components) {
  double bytes = 0;
  for (const NamedBytes& each : components) bytes += double(each.bytes.count());
  return bytes;
}

// Old log-probabilities and values run on training units too, with micro-batches out of the whole
// batch: where those are larger than an optimizer step's share, they may need more.
std::vector<NamedBytes> trained_unit_transient(const StagePlan& stage, const JobSpec& job,
                                               int index, int64_t weights) {
  std::vector<NamedBytes> training = training_transient(stage, job, index, weights);
  std::vector<NamedBytes> inference = inference_transient(stage, job, index);
  return sum(inference) > sum(training) ? inference : training;
}

}  // namespace

std::vector<NamedBytes> transient(const StagePlan& stage, const JobSpec& job, int index,
                                  int64_t weights) {
  switch (stage.model_stage.stage) {
    case Stage::kGeneration:
      return generation_transient(stage, job, index, weights);
    case Stage::kInference:
      return inference_transient(stage, job, index);
    case Stage::kTraining:
      break;
  }
  return trained_unit_transient(stage, job, index, weights);
}

}  // namespace nereus
