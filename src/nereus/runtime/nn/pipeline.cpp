#include "nereus/runtime/nn/pipeline.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

namespace nereus {

namespace {

// This stage's part of one micro-batch between its forward and its backward.
struct InFlight {
  at::Tensor input;                      // hidden states received; undefined on the first stage
  at::Tensor embedded;                   // first stage: its output, with graph
  std::vector<at::Tensor> block_inputs;  // recompute: without graphs
  at::Tensor output;                     // of the last block
  at::Tensor loss;                       // last stage
};

at::Tensor receive(const DecoderStage& stage, Communicator& pp, const MicroBatch& batch, int from) {
  at::Tensor hidden =
      at::empty({batch.packing.tokens(), stage.spec().hidden_size}, stage.options());
  pp.recv(hidden, from);
  return hidden;
}

// Head and log-probabilities (or values) of the positions that predict response tokens.
TokenOutputs token_outputs(const DecoderStage& stage, const at::Tensor& hidden,
                           const MicroBatch& batch, const PassOptions& options) {
  const at::Tensor rows = hidden.index_select(0, batch.predicts);
  if (stage.spec().head == Head::kScalar) return {.values = stage.values(rows)};
  const LogProbs out =
      stage.log_probs(rows, batch.targets, options.temperature, options.with_entropy);
  return {.log_probs = out.log_probs, .entropy = out.entropy};
}

at::Tensor run_blocks(const DecoderStage& stage, at::Tensor hidden, const Packing& packing) {
  for (int layer = stage.layers().begin; layer < stage.layers().end; ++layer) {
    hidden = stage.block(layer, hidden, packing);
  }
  return hidden;
}

// The blocks without a graph, their inputs kept. The result is a leaf for what follows.
at::Tensor run_blocks_keeping_inputs(const DecoderStage& stage, at::Tensor hidden,
                                     const Packing& packing, std::vector<at::Tensor>& inputs) {
  const at::NoGradGuard no_grad;
  hidden = hidden.detach();
  for (int layer = stage.layers().begin; layer < stage.layers().end; ++layer) {
    inputs.push_back(hidden);
    hidden = stage.block(layer, hidden, packing);
  }
  return hidden.requires_grad_(true);
}

// Runs each block again, last one first, and pushes the gradient through it.
at::Tensor backward_recomputing(const DecoderStage& stage, const std::vector<at::Tensor>& inputs,
                                const Packing& packing, at::Tensor grad) {
  for (int i = static_cast<int>(inputs.size()) - 1; i >= 0; --i) {
    const at::Tensor input = inputs[i].detach().requires_grad_(true);
    torch::autograd::backward({stage.block_for_backward(stage.layers().begin + i, input, packing)},
                              {grad});
    grad = input.grad();
  }
  return grad;
}

class Runner {
 public:
  Runner(const DecoderStage& stage, Communicator& pp, const std::vector<MicroBatch>& batches,
         const PassOptions& options, const LossFunction& loss)
      : stage_(stage), pp_(pp), batches_(batches), options_(options), loss_(loss) {}

  void forward(int index) {
    options_.stop.check();
    const MicroBatch& batch = batches_[index];
    InFlight flight;
    if (stage_.is_first()) {
      flight.embedded = stage_.embed(batch.tokens);
    } else {
      flight.input = receive(stage_, pp_, batch, pp_.rank() - 1).requires_grad_(true);
    }
    const at::Tensor& hidden = stage_.is_first() ? flight.embedded : flight.input;
    flight.output = options_.recompute ? run_blocks_keeping_inputs(stage_, hidden, batch.packing,
                                                                   flight.block_inputs)
                                       : run_blocks(stage_, hidden, batch.packing);
    if (stage_.is_last()) {
      flight.loss = loss_(token_outputs(stage_, flight.output, batch, options_), index);
    } else {
      pp_.send(flight.output, pp_.rank() + 1);
    }
    flights_.push_back(std::move(flight));
  }

