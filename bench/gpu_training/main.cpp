// nereus_gpu_training --shape 8b [--tp N] [--dp N] [--update] [--recompute] …: times training
// passes of a Llama shape with random bf16 weights on the GPUs of this machine and prints one line
// of JSON. Without --update forward and backward only; with it also gradient synchronisation,
// clipping and AdamW on fp32 master weights.
#include <ATen/ATen.h>

#include <CLI/CLI.hpp>
#include <iostream>

#include "common/record.h"
#include "gpu_common/state.h"
#include "nereus/engine/stopwatch.h"
#include "nereus/engine/unit_engine.h"
#include "nereus/rl/minibatch.h"

namespace {

using namespace nereus;
using namespace nereus::bench;

struct Arguments {
  std::string shape = "8b";
  int tp = 1, dp = 1;
  bool update = false, recompute = false;
  int64_t sequences = 4, micro_batch = 4, length = 2048;  // per replica
  int repeats = 5;
};

// Sequences of random tokens, of which all but the first are trained on.
Experience random_experience(const ModelSpec& spec, const Arguments& arguments) {
  const at::Tensor tokens =
      at::randint(spec.vocab_size, {arguments.sequences, arguments.length}, at::kLong);
  Experience experience(arguments.sequences);
  for (int64_t i = 0; i < arguments.sequences; ++i) {
    const int64_t* row = tokens.const_data_ptr<int64_t>() + i * arguments.length;
    experience[i].prompt = {row[0]};
    experience[i].response.assign(row + 1, row + arguments.length);
  }
  return experience;
}

// Forward and backward of one rank, gradients in the weights' precision as in a plain PyTorch loop.
class GradientPass {
 public:
  GradientPass(const ModelSpec& spec, const UnitState& state, UnitComms comms)
      : comms_(std::move(comms)),
        weights_(leaves(state)),
        stage_(spec, state.emu().layout, state.rank(), weights_, *comms_.tp) {}

  void run(const std::vector<MicroBatch>& inputs, const PassOptions& pass,
           const LossFunction& loss) {
    run_1f1b(stage_, *comms_.pp, inputs, pass, loss);
    for (auto& [name, weight] : weights_) weight.mutable_grad().reset();
  }

 private:
  static ParameterMap leaves(const UnitState& state) {
    ParameterMap weights = state.weights();
    for (auto& [name, weight] : weights) weight = weight.detach().requires_grad_(true);
    return weights;
  }

  UnitComms comms_;
  ParameterMap weights_;
  DecoderStage stage_;
};

class Training {
 public:
  explicit Training(const Arguments& arguments)
      : arguments_(arguments),
        spec_(shape_named(arguments.shape)),
        stage_{Role::kActor, arguments.update ? Stage::kTraining : Stage::kGeneration},
        plan_(actor_plan(stage_, {arguments.tp, 1}, arguments.dp)),
        state_(spec_, stage_, arguments.tp * arguments.dp),
        communicators_("cuda"),
        experience_(random_experience(spec_, arguments)) {
    state_.fill(plan_);
    auto comms = connect(plan_.stages.front(), communicators_);
    for (const Emu& unit : units_of(plan_.stages.front())) {
      for (const DeviceId device : unit.devices) {
        devices_.push_back(device);
        UnitState& state = state_.store().at(unit, device);
        if (arguments.update) {
          engines_[device] = std::make_unique<UnitEngine>(spec_, state, comms.at(device));
        } else {
          passes_[device] = std::make_unique<GradientPass>(spec_, state, comms.at(device));
        }
      }
    }
  }

  // Seconds of one step.
  double step() {
    const Stopwatch timer;
    state_.workers().run(
        devices_,
        [&](Worker& worker) {
          work(worker);
          worker.synchronise();
        },
        [](const std::string&) {});
    return timer.elapsed().count();
  }

  Json report() {
    step();
    step();
    for (const DeviceId device : devices_) state_.workers().at(device).memory().reset_peak();
    std::vector<double> seconds;
    for (int i = 0; i < arguments_.repeats; ++i) seconds.push_back(step());
    const double median = quantile(seconds, 0.5);
    const auto tokens =
        static_cast<double>(arguments_.sequences * arguments_.length * arguments_.dp);
    const double flops = 6.0 * static_cast<double>(num_parameters(spec_)) * tokens;
    const auto peak = state_.workers().at(devices_.front()).memory().peak();
    return {{"shape", arguments_.shape},
            {"tp", arguments_.tp},
            {"dp", arguments_.dp},
            {"update", arguments_.update},
            {"recompute", arguments_.recompute},
            {"seconds", median},
            {"tokens_per_s", tokens / median},
            {"model_tflops_per_gpu", flops / median / 1e12 / static_cast<double>(devices_.size())},
            {"peak_gib", static_cast<double>(peak.count()) / (1 << 30)}};
  }

 private:
  void work(const Worker& worker) {
    std::vector<int64_t> samples(arguments_.sequences);
    for (int64_t i = 0; i < arguments_.sequences; ++i) samples[i] = i;
    std::vector<MicroBatch> inputs;
    for (const SampleBatch& batch :
         micro_batches(experience_, samples, arguments_.micro_batch, worker.where().device())) {
      inputs.push_back(batch.input);
    }
    const PassOptions pass{.recompute = arguments_.recompute};
    const double share = 1.0 / static_cast<double>(inputs.size());
    const LossFunction loss = [share](const TokenOutputs& outputs, int) {
      return outputs.log_probs.mean().neg().mul(share);
    };
    if (arguments_.update) {
      engines_.at(worker.id())->update(inputs, pass, loss, OptimizerOptions{.lr = 1e-6});
    } else {
      passes_.at(worker.id())->run(inputs, pass, loss);
    }
  }

  Arguments arguments_;
  ModelSpec spec_;
  ModelStage stage_;
  Plan plan_;
  GpuState state_;
  CommunicatorCache communicators_;
  Experience experience_;
  std::vector<DeviceId> devices_;
  std::map<DeviceId, std::unique_ptr<UnitEngine>> engines_;   // if it updates
  std::map<DeviceId, std::unique_ptr<GradientPass>> passes_;  // if it does not
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Training passes on the GPUs of this machine");
  Arguments arguments;
  app.add_option("--shape", arguments.shape, "Llama shape: 1b, 3b, 8b");
  app.add_option("--tp", arguments.tp, "Tensor parallelism");
  app.add_option("--dp", arguments.dp, "Data parallelism");
  app.add_flag("--update", arguments.update, "Full optimizer step");
  app.add_flag("--recompute", arguments.recompute, "Recompute activations");
  app.add_option("--sequences", arguments.sequences, "Per replica and step");
  app.add_option("--micro-batch", arguments.micro_batch, "Sequences in one pass");
  app.add_option("--length", arguments.length, "Tokens of a sequence");
  app.add_option("--repeats", arguments.repeats, "The median is reported");
  CLI11_PARSE(app, argc, argv);
  try {
    std::cout << Training(arguments).report() << "\n";
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 1;
  }
}
