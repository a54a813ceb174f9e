#include "nereus/runtime/data/hf_model.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

#include "nereus/core/base/hash.h"
#include "nereus/core/base/text.h"
#include "nereus/runtime/files/files.h"

namespace nereus {

namespace {

namespace fs = std::filesystem;

constexpr const char* kBodyPrefix = "model.";
constexpr const char* kScore = "score.weight";
constexpr double kInitStd = 0.02;          // transformers' initializer_range
constexpr int64_t kRandomChunk = 1 << 15;  // so small that torch starts no threads of its own

[[noreturn]] void refuse(const fs::path& path, const std::string& what) {
  throw Error(ErrorCode::kInvalidInput, path.string() + ": " + what);
}

// The first few of many names.
std::string beginning(const std::vector<std::string>& names) {
  constexpr size_t kShown = 5;
  const auto few = std::span(names).first(std::min(kShown, names.size()));
  return join(few, ", ") + (names.size() > kShown ? ", …" : "");
}

// A name in an index: of a file in the directory itself, nowhere else. The file may be a link, as
// the files of Hugging Face's cache are.
void verify_name(const std::string& name, const fs::path& index) {
  if (name.ends_with(".safetensors") && name.find_first_of(std::string("/\0", 2)) == name.npos) {
    return;
  }
  refuse(index, "weight_map names the file " + shown(name) +
                    "; legal: names of .safetensors files in the same directory, without folders");
}

// The weight files of a directory: one, or those that the index names.
std::set<fs::path> weight_files(const fs::path& directory) {
  const fs::path single = directory / "model.safetensors";
  const fs::path index = directory / "model.safetensors.index.json";
  if (fs::exists(single)) return {single};
  if (!fs::exists(index)) {
    refuse(directory, "neither model.safetensors nor model.safetensors.index.json is there");
  }
  const Json j = parse_json(read_text(index), index.string());
  std::set<fs::path> files;
  for (const auto& [tensor, file] :
       require<std::map<std::string, std::string>>(j, "weight_map", index.string())) {
    verify_name(file, index);
    files.insert(directory / file);
  }
  return files;
}

// All tensors of a directory by name, none of them read yet.
class Weights {
 public:
  explicit Weights(const fs::path& directory) {
    for (const fs::path& path : weight_files(directory)) {
      files_.push_back(std::make_unique<SafetensorsFile>(path));
      for (const auto& [name, info] : files_.back()->tensors()) {
        const auto [entry, is_new] = where_.emplace(name, files_.back().get());
        if (is_new) continue;
        refuse(path, "tensor " + shown(name) + " is also in " + entry->second->path().string());
      }
    }
  }

  // Takes a tensor of the model out of the list, with or without the body's prefix: its name in the
  // file, or nothing.
  std::optional<std::pair<std::string, SafetensorsFile*>> take(const std::string& name) {
    auto found = where_.find(name);
    if (found == where_.end() && name.starts_with(kBodyPrefix)) {
      found = where_.find(name.substr(std::string(kBodyPrefix).size()));
    }
    if (found == where_.end()) return std::nullopt;
    std::pair<std::string, SafetensorsFile*> taken = *found;
    where_.erase(found);
    return taken;
  }

  // What nobody took.
  const std::map<std::string, SafetensorsFile*>& left() const { return where_; }

