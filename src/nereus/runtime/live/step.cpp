#include "nereus/runtime/live/step.h"

#include <algorithm>
#include <utility>

#include "nereus/core/base/log.h"
#include "nereus/runtime/live/metrics.h"
#include "nereus/runtime/live/passes.h"
#include "nereus/runtime/live/rewarding.h"
#include "nereus/runtime/live/updates.h"
#include "nereus/runtime/rl/advantage.h"

namespace nereus {

namespace {

// Ends a step whose transition failed: what its nodes need is gone.
struct TransitionFailed {};

// One sample for each group, with its prompt.
Experience one_to_each_prompt(const Experience& experience) {
  Experience firsts;
  for (const Sample& sample : experience) {
    if (!firsts.empty() && firsts.back().group == sample.group) continue;
    firsts.push_back({.id = sample.id,
                      .prompt_index = sample.prompt_index,
                      .group = sample.group,
                      .prompt = sample.prompt});
  }
  return firsts;
}

std::vector<double> Sample::* member_of(Field field) {
  NEREUS_CHECK(field == Field::kOldLogProbs || field == Field::kRefLogProbs,
               to_string(field) + " are no log-probabilities");
  return field == Field::kOldLogProbs ? &Sample::old_log_probs : &Sample::ref_log_probs;
}

}  // namespace

Step::Step(StepContext context, int number, Experience experience, std::optional<Overlap> overlap,
           Stopwatch timer)
    : context_(context),
      number_(number),
      experience_(std::move(experience)),
      overlap_(std::move(overlap)),
      stop_(context.options.stop),
      kl_before_(context.kl.coefficient()),
      updates_before_(updates()),
      version_(trained_version()),
      devices_(own_devices()),
      executor_(context.job.workflow, busy_devices_of_nodes(), timer) {}

// Generation runs in the plan before a transition beside it, the synchronisation in the one after
// the step, everything else in what the transition ends in.
std::vector<std::vector<DeviceId>> Step::own_devices() const {
  const auto plan_of = [this](Pass pass) -> const Plan& {
    if (!overlap_ || pass == Pass::kGenerate) return context_.runtime.plan();
    return pass == Pass::kSyncWeights ? overlap_->to : overlap_->dag.to;
  };
  std::vector<std::vector<DeviceId>> devices;
  for (const WorkflowNode& node : context_.job.workflow.nodes) {
    devices.push_back(busy_devices(node, plan_of(node.pass)));
  }
  return devices;
}

// When the units of a transition are put in force, and those of generation are made anew, nothing
// else may run.
std::vector<std::vector<DeviceId>> Step::busy_devices_of_nodes() const {
  std::vector<std::vector<DeviceId>> busy = devices_;
  if (!overlap_) return busy;
  const std::vector<DeviceId> all = all_devices(context_.options.cluster).devices();
  for (const NodeId node : node_ids(context_.job.workflow)) {
    const Pass pass = context_.job.workflow.at(node).pass;
    if (pass == Pass::kGenerate || pass == Pass::kSyncWeights) busy[index(node)] = all;
  }
  return busy;
}

int64_t Step::updates() const {
  int64_t sum = 0;
  for (const ModelStage model_stage : trained_stages(context_.job.workflow)) {
    sum += context_.runtime.updates(model_stage);
  }
  return sum;
}

uint64_t Step::trained_version() const { return context_.runtime.version(kActorTraining); }

void Step::run() {
  if (overlap_) context_.transitions.start(overlap_->dag);
  moving_ = overlap_.has_value();
  while (true) {
    try {
      executor_.run([this](NodeId node) { return run_node(node); });
      return;
    } catch (const TransitionFailed&) {
      return;
    } catch (const Stopped&) {
      // What has begun to change weights is brought to its end.
      if (updates() == updates_before_ || !stop_.requested()) throw;
      stop_ = StopToken();
      context_.runtime.restart(trained_stages(context_.job.workflow));
    }
  }
}

bool Step::give_up() {
  if (std::exchange(moving_, false)) moved_ = context_.transitions.join();
  context_.kl.restore(kl_before_);
  return updates() == updates_before_ && !(moved_ && moved_->failure);
}

std::vector<Span> Step::spans() const {
  std::vector<Span> spans = executor_.spans(number_);
  for (Span& span : spans) span.devices = devices_[index(span.node)];
  verify_spans(spans, context_.job.workflow);
  return spans;
}

Metrics Step::metrics() const {
  Metrics metrics = executor_.metrics();
  add_log_prob_metrics(experience_, metrics);
  return metrics;
}

PassResult Step::run_node(NodeId id) {
  const WorkflowNode& node = context_.job.workflow.at(id);
  switch (node.pass) {
    case Pass::kGenerate:
      return generate(id);
    case Pass::kLogProbs:
      return infer_log_probs(node);
    case Pass::kValues:
      return infer_values(context_.runtime, experience_, stop_);
    case Pass::kReward:
    case Pass::kScores:
      return score_responses(node);
    case Pass::kAdvantage:
      return estimate_advantages();
    case Pass::kTrain:
      return train(node);
    case Pass::kSyncWeights:
      return synchronise();
  }
  NEREUS_CHECK(false, "a node without a pass");
}

PassResult Step::generate(NodeId id) {
  const LiveOptions& options = context_.options;
  const Workflow& workflow = context_.job.workflow;
  const bool is_baseline = is_of_baselines(workflow.at(id));
  if (is_baseline) baselines_ = one_to_each_prompt(experience_);
  Experience& samples = is_baseline ? baselines_ : experience_;
  GenerationOptions generation{.sampling = options.sampling,
                               .max_new_tokens = options.response_length.at(number_),
                               .eos_token_ids = context_.job.model(Role::kActor).eos_token_ids,
                               .ignore_eos = options.ignore_eos,
                               .stop = stop_};
  generation.sampling.seed = options.seed;
  if (is_baseline) generation.sampling.greedy = true;
  std::unique_ptr<EarlyScores>& early = is_baseline ? early_of_baselines_ : early_;
  early = score_early();
  const auto written = [&](size_t index) { early->add(index, samples[index]); };
  PassResult result = generate_responses(context_.runtime, samples, version_, generation,
                                         early ? written : std::function<void(size_t)>());
  for (const Sample& sample : samples) result.tokens += std::ssize(sample.response);
  // Passes after it wait for all devices to have ended generation.
  const auto is_later = [&](NodeId other) {
    return other > id && workflow.at(other).pass == Pass::kGenerate;
  };
  if (std::ranges::none_of(node_ids(workflow), is_later)) join_transition();
  return result;
}

std::unique_ptr<EarlyScores> Step::score_early() const {
  if (context_.reward == nullptr || !context_.reward->is_slow()) return nullptr;
  return std::make_unique<EarlyScores>(*context_.reward, context_.tokenizer, context_.prompts);
}

void Step::join_transition() {
  if (!overlap_) return;
  moving_ = false;
  moved_ = context_.transitions.join();
  if (moved_->failure) throw TransitionFailed();
}

PassResult Step::infer_log_probs(const WorkflowNode& node) {
  return nereus::infer_log_probs(
      context_.runtime, node.runs_on, experience_, member_of(*node.writes.begin()),
      {.temperature = context_.options.sampling.temperature, .stop = stop_});
}

PassResult Step::score_responses(const WorkflowNode& node) {
  const LiveOptions& options = context_.options;
  if (is_of_baselines(node)) {
    LiveOptions unrecorded = options;  // the rollouts kept on disk are the samples'
    unrecorded.rollout_directory.clear();
    const PassResult scored =
        score(context_.runtime, baselines_, number_, context_.reward, context_.tokenizer,
              context_.prompts, unrecorded, early_of_baselines_.get());
    PassResult result{.by_class = scored.by_class};
    for (const auto& [name, value] : scored.metrics) result.metrics["baseline/" + name] = value;
    return result;
  }
  PassResult result = score(context_.runtime, experience_, number_, context_.reward,
                            context_.tokenizer, context_.prompts, options, early_.get());
  if (!options.exclude_unscored) {
    for (Sample& sample : experience_) sample.scored = true;
  }
  if (std::ranges::none_of(experience_, &Sample::scored)) {
    log::warn("step " + std::to_string(number_ + 1) +
              ": no response could be scored, so nothing is learnt from it");
  }
  return result;
}

// A sample whose baseline could not be scored teaches nothing.
void Step::hand_out_baselines() {
  std::map<int64_t, const Sample*> by_group;
  for (const Sample& baseline : baselines_) by_group[baseline.group] = &baseline;
  for (Sample& sample : experience_) {
    const Sample& baseline = *by_group.at(sample.group);
    sample.baseline = baseline.score;
    if (!baseline.scored && context_.options.exclude_unscored) sample.scored = false;
  }
}

PassResult Step::estimate_advantages() {
  const Stopwatch timer;
  const PpoOptions& ppo = context_.options.ppo;
  PassResult result;
  if (!baselines_.empty()) {
    hand_out_baselines();
    double sum = 0;
    for (const Sample& baseline : baselines_) sum += baseline.score;
    result.metrics["critic/baseline/mean"] = sum / static_cast<double>(baselines_.size());
  }
  if (ppo.use_kl_in_reward) {
    const double coefficient = context_.kl.coefficient();
    const double kl = apply_kl_penalty(experience_, coefficient, ppo.kl_penalty);
    result.metrics["actor/reward_kl_penalty"] = kl;
    result.metrics["actor/reward_kl_penalty_coeff"] = coefficient;
    context_.kl.update(kl, std::ranges::count_if(experience_, &Sample::scored));
  } else {
    for (Sample& sample : experience_) sample.rewards = sample.token_scores;
  }
  nereus::estimate_advantages(experience_, ppo.advantage);
  if (context_.options.models.contains(Role::kCritic))
    add_value_metrics(experience_, result.metrics);
  add_batch_metrics(experience_, context_.options.response_length.at(number_), result.metrics);
  if (context_.options.on_experience) context_.options.on_experience(experience_);
  result.by_class[OpClass::kHost] = timer.elapsed();
  return result;
}

PassResult Step::train(const WorkflowNode& node) {
  PassResult result =
      update_model(context_.runtime, node.runs_on.role, experience_, number_, context_.options,
                   node.writes.contains(Field::kOldLogProbs), learning_ ? StopToken() : stop_);
  if (!result.idle) learning_ = true;
  return result;
}

// From here on the state is that of the boundary after the step, whatever happens.
PassResult Step::synchronise() {
  const Stopwatch timer;
  try {
    if (overlap_) {
      context_.runtime.remake_generation(overlap_->to);
    } else {
      context_.runtime.synchronise_generation();
    }
  } catch (const std::exception&) {
    late_failure_ = std::current_exception();
  }
  return {.by_class = {{OpClass::kTransfer, timer.elapsed()}}};
}

}  // namespace nereus
