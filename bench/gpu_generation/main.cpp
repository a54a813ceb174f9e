// nereus_gpu_generation --shape 8b --sequences 64 …: times generation of a Llama shape with random
// bf16 weights on GPU 0 (or, with --tp 2, two) and prints one line of JSON.
#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>
#include <numeric>

#include "common/record.h"
#include "gpu_common/generation.h"
#include "nereus/core/batching/scheduler.h"

namespace {

using namespace nereus;
using namespace nereus::bench;

constexpr double kMemoryBandwidth = 4.3e12;  // bytes/s, measured on an H200

constexpr double kFlops = 788e12;  // of bf16 products, measured on an H200

// What one decode step has to read: the weights, and keys and values of all cached tokens.
class StepBytes {
 public:
  explicit StepBytes(const ModelSpec& spec)
      : weights_(2.0 * static_cast<double>(num_parameters(spec))),
        token_(2.0 * spec.num_layers * spec.num_kv_heads * spec.head_dim * 2) {
    if (!spec.tie_word_embeddings) {  // of the embedding only a row per sequence is read
      weights_ -= 2.0 * static_cast<double>(spec.vocab_size) * spec.hidden_size;
    }
  }
  double of(double cached_tokens) const { return weights_ + cached_tokens * token_; }

 private:
  double weights_, token_;
};

// The time below which no order of work can come: prompts at the speed of products, each step of a
// batch that is as full as may be at the speed of memory.
double bound(const GenerationCase& parameters, int64_t new_tokens) {
  const ModelSpec spec = shape_named(parameters.shape);
  const StepBytes bytes(spec);
  Scheduler scheduler(
      {.blocks = int64_t{1} << 24,
       .block_tokens = 16,
       .max_sequences = parameters.at_once > 0 ? parameters.at_once : parameters.sequences,
       .max_batched_tokens = int64_t{1} << 40});
  for (int64_t i = 0; i < parameters.sequences; ++i) {
    scheduler.submit(std::vector<int64_t>(parameters.prompt, i / parameters.responses),
                     parameters.limits.empty() ? new_tokens : parameters.limits.at(i));
  }
  double prompt_tokens = 0, read = 0;
  while (!scheduler.done()) {
    const BatchStep step = scheduler.schedule(1);
    double cached = 0;
    for (const PromptChunk& chunk : step.prompts) prompt_tokens += static_cast<double>(chunk.count);
    for (const SequenceId id : step.decodes)
      cached += static_cast<double>(scheduler.tokens(id).size());
    if (!step.decodes.empty()) read += bytes.of(cached);
    const std::vector<int64_t> token = {0};
    for (const PromptChunk& chunk : step.prompts) scheduler.append(chunk.sequence, token, false);
    for (const Fork& fork : step.forks) scheduler.append(fork.sequence, token, false);
    for (const SequenceId id : step.decodes) scheduler.append(id, token, false);
  }
  const double products = 2.0 * static_cast<double>(num_parameters(spec)) * prompt_tokens;
  return (products / kFlops + read / kMemoryBandwidth) / parameters.tp;
}

double median_seconds(Generation& generation, int64_t tokens, int repeats) {
  generation.warm_up();
  std::vector<double> samples;
  for (int i = 0; i < repeats; ++i) samples.push_back(generation.seconds(tokens));
  return quantile(samples, 0.5);
}

Json run(const GenerationCase& parameters, int64_t new_tokens, int repeats) {
  Generation generation(parameters);
  const double all = median_seconds(generation, new_tokens, repeats);
  const double least = bound(parameters, new_tokens);
  int64_t tokens = parameters.sequences * new_tokens;
  if (!parameters.limits.empty()) {
    tokens = std::accumulate(parameters.limits.begin(), parameters.limits.end(), int64_t{0});
  }
  Json result = {{"shape", parameters.shape},
                 {"tp", parameters.tp},
                 {"sequences", parameters.sequences},
                 {"responses_per_prompt", parameters.responses},
                 {"seconds", all},
                 {"tokens_per_s", static_cast<double>(tokens) / all},
                 {"bound_s", least},
                 {"share_of_bound", least / all}};
  if (!parameters.limits.empty()) return result;
  const double first = median_seconds(generation, 1, repeats);
  const double per_step = (all - first) / static_cast<double>(new_tokens - 1);
  const auto sequences = static_cast<double>(parameters.sequences);
  const double mean_length = static_cast<double>(parameters.prompt + new_tokens / 2);
  const double limit = StepBytes(shape_named(parameters.shape)).of(sequences * mean_length) /
                       parameters.tp / kMemoryBandwidth;
  result["prefill_s"] = first;
  result["decode_step_s"] = per_step;
  result["decode_tokens_per_s"] = sequences / per_step;
  result["limit_step_s"] = limit;
  result["share_of_limit"] = limit / per_step;
  return result;
}

std::vector<int64_t> read_limits(const std::string& file) {
  std::ifstream stream(file);
  return Json::parse(stream).get<std::vector<int64_t>>();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Generation on the GPUs of this machine");
  GenerationCase parameters;
  int64_t new_tokens = 128;
  int repeats = 3;
  app.add_option("--shape", parameters.shape, "Llama shape: 1b, 3b, 8b");
  app.add_option("--tp", parameters.tp, "Tensor parallelism");
  app.add_option("--sequences", parameters.sequences, "Generated at once");
  app.add_option("--prompt", parameters.prompt, "Tokens of a prompt");
  app.add_option("--responses", parameters.responses, "Sequences that share a prompt");
  app.add_option("--at-once", parameters.at_once, "Sequences in the batch at most");
  app.add_option("--new-tokens", new_tokens, "Tokens generated for each");
  std::string limits;
  app.add_option("--limits", limits, "JSON list of the tokens generated for each, instead");
  app.add_option("--repeats", repeats, "The median is reported");
  CLI11_PARSE(app, argc, argv);
  try {
    if (!limits.empty()) parameters.limits = read_limits(limits);
    if (!limits.empty()) parameters.sequences = std::ssize(parameters.limits);
    std::cout << run(parameters, new_tokens, repeats) << "\n";
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 1;
  }
}
