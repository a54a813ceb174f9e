#include "nereus/core/workflow/algorithm.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "nereus/core/base/error.h"
#include "nereus/core/base/text.h"

namespace nereus {

namespace {

constexpr Algorithm kAlgorithms[] = {
    {.estimator = AdvantageEstimator::kGae, .name = "gae", .critic = true},
    {.estimator = AdvantageEstimator::kGrpo, .name = "grpo"},
    {.estimator = AdvantageEstimator::kRloo, .name = "rloo"},
    {.estimator = AdvantageEstimator::kReinforcePlusPlus, .name = "reinforce_plus_plus"},
    {.estimator = AdvantageEstimator::kReinforcePlusPlusBaseline,
     .name = "reinforce_plus_plus_baseline"},
    {.estimator = AdvantageEstimator::kRemax, .name = "remax", .greedy_baseline = true},
};

class WorkflowBuilder final {
 public:
  explicit WorkflowBuilder(const char* algorithm) { workflow_.algorithm = algorithm; }

  NodeId add(WorkflowNode node, const std::vector<NodeId>& after) {
    const auto id = static_cast<NodeId>(workflow_.nodes.size());
    workflow_.nodes.push_back(std::move(node));
    for (const NodeId before : after) workflow_.edges.push_back({before, id});
    return id;
  }
  void next_step(NodeId from, NodeId to) { workflow_.edges.push_back({from, to, /*lag=*/1}); }
  Workflow done() && { return std::move(workflow_); }

 private:
  Workflow workflow_;
};

}  // namespace

std::span<const Algorithm> algorithms() { return kAlgorithms; }

const Algorithm& algorithm(AdvantageEstimator estimator) {
  const auto* found = std::ranges::find(kAlgorithms, estimator, &Algorithm::estimator);
  NEREUS_CHECK(found != std::end(kAlgorithms), "an estimator without a row");
  return *found;
}

std::string to_string(AdvantageEstimator estimator) { return algorithm(estimator).name; }

AdvantageEstimator parse_advantage_estimator(const std::string& name) {
  std::vector<std::string> legal;
  for (const Algorithm& row : kAlgorithms) {
    if (name == row.name) return row.estimator;
    legal.emplace_back(row.name);
  }
  throw Error(ErrorCode::kInvalidInput,
              "unknown advantage estimator \"" + name + "\": must be " + join(legal, ", "));
}

Workflow make_workflow(const Algorithm& algorithm, const WorkflowChoice& choice) {
  WorkflowBuilder builder(algorithm.name);
  const std::set<Field> responses = {Field::kResponses};
  const NodeId gen = builder.add({"gen", Pass::kGenerate, kActorGeneration, {}, responses}, {});
  const std::set<Field> baselines = {Field::kBaselines};
  std::optional<NodeId> gen_max;
  if (algorithm.greedy_baseline) {
    gen_max = builder.add({"gen_max", Pass::kGenerate, kActorGeneration, {}, baselines}, {});
  }
  std::vector<NodeId> experience;
  std::set<Field> known = responses;
  const auto pass = [&](const char* name, Pass pass, ModelStage runs_on, Field field) {
    experience.push_back(builder.add({name, pass, runs_on, responses, {field}}, {gen}));
    known.insert(field);
    return experience.back();
  };
  std::vector<NodeId> uses_actor, uses_critic;
  if (choice.old_log_probs) {
    uses_actor.push_back(
        pass("old_log_prob", Pass::kLogProbs, kActorTraining, Field::kOldLogProbs));
  }
  if (choice.reference) pass("ref", Pass::kLogProbs, kReferenceInference, Field::kRefLogProbs);
  if (algorithm.critic) {
    uses_critic.push_back(pass("values", Pass::kValues, kCriticTraining, Field::kValues));
  }
  const Pass scoring = choice.reward_model ? Pass::kScores : Pass::kReward;
  const ModelStage scorer = choice.reward_model ? kRewardInference : ModelStage{};
  pass("reward", scoring, scorer, Field::kScores);
  if (gen_max) {
    known.insert(Field::kBaselineScores);
    experience.push_back(builder.add(
        {"reward_max", scoring, scorer, baselines, {Field::kBaselineScores}}, {*gen_max}));
  }
  const NodeId adv =
      builder.add({"adv", Pass::kAdvantage, {}, known, {Field::kAdvantages}}, experience);
  if (algorithm.critic) {
    const std::set<Field> reads = {Field::kResponses, Field::kValues, Field::kAdvantages};
    const NodeId update =
        builder.add({"update_critic", Pass::kTrain, kCriticTraining, reads, {}}, {adv});
    for (const NodeId node : uses_critic) builder.next_step(update, node);
  }
  std::set<Field> reads = {Field::kResponses, Field::kAdvantages};
  if (choice.old_log_probs) reads.insert(Field::kOldLogProbs);
  if (choice.reference) reads.insert(Field::kRefLogProbs);
  const std::set<Field> writes =
      choice.old_log_probs ? std::set<Field>() : std::set<Field>{Field::kOldLogProbs};
  const NodeId update =
      builder.add({"update_actor", Pass::kTrain, kActorTraining, reads, writes}, {adv});
  for (const NodeId node : uses_actor) builder.next_step(update, node);
  const NodeId sync =
      builder.add({"update_weights", Pass::kSyncWeights, kActorGeneration, {}, {}}, {update});
  builder.next_step(sync, gen);
  if (gen_max) builder.next_step(sync, *gen_max);
  Workflow workflow = std::move(builder).done();
  verify(workflow);
  return workflow;
}

Workflow ppo_workflow(bool with_reference, bool with_reward_model) {
  return make_workflow(algorithm(AdvantageEstimator::kGae),
                       {.reference = with_reference, .reward_model = with_reward_model});
}

}  // namespace nereus
