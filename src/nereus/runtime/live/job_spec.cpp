#include "nereus/runtime/data/hf_model.h"
#include "nereus/runtime/live/options.h"

namespace nereus {

namespace {

void refuse(const std::string& message) { throw Error(ErrorCode::kInvalidInput, message); }

void check_batches(const LiveOptions& options) {
  const int64_t batch = options.data.train_batch_size;
  if (batch < 1)
    refuse("data.train_batch_size is " + std::to_string(batch) + "; it must be 1 or more");
  if (options.data.samples_per_prompt < 1) {
    refuse("actor_rollout_ref.rollout.n is " + std::to_string(options.data.samples_per_prompt) +
           "; it must be 1 or more");
  }
  if (options.ppo.mini_batch < 1 || options.ppo.mini_batch > batch) {
    refuse("ppo_mini_batch_size is " + std::to_string(options.ppo.mini_batch) +
           " prompts, data.train_batch_size " + std::to_string(batch) +
           "; a mini-batch is a part of the batch: choose 1 to " + std::to_string(batch));
  }
  if (options.ppo.epochs < 1) {
    refuse("ppo_epochs is " + std::to_string(options.ppo.epochs) + "; it must be 1 or more");
  }
  if (options.total_steps < 1) {
    refuse("trainer.total_training_steps is " + std::to_string(options.total_steps) +
           "; it must be 1 or more");
  }
}

void check_positions(const LiveOptions& options, const std::string& whose, const ModelSpec& model) {
  const int64_t longest = options.data.max_prompt_length + options.response_length.longest();
  if (longest > model.max_position) {
    refuse("data.max_prompt_length " + std::to_string(options.data.max_prompt_length) +
           " + max_response_length " + std::to_string(options.response_length.longest()) + " = " +
           std::to_string(longest) + " tokens exceed the " + whose +
           "'s max_position_embeddings of " + std::to_string(model.max_position));
  }
}

ModelSpec reward_model_spec(const LiveOptions& options) {
  const std::filesystem::path& path = options.reward_model->path;
  ModelSpec spec = read_model_spec(path);
  if (spec.head != Head::kScalar) {
    refuse("reward_model.model.path " + path.string() +
           " holds a language model, which gives no score: a reward model is a "
           "…ForSequenceClassification with num_labels 1");
  }
  check_positions(options, "reward model", spec);
  return spec;
}

// The update's forward pass computes the old log-probabilities by itself if no weight has changed
// before it and nothing asks for them earlier.
bool needs_old_log_probs(const LiveOptions& options) {
  const PpoOptions& ppo = options.ppo;
  const bool one_update = ppo.epochs == 1 && ppo.mini_batch == options.data.train_batch_size;
  return !one_update || ppo.use_kl_in_reward || ppo.always_old_log_probs;
}

void check_vocabularies(const JobSpec& job) {
  const int64_t tokens = job.model(Role::kActor).vocab_size;
  for (const auto& [role, model] : job.models) {
    if (model.spec.vocab_size == tokens) continue;
    refuse("the " + to_string(role) + (role == Role::kReward ? " model" : "") +
           " has a vocabulary of " + std::to_string(model.spec.vocab_size) +
           " tokens, the actor of " + std::to_string(tokens) + ": they must share one tokenizer");
  }
}

}  // namespace

JobSpec job_spec(const LiveOptions& options, int step) {
  check_batches(options);
  verify(options.actor_optimizer);
  verify(options.critic_optimizer);
  verify(options.ppo.policy);
  const bool uses_reference = options.ppo.use_kl_in_reward || options.ppo.policy.use_kl_loss;
  if (uses_reference && !options.reference) {
    refuse("a KL term (algorithm.use_kl_in_reward or actor.use_kl_loss) needs a reference model");
  }
  const AdvantageEstimator estimator = options.ppo.advantage.estimator;
  if (algorithm(estimator).critic != options.critic.has_value()) {
    refuse(
        "algorithm.adv_estimator " + to_string(estimator) +
        (options.critic ? " has no use for a critic" : " needs a critic: give critic.model.path"));
  }

  JobSpec job;
  const bool with_reference = options.reference.has_value();
  const bool with_reward_model = options.reward_model.has_value();
  job.workflow =
      make_workflow(algorithm(estimator), {.reference = with_reference,
                                           .reward_model = with_reward_model,
                                           .old_log_probs = needs_old_log_probs(options)});
  const ModelSpec actor = read_model_spec(options.actor.path);
  check_positions(options, "actor", actor);
  job.models[Role::kActor] = {actor, options.dtype};
  if (options.critic) {
    job.models[Role::kCritic] = {as_critic(read_model_spec(options.critic->path)), options.dtype};
  }
  if (with_reference) {
    job.models[Role::kReference] = {read_model_spec(options.reference->path), options.dtype};
  }
  if (with_reward_model) {
    job.models[Role::kReward] = {reward_model_spec(options), options.dtype};
  }
  check_vocabularies(job);

  const int64_t n = options.data.samples_per_prompt;
  job.workload = {.samples = options.data.train_batch_size * n,
                  .samples_per_prompt = n,
                  .prompt_tokens = options.data.max_prompt_length,
                  .response_mean = static_cast<double>(options.response_length.at(step)),
                  .response_limit = options.response_length.at(step),
                  .mini_batch = options.ppo.mini_batch * n,
                  .epochs = options.ppo.epochs};
  const bool on_gpus = !options.backend.is_cpu();
  job.execution = {.gradient_overlap = on_gpus ? 1.0 : 0.0,
                   .fused_kernels = on_gpus,
                   .recomputes_only_what_is_read = true};
  return job;
}

}  // namespace nereus
