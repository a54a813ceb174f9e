#include "nereus/runtime/live/live_job.h"

#include <algorithm>
#include <set>

#include "nereus/core/base/log.h"
#include "nereus/core/workflow/capabilities.h"
#include "nereus/runtime/data/hf_model.h"
#include "nereus/runtime/engine/stopwatch.h"
#include "nereus/runtime/live/failed_batch.h"
#include "nereus/runtime/live/initial_state.h"
#include "nereus/runtime/live/metrics.h"
#include "nereus/runtime/live/prompt_source.h"
#include "nereus/runtime/live/rewarding.h"
#include "nereus/runtime/live/saved_state.h"
#include "nereus/runtime/live/step.h"
#include "nereus/runtime/live/transitions.h"
#include "nereus/runtime/live/validation.h"

namespace nereus {

namespace {

std::string kl_type(const PpoOptions& ppo) { return ppo.adaptive_kl ? "adaptive" : "fixed"; }

}  // namespace

class LiveJob::Impl {
 public:
  Impl(LiveOptions options, Plan plan)
      : options_(std::move(options)),
        job_(job_spec(options_, 0)),
        tokenizer_(Tokenizer::open(options_.data.tokenizer)),
        prompts_(options_.data, *tokenizer_, job_.model(Role::kActor).vocab_size, options_.seed),
        reward_(options_.models.contains(Role::kReward) ? nullptr : open_reward(options_)),
        kl_(options_.ppo.kl_coef, options_.ppo.target_kl,
            options_.ppo.adaptive_kl ? options_.ppo.kl_horizon : 0),
        runtime_(options_.cluster, options_.backend, job_.models),
        transitions_(runtime_, options_) {
    options_.sampling.banned_ids = options_.validation.sampling.banned_ids =
        tokenizer_->missing_ids(job_.model(Role::kActor).vocab_size);
    if (!options_.validation.file.empty()) {
      validation_.emplace(options_, prompts_.longest(), job_.model(Role::kActor).vocab_size,
                          *tokenizer_, reward_.get());
    }
    verify(plan, all_devices(options_.cluster), job_);
    verify_runnable(plan, job_);
    load_models(runtime_, plan, options_);
    runtime_.adopt(std::move(plan));
    runtime_.synchronise_generation();
  }

  StepReport run_step();
  TransitionReport apply(const TransitionDag& dag);
  void overlap(TransitionDag dag, Plan to);
  TransitionReport recover(const Plan& to);
  void save(const std::filesystem::path& root, const Json& extra, int keep) const;
  Json resume(const Checkpoint& checkpoint);
  void resume_data(const Json& state, const std::string& where);
  void export_model(const std::filesystem::path& directory) const;
  std::map<std::string, uint64_t> state_hashes() const;

  const LiveOptions& options() const { return options_; }
  const Plan& plan() const { return runtime_.plan(); }
  int step() const { return step_; }
  int64_t dropped_prompts() const {
    return prompts_.dropped() + (validation_ ? validation_->prompts().dropped() : 0);
  }
  Metrics validate_at_start();
  bool intact() const { return intact_; }
  bool done() const { return step_ >= options_.total_steps && !failure_; }

 private:
  StepContext step_context() {
    return {job_, options_, runtime_, transitions_, prompts_, *tokenizer_, reward_.get(), kl_};
  }
  std::string keep_batch(const Experience& experience) const;
  StepReport finish_step(const Step& step, const Plan& expected, const Stopwatch& timer);
  uint64_t trained_version() const { return runtime_.version(kActorTraining); }
  // What validation says after the last step; nothing if none is due, or if it is told to stop. An
  // error is kept for the next call.
  Metrics validate_if_due();
  // Of a step that came to nothing, because the transition beside it failed or the job is to stop.
  StepReport came_to_nothing(std::optional<TransitionReport> transition, Seconds took) const;
  StepReport make_report(const Step& step, int number, Seconds took) const;
  // The devices that are there for a step: those supplied, without those that died.
  DevicePool devices_at(int step) const;
  // The first unit of a model-stage: any replica speaks for all.
  Emu first_unit(ModelStage model_stage) const {
    return units_of(nereus::at(runtime_.plan(), model_stage)).front();
  }

