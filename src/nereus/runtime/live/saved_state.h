// Training state as checkpoints hold it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "nereus/core/state/emu.h"
#include "nereus/runtime/data/checkpoint.h"

namespace nereus {

// One part of a checkpoint by kind and logical name. Throws Error(kInvalidInput) naming the first
// tensor that is missing, of another shape or dtype, or of no use to `schema`: then another job
// wrote it.
std::map<StateKind, TensorMap> read_state(const Checkpoint& checkpoint, const std::string& part,
                                          const StateSchema& schema);

// Throws Error(kInvalidInput) naming manifest, key, value and the legal range unless the state of
// the checkpoint tells in full, and possibly, how far a job was that trains `parts`.
void verify_progress(const Checkpoint& checkpoint, const std::vector<std::string>& parts);

}  // namespace nereus
