#include "nereus/runtime/data/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <system_error>
#include <utility>

#include "nereus/core/base/error.h"
#include "nereus/core/base/hash.h"
#include "nereus/core/base/log.h"
#include "nereus/core/base/text.h"
#include "nereus/runtime/files/files.h"
#include "nereus/runtime/files/regular_file.h"

namespace nereus {

namespace {

namespace fs = std::filesystem;

constexpr const char* kManifest = "manifest.json";
constexpr const char* kStepPrefix = "step_";
constexpr const char* kStep = "step";
constexpr const char* kState = "state";
constexpr const char* kFiles = "files";
constexpr const char* kBytes = "bytes";
constexpr const char* kHash = "hash";

fs::path part_file(const fs::path& directory, const std::string& name) {
  return directory / (name + ".safetensors");
}

uint64_t extend_hash(uint64_t hash, const std::string& text) {
  return hash_bytes(std::as_bytes(std::span(text)), hash);
}

// Names, dtypes, shapes and bytes of all tensors, in the order of their names.
class ContentHash {
 public:
  void add(const std::string& name, const at::Tensor& tensor) {
    const Json shape = tensor.sizes().vec();
    hash_ = extend_hash(hash_, name + at::toString(tensor.scalar_type()) + shape.dump());
    hash_ = hash_bytes(bytes_of(tensor), hash_);
  }
  std::string hex() const { return to_hex(hash_); }