  LiveOptions options_;
  JobSpec job_;
  std::unique_ptr<Tokenizer> tokenizer_;
  PromptSource prompts_;
  std::unique_ptr<Reward> reward_;  // null with a reward model
  KlController kl_;
  Runtime runtime_;
  Transitions transitions_;
  std::optional<Validation> validation_;
  std::optional<Plan> before_validation_;  // the one before training; its plan is not reported yet
  std::optional<Overlap> overlap_;         // for the next step
  bool validation_due_ = false;            // of the weights as they are
  bool intact_ = true;
  std::exception_ptr failure_;  // came up after the last step, and is thrown by the next call
  int step_ = 0;
  int64_t drawn_ = 0;      // prompts of the steps done
  int64_t data_from_ = 0;  // value of drawn_ when the present data set began
};

StepReport LiveJob::Impl::run_step() {
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  const Stopwatch timer;
  runtime_.reset_peaks();
  Plan expected = std::exchange(before_validation_, std::nullopt).value_or(runtime_.plan());
  if (overlap_) expected = overlap_->to;
  Step step(step_context(), step_,
            start_batch(prompts_, options_.data, drawn_ - data_from_, drawn_),
            std::exchange(overlap_, std::nullopt), timer);
  intact_ = false;
  try {
    step.run();
  } catch (const Stopped&) {
    intact_ = step.give_up();
    return came_to_nothing(step.moved(), timer.elapsed());
  } catch (const Error& error) {
    intact_ = step.give_up();
    if (error.code() != ErrorCode::kNumeric || options_.failure_directory.empty()) throw;
    throw Error(error.code(), error.what() + keep_batch(step.experience()));
  } catch (...) {
    intact_ = step.give_up();
    throw;
  }
  if (step.moved() && step.moved()->failure) return came_to_nothing(step.moved(), timer.elapsed());
  intact_ = true;
  return finish_step(step, expected, timer);
}

// Says where.
std::string LiveJob::Impl::keep_batch(const Experience& experience) const {
  try {
    return "\nThe batch is kept in " +
           write_failed_batch(options_.failure_directory, step_, experience).string();
  } catch (const Error& error) {
    return std::string("\nThe batch could not be kept: ") + error.what();
  }
}

// The state is that of the boundary after the step, whatever happens: an error is kept for the next
// call, so that the step's report is not lost.
StepReport LiveJob::Impl::finish_step(const Step& step, const Plan& expected,
                                      const Stopwatch& timer) {
  const int number = step_++;
  drawn_ += options_.data.train_batch_size;
  failure_ = step.late_failure();
  StepReport report = make_report(step, number, timer.elapsed());
  validation_due_ = validation_ && validation_->follows(number);
  if (!failure_) report.metrics.merge(validate_if_due());
  if (runtime_.plan() != expected) report.adjusted_plan = runtime_.plan();
  return report;
}

Metrics LiveJob::Impl::validate_at_start() {
  if (validation_ && options_.validation.before_training && step_ == 0) validation_due_ = true;
  if (validation_due_) before_validation_ = runtime_.plan();
  Metrics metrics = validate_if_due();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  return metrics;
}

Metrics LiveJob::Impl::validate_if_due() {
  if (!validation_due_ || !validation_) return {};
  try {
    // The last step's own limit: the plan in force was made for it.
    const int64_t limit = options_.response_length.at(std::max(step_ - 1, 0));
    Metrics metrics = validation_->run(runtime_, trained_version(), limit);
    validation_due_ = false;
    return metrics;
  } catch (const Stopped&) {
    // It is due still.
  } catch (const std::exception&) {
    failure_ = std::current_exception();
  }
  return {};
}

StepReport LiveJob::Impl::came_to_nothing(std::optional<TransitionReport> transition,
                                          Seconds took) const {
  StepReport report;
  report.step = step_;
  report.step_s = took;
  report.next_pool = devices_at(step_);
  report.abandoned = !transition || !transition->failure;
  report.transition = std::move(transition);
  return report;
}

StepReport LiveJob::Impl::make_report(const Step& step, int number, Seconds took) const {
  StepReport report;
  report.step = number;
  report.step_s = took;
  report.spans = step.spans();
  report.transition = step.moved();
  report.peak_bytes = runtime_.peaks();
  report.resident_bytes = runtime_.current();
  for (const Sample& sample : step.experience()) {
    report.response_tokens += static_cast<int64_t>(sample.response.size());
    report.prompt_tokens += static_cast<int64_t>(sample.prompt.size());
  }
  report.workload = job_.workload;
  report.workload.prompt_tokens = prompts_.longest();
  report.workload.response_limit = options_.response_length.at(number);
  report.workload.response_mean =
      static_cast<double>(report.response_tokens) / static_cast<double>(step.experience().size());
  report.steps_left = std::max(0, options_.total_steps - number - 1);
  report.next_pool = devices_at(number + 1);
  report.next_workload = report.workload;
  report.next_workload.response_limit = options_.response_length.at(number + 1);
  // The share of the limit that responses use is the best guess for the next step.
  report.next_workload.response_mean = report.workload.response_mean /
                                       static_cast<double>(report.workload.response_limit) *
                                       static_cast<double>(report.next_workload.response_limit);
  report.metrics = step.metrics();
  add_performance_metrics(report, report.metrics);
  return report;
}

DevicePool LiveJob::Impl::devices_at(int step) const {
  std::vector<DeviceId> devices = options_.supply.at(step).devices();
  std::erase_if(devices, [this](DeviceId id) { return transitions_.lost().contains(id); });
  return DevicePool(std::move(devices));
}

TransitionReport LiveJob::Impl::apply(const TransitionDag& dag) {
  NEREUS_CHECK(dag.from == runtime_.plan(), "the transition starts from another plan");
  verify_runnable(dag.to, job_);
  intact_ = false;
  TransitionReport report = transitions_.apply(dag);
  intact_ = !report.failure;
  return report;
}

void LiveJob::Impl::overlap(TransitionDag dag, Plan to) {
  NEREUS_CHECK(dag.from == runtime_.plan(), "the transition starts from another plan");
  verify_runnable(to, job_);
  overlap_ = Overlap{std::move(dag), std::move(to)};
}

TransitionReport LiveJob::Impl::recover(const Plan& to) {
  verify_runnable(to, job_);
  TransitionReport report = transitions_.recover(to);
  intact_ = !report.failure;
  return report;
}

void LiveJob::Impl::save(const std::filesystem::path& root, const Json& extra, int keep) const {
  if (!intact_) {
    throw Error(ErrorCode::kAborted,
                "step " + std::to_string(step_ + 1) +
                    " was left half done: there is no state of a boundary to save");
  }
  Json state = {{"step", step_},
                {"position", drawn_},
                {"data", {{"fingerprint", prompts_.fingerprint()}, {"from", data_from_}}},
                {"validation_due", validation_due_},
                {"kl_coef", kl_.coefficient()},
                {"kl_type", kl_type(options_.ppo)},
                {"seed", options_.seed}};
  std::vector<CheckpointPart> parts;
  for (const ModelStage model_stage : trained_stages(job_.workflow)) {
    const Emu unit = first_unit(model_stage);
    const UnitState& first = runtime_.store().at(unit, unit.devices.front());
    CheckpointPart part{to_string(model_stage.role), {}};
    for (const StateComponent& component : first.schema().components) {
      for (auto& [name, tensor] : runtime_.store().gather(unit, component.kind)) {
        part.tensors[to_string(component.kind) + "/" + name] = std::move(tensor);
      }
    }
    state["updates"][part.name] = first.updates;
    state["version"][part.name] = first.version;
    parts.push_back(std::move(part));
  }
  state["extra"] = extra;
  write_checkpoint(root, step_, state, parts, keep);
}

Json LiveJob::Impl::resume(const Checkpoint& checkpoint) {
  const std::string where = (checkpoint.directory / "manifest.json").string();
  std::vector<std::string> parts;
  for (const ModelStage model_stage : trained_stages(job_.workflow)) {
    parts.push_back(to_string(model_stage.role));
  }
  verify_progress(checkpoint, parts);
  const auto seed = require<uint64_t>(checkpoint.state, "seed", where);
  if (seed != options_.seed) {
    throw Error(ErrorCode::kInvalidInput,
                "trainer.seed is " + std::to_string(options_.seed) + ", " +
                    checkpoint.directory.string() + " was made with " + std::to_string(seed) +
                    ": prompts would come in another order; resume with that seed");
  }
  for (const ModelStage model_stage : trained_stages(job_.workflow)) {
    const std::string name = to_string(model_stage.role);
    const auto state = read_state(checkpoint, name, runtime_.schema(model_stage));
    for (const Emu& unit : units_of(nereus::at(runtime_.plan(), model_stage))) {
      for (const auto& [kind, tensors] : state) runtime_.store().scatter(unit, kind, tensors);
      for (const DeviceId device : unit.devices) {
        UnitState& state = runtime_.store().at(unit, device);
        state.updates = checkpoint.state.at("updates").at(name).get<int64_t>();
        state.version = checkpoint.state.at("version").at(name).get<uint64_t>();
      }
    }
  }
  step_ = require<int>(checkpoint.state, "step", where);
  resume_data(checkpoint.state, where);
  validation_due_ = checkpoint.state.value("validation_due", false);
  // Checkpoints of before have no type.
  if (options_.ppo.adaptive_kl && checkpoint.state.value("kl_type", "adaptive") == "adaptive") {
    kl_.restore(require<double>(checkpoint.state, "kl_coef", where));
  }
  runtime_.synchronise_generation();
  return checkpoint.state.value("extra", Json());
}

void LiveJob::Impl::resume_data(const Json& state, const std::string& where) {
  drawn_ = optional<int64_t>(state, "position", step_ * options_.data.train_batch_size, where);
  const Json data = optional<Json>(state, "data", Json::object(), where);
  const std::string now = prompts_.fingerprint();
  data_from_ = optional<int64_t>(data, "from", 0, where + ": data");
  // Checkpoints of before have none.
  const auto then = optional<std::string>(data, "fingerprint", now, where + ": data");
  if (data_from_ < 0 || data_from_ > drawn_) {
    throw Error(ErrorCode::kInvalidInput,
                where + ": the data began at prompt " + std::to_string(data_from_) + " of " +
                    std::to_string(drawn_) + "; resume from another checkpoint");
  }
  if (then == now) return;
  data_from_ = drawn_;
  log::warn("the prompts of " + options_.data.train_file.string() +
            " are not those of the checkpoint: they begin at their beginning");
}

void LiveJob::Impl::export_model(const std::filesystem::path& directory) const {
  write_model(
      directory, job_.model(Role::kActor), options_.dtype,
      runtime_.store().gather(first_unit(kActorTraining), StateKind::kWeights),
      {.tokenizer = options_.data.tokenizer, .model = options_.models.at(Role::kActor).path});
}

std::map<std::string, uint64_t> LiveJob::Impl::state_hashes() const {
  std::map<std::string, uint64_t> hashes;
  for (const ModelStage model_stage : trained_stages(job_.workflow)) {
    for (const auto& [name, hash] : runtime_.store().hashes(first_unit(model_stage))) {
      hashes[to_string(model_stage.role) + "/" + name] = hash;
    }
  }
  return hashes;
}

LiveJob::LiveJob(LiveOptions options, Plan plan)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(plan))) {}
LiveJob::~LiveJob() = default;
const Plan& LiveJob::plan() const { return impl_->plan(); }
bool LiveJob::done() const { return impl_->done(); }
StepReport LiveJob::run_step() { return impl_->run_step(); }
TransitionReport LiveJob::apply(const TransitionDag& dag) { return impl_->apply(dag); }
void LiveJob::overlap(TransitionDag dag, Plan to) { impl_->overlap(std::move(dag), std::move(to)); }
TransitionReport LiveJob::recover(const Plan& to) { return impl_->recover(to); }
int LiveJob::step() const { return impl_->step(); }
int64_t LiveJob::dropped_prompts() const { return impl_->dropped_prompts(); }
bool LiveJob::intact() const { return impl_->intact(); }
std::map<std::string, double> LiveJob::validate_at_start() { return impl_->validate_at_start(); }
void LiveJob::save(const std::filesystem::path& root, const Json& extra, int keep) const {
  impl_->save(root, extra, keep);
}
Json LiveJob::resume(const Checkpoint& checkpoint) { return impl_->resume(checkpoint); }
void LiveJob::export_model(const std::filesystem::path& directory) const {
  impl_->export_model(directory);
}
std::map<std::string, uint64_t> LiveJob::state_hashes() const { return impl_->state_hashes(); }

}  // namespace nereus
