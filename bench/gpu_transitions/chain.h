// The transitions that are measured, and clocks.
#pragma once

#include <functional>
#include <vector>

#include "common/record.h"
#include "gpu_common/state.h"
#include "nereus/runtime/engine/stopwatch.h"

namespace nereus::bench {

inline const std::vector<DeviceId> kGpus = {{0, 0}, {0, 1}};

struct Hop {
  const char* name;
  Layout layout;
  int units;
};

// From one unit on GPU 0.
inline const std::vector<Hop> kChain = {
    {"Extend 1->2", {1, 1}, 2},       {"Destroy 2->1", {1, 1}, 1},
    {"Extend 1->2 again", {1, 1}, 2}, {"Merge 2xTP1->TP2", {2, 1}, 1},
    {"TP2->PP2", {1, 2}, 1},          {"PP2->TP2", {2, 1}, 1},
    {"Split TP2->2xTP1", {1, 1}, 2},  {"Destroy 2->1 again", {1, 1}, 1}};

inline double gigabytes(Bytes bytes) { return static_cast<double>(bytes.count()) / 1e9; }

inline double median(std::vector<double> values) { return quantile(std::move(values), 0.5); }

// Seconds of body(worker) on the given devices at once.
inline double timed(const WorkerPool& workers, const std::vector<DeviceId>& devices,
                    const std::function<void(Worker&)>& body) {
  const Stopwatch timer;
  workers.run(
      devices,
      [&](Worker& worker) {
        body(worker);
        worker.synchronise();
      },
      [](const std::string&) {});
  return timer.elapsed().count();
}

}  // namespace nereus::bench
