#include "nereus/core/plan/model_stage.h"

#include <span>
#include <utility>
#include <vector>

#include "nereus/core/base/text.h"

namespace nereus {

namespace {

template <class Word>
using Words = std::span<const std::pair<Word, const char*>>;

constexpr std::pair<Role, const char*> kRoles[] = {{Role::kActor, "actor"},
                                                   {Role::kCritic, "critic"},
                                                   {Role::kReference, "reference"},
                                                   {Role::kReward, "reward"}};
constexpr std::pair<Stage, const char*> kStages[] = {{Stage::kGeneration, "generation"},
                                                     {Stage::kInference, "inference"},
                                                     {Stage::kTraining, "training"}};

template <class Word>
std::string word_for(Words<Word> words, Word value) {
  for (const auto& [word, text] : words) {
    if (word == value) return text;
  }
  return "unknown";
}

template <class Word>
Word parse_word(Words<Word> words, const std::string& text, const std::string& what) {
  std::vector<std::string> legal;
  for (const auto& [word, name] : words) {
    if (name == text) return word;
    legal.push_back(name);
  }
  throw Error(ErrorCode::kInvalidInput,
              "unknown " + what + " " + shown(text) + "; legal: " + join(legal, ", "));
}

}  // namespace

std::string to_string(Role role) { return word_for<Role>(kRoles, role); }
std::string to_string(Stage stage) { return word_for<Stage>(kStages, stage); }

std::string to_string(ModelStage model_stage) {
  return to_string(model_stage.role) + "/" + to_string(model_stage.stage);
}

Role parse_role(const std::string& text) { return parse_word<Role>(kRoles, text, "role"); }
Stage parse_stage(const std::string& text) { return parse_word<Stage>(kStages, text, "stage"); }

}  // namespace nereus
