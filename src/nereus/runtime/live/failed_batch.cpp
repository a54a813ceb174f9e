#include "nereus/runtime/live/failed_batch.h"

#include "nereus/core/base/json.h"
#include "nereus/runtime/files/files.h"

namespace nereus {

std::filesystem::path write_failed_batch(const std::filesystem::path& directory, int step,
                                         const Experience& experience) {
  Json samples = Json::array();
  for (const Sample& sample : experience) {
    samples.push_back({{"id", sample.id},
                       {"prompt_index", sample.prompt_index},
                       {"prompt", sample.prompt},
                       {"response", sample.response},
                       {"old_log_probs", sample.old_log_probs},
                       {"values", sample.values},
                       {"token_scores", sample.token_scores},
                       {"advantages", sample.advantages},
                       {"returns", sample.returns}});
  }
  const auto file = directory / ("failed_step_" + std::to_string(step + 1) + ".json");
  write_text(file, samples.dump());
  return file;
}

}  // namespace nereus
