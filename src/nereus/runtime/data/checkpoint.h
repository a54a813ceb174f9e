// Training checkpoints in logical coordinates: nothing in them knows the layout that wrote them.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "nereus/runtime/data/safetensors.h"

namespace nereus {

// One set of tensors of a checkpoint, e.g. name "actor" with keys "weights/model.norm.weight",
// "exp_avg/…"; written as NAME.safetensors.
struct CheckpointPart {
  std::string name;
  TensorMap tensors;
};

// Writes root/step_N: parts first, then manifest.json (step, `state`, file sizes and hashes, and a
// hash of all that) last;
// the directory is renamed from a temporary name when complete, older checkpoints beyond `keep` (0:
// all) are deleted afterwards. Throws Error(kIo), and leaves nothing half-written behind.
void write_checkpoint(const std::filesystem::path& root, int step, const Json& state,
                      const std::vector<CheckpointPart>& parts, int keep);

// What a manifest says.
struct Checkpoint {
  std::filesystem::path directory;
  int step = 0;
  Json state;
  std::map<std::string, std::string> part_hashes;
};

// The newest intact checkpoint, if there is one, and what is wrong with each that looks newer.
struct CheckpointSearch {
  std::optional<Checkpoint> newest;
  std::vector<std::string> damaged;
};

// Intact: a manifest that its own hash confirms and whose step is the directory's (and, where the
// state has a "step", that one's), and all parts there with the sizes and contents it tells of. So
// every byte of the chosen checkpoint is read once to choose it. A manifest without a hash, as
// earlier builds wrote, counts as damaged: nothing confirms what it says.
CheckpointSearch search_checkpoints(const std::filesystem::path& root);
// The same without the reasons.
std::optional<Checkpoint> newest_checkpoint(const std::filesystem::path& root);
// One part of it, hashes checked. Throws Error(kInvalidInput) naming the file if it was damaged.
TensorMap read_part(const Checkpoint& checkpoint, const std::string& name);

}  // namespace nereus
