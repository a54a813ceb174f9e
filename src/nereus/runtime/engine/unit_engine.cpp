#include "nereus/runtime/engine/unit_engine.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "nereus/core/base/error.h"
#include "nereus/runtime/engine/gradient_reduction.h"

namespace nereus {

namespace {

// Autograd leaves over the same bytes: an arena's views get gradients, the arena itself does not.
ParameterMap as_leaves(ParameterMap views) {
  for (auto& [name, view] : views) view = view.detach();
  return views;
}

}  // namespace

UnitEngine::UnitEngine(const ModelSpec& spec, UnitState& state, UnitComms comms)
    : state_(state),
      comms_(std::move(comms)),
      parameters_(as_leaves(state.weights())),
      stage_(spec, state.emu().layout, state.rank(), parameters_, *comms_.tp) {}

std::vector<TokenOutputs> UnitEngine::forward(const std::vector<MicroBatch>& micro_batches,
                                              const PassOptions& options) {
  return run_forward(stage_, *comms_.pp, micro_batches, options);
}

std::vector<GenerationResult> UnitEngine::generate(const std::vector<GenerationRequest>& requests,
                                                   const GenerationOptions& options) {
  return nereus::generate(stage_, *comms_.tp, *comms_.pp, requests, options, decode_step_);
}

UpdateResult UnitEngine::update(const std::vector<MicroBatch>& micro_batches,
                                const PassOptions& options, const LossFunction& loss,
                                const OptimizerOptions& optimizer) {
  std::vector<at::Tensor> gradients = make_gradients(/*overwritten=*/!micro_batches.empty());
  accumulate(gradients, micro_batches, options, loss);

  const c10::AutoGradMode no_autograd(false);
  UpdateResult result;
  result.grad_norm = std::sqrt(squared_norm(gradients));
  comms_.throw_if_aborted();  // else the norm is that of all ranks
  if (!std::isfinite(result.grad_norm)) {
    throw Error(ErrorCode::kNumeric, to_string(state_.emu().model_stage) +
                                         ": the gradient norm is not finite; nothing was updated");
  }
  apply(gradients, clip_factor(optimizer, result.grad_norm), optimizer);
  return result;
}

std::vector<at::Tensor> UnitEngine::make_gradients(bool overwritten) const {
  const bool has_master = !state_.arenas(StateKind::kMaster).empty();
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& arena : state_.arenas(StateKind::kWeights)) {
    const auto options = has_master ? arena.options().dtype(at::kFloat) : arena.options();
    gradients.push_back(has_master && overwritten ? at::empty(arena.sizes(), options)
                                                  : at::zeros(arena.sizes(), options));
  }
  return gradients;
}

namespace {

// Takes each gradient of a parameter as soon as it is there.
class Arrival final : public torch::autograd::PostAccumulateGradHook {
 public:
  Arrival(at::Tensor sum, GradientReduction& reduction, size_t arena)
      : sum_(std::move(sum)), reduction_(reduction), arena_(arena) {}

  void operator()(const torch::autograd::Variable& parameter) override {
    // Autograd itself adds up gradients of the sums' type, in place.
    if (sum_.scalar_type() != parameter.scalar_type()) {
      if (std::exchange(is_first_, false)) {
        sum_.copy_(parameter.grad());
      } else {
        sum_.add_(parameter.grad());
      }
      parameter.mutable_grad().reset();
    }
    reduction_.arrived(arena_);
  }

 private:
  at::Tensor sum_;
  GradientReduction& reduction_;
  size_t arena_;
  bool is_first_ = true;
};

// Parameters may take gradients while it lives.
class GradientScope final {
 public:
  explicit GradientScope(ParameterMap& parameters) : parameters_(parameters) {
    for (auto& [name, parameter] : parameters_) parameter.requires_grad_(true);
  }
  ~GradientScope() {
    for (auto& [name, parameter] : parameters_) {
      torch::autograd::impl::set_post_acc_grad_hooks(parameter, nullptr);
      parameter.mutable_grad().reset();
      parameter.requires_grad_(false);
    }
  }
  GradientScope(const GradientScope&) = delete;
  GradientScope& operator=(const GradientScope&) = delete;

 private:
  ParameterMap& parameters_;
};

}  // namespace

void UnitEngine::accumulate(const std::vector<at::Tensor>& gradients,
                            const std::vector<MicroBatch>& micro_batches,
                            const PassOptions& options, const LossFunction& loss) {
  const StateSchema& schema = state_.schema();
  const ParameterMap views = state_.views_of(gradients);
  std::map<int, std::vector<const TensorSpec*>> chunks;  // those with an arena here
  for (size_t i = 0; i < schema.tensors.size(); ++i) {
    const TensorSpec& tensor = schema.tensors[i];
    if (state_.box(static_cast<int>(i))) {
      chunks[chunk_of(tensor, schema.num_layers)].push_back(&tensor);
    }
  }
  std::vector<GradientArena> arenas;
  for (const auto& [chunk, own] : chunks) {
    const bool early = std::ranges::none_of(
        own, [&](const TensorSpec* tensor) { return is_summed_in_unit(*tensor); });
    arenas.push_back(
        {gradients[arenas.size()], early, std::ssize(own) * std::ssize(micro_batches)});
  }
  GradientReduction reduction(std::move(arenas), *comms_.dp, gradient_timer_);

  {
    const GradientScope scope(parameters_);
    size_t arena = 0;
    for (const auto& [chunk, own] : chunks) {
      for (const TensorSpec* tensor : own) {
        at::Tensor& parameter = parameters_.at(tensor->name);
        const at::Tensor& sum = views.at(tensor->name);
        if (sum.scalar_type() == parameter.scalar_type()) parameter.mutable_grad() = sum;
        torch::autograd::impl::set_post_acc_grad_hooks(
            parameter, std::make_unique<Arrival>(sum, reduction, arena));
      }
      ++arena;
    }
    run_1f1b(stage_, *comms_.pp, micro_batches, options, loss);
  }
  const c10::AutoGradMode no_autograd(false);
  sum_in_unit(gradients);
  reduction.finish();
}

