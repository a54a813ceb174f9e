#include "nereus/core/workflow/job_parts.h"

#include <string>

#include "nereus/core/base/error.h"

namespace nereus {

namespace {

void refuse(const std::string& message) { throw Error(ErrorCode::kInvalidInput, message); }

bool has(const JobParts& parts, Role role) { return parts.models.contains(role); }

void check_batches(const JobParts& parts) {
  if (parts.prompts < 1) {
    refuse("data.train_batch_size is " + std::to_string(parts.prompts) + "; it must be 1 or more");
  }
  if (parts.samples_per_prompt < 1) {
    refuse("actor_rollout_ref.rollout.n is " + std::to_string(parts.samples_per_prompt) +
           "; it must be 1 or more");
  }
  if (parts.ppo.mini_batch < 1 || parts.ppo.mini_batch > parts.prompts) {
    refuse("ppo_mini_batch_size is " + std::to_string(parts.ppo.mini_batch) +
           " prompts, data.train_batch_size " + std::to_string(parts.prompts) +
           "; a mini-batch is a part of the batch: choose 1 to " + std::to_string(parts.prompts));
  }
  if (parts.ppo.epochs < 1) {
    refuse("ppo_epochs is " + std::to_string(parts.ppo.epochs) + "; it must be 1 or more");
  }
  if (parts.total_steps < 1) {
    refuse("trainer.total_training_steps is " + std::to_string(parts.total_steps) +
           "; it must be 1 or more");
  }
}

// What the algorithm and the KL terms need is there, and nothing that they have no use for.
void check_roles(const JobParts& parts) {
  NEREUS_CHECK(has(parts, Role::kActor), "a job has an actor");
  const bool uses_reference = parts.ppo.use_kl_in_reward || parts.ppo.policy.use_kl_loss;
  if (uses_reference && !has(parts, Role::kReference)) {
    refuse("a KL term (algorithm.use_kl_in_reward or actor.use_kl_loss) needs a reference model");
  }
  const AdvantageEstimator estimator = parts.ppo.advantage.estimator;
  const bool critic = has(parts, Role::kCritic);
  if (algorithm(estimator).critic != critic) {
    refuse("algorithm.adv_estimator " + to_string(estimator) +
           (critic ? " has no use for a critic" : " needs a critic: give critic.model.path"));
  }
}

void check_positions(const JobParts& parts, const std::string& whose, const ModelSpec& model) {
  const int64_t longest = parts.prompt_limit + parts.longest_response;
  if (longest <= model.max_position) return;
  refuse("data.max_prompt_length " + std::to_string(parts.prompt_limit) +
         " + max_response_length " + std::to_string(parts.longest_response) + " = " +
         std::to_string(longest) + " tokens exceed the " + whose +
         "'s max_position_embeddings of " + std::to_string(model.max_position));
}

void check_models(const JobParts& parts) {
  const ModelSpec& actor = parts.models.at(Role::kActor);
  check_positions(parts, "actor", actor);
  if (has(parts, Role::kReward)) {
    const ModelSpec& reward = parts.models.at(Role::kReward);
    if (reward.head != Head::kScalar) {
      refuse(
          "reward_model.model.path holds a language model, which gives no score: a reward model "
          "is a …ForSequenceClassification with num_labels 1");
    }
    check_positions(parts, "reward model", reward);
  }
  for (const auto& [role, model] : parts.models) {
    if (model.vocab_size == actor.vocab_size) continue;
    refuse("the " + to_string(role) + (role == Role::kReward ? " model" : "") +
           " has a vocabulary of " + std::to_string(model.vocab_size) + " tokens, the actor of " +
           std::to_string(actor.vocab_size) + ": they must share one tokenizer");
  }
}

// The update's forward pass computes the old log-probabilities by itself if no weight has changed
// before it and nothing asks for them earlier.
bool needs_old_log_probs(const JobParts& parts) {
  const bool one_update = parts.ppo.epochs == 1 && parts.ppo.mini_batch == parts.prompts;
  return !one_update || parts.ppo.use_kl_in_reward || parts.ppo.always_old_log_probs;
}

}  // namespace

JobSpec make_job_spec(const JobParts& parts) {
  check_batches(parts);
  verify(parts.actor_optimizer);
  verify(parts.critic_optimizer);
  verify(parts.ppo.policy);
  verify(parts.ppo.value);
  check_roles(parts);
  check_models(parts);

  JobSpec job;
  job.workflow = make_workflow(algorithm(parts.ppo.advantage.estimator),
                               {.reference = has(parts, Role::kReference),
                                .reward_model = has(parts, Role::kReward),
                                .old_log_probs = needs_old_log_probs(parts)});
  for (const auto& [role, model] : parts.models) {
    job.models[role] = {role == Role::kCritic ? as_critic(model) : model, parts.dtype};
  }
  const int64_t n = parts.samples_per_prompt;
  job.workload = {.samples = parts.prompts * n,
                  .samples_per_prompt = n,
                  .prompt_tokens = parts.prompt_limit,
                  .response_mean = static_cast<double>(parts.response_limit),
                  .response_limit = parts.response_limit,
                  .mini_batch = parts.ppo.mini_batch * n,
                  .epochs = parts.ppo.epochs};
  job.execution = {.gradient_overlap = parts.on_gpus ? 1.0 : 0.0,
                   .fused_kernels = parts.on_gpus,
                   .recomputes_only_what_is_read = true};
  return job;
}

}  // namespace nereus