  void backward(int index) {
    options_.stop.check();
    const InFlight flight = std::move(flights_.front());
    flights_.pop_front();
    if (!options_.recompute) {
      if (stage_.is_last()) {
        torch::autograd::backward({flight.loss}, {});
      } else {
        torch::autograd::backward({flight.output}, {grad_of_output(index)});
      }
    } else {
      if (stage_.is_last()) torch::autograd::backward({flight.loss}, {});
      const at::Tensor grad = stage_.is_last() ? flight.output.grad() : grad_of_output(index);
      const at::Tensor grad_in =
          backward_recomputing(stage_, flight.block_inputs, batches_[index].packing, grad);
      if (stage_.is_first()) {
        torch::autograd::backward({flight.embedded}, {grad_in});
      } else {
        flight.input.mutable_grad() = grad_in;
      }
    }
    if (!stage_.is_first()) pp_.send(flight.input.grad(), pp_.rank() - 1);
  }

 private:
  at::Tensor grad_of_output(int index) {
    return receive(stage_, pp_, batches_[index], pp_.rank() + 1);
  }

  const DecoderStage& stage_;
  Communicator& pp_;
  const std::vector<MicroBatch>& batches_;
  const PassOptions& options_;
  const LossFunction& loss_;
  std::deque<InFlight> flights_;
};

}  // namespace

namespace {

// Forward passes alone: nothing comes back from the next stage that a stage would have to wait for,
// and what it sends lies in its memory until it is received. So stages say what they are done with.
class Forwarding {
 public:
  Forwarding(const DecoderStage& stage, Communicator& pp) : stage_(stage), pp_(pp) {}

  at::Tensor receive_hidden(const MicroBatch& batch) {
    at::Tensor hidden = receive(stage_, pp_, batch, pp_.rank() - 1);
    // An accelerator may have much of what it was asked for still before it.
    if (done_) done_->synchronize();
    pp_.send(token_, pp_.rank() - 1);
    return hidden;
  }

  void send_hidden(const at::Tensor& hidden) {
    if (++sent_ > kAhead) pp_.recv(token_, pp_.rank() + 1);
    pp_.send(hidden, pp_.rank() + 1);
  }

  // The work on a micro-batch has been asked for.
  void mark() {
    if (stage_.options().device().is_cpu()) return;
    const c10::impl::VirtualGuardImpl device(stage_.options().device().type());
    done_.emplace(stage_.options().device().type());
    done_->record(device.getStream(stage_.options().device()));
  }

  void finish() {
    for (int i = 0; i < std::min(sent_, kAhead); ++i) pp_.recv(token_, pp_.rank() + 1);
  }

 private:
  static constexpr int kAhead = 2;  // micro-batches that a stage may be ahead of the next one

  const DecoderStage& stage_;
  Communicator& pp_;
  at::Tensor token_ = at::empty({1}, at::kByte);
  std::optional<c10::Event> done_;
  int sent_ = 0;
};

}  // namespace

std::vector<TokenOutputs> run_forward(const DecoderStage& stage, Communicator& pp,
                                      const std::vector<MicroBatch>& micro_batches,
                                      const PassOptions& options) {
  const at::NoGradGuard no_grad;
  std::vector<TokenOutputs> outputs;
  Forwarding forwarding(stage, pp);
  for (const MicroBatch& batch : micro_batches) {
    options.stop.check();
    at::Tensor hidden =
        stage.is_first() ? stage.embed(batch.tokens) : forwarding.receive_hidden(batch);
    hidden = run_blocks(stage, hidden, batch.packing);
    if (stage.is_last()) {
      outputs.push_back(token_outputs(stage, hidden, batch, options));
    } else {
      forwarding.send_hidden(hidden);
    }
    forwarding.mark();
  }
  forwarding.finish();
  return outputs;
}

void run_1f1b(const DecoderStage& stage, Communicator& pp,
              const std::vector<MicroBatch>& micro_batches, const PassOptions& options,
              const LossFunction& loss) {
  Runner runner(stage, pp, micro_batches, options, loss);
  const int count = static_cast<int>(micro_batches.size());
  const int warm_up = std::min(pp.size() - pp.rank() - 1, count);
  for (int i = 0; i < warm_up; ++i) runner.forward(i);
  for (int i = warm_up; i < count; ++i) {
    runner.forward(i);
    runner.backward(i - warm_up);
  }
  for (int i = count - warm_up; i < count; ++i) runner.backward(i);
}

}  // namespace nereus
