// nereus_scheduling --sequences 256 1024: what the scheduler of continuous batching takes of a step
// in which every sequence gets one token, beside the shortest such step that was measured on a GPU
// (1.5 ms: 64 sequences of a 1B model on an H200, bench/results/h200x1/generation_vllm.json); and
// what a step takes in which all of them are admitted. Prints a line of JSON for each size. CPU
// time of one thread, medians.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <ctime>
#include <iostream>
#include <vector>

#include "nereus/core/base/json.h"
#include "nereus/core/batching/scheduler.h"

namespace {

using namespace nereus;

constexpr int64_t kPrompt = 512, kNew = 512;
constexpr double kShortestStep = 1.5e-3;

double cpu_seconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double median(std::vector<double> numbers) {
  std::ranges::sort(numbers);
  return numbers.at(numbers.size() / 2);
}

Json measure(int64_t sequences, int64_t responses) {
  Scheduler scheduler({.blocks = sequences * (kPrompt + kNew) / 16,
                       .block_tokens = 16,
                       .max_sequences = sequences,
                       .max_batched_tokens = int64_t{1} << 40});
  for (int64_t i = 0; i < sequences; ++i) {
    std::vector<int64_t> prompt(kPrompt);
    for (int64_t t = 0; t < kPrompt; ++t) prompt[t] = (i / responses) * 31 + t * 7;
    scheduler.submit(std::move(prompt), kNew);
  }
  const double start = cpu_seconds();
  const BatchStep first = scheduler.schedule(1);
  const double admission = cpu_seconds() - start;
  const std::vector<int64_t> token = {5};
  for (SequenceId id = 0; id < sequences; ++id) scheduler.append(id, token, false);
  std::vector<double> steps;
  while (!scheduler.done()) {
    const double before = cpu_seconds();
    const BatchStep step = scheduler.schedule(1);
    for (const SequenceId id : step.decodes) scheduler.append(id, token, false);
    steps.push_back(cpu_seconds() - before);
  }
  return {{"sequences", sequences},
          {"responses_per_prompt", responses},
          {"admission_s", admission},
          {"prompts_computed", first.prompts.size()},
          {"step_s", median(steps)},
          {"longest_step_s", std::ranges::max(steps)},
          {"share_of_shortest_gpu_step", median(steps) / kShortestStep}};
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("The scheduler of continuous batching by itself");
  std::vector<int64_t> sizes = {256, 1024};
  app.add_option("--sequences", sizes, "In the batch at once");
  CLI11_PARSE(app, argc, argv);
  for (const int64_t sequences : sizes) {
    for (const int64_t responses : {1, 8}) std::cout << measure(sequences, responses) << std::endl;
  }
}
