// What a measured step teaches the cost model.
#pragma once

#include "nereus/core/cost/calibration.h"
#include "nereus/core/job/job.h"

namespace nereus {

// `calibration` after the report of a step that ran under `plan`. One observation per operation
// class (all nodes of the step together) and one of memory (the device that exceeds its prediction
// most). Throws Error(kInternal) if the report's spans are not those of the job's workflow.
Calibration learned(Calibration calibration, const StepReport& report, const Plan& plan,
                    const JobSpec& job, const Cluster& cluster);

// `calibration` after a transition: one observation per primitive, of its set-up if that was the
// larger part of its prediction, else of its transfer.
Calibration learned(Calibration calibration, const TransitionDag& dag,
                    const TransitionReport& report);

// Ideal time of the executed step's nodes / their measured time, all added up: what runs beside
// something else counts in full.
double step_efficiency(const StepReport& report, const Plan& plan, const JobSpec& job,
                       const Cluster& cluster);

}  // namespace nereus
