#include "nereus/data/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <system_error>
#include <utility>

#include "nereus/base/error.h"
#include "nereus/base/hash.h"
#include "nereus/data/files.h"

namespace nereus {

namespace {

namespace fs = std::filesystem;

constexpr const char* kManifest = "manifest.json";
constexpr const char* kStepPrefix = "step_";

fs::path part_file(const fs::path& directory, const std::string& name) {
  return directory / (name + ".safetensors");
}

uint64_t extend_hash(uint64_t hash, const std::string& text) {
  return hash_bytes(std::as_bytes(std::span(text)), hash);
}

// Names, dtypes, shapes and bytes of all tensors, in the order of their names.
std::string content_hash(const TensorMap& tensors) {
  uint64_t hash = 0;
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor local = tensor.detach().to(at::kCPU).contiguous();
    const Json shape = local.sizes().vec();
    hash = extend_hash(hash, name + at::toString(local.scalar_type()) + shape.dump());
    hash = hash_bytes(bytes_of(local), hash);
  }
  return to_hex(hash);
}

Json write_parts(const fs::path& directory, const std::vector<CheckpointPart>& parts) {
  Json files = Json::object();
  for (const CheckpointPart& part : parts) {
    const fs::path file = part_file(directory, part.name);
    write_safetensors(file, part.tensors);
    files[part.name] = {{"bytes", fs::file_size(file)}, {"hash", content_hash(part.tensors)}};
  }
  return files;
}

// The number N of a directory named step_N, or nothing.
std::optional<int> step_of(const fs::path& directory) {
  const std::string name = directory.filename().string();
  const std::string_view prefix = kStepPrefix;
  int step = 0;
  const char* end = name.data() + name.size();
  if (!name.starts_with(prefix)) return std::nullopt;
  const auto [stop, error] = std::from_chars(name.data() + prefix.size(), end, step);
  return error == std::errc() && stop == end ? std::optional(step) : std::nullopt;
}

// (step, directory) of everything that looks like a checkpoint, newest first.
std::vector<std::pair<int, fs::path>> list_steps(const fs::path& root) {
  std::vector<std::pair<int, fs::path>> steps;
  if (!fs::is_directory(root)) return steps;
  for (const auto& entry : fs::directory_iterator(root)) {
    if (const auto step = step_of(entry.path())) steps.emplace_back(*step, entry.path());
  }
  std::ranges::sort(steps, std::greater<>());
  return steps;
}

void delete_older(const fs::path& root, int step, int keep) {
  if (keep <= 0) return;
  auto steps = list_steps(root);
  std::erase_if(steps, [&](const auto& entry) { return entry.first > step; });
  for (size_t i = static_cast<size_t>(keep); i < steps.size(); ++i) {
    fs::remove_all(steps[i].second);
  }
}

// The directory takes its final name at once; an earlier one of that name (the same step, written
// again after a resume) goes out of the way first.
void publish(const fs::path& complete, const fs::path& directory) {
  const fs::path replaced = complete.string() + ".replaced";
  fs::remove_all(replaced);
  if (fs::exists(directory)) fs::rename(directory, replaced);
  std::error_code failed;
  fs::rename(complete, directory, failed);
  if (failed) {
    if (fs::exists(replaced)) fs::rename(replaced, directory);
    throw fs::filesystem_error("cannot rename", complete, directory, failed);
  }
  fsync_path(directory.parent_path());
  fs::remove_all(replaced);
}

// The checkpoint, or what is wrong with it.
Expected<Checkpoint> open_complete(int step, const fs::path& directory) {
  try {
    const fs::path file = directory / kManifest;
    const Json manifest = parse_json(read_text(file), file.string());
    for (const auto& [name, info] : manifest.at("files").items()) {
      const fs::path part = part_file(directory, name);
      const auto expected = info.at("bytes").get<uint64_t>();
      const uint64_t found = fs::file_size(part);
      if (found != expected) {
        return tl::unexpected(part.string() + " has " + std::to_string(found) + " of " +
                              std::to_string(expected) + " bytes");
      }
    }
    return Checkpoint{directory, step, manifest.at("state")};
  } catch (const Error& error) {
    return tl::unexpected(std::string(error.what()));
  } catch (const Json::exception& error) {
    return tl::unexpected(directory.string() + ": " + kManifest + ": " + error.what());
  } catch (const fs::filesystem_error& error) {
    return tl::unexpected(directory.string() + ": " + error.what());
  }
}

// It would only keep a full disk full.
void discard(const fs::path& directory) {
  std::error_code ignored;
  fs::remove_all(directory, ignored);
}

}  // namespace

void write_checkpoint(const fs::path& root, int step, const Json& state,
                      const std::vector<CheckpointPart>& parts, int keep) {
  const std::string name = kStepPrefix + std::to_string(step);
  const fs::path unfinished = root / ("unfinished_" + name);
  try {
    fs::remove_all(unfinished);
    fs::create_directories(unfinished);
    const Json files = write_parts(unfinished, parts);
    const Json manifest = {{"step", step}, {"state", state}, {"files", files}};
    write_text(unfinished / kManifest, manifest.dump(1) + "\n");
    publish(unfinished, root / name);
    delete_older(root, step, keep);
  } catch (const fs::filesystem_error& error) {
    discard(unfinished);
    throw Error(ErrorCode::kIo, "checkpoint " + (root / name).string() + ": " + error.what());
  } catch (const Error&) {
    discard(unfinished);
    throw;
  }
}

std::optional<Checkpoint> newest_checkpoint(const fs::path& root) {
  for (const auto& [step, directory] : list_steps(root)) {
    if (auto checkpoint = open_complete(step, directory)) return *std::move(checkpoint);
  }
  return std::nullopt;
}

std::vector<std::string> damaged_checkpoints(const fs::path& root) {
  std::vector<std::string> reasons;
  for (const auto& [step, directory] : list_steps(root)) {
    const auto checkpoint = open_complete(step, directory);
    if (checkpoint) break;
    reasons.push_back(checkpoint.error());
  }
  return reasons;
}

TensorMap read_part(const Checkpoint& checkpoint, const std::string& name) {
  const fs::path manifest_file = checkpoint.directory / kManifest;
  const Json manifest = parse_json(read_text(manifest_file), manifest_file.string());
  const auto files = require<Json>(manifest, "files", manifest_file.string());
  const auto info = require<Json>(files, name.c_str(), manifest_file.string());
  const fs::path file = part_file(checkpoint.directory, name);
  TensorMap tensors = read_safetensors(file);
  if (content_hash(tensors) != require<std::string>(info, "hash", manifest_file.string())) {
    throw Error(ErrorCode::kInvalidInput,
                file.string() + ": damaged, its content does not match the hash in " + kManifest +
                    "; delete " + checkpoint.directory.string() + " to resume from an older one");
  }
  return tensors;
}

}  // namespace nereus
