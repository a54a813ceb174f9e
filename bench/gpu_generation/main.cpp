// nereus_gpu_generation --shape 8b --sequences 64 …: times generation of a Llama shape with random
// bf16 weights on GPU 0 (or, with --tp 2, two) and prints one line of JSON.
#include <ATen/ATen.h>

#include <CLI/CLI.hpp>
#include <iostream>

#include "common/record.h"
#include "gpu_common/state.h"
#include "nereus/cuda/device.h"
#include "nereus/engine/stopwatch.h"
#include "nereus/engine/unit_engine.h"

namespace {

using namespace nereus;
using namespace nereus::bench;

constexpr double kMemoryBandwidth = 4.3e12;  // bytes/s, measured on an H200

struct Arguments {
  std::string shape = "8b";
  int tp = 1;
  int64_t sequences = 64, prompt = 512, new_tokens = 128;
  int repeats = 3;
};

std::vector<GenerationRequest> random_requests(const ModelSpec& spec, const Arguments& arguments) {
  const at::Tensor tokens =
      at::randint(spec.vocab_size, {arguments.sequences, arguments.prompt}, at::kLong);
  std::vector<GenerationRequest> requests(arguments.sequences);
  for (int64_t i = 0; i < arguments.sequences; ++i) {
    const int64_t* row = tokens.const_data_ptr<int64_t>() + i * arguments.prompt;
    requests[i] = {static_cast<uint64_t>(i), {row, row + arguments.prompt}};
  }
  return requests;
}

// Bytes that one decode step has to read: the weights, and keys and values of `length` tokens.
double step_bytes(const ModelSpec& spec, double sequences, double length) {
  const double cache = 2.0 * spec.num_layers * spec.num_kv_heads * spec.head_dim * 2;
  double weights = 2.0 * static_cast<double>(num_parameters(spec));
  if (!spec.tie_word_embeddings) {  // of the embedding only a row per sequence is read
    weights -= 2.0 * static_cast<double>(spec.vocab_size) * spec.hidden_size;
  }
  return weights + sequences * length * cache;
}

Json run(const Arguments& arguments) {
  const ModelSpec spec = shape_named(arguments.shape);
  const ModelStage stage{Role::kActor, Stage::kGeneration};
  const Plan plan = actor_plan(stage, {arguments.tp, 1}, 1);
  GpuState state(spec, stage, arguments.tp);
  state.fill(plan);
  CommunicatorCache communicators(first_gpus(cuda::device_count()));
  auto comms = connect(plan.stages.front(), communicators);
  const Emu unit = units_of(plan.stages.front()).front();
  std::map<DeviceId, std::unique_ptr<UnitEngine>> engines;
  for (const DeviceId device : unit.devices) {
    engines[device] =
        std::make_unique<UnitEngine>(spec, state.store().at(unit, device), comms.at(device));
  }
  const auto requests = random_requests(spec, arguments);
  const auto seconds = [&](int64_t new_tokens) {
    const GenerationOptions options{.max_new_tokens = new_tokens, .ignore_eos = true};
    std::vector<double> samples;
    for (int i = 0; i <= arguments.repeats; ++i) {
      const Stopwatch timer;
      state.workers().run(
          unit.devices,
          [&](Worker& worker) {
            engines.at(worker.id())->generate(requests, options);
            worker.synchronise();
          },
          [](const std::string&) {});
      if (i > 0) samples.push_back(timer.elapsed().count());
    }
    return quantile(samples, 0.5);
  };
  const double first = seconds(1);
  const double all = seconds(arguments.new_tokens);
  const auto sequences = static_cast<double>(arguments.sequences);
  const double per_step = (all - first) / static_cast<double>(arguments.new_tokens - 1);
  const double mean_length = static_cast<double>(arguments.prompt + arguments.new_tokens / 2);
  const double limit = step_bytes(spec, sequences, mean_length) / arguments.tp / kMemoryBandwidth;
  return {{"shape", arguments.shape},
          {"tp", arguments.tp},
          {"sequences", arguments.sequences},
          {"seconds", all},
          {"prefill_s", first},
          {"decode_step_s", per_step},
          {"tokens_per_s", sequences * static_cast<double>(arguments.new_tokens) / all},
          {"decode_tokens_per_s", sequences / per_step},
          {"limit_step_s", limit},
          {"share_of_limit", limit / per_step}};
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Generation on the GPUs of this machine");
  Arguments arguments;
  app.add_option("--shape", arguments.shape, "Llama shape: 1b, 3b, 8b");
  app.add_option("--tp", arguments.tp, "Tensor parallelism");
  app.add_option("--sequences", arguments.sequences, "Generated at once");
  app.add_option("--prompt", arguments.prompt, "Tokens of a prompt");
  app.add_option("--new-tokens", arguments.new_tokens, "Tokens generated for each");
  app.add_option("--repeats", arguments.repeats, "The median is reported");
  CLI11_PARSE(app, argc, argv);
  try {
    std::cout << run(arguments) << "\n";
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 1;
  }
}