 private:
  uint64_t hash_ = 0;
};

std::string content_hash(const TensorMap& tensors) {
  ContentHash hash;
  for (const auto& [name, tensor] : tensors) {
    hash.add(name, tensor.detach().to(at::kCPU).contiguous());
  }
  return hash.hex();
}

// Of a file, one tensor in memory at a time.
std::string content_hash(const fs::path& file) {
  SafetensorsFile opened(file);
  ContentHash hash;
  for (const auto& [name, info] : opened.tensors()) hash.add(name, opened.read(name));
  return hash.hex();
}

// The hash of a manifest without its own: of its values, so white space does not count.
std::string manifest_hash(Json manifest) {
  manifest.erase(kHash);
  return to_hex(extend_hash(0, to_line(manifest)));
}

Json write_parts(const fs::path& directory, const std::vector<CheckpointPart>& parts) {
  Json files = Json::object();
  for (const CheckpointPart& part : parts) {
    const fs::path file = part_file(directory, part.name);
    write_safetensors(file, part.tensors);
    files[part.name] = {{kBytes, fs::file_size(file)}, {kHash, content_hash(part.tensors)}};
  }
  return files;
}

// The number N of a directory named step_N, or nothing.
std::optional<int> step_of(const fs::path& directory) {
  const std::string name = directory.filename().string();
  const std::string_view prefix = kStepPrefix;
  int step = 0;
  if (!name.starts_with(prefix)) return std::nullopt;
  std::from_chars(name.data() + prefix.size(), name.data() + name.size(), step);
  const bool is_ours = step >= 0 && name == kStepPrefix + std::to_string(step);  // no step_007
  return is_ours ? std::optional(step) : std::nullopt;
}

// (step, directory) of everything that looks like a checkpoint, newest first.
std::vector<std::pair<int, fs::path>> list_steps(const fs::path& root) {
  std::vector<std::pair<int, fs::path>> steps;
  if (!fs::is_directory(root)) return steps;
  std::error_code failed;
  for (fs::directory_iterator entry(root, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    if (const auto step = step_of(entry->path())) steps.emplace_back(*step, entry->path());
  }
  if (failed) {
    throw Error(ErrorCode::kIo, "cannot list " + root.string() + ": " + failed.message());
  }
  std::ranges::sort(steps, std::greater<>());
  return steps;
}

void delete_older(const fs::path& root, int step, int keep) {
  if (keep <= 0) return;
  auto steps = list_steps(root);
  std::erase_if(steps, [&](const auto& entry) { return entry.first > step; });
  for (size_t i = static_cast<size_t>(keep); i < steps.size(); ++i) {
    std::error_code error;
    fs::remove_all(steps[i].second, error);
    if (!error) continue;
    log::warn("cannot delete " + steps[i].second.string() + ": " + error.message());
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

[[noreturn]] void refuse(const fs::path& file, const std::string& what) {
  throw Error(ErrorCode::kInvalidInput, file.string() + ": " + what);
}

// The manifest of a directory, confirmed by its hash.
Json read_manifest(const fs::path& file) {
  const std::string where = file.string();
  Json manifest = parse_json(read_text(file), where);
  refuse_unknown_keys(manifest, {kStep, kState, kFiles, kHash}, where);
  if (require<std::string>(manifest, kHash, where) != manifest_hash(manifest)) {
    refuse(file, "damaged, its content does not match its own hash");
  }
  return manifest;
}

// The directory, the manifest and the state in it speak of the same step.
void verify_step(int step, const Json& manifest, const fs::path& file) {
  const auto verify = [&](const Json& j, const std::string& where) {
    const int told = require<int>(j, kStep, where);
    if (told != step) {
      refuse(file, "tells of step " + std::to_string(told) + ", its directory of step " +
                       std::to_string(step));
    }
  };
  verify(manifest, file.string());
  const Json& state = manifest.at(kState);
  if (state.is_object() && state.contains(kStep)) verify(state, file.string() + ": state");
}

void verify_part(const fs::path& directory, const std::string& name, const Json& info,
                 const std::string& where) {
  if (name.empty() || name.find('/') != std::string::npos) {
    throw Error(ErrorCode::kInvalidInput, where + ": " + shown(name) + " is no name of a part");
  }
  const fs::path file = part_file(directory, name);
  const auto expected = require<uint64_t>(info, kBytes, where);
  const uint64_t found = regular_file_size(file);
  if (found != expected) {
    refuse(file, std::to_string(found) + " of " + std::to_string(expected) + " bytes");
  }
  if (content_hash(file) != require<std::string>(info, kHash, where)) {
    refuse(file, std::string("damaged, its content does not match the hash in ") + kManifest);
  }
}

// Throws Error unless it is intact.
Checkpoint open_intact(int step, const fs::path& directory) {
  const fs::path file = directory / kManifest;
  const Json manifest = read_manifest(file);
  const std::string where = file.string();
  Checkpoint checkpoint{directory, step, require<Json>(manifest, kState, where), {}};
  verify_step(step, manifest, file);
  for (const auto& [name, info] : require<std::map<std::string, Json>>(manifest, kFiles, where)) {
    verify_part(directory, name, info, where);
    checkpoint.part_hashes[name] = require<std::string>(info, kHash, where);
  }
  return checkpoint;
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
    Json manifest = {{kStep, step}, {kState, state}, {kFiles, files}};
    manifest[kHash] = manifest_hash(manifest);
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

CheckpointSearch search_checkpoints(const fs::path& root) {
  CheckpointSearch search;
  for (const auto& [step, directory] : list_steps(root)) {
    try {
      search.newest = open_intact(step, directory);
      return search;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kInvalidInput) throw;  // nothing is said about the checkpoint
      search.damaged.emplace_back(error.what());
    }
  }
  return search;
}

std::optional<Checkpoint> newest_checkpoint(const fs::path& root) {
  return search_checkpoints(root).newest;
}

TensorMap read_part(const Checkpoint& checkpoint, const std::string& name) {
  const auto hash = checkpoint.part_hashes.find(name);
  if (hash == checkpoint.part_hashes.end()) {
    refuse(checkpoint.directory / kManifest, "tells of no part " + shown(name));
  }
  const fs::path file = part_file(checkpoint.directory, name);
  TensorMap tensors = read_safetensors(file);
  if (content_hash(tensors) != hash->second) {
    refuse(file, "changed since the checkpoint was chosen; delete " +
                     checkpoint.directory.string() + " to resume from an older one");
  }
  return tensors;
}

}  // namespace nereus