at::TensorOptions UnitEngine::loss_options() const {
  const bool is_double = parameters_.begin()->second.scalar_type() == at::kDouble;
  return at::device(device()).dtype(is_double ? at::kDouble : at::kFloat);
}

bool UnitEngine::is_summed_in_unit(const TensorSpec& tensor) const {
  const int tp = state_.emu().layout.tp;
  const bool shared_group = tensor.tp_dim >= 0 && tp > tensor.tp_groups;
  return (tensor.partial_gradient && tp > 1) || shared_group || tensor.also_on_last_stage;
}

void UnitEngine::sum_in_unit(const std::vector<at::Tensor>& gradients) const {
  const StateSchema& schema = state_.schema();
  const Layout layout = state_.emu().layout;
  const ParameterMap views = state_.views_of(gradients);
  for (int i = 0; i < static_cast<int>(schema.tensors.size()); ++i) {
    const TensorSpec& tensor = schema.tensors[i];
    if (!state_.box(i) || !is_summed_in_unit(tensor)) continue;
    at::Tensor gradient = views.at(tensor.name);
    if (tensor.partial_gradient) comms_.tp->all_reduce(gradient);

    const std::vector<Rank> sharing = holders(tensor, schema.num_layers, layout, state_.rank());
    const bool shared_group = tensor.tp_dim >= 0 && layout.tp > tensor.tp_groups;
    if (shared_group) {
      // Neighbouring ranks hold the same KV head and saw different query heads: sum over them.
      const at::Tensor all = comms_.tp->all_gather(gradient.unsqueeze(0), 0);
      gradient.zero_();
      for (const Rank& rank : sharing) {
        if (rank.pp == state_.rank().pp) gradient.add_(all[rank.tp]);
      }
    }
    const bool tied = tensor.also_on_last_stage && layout.pp > 1;
    if (tied) {
      // The embedding's gradient is the sum of its uses on the first and on the last stage.
      const int other = state_.rank().pp == 0 ? layout.pp - 1 : 0;
      at::Tensor received = at::empty_like(gradient);
      comms_.pp->send(gradient, other);
      comms_.pp->recv(received, other);
      gradient.add_(received);
    }
  }
}

double UnitEngine::squared_norm(const std::vector<at::Tensor>& gradients) const {
  const StateSchema& schema = state_.schema();
  const ParameterMap views = state_.views_of(gradients);
  std::vector<at::Tensor> own;  // each logical element once in the unit
  for (int i = 0; i < static_cast<int>(schema.tensors.size()); ++i) {
    const TensorSpec& tensor = schema.tensors[i];
    if (state_.box(i) &&
        is_primary(tensor, schema.num_layers, state_.emu().layout, state_.rank())) {
      own.push_back(views.at(tensor.name));
    }
  }
  at::Tensor sum = at::zeros({}, gradients.front().options().dtype(at::kDouble));
  if (!own.empty()) sum = at::stack(at::_foreach_norm(own, 2, at::kDouble)).square().sum();
  comms_.tp->all_reduce(sum);
  comms_.pp->all_reduce(sum);
  return sum.item<double>();
}

void UnitEngine::apply(std::vector<at::Tensor>& gradients, double factor,
                       const OptimizerOptions& optimizer) {
  const StreamTimer::Scope timing(optimizer_timer_, device());
  const std::vector weights = state_.arenas(StateKind::kWeights);
  const std::vector masters = state_.arenas(StateKind::kMaster);
  const std::vector exp_avgs = state_.arenas(StateKind::kExpAvg);
  const std::vector exp_avg_sqs = state_.arenas(StateKind::kExpAvgSq);
  const AdamWStep step{.number = ++state_.updates, .lr = optimizer.lr, .gradient_factor = factor};
  for (size_t i = 0; i < gradients.size(); ++i) {
    at::Tensor parameter = masters.empty() ? weights[i] : masters[i];
    at::Tensor exp_avg = exp_avgs[i];
    at::Tensor exp_avg_sq = exp_avg_sqs[i];
    adamw_step(parameter, gradients[i], exp_avg, exp_avg_sq, step, optimizer);
    if (!masters.empty()) weights[i].copy_(parameter);
  }
  ++state_.version;
}

std::map<OpClass, Seconds> UnitEngine::take_times(OpClass local, Seconds wall) {
  std::map<OpClass, Seconds> times;
  times[OpClass::kTensorComm] = comms_.tp->take_elapsed();
  times[OpClass::kPipelineComm] = comms_.pp->take_elapsed();
  times[OpClass::kGradientComm] = gradient_timer_.take();
  comms_.dp->take_elapsed();  // some of it was hidden
  times[OpClass::kOptimizer] = optimizer_timer_.take();
  Seconds rest = wall;
  for (const auto& [op_class, seconds] : times) rest -= seconds;
  times[local] = std::max(rest, Seconds());
  return times;
}

}  // namespace nereus
