// Laws of the best plan, on random jobs and clusters.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "nereus/core/planner/planner.h"
#include "nereus/core/planner/random_case.h"

namespace nereus {
namespace {

using testing::Case;
using testing::Generator;
using testing::trials;

constexpr Seconds kNever(std::numeric_limits<double>::infinity());

// The best step, or infinity.
Seconds best_step(const Case& c) {
  const auto choice = choose_plan(c.job, c.cluster, c.pool, {}, c.options);
  return choice ? choice->best.latency.total : kNever;
}

// Compares the best steps of one case as something grows, and counts what there was to compare: a
// law says nothing where nothing fits, and little where nothing changes.
class Series {
 public:
  void add(Seconds step) {
    steps_.push_back(step);
    (step == kNever ? without_plan : with_plan) += 1;
  }
  // Each is at most as long as the one before it.
  void expect_no_slower() const {
    for (size_t i = 1; i < steps_.size(); ++i) {
      EXPECT_LE(steps_[i].count(), steps_[i - 1].count() + kRounding) << "number " << i;
    }
  }
  void expect_no_faster() const {
    for (size_t i = 1; i < steps_.size(); ++i) {
      EXPECT_GE(steps_[i].count(), steps_[i - 1].count() - kRounding) << "number " << i;
    }
  }
  // Whether a law had anything to say: two plans that differ in time.
  bool tells() const {
    std::vector<Seconds> finite = steps_;
    std::erase(finite, kNever);
    return !finite.empty() && std::ranges::max(finite) > std::ranges::min(finite) * 1.001;
  }
  int with_plan = 0;
  int without_plan = 0;

 private:
  static constexpr double kRounding = 2e-9;
  std::vector<Seconds> steps_;
};

// What a law was tried on, over all trials.
struct Tried {
  int trials = 0;
  int telling = 0;       // that had something to say
  int with_plan = 0;     // points at which something fits
  int without_plan = 0;  // and at which nothing does

  void add(const Series& series) {
    ++trials;
    telling += series.tells() ? 1 : 0;
    with_plan += series.with_plan;
    without_plan += series.without_plan;
  }
  // Half of the trials must tell, and points with too little memory must not be the rule.
  void expect_enough() const {
    EXPECT_GE(2 * telling, trials);
    EXPECT_GT(with_plan, without_plan);
  }
};

TEST(Laws, MoreMemoryIsNeverSlower) {
  Tried tried;
  for (int trial = 0; trial < trials(25); ++trial) {
    SCOPED_TRACE(trial);
    Generator generator(trial);
    Case c = generator.next();
    c.options.keep = 0;
    Series series;
    for (double kibibytes = 256; kibibytes < 1e6; kibibytes *= 1 + 2 * generator.fraction()) {
      c.cluster.device.memory = Bytes(int64_t(kibibytes * 1024));
      series.add(best_step(c));
    }
    series.expect_no_slower();
    EXPECT_GT(series.with_plan, 0) << "a gigabyte is plenty";
    EXPECT_GT(series.without_plan, 0) << "a quarter of a mebibyte is not enough";
    tried.add(series);
  }
  tried.expect_enough();
}

TEST(Laws, MoreDevicesAreNeverSlower) {
  Tried tried;
  for (int trial = 0; trial < trials(25); ++trial) {
    SCOPED_TRACE(trial);
    Generator generator(trial);
    Case c = generator.next();
    c.options.keep = 0;
    // Side by side, generation may end up farther away from training.
    c.options.side_by_side = false;
    c.cluster.hosts.resize(4, c.cluster.hosts.front());
    c.cluster.device.memory = Bytes(int64_t(4e6 * (1 + generator.fraction())));
    const std::vector<DeviceId> devices = all_devices(c.cluster).devices();
    const int per_host = c.cluster.hosts.front().devices;
    Series series;
    for (int hosts = 1; hosts <= 4; ++hosts) {
      c.pool = DevicePool({devices.begin(), devices.begin() + ptrdiff_t{hosts} * per_host});
      series.add(best_step(c));
    }
    series.expect_no_slower();
    tried.add(series);
  }
  tried.expect_enough();
}

// Each space of placements holds the one before it. On one host, where all devices are alike, and
// with memory enough, the second is as good as the third; a weight synchronisation may still take a
// little longer.
TEST(Laws, MorePlacementsAreNeverSlower) {
  int faster = 0, differ = 0, alike = 0;
  for (int trial = 0; trial < 2 * trials(25); ++trial) {
    SCOPED_TRACE(trial);
    Generator generator(trial);
    Case c = generator.next();
    c.options.keep = 0;
    c.cluster.device.memory =
        trial % 2 == 0 ? Bytes(1 << 30) : Bytes(int64_t(4e6 * (1 + generator.fraction())));
    c.options.places = 32;
    Series series;
    std::vector<Seconds> steps;
    for (const int every_begin : {-1, 0, 16}) {
      c.options.side_by_side = every_begin >= 0;
      c.options.every_begin = every_begin;
      steps.push_back(best_step(c));
      series.add(steps.back());
    }
    series.expect_no_slower();
    if (steps[1] < steps[0]) ++faster;
    if (c.cluster.hosts.size() > 1 || trial % 2 == 1) continue;
    EXPECT_LT(steps[1].count(), 1.05 * steps[2].count());
    ++(steps[2].count() < steps[1].count() * (1 - 1e-9) ? differ : alike);
  }
  EXPECT_GT(faster, 0);
  EXPECT_GT(alike, 5 * differ);
}

TEST(Laws, LongerSequencesAreNeverFaster) {
  Tried tried;
  for (int trial = 0; trial < trials(25); ++trial) {
    SCOPED_TRACE(trial);
    Generator generator(trial);
    Case c = generator.next();
    c.options.keep = 0;
    c.cluster.device.memory = Bytes(int64_t(4e6 * (1 + generator.fraction())));
    Series series;
    for (int64_t length = 8; length <= 1024; length *= 2) {
      c.job.workload.response_limit = length;
      c.job.workload.response_mean = double(length) * 0.5;
      series.add(best_step(c));
    }
    series.expect_no_faster();
    tried.add(series);
  }
  tried.expect_enough();
}

}  // namespace
}  // namespace nereus
