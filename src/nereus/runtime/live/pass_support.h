// What the passes over a model-stage have in common: which samples a unit works on, and what is
// done when memory runs out.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nereus/core/base/error.h"
#include "nereus/core/base/log.h"
#include "nereus/runtime/live/micro_batches.h"
#include "nereus/runtime/live/runtime.h"

namespace nereus {

// The part of `items` that replica `unit` of `dp` works on: contiguous, balanced.
std::vector<int64_t> share_of(const std::vector<int64_t>& items, int unit, int dp);
// The indices of all samples.
std::vector<int64_t> everything(const Experience& experience);

// Whether a pass gives an output per response token, or one per sample, at its last token.
enum class Outputs { kPerToken, kPerSample };
std::vector<MicroBatch> inputs_of(const std::vector<SampleBatch>& batches,
                                  Outputs outputs = Outputs::kPerToken);

// Runs a pass, and again after each time that it ran out of memory, as long as make_room() can say
// what will be smaller.
template <class Pass, class MakeRoom>
auto within_memory(ModelStage model_stage, const Pass& pass, const MakeRoom& make_room) {
  while (true) {
    try {
      return pass();
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kOutOfMemory) throw;
      const std::optional<std::string> smaller = make_room();
      if (!smaller) throw;
      log::warn(to_string(model_stage) + ": " + error.what() + "; going on with " + *smaller);
    }
  }
}

// With smaller and smaller micro-batches: they change no result, only the order in which sums are
// added.
template <class Pass>
auto with_micro_batches_that_fit(Runtime& runtime, ModelStage model_stage, const Pass& pass) {
  const int64_t updates = runtime.updates(model_stage);
  return within_memory(model_stage, pass, [&]() -> std::optional<std::string> {
    if (!runtime.halve_micro_batch(model_stage, updates)) return std::nullopt;
    return "micro-batches of " + std::to_string(at(runtime.plan(), model_stage).micro_batch);
  });
}

}  // namespace nereus
