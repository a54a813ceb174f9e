// Laws of the best plan, on random jobs and clusters.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "nereus/planner/planner.h"
#include "nereus/planner/random_case.h"

namespace nereus {
namespace {

using testing::Case;
using testing::Generator;
using testing::trials;

// The best step, or infinity.
Seconds best_step(const Case& c) {
  const auto choice = choose_plan(c.job, c.cluster, c.pool, {}, c.options);
  return choice ? choice->best.latency.total : Seconds(std::numeric_limits<double>::infinity());
}

void expect_no_slower(Seconds more, Seconds less) { EXPECT_LE(more.count(), less.count() + 2e-9); }

TEST(Laws, MoreMemoryIsNeverSlower) {
  for (int trial = 0; trial < trials(25); ++trial) {
    SCOPED_TRACE(trial);
    Generator generator(trial);
    Case c = generator.next();
    c.options.keep = 0;
    Seconds before(std::numeric_limits<double>::infinity());
    for (double kibibytes = 256; kibibytes < 1e6; kibibytes *= 1 + 2 * generator.fraction()) {
      c.cluster.device.memory = Bytes(int64_t(kibibytes * 1024));
      const Seconds step = best_step(c);
      expect_no_slower(step, before);
      before = step;
    }
    EXPECT_TRUE(std::isfinite(before.count()));
  }
}

TEST(Laws, MoreDevicesAreNeverSlower) {
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
    Seconds before(std::numeric_limits<double>::infinity());
    for (int hosts = 1; hosts <= 4; ++hosts) {
      c.pool = DevicePool({devices.begin(), devices.begin() + ptrdiff_t{hosts} * per_host});
      const Seconds step = best_step(c);
      expect_no_slower(step, before);
      before = step;
    }
  }
}

TEST(Laws, LongerSequencesAreNeverFaster) {
  for (int trial = 0; trial < trials(25); ++trial) {
    SCOPED_TRACE(trial);
    Generator generator(trial);
    Case c = generator.next();
    c.options.keep = 0;
    c.cluster.device.memory = Bytes(int64_t(4e6 * (1 + generator.fraction())));
    Seconds before;
    for (int64_t length = 8; length <= 1024; length *= 2) {
      c.job.workload.response_limit = length;
      c.job.workload.response_mean = double(length) * 0.5;
      const Seconds step = best_step(c);
      expect_no_slower(before, step);
      before = step;
    }
  }
}

}  // namespace
}  // namespace nereus
