// nereus_gpu_generation --shape 8b --sequences 64 …: times generation of a Llama shape with random
// bf16 weights on GPU 0 (or, with --tp 2, two) and prints one line of JSON.
#include <CLI/CLI.hpp>
#include <iostream>

#include "common/record.h"
#include "gpu_common/generation.h"

namespace {

using namespace nereus;
using namespace nereus::bench;

constexpr double kMemoryBandwidth = 4.3e12;  // bytes/s, measured on an H200

// Bytes that one decode step has to read: the weights, and keys and values of `length` tokens.
double step_bytes(const ModelSpec& spec, double sequences, double length) {
  const double cache = 2.0 * spec.num_layers * spec.num_kv_heads * spec.head_dim * 2;
  double weights = 2.0 * static_cast<double>(num_parameters(spec));
  if (!spec.tie_word_embeddings) {  // of the embedding only a row per sequence is read
    weights -= 2.0 * static_cast<double>(spec.vocab_size) * spec.hidden_size;
  }
  return weights + sequences * length * cache;
}

Json run(const GenerationCase& parameters, int64_t new_tokens, int repeats) {
  Generation generation(parameters);
  const auto seconds = [&](int64_t tokens) {
    generation.seconds(tokens);  // warms up
    std::vector<double> samples;
    for (int i = 0; i < repeats; ++i) samples.push_back(generation.seconds(tokens));
    return quantile(samples, 0.5);
  };
  const double first = seconds(1);
  const double all = seconds(new_tokens);
  const auto sequences = static_cast<double>(parameters.sequences);
  const double per_step = (all - first) / static_cast<double>(new_tokens - 1);
  const double mean_length = static_cast<double>(parameters.prompt + new_tokens / 2);
  const double limit = step_bytes(shape_named(parameters.shape), sequences, mean_length) /
                       parameters.tp / kMemoryBandwidth;
  return {{"shape", parameters.shape},
          {"tp", parameters.tp},
          {"sequences", parameters.sequences},
          {"seconds", all},
          {"prefill_s", first},
          {"decode_step_s", per_step},
          {"tokens_per_s", sequences * static_cast<double>(new_tokens) / all},
          {"decode_tokens_per_s", sequences / per_step},
          {"limit_step_s", limit},
          {"share_of_limit", limit / per_step}};
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
  app.add_option("--new-tokens", new_tokens, "Tokens generated for each");
  app.add_option("--repeats", repeats, "The median is reported");
  CLI11_PARSE(app, argc, argv);
  try {
    std::cout << run(parameters, new_tokens, repeats) << "\n";
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 1;
  }
}
