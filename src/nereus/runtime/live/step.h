// One step of a live job: its samples, and the workflow's nodes that turn them into new weights.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "nereus/runtime/bridge/tokenizer.h"
#include "nereus/runtime/live/early_scores.h"
#include "nereus/runtime/live/executor.h"
#include "nereus/runtime/live/options.h"
#include "nereus/runtime/live/prompt_source.h"
#include "nereus/runtime/live/runtime.h"
#include "nereus/runtime/live/transitions.h"
#include "nereus/runtime/rl/kl.h"
#include "nereus/runtime/rl/rewards/reward.h"

namespace nereus {

// What a step has of its job; all of it outlives the step.
struct StepContext {
  const JobSpec& job;
  const LiveOptions& options;
  Runtime& runtime;
  Transitions& transitions;
  const PromptSource& prompts;
  const Tokenizer& tokenizer;
  const Reward* reward = nullptr;  // null: a reward model scores
  KlController& kl;
};

// A transition beside a step's generation, and the plan that is in force after the step.
struct Overlap {
  TransitionDag dag;
  Plan to;
};

// Used by one thread; runs nodes on others.
class Step final {
 public:
  // `experience`: the step's samples, with prompts only. `timer` runs since the step began.
  Step(StepContext context, int number, Experience experience, std::optional<Overlap> overlap,
       Stopwatch timer);

  // Executes all nodes. An error of the last one, the synchronisation of generation's weights, is
  // no error of the step: see late_failure(). Returns early if the transition beside generation
  // failed: moved() says so. When the job is told to stop and some weight has changed already, the
  // rest of the step is done nevertheless. Throws Stopped, or what a node threw; after that only
  // give_up() may be called.
  void run();
  // After an error: waits for a transition that is under way, and takes back what a step that came
  // to nothing must not leave behind. True if no weight has changed: the job is at the boundary
  // before the step.
  bool give_up();

  const Experience& experience() const { return experience_; }
  const std::optional<TransitionReport>& moved() const { return moved_; }
  std::exception_ptr late_failure() const { return late_failure_; }
  // Of a step that has run: one span for each node, and all metrics but those of performance.
  std::vector<Span> spans() const;
  Metrics metrics() const;

 private:
  std::vector<std::vector<DeviceId>> own_devices() const;
  std::vector<std::vector<DeviceId>> busy_devices_of_nodes() const;
  // Optimizer steps of all models so far.
  int64_t updates() const;
  uint64_t trained_version() const;  // of the actor's weights

  PassResult run_node(NodeId node);
  PassResult generate(NodeId node);
  PassResult infer_log_probs(const WorkflowNode& node);
  PassResult score_responses(const WorkflowNode& node);
  // Begins to score the samples that generation delivers, if the reward is a slow one.
  std::unique_ptr<EarlyScores> score_early() const;
  // The scores of the greedy responses, to the samples of the same prompts.
  void hand_out_baselines();
  PassResult estimate_advantages();
  PassResult train(const WorkflowNode& node);
  PassResult synchronise();
  // Waits for the transition beside generation, if there is one.
  void join_transition();

  StepContext context_;
  int number_;
  Experience experience_;
  Experience baselines_;  // one greedy response to each prompt, if the workflow has them
  // Of a slow reward: what it says of responses while others are written.
  std::unique_ptr<EarlyScores> early_, early_of_baselines_;
  std::optional<Overlap> overlap_;
  StopToken stop_;
  double kl_before_;
  int64_t updates_before_;
  uint64_t version_;  // of the weights that generate
  std::vector<std::vector<DeviceId>> devices_;
  Executor executor_;

  bool moving_ = false;                 // the transition has begun and was not waited for
  std::atomic<bool> learning_ = false;  // a weight has changed
  std::optional<TransitionReport> moved_;
  std::exception_ptr late_failure_;
};

}  // namespace nereus