 private:
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, SafetensorsFile*> where_;
};

// Tensors that transformers leaves out as well: what it computes itself, and the head of another
// task (a critic may start from an actor's weights).
bool is_harmless(const std::string& name) {
  constexpr std::string_view kHeads[] = {"lm_head.weight", "score.weight"};
  return name.ends_with("rotary_emb.inv_freq") || name.starts_with("v_head.") ||
         std::ranges::find(kHeads, name) != std::end(kHeads);
}

// Weights that config.json does not know would be left out in silence, and another model trained.
void refuse_surplus(const Weights& weights) {
  std::vector<std::string> surplus;
  fs::path file;
  for (const auto& [name, where] : weights.left()) {
    if (is_harmless(name)) continue;
    if (surplus.empty()) file = where->path();
    surplus.push_back(shown(name));
  }
  if (surplus.empty()) return;
  refuse(file,
         std::to_string(surplus.size()) +
             " tensors are not of the model that config.json describes: " + beginning(surplus));
}

void verify_shape(const TensorSpec& spec, const std::string& name, const SafetensorsFile& file) {
  const std::vector<int64_t>& shape = file.tensors().at(name).shape;
  if (shape == spec.shape) return;
  refuse(file.path(), "tensor \"" + spec.name + "\" has shape " + shown_json(shape) +
                          ", config.json needs " + shown_json(spec.shape));
}

at::Tensor checked(const TensorSpec& spec, const at::Tensor& read, const fs::path& file,
                   DType dtype) {
  const at::Tensor converted = read.to(scalar_type(dtype));
  const auto bad = converted.numel() - at::isfinite(converted).sum().item<int64_t>();
  if (bad > 0) {
    refuse(file, "tensor \"" + spec.name + "\" has NaN or Inf in " + std::to_string(bad) + " of " +
                     std::to_string(converted.numel()) + " elements as " + to_string(dtype));
  }
  return converted;
}

void refuse_missing(const fs::path& directory, const std::vector<std::string>& missing) {
  refuse(directory, std::to_string(missing.size()) +
                        " tensors of config.json are missing: " + beginning(missing));
}

// Calls body(0) … body(count - 1), on all cores.
template <class Body>
void on_all_cores(int64_t count, const Body& body) {
  std::atomic<int64_t> next = 0;
  const auto work = [&] {
    for (int64_t i = next++; i < count; i = next++) body(i);
  };
  const int64_t cores = std::min<int64_t>(count, std::thread::hardware_concurrency());
  std::vector<std::jthread> helpers;
  for (int64_t helper = 1; helper < cores; ++helper) helpers.emplace_back(work);
  work();
}

// Each run of kRandomChunk elements has a generator of its own, so that all cores may draw.
at::Tensor random_tensor(const TensorSpec& spec, at::ScalarType dtype, uint64_t seed,
                         ScoreHead head) {
  if (spec.name.ends_with("norm.weight")) return at::ones(spec.shape, dtype);
  const bool is_new_score = spec.name == kScore && head == ScoreHead::kNew;
  if (spec.name.ends_with(".bias") || is_new_score) return at::zeros(spec.shape, dtype);
  const at::Tensor tensor = at::empty(spec.shape, dtype);
  const std::vector<at::Tensor> chunks = tensor.view(-1).split(kRandomChunk);
  on_all_cores(std::ssize(chunks), [&](int64_t i) {
    const auto generator = at::detail::createCPUGenerator(
        hash_bytes(std::as_bytes(std::span(spec.name)), seed + static_cast<uint64_t>(i)));
    chunks[i].copy_(at::empty(chunks[i].sizes(), at::kFloat).normal_(0, kInitStd, generator));
  });
  return tensor;
}

}  // namespace

at::ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return at::kDouble;
    case DType::kFloat32:
      return at::kFloat;
    case DType::kBFloat16:
      return at::kBFloat16;
    case DType::kFloat16:
      return at::kHalf;
  }
  throw Error(ErrorCode::kInternal, "unknown dtype");
}

TensorMap read_model(const fs::path& directory, const ModelSpec& spec, DType dtype,
                     ScoreHead head) {
  Weights weights(directory);
  std::vector<std::pair<TensorSpec, std::pair<std::string, SafetensorsFile*>>> wanted;
  TensorMap tensors_by_name;
  std::vector<std::string> missing;
  for (const TensorSpec& tensor : tensors(spec)) {
    if (const auto found = weights.take(tensor.name)) {
      verify_shape(tensor, found->first, *found->second);
      wanted.emplace_back(tensor, *found);
    } else if (tensor.name == kScore && head == ScoreHead::kNew) {
      tensors_by_name[tensor.name] = at::zeros(tensor.shape, scalar_type(dtype));
    } else {
      missing.push_back(tensor.name);
    }
  }
  if (!missing.empty()) refuse_missing(directory, missing);
  refuse_surplus(weights);
  for (const auto& [tensor, place] : wanted) {
    const auto& [name, file] = place;
    tensors_by_name[tensor.name] = checked(tensor, file->read(name), file->path(), dtype);
  }
  return tensors_by_name;
}

TensorMap random_model(const ModelSpec& spec, DType dtype, uint64_t seed, ScoreHead head) {
  TensorMap tensors_by_name;
  for (const TensorSpec& tensor : tensors(spec)) {
    tensors_by_name[tensor.name] = random_tensor(tensor, scalar_type(dtype), seed, head);
  }
  return tensors_by_name;
}

}  // namespace nereus
