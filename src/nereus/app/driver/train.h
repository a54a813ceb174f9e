// `nereus train`: builds a live job, runs the loop, keeps the record.
#pragma once

#include "nereus/app/config/config.h"

namespace nereus {

// Runs (or with trainer.resume_mode auto continues) the job that `config` describes in
// run_directory(config), which no other process may use meanwhile: its lock comes first. A new run
// moves an earlier one there aside. However it ends, the state of the last boundary is saved if
// memory still holds it, summary.json is written, and the person is told how to go on. Returns the
// exit code: 0 after all steps, 128 + the signal that stopped it, that of kInfeasible if no plan
// fits the devices that are left. Throws Error if a step fails, after recording it as a fault, and
// at the end if a checkpoint, the model or the record could not be written.
int train(const Config& config);

}  // namespace nereus
