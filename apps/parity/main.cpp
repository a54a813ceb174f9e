// nereus_parity MODEL REQUEST.json …: runs the samples of each request through a Hugging Face model
// directory under the request's layout, and writes to the folder REQUEST, for tests/parity to
// compare,
//   tensors.safetensors  "logits.I" [T, vocab] and "log_probs.I" [response] of sample I;
//   "grad.NAME",
//                        gradients of the mean negative log-probability of all response tokens
//   greedy.json          greedy continuations of the prompts
// A request: {"tp", "pp", "dp", "dtype", "recompute", "max_new_tokens",
// "samples": [{"prompt": […], "response": […]}, …]}.
#include <ATen/core/grad_mode.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <mutex>
#include <utility>

#include "nereus/runtime/data/hf_model.h"
#include "nereus/runtime/files/files.h"
#include "nereus/runtime/generation/generate.h"
#include "nereus/runtime/nn/pipeline.h"
#include "nereus/runtime/nn/testing.h"

namespace nereus {

namespace {

constexpr int64_t kMicroBatch = 2;

struct Sample {
  size_t index = 0;  // in the request
  std::vector<int64_t> prompt;
  std::vector<int64_t> response;
  std::vector<int64_t> tokens() const {
    std::vector<int64_t> all = prompt;
    all.insert(all.end(), response.begin(), response.end());
    return all;
  }
};

struct Request {
  Layout layout;
  int dp = 1;
  DType dtype = DType::kFloat32;
  bool recompute = false;
  int64_t max_new_tokens = 0;
  std::vector<Sample> samples;
  int64_t response_tokens = 0;
};

struct Results {
  std::mutex mutex;
  TensorMap tensors;
  ParameterMap gradients;
  std::vector<std::vector<int64_t>> greedy;
};

Request read_request(const std::filesystem::path& file) {
  const std::string where = file.string();
  const Json j = parse_json(read_text(file), where);
  Request request{.layout = {require<int>(j, "tp", where), require<int>(j, "pp", where)},
                  .dp = require<int>(j, "dp", where),
                  .dtype = parse_dtype(require<std::string>(j, "dtype", where)),
                  .recompute = optional<bool>(j, "recompute", false, where),
                  .max_new_tokens = require<int64_t>(j, "max_new_tokens", where)};
  for (const Json& sample : require<Json>(j, "samples", where)) {
    request.samples.push_back({request.samples.size(),
                               require<std::vector<int64_t>>(sample, "prompt", where),
                               require<std::vector<int64_t>>(sample, "response", where)});
    request.response_tokens += std::ssize(request.samples.back().response);
  }
  return request;
}

// Micro-batches in the order of the samples.
std::vector<MicroBatch> micro_batches(const std::vector<Sample>& samples, at::Device device) {
  const auto on_device = [&](const std::vector<int64_t>& numbers) {
    return at::tensor(numbers, at::kLong).to(device);
  };
  std::vector<MicroBatch> batches;
  for (size_t begin = 0; begin < samples.size(); begin += kMicroBatch) {
    std::vector<int64_t> tokens, lengths, predicts, targets;
    for (size_t i = begin; i < std::min(samples.size(), begin + kMicroBatch); ++i) {
      const std::vector<int64_t> own = samples[i].tokens();
      const int64_t first = std::ssize(tokens) + std::ssize(samples[i].prompt) - 1;
      for (size_t t = 0; t < samples[i].response.size(); ++t) {
        predicts.push_back(first + static_cast<int64_t>(t));
        targets.push_back(samples[i].response[t]);
      }
      tokens.insert(tokens.end(), own.begin(), own.end());
      lengths.push_back(std::ssize(own));
    }
    batches.push_back({.tokens = on_device(tokens),
                       .packing = pack(lengths, device),
                       .predicts = on_device(predicts),
                       .targets = on_device(targets)});
  }
  return batches;
}

// Logits of all positions of one sequence on the last stage: [T, vocab].
at::Tensor all_logits(const testing::UnitRank& unit, const at::Tensor& tokens) {
  const at::NoGradGuard no_grad;
  const DecoderStage& stage = unit.stage;
  const Packing packing = pack({tokens.size(0)}, tokens.device());
  at::Tensor hidden;
  if (stage.is_first()) {
    hidden = stage.embed(tokens);
  } else {
    hidden = at::empty({tokens.size(0), stage.spec().hidden_size}, stage.options());
    unit.pp.recv(hidden, unit.rank.pp - 1);
  }
  for (int layer = stage.layers().begin; layer < stage.layers().end; ++layer) {
    hidden = stage.block(layer, hidden, packing);
  }
  if (stage.is_last()) return unit.tp.all_gather(stage.logits(hidden), 1);
  unit.pp.send(hidden, unit.rank.pp + 1);
  return {};
}

void store_outputs(const testing::UnitRank& unit, const std::vector<Sample>& samples,
                   const std::vector<MicroBatch>& batches, Results& results) {
  const at::Device device = unit.stage.options().device();
  for (const Sample& sample : samples) {
    const at::Tensor tokens = at::tensor(sample.tokens(), at::kLong).to(device);
    const at::Tensor logits = all_logits(unit, tokens);
    const std::lock_guard lock(results.mutex);
    if (logits.defined()) {
      results.tensors["logits." + std::to_string(sample.index)] = logits.to(at::kCPU);
    }
  }
  const std::vector<TokenOutputs> outputs = run_forward(unit.stage, unit.pp, batches, {});
  if (!unit.stage.is_last()) return;
  std::vector<at::Tensor> all;
  all.reserve(outputs.size());
  for (const TokenOutputs& output : outputs) all.push_back(output.log_probs.to(at::kCPU));
  at::Tensor log_probs = at::cat(all);
  const std::lock_guard lock(results.mutex);
  for (const Sample& sample : samples) {
    const int64_t count = std::ssize(sample.response);
    results.tensors["log_probs." + std::to_string(sample.index)] =
        log_probs.narrow(0, 0, count).clone();
    log_probs = log_probs.narrow(0, count, log_probs.size(0) - count);
  }
}

void generate_greedy(const testing::UnitRank& unit, const std::vector<Sample>& samples,
                     const Request& request, Results& results) {
  std::vector<GenerationRequest> requests;
  requests.reserve(samples.size());
  for (const Sample& sample : samples) requests.push_back({sample.index, sample.prompt});
  const GenerationOptions options{.sampling = {.greedy = true},
                                  .max_new_tokens = request.max_new_tokens,
                                  .eos_token_ids = unit.stage.spec().eos_token_ids};
  cuda::Graph graph;
  const auto generated = generate(unit.stage, unit.tp, unit.pp, requests, options, graph);
  if (unit.index != 0) return;
  for (size_t i = 0; i < samples.size(); ++i) {
    results.greedy[samples[i].index] = generated[i].tokens;
  }
}

// One replica: everything for its samples; gradients are added to those of the other replicas.
void run_unit(const ParameterMap& model, const ModelSpec& spec, const Request& request,
              const std::vector<Sample>& samples, const std::string& device, Results& results) {
  const auto device_of = testing::devices_named(device);
  testing::on_unit(model, spec, request.layout, device_of, [&](const testing::UnitRank& unit) {
    const auto batches = micro_batches(samples, unit.stage.options().device());
    store_outputs(unit, samples, batches, results);
    generate_greedy(unit, samples, request, results);
    run_1f1b(unit.stage, unit.pp, batches, {.recompute = request.recompute},
             [&](const TokenOutputs& outputs, int) {
               return outputs.log_probs.sum() / -static_cast<double>(request.response_tokens);
             });
    const std::lock_guard lock(results.mutex);
    testing::add_gradients(results.gradients, spec, request.layout, unit);
  });
}

void run(const std::filesystem::path& directory, const std::filesystem::path& request_file,
         const std::string& device) {
  const ModelSpec spec = read_model_spec(directory);
  const Request request = read_request(request_file);
  const ParameterMap model = read_model(directory, spec, request.dtype);
  Results results;
  results.greedy.resize(request.samples.size());
  for (int replica = 0; replica < request.dp; ++replica) {
    std::vector<Sample> share;
    for (const Sample& sample : request.samples) {
      if (static_cast<int>(sample.index) % request.dp == replica) share.push_back(sample);
    }
    run_unit(model, spec, request, share, device, results);
  }
  for (const auto& [name, gradient] : results.gradients) {
    results.tensors["grad." + name] = gradient;
  }
  std::filesystem::path output = request_file;
  output.replace_extension();
  std::filesystem::create_directories(output);
  write_safetensors(output / "tensors.safetensors", results.tensors);
  write_text(output / "greedy.json", Json(results.greedy).dump());
}

}  // namespace

}  // namespace nereus

int main(int argc, char** argv) {
  CLI::App app("Runs a model under a layout and writes what tests/parity compares");
  std::string model, device = "cpu";
  std::vector<std::string> requests;
  app.add_option("model", model, "Hugging Face model directory")->required();
  app.add_option("requests", requests, "JSON files")->required();
  app.add_option("--device", device, "cpu, or cuda: ranks take the GPUs in turns")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    for (const std::string& request : requests) nereus::run(model, request, device);
  } catch (const std::exception& error) {
    std::cerr << "nereus_parity: " << error.what() << '\n';
    return 1;
  }
}
