#include "nereus/runtime/generation/generate.h"

#include <algorithm>

#include "nereus/core/workflow/capabilities.h"
#include "nereus/runtime/generation/generation_engine.h"

namespace nereus {

namespace {

EngineOptions engine_options(const std::vector<GenerationRequest>& requests,
                             const GenerationOptions& options) {
  EngineOptions result{.scheduler = {.block_tokens = kCacheBlockTokens,
                                     .max_sequences = options.max_sequences,
                                     .max_batched_tokens = kPromptTokensAtOnce},
                       .sampling = options.sampling};
  SchedulerOptions& scheduler = result.scheduler;
  if (scheduler.max_sequences == 0) scheduler.max_sequences = std::ssize(requests);
  int64_t largest = 0;
  for (const GenerationRequest& request : requests) {
    const int64_t length = std::ssize(request.prompt) + request.max_new_tokens;
    // Keys and values of the last token are never needed.
    const int64_t blocks = (length - 1 + kCacheBlockTokens - 1) / kCacheBlockTokens;
    scheduler.blocks += blocks;
    largest = std::max(largest, blocks);
    result.longest = std::max(result.longest, length);
  }
  const int64_t parts = options.cache_parts;
  scheduler.blocks = std::max(largest, (scheduler.blocks + parts - 1) / parts);
  return result;
}

}  // namespace

std::vector<GenerationResult> generate(const DecoderStage& stage, Communicator& tp,
                                       Communicator& pp,
                                       const std::vector<GenerationRequest>& requests,
                                       const GenerationOptions& options, cuda::Graph& graph) {
  if (requests.empty() || options.max_new_tokens == 0) {
    return std::vector<GenerationResult>(requests.size());
  }
  std::vector<GenerationRequest> limited = requests;
  for (GenerationRequest& request : limited) {
    if (request.max_new_tokens == 0) request.max_new_tokens = options.max_new_tokens;
  }
  GenerationEngine engine(stage, tp, pp, engine_options(limited, options), graph);
  for (const GenerationRequest& request : limited) {
    engine.submit(request, options.ignore_eos ? std::vector<int64_t>() : options.eos_token_ids);
  }
  std::vector<GenerationResult> results(requests.size());
  bool more = true;
  while (more) {
    options.stop.check();
    more = engine.step();
    for (const SequenceId id : engine.take_finished()) {
      results[id] = engine.result(id);
      if (options.on_finished) options.on_finished(static_cast<size_t>(id), results[id]);
    }
  }
  return results;
}

}  // namespace nereus
