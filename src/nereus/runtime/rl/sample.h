// One logical sample of an RL step. All maths of this room is defined on these, never on ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace nereus {

// Vectors over the response have one entry per generated token (EOS included): lengths are the
// mask.
struct Sample {
  uint64_t id = 0;           // over the whole run: all responses are counted
  int64_t prompt_index = 0;  // row of the prompt file
  int64_t group = 0;         // row of the batch: only responses to the same row are compared
  std::vector<int64_t> prompt;
  std::vector<int64_t> response;
  bool finished = false;  // ended by EOS
  std::vector<double> rollout_log_probs;
  std::vector<double> old_log_probs;
  std::vector<double> ref_log_probs;  // empty without a reference
  std::vector<double> values;
  bool scored = true;                // false: its reward could not be had, nothing follows from it
  double score = 0;                  // sum of the reward function's output
  double baseline = 0;               // ReMax: the score of the greedy response to the prompt
  std::vector<double> token_scores;  // reward function's output per token
  std::vector<double> rewards;       // token_scores - coef · KL
  std::vector<double> advantages;
  std::vector<double> returns;
};
using Experience = std::vector<Sample>;

}  // namespace nereus
