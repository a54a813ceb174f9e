// `nereus train`: builds a live job, runs the loop, keeps the record.
#pragma once

#include "nereus/config/config.h"
#include "nereus/driver/loop.h"

namespace nereus {

// Runs (or with trainer.resume_mode auto continues) the job that `config` describes in
// run_directory(config). A new run moves an earlier one there aside. However it ends, a checkpoint
// and summary.json are written, and the person is told how to go on. Throws Error, after recording
// it as a fault, if a step fails.
LoopEnd train(const Config& config);

}  // namespace nereus
