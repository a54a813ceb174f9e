// All placements of a model-stage that the search may choose, written down naively.
#pragma once

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

#include "nereus/core/cost/shape.h"
#include "nereus/core/planner/placement.h"
#include "nereus/core/planner/random_case.h"

namespace nereus::testing {

// A model-stage in one layout on a number of units, and everywhere that it may begin.
struct Shape {
  std::vector<StagePlan> placed;
  std::vector<int> begins;  // of these: positions on the line, ascending
  std::vector<int> ends;
};

// From every device on that can be its first one and, unless all of them count, is a place.
inline Shape everywhere(ModelStage model_stage, Layout layout, int units, const Case& c) {
  const DeviceLine line(c.pool);
  const bool every = line.size() <= c.options.every_begin;
  const int step = every ? 1 : int(ceil_div(line.size(), c.options.places));
  const auto position = [&](DeviceId device) {
    return int(std::ranges::find(line.devices(), device) - line.devices().begin());
  };
  Shape shape;
  for (int begin = 0, in_host = 0; begin < line.size(); ++begin, ++in_host) {
    if (begin > 0 && line.devices()[begin].host != line.devices()[begin - 1].host) in_host = 0;
    if (begin > 0 && !c.options.side_by_side) break;
    if (in_host % step != 0 || (!every && in_host % layout.tp != 0)) continue;
    try {
      const StagePlan placed = line.place(model_stage, layout, units, begin);
      if (position(placed.units.front().front()) != begin) continue;
      shape.placed.push_back(placed);
    } catch (const Error&) {
      break;  // too few devices are left
    }
    shape.begins.push_back(begin);
    shape.ends.push_back(position(shape.placed.back().units.back().back()) + 1);
  }
  return shape;
}

inline std::vector<Shape> all_shapes(ModelStage model_stage, const Case& c) {
  const ModelSpec& spec = c.job.model(model_stage.role);
  const bool trains = model_stage.stage == Stage::kTraining;
  const int64_t sequences = trains ? c.job.workload.mini_batch : c.job.workload.samples;
  const DeviceLine line(c.pool);
  std::vector<Shape> all;
  for (int tp = 1; tp <= std::min(spec.num_heads, line.largest_host()); tp *= 2) {
    for (int pp = 1; pp <= spec.num_layers; ++pp) {
      const bool is_power = pp == 1 || pp == 2 || pp == 4;
      const bool shortens =
          is_power || ceil_div(spec.num_layers, pp) < ceil_div(spec.num_layers, pp - 1);
      if (!is_power && !(trains && shortens)) continue;
      for (int zero = 1; zero <= (trains ? c.options.most_zero : 1); zero *= 2) {
        const Layout layout{.tp = tp, .pp = pp, .zero = zero};
        const int64_t most = std::min<int64_t>(line.most_units(layout), sequences / zero);
        for (int units = 1; units <= most; ++units) {
          // All numbers of units up to eight divide the batch or shorten somebody's share, or idle.
          const int64_t share = ceil_div(sequences, units * zero);
          if (units > 1 && share == ceil_div(sequences, (units - 1) * zero)) continue;
          const bool round = units <= 7 || units == 10 || units == 12 || units == 14;
          if (sequences % (units * zero) != 0 && !round) continue;
          all.push_back(everywhere(model_stage, layout, units, c));
        }
      }
    }
  }
  if (c.options.allow_offload) {
    const std::vector<Shape> resident = all;
    for (Shape shape : resident) {
      for (StagePlan& stage : shape.placed) stage.offload = true;
      all.push_back(std::move(shape));
    }
  }
  return all;
}

// Where shape number `own` may begin: at the front, or behind others that are set one after the
// other from the front, each as soon as it can begin.
inline std::set<int> behind_others(const std::vector<const Shape*>& shapes, size_t own) {
  const auto first = [](const Shape& shape, int from) {
    return std::ranges::lower_bound(shape.begins, from) - shape.begins.begin();
  };
  std::vector<size_t> order(shapes.size());
  std::iota(order.begin(), order.end(), 0);
  std::set<int> begins;
  do {
    int end = 0;
    for (const size_t next : order) {
      const Shape& shape = *shapes[next];
      const auto at = first(shape, end);
      if (at == std::ssize(shape.begins)) break;
      if (next == own) {
        begins.insert(shape.begins[at]);
        break;
      }
      end = shape.ends[at];
    }
  } while (std::ranges::next_permutation(order).found);
  return begins;
}

}  // namespace nereus::testing
