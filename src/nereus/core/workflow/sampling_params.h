// How generation chooses tokens.
#pragma once

#include <cstdint>
#include <vector>

namespace nereus {

struct SamplingParams {
  double temperature = 1;  // > 0; of a greedy choice's log-probability too, where 0 counts as 1
  int64_t top_k = -1;      // -1: off
  double top_p = 1;        // 1: off
  bool greedy = false;
  uint64_t seed = 0;
  // Ids that are never drawn, as verl has it: rows of the vocabulary that are no token. Like top-k
  // and top-p they change what is drawn, not the log-probabilities, which stay those that training
  // computes; top-k and top-p choose among the others.
  std::vector<int64_t> banned_ids;
};

}  // namespace nereus
