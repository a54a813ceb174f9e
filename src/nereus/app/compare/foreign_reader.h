// Reads a foreign setting key by key, and knows afterwards which keys nobody asked for.
#pragma once

#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "nereus/app/compare/frameworks.h"

namespace nereus {

// Why keys do not matter: those that begin with a pattern, or contain what follows its '*'.
// Patterns are narrow, so that a misspelt key that would matter is unknown rather than ignored.
struct IgnoreRule {
  std::string why;
  std::vector<std::string> patterns;
};

// Every question names a key, which then counts as read. null, and an expression that names no key
// of the setting ("${oc.select:…}"), count as not given; "${a.b}" is the value of a.b. Throws
// Error(kInvalidInput) naming key and value.
class ForeignReader {
 public:
  explicit ForeignReader(ForeignKeys keys) : keys_(std::move(keys)) {}

  std::optional<std::string> text(const std::string& key);
  std::optional<int64_t> number(const std::string& key);  // whole, 1 or more
  int number(const std::string& key, int otherwise);
  bool flag(const std::string& key, bool otherwise);
  // Some key begins so.
  bool has_section(const std::string& prefix) const;
  // Throws if the key is given and not 1.
  void require_one(const std::string& key, const std::string& why);
  // If the key is there, with a note on what was made of it.
  void approximate(const std::string& key, const std::string& note);

  // Sorts what was not read into ignored and unknown, and hands over the approximations.
  void finish(std::span<const IgnoreRule> rules, ForeignSetting& setting) const;

 private:
  // The nearest key of the same section that means something; "": none is near.
  std::string suggestion(const std::string& key) const;

  ForeignKeys keys_;
  std::set<std::string> read_;
  std::vector<KeyNote> approximated_;
};

// translate() of one framework.
ForeignSetting translate_verl(ForeignKeys keys);
ForeignSetting translate_nemo_rl(ForeignKeys keys);
ForeignSetting translate_openrlhf(ForeignKeys keys);

// Why keys do not matter, and what is made of state that a plan holds whole.
inline constexpr const char* kShardedWeights =
    "as ZeRO-1: optimizer state is cut over the ranks, weights and gradients count whole, so "
    "memory "
    "is an upper bound; gathering weights costs nothing";
inline constexpr const char* kNoEffect = "does not change time or memory of a step";
inline constexpr const char* kOfConfig = "the config says what is computed, with which models";
inline constexpr const char* kCacheFits = "the KV cache gets what the predicted batch needs";
inline constexpr const char* kNotModelled = "not modelled";
inline constexpr const char* kOfLauncher = "belongs to the launcher";
inline constexpr const char* kTokenBudget =
    "micro-batches hold as many of the longest sequences as the tokens allow";
inline constexpr const char* kNoContextParallelism =
    "plans do not cut sequences over devices; compare a setting with tensor or pipeline "
    "parallelism instead";
inline constexpr const char* kNoExpertParallelism =
    "plans place experts within tensor-parallel ranks only";

}  // namespace nereus
