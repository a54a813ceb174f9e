// Training checkpoints in logical coordinates: nothing in them knows the layout that wrote them.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "nereus/data/safetensors.h"

namespace nereus {

// One set of tensors of a checkpoint, e.g. name "actor" with keys "weights/model.norm.weight",
// "exp_avg/…"; written as NAME.safetensors.
struct CheckpointPart {
  std::string name;
  TensorMap tensors;
};

// Writes root/step_N: parts first, then manifest.json (`state` plus file sizes and hashes) last;
// the directory is renamed from a temporary name when complete, older checkpoints beyond `keep` (0:
// all) are deleted afterwards. Throws Error(kIo), and leaves nothing half-written behind.
void write_checkpoint(const std::filesystem::path& root, int step, const Json& state,
                      const std::vector<CheckpointPart>& parts, int keep);

struct Checkpoint {
  std::filesystem::path directory;
  int step = 0;
  Json state;
};

// The newest complete checkpoint (manifest there, all files of the right size), or nothing.
std::optional<Checkpoint> newest_checkpoint(const std::filesystem::path& root);
// What is wrong with each directory that looks like a newer checkpoint than that one.
std::vector<std::string> damaged_checkpoints(const std::filesystem::path& root);
// One part of it, hashes checked. Throws Error(kInvalidInput) naming the file if it was damaged.
TensorMap read_part(const Checkpoint& checkpoint, const std::string& name);

}  // namespace nereus
