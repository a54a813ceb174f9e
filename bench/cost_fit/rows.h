// The rows of a table of measurements, as ideal work.
#pragma once

#include <map>
#include <string>

#include "nereus/core/base/json.h"
#include "nereus/core/cost/fit.h"
#include "nereus/core/workflow/job_spec.h"

namespace nereus::bench {

// What rows refer to by name.
struct Hardware {
  std::map<std::string, Cluster> clusters;
  std::map<std::string, ModelSpec> models;
};
Hardware hardware(const Json& document);

// The ideal work of a row on its "cluster". Kinds:
//   gemm        tokens, in, out: one matrix product, bf16
//   norm, elementwise   bytes: one memory-bound operator
//   all_reduce, send    bytes, ranks, per_host: one collective
//   step        passes (train, log_probs, generate), model, gpus, tp, pp, batch, and if they are
//   not 1
//               or absent: generation_tp, micro_batch, mini_batch, chunks; length or prompt,
//               response and limit; recompute, float8
// Throws Error(kInvalidInput) for others.
Operations ideal_work(const Json& row, const Hardware& hardware);

}  // namespace nereus::bench
