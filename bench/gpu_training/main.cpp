// nereus_gpu_training --shape 8b [--tp N] [--dp N] [--update] [--recompute] …: times training
// passes of a Llama shape with random bf16 weights on the GPUs of this machine and prints one line
// of JSON. Without --update forward and backward only; with it also gradient synchronisation,
// clipping and AdamW on fp32 master weights. --memory runs many cases once instead and compares
// their peak memory with what is predicted.
#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <CLI/CLI.hpp>
#include <iostream>

#include "gpu_common/training.h"
#include "nereus/runtime/cuda/device.h"

namespace {

using namespace nereus;
using namespace nereus::bench;

// Shapes, layouts, lengths, micro-batches, with and without recomputation.
std::vector<TrainingCase> memory_cases() {
  std::vector<TrainingCase> cases;
  const int gpus = cuda::device_count();
  for (const bool recompute : {false, true}) {
    for (const int64_t length : {512, 1024, 2048}) {
      const int64_t micro_batch = 4096 / length;
      cases.push_back({"1b", 1, 1, true, recompute, 2 * micro_batch, micro_batch, length, 1});
      cases.push_back({"3b", 1, 1, true, recompute, micro_batch, micro_batch, length, 1});
      if (gpus < 2) continue;
      cases.push_back({"3b", 2, 1, true, recompute, 2 * micro_batch, micro_batch, length, 1});
      cases.push_back({"8b", 2, 1, true, recompute, micro_batch, micro_batch, length, 1});
    }
  }
  return cases;
}

Json measure_memory() {
  Json rows = Json::array();
  Bytes left;  // every thread that there was leaves a workspace of cuBLAS behind
  for (const TrainingCase& parameters : memory_cases()) {
    rows.push_back(Training(parameters).report(left));
    c10::getDeviceAllocator(at::kCUDA)->emptyCache();
    left = memory_now().allocated;
  }
  return {{"memory", rows}};
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Training passes on the GPUs of this machine");
  TrainingCase parameters;
  bool memory = false;
  app.add_option("--shape", parameters.shape, "Llama shape: 1b, 3b, 8b");
  app.add_option("--tp", parameters.tp, "Tensor parallelism");
  app.add_option("--dp", parameters.dp, "Data parallelism");
  app.add_flag("--update", parameters.update, "Full optimizer step");
  app.add_flag("--recompute", parameters.recompute, "Recompute activations");
  app.add_option("--sequences", parameters.sequences, "Per replica and step");
  app.add_option("--micro-batch", parameters.micro_batch, "Sequences in one pass");
  app.add_option("--length", parameters.length, "Tokens of a sequence");
  app.add_option("--repeats", parameters.repeats, "The median is reported");
  app.add_flag("--memory", memory, "Peak memory of many cases beside its prediction");
  CLI11_PARSE(app, argc, argv);
  try {
    std::cout << (memory ? measure_memory() : Training(parameters).report()) << "\n";
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 1;
  }
}
