#include "nereus/core/cost/fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "nereus/core/base/error.h"

namespace nereus {
namespace {

Operations work(double gemm, double operands, double launch) {
  return Operations(OpClass::kGemm, gemm) + Operations(OpClass::kOperands, operands) +
         Operations(OpClass::kLaunch, launch);
}

// Rows of mixed sizes at efficiencies 0.7, 0.5 and 2, with `noise` in the log.
std::vector<MeasuredWork> rows_with(double noise) {
  std::mt19937 random(7);
  std::normal_distribution<> normal(0, noise);
  std::vector<MeasuredWork> rows;
  for (int tokens = 1; tokens <= 4096; tokens *= 2) {
    for (double width : {1.0, 3.0, 8.0}) {
      const Operations ideal = work(1e-7 * tokens * width, 2e-5 * width, 5e-6);
      const double time = ideal[OpClass::kGemm] / 0.7 + ideal[OpClass::kOperands] / 0.5 +
                          ideal[OpClass::kLaunch] / 2;
      rows.push_back({ideal, Seconds(time * std::exp(noise > 0 ? normal(random) : 0))});
    }
  }
  return rows;
}

TEST(Fit, FindsTheEfficienciesOfMixedWork) {
  const Fit exact = fit(rows_with(0));
  EXPECT_EQ(exact.parameters, 3);
  EXPECT_NEAR(exact.calibration.efficiency(OpClass::kGemm), 0.7, 1e-3);
  EXPECT_NEAR(exact.calibration.efficiency(OpClass::kOperands), 0.5, 1e-3);
  EXPECT_NEAR(exact.calibration.efficiency(OpClass::kLaunch), 2, 1e-2);
  EXPECT_FALSE(exact.calibration.seen(OpClass::kNorm));
}

TEST(Fit, DeviationsAreThoseOfTheRows) {
  const Fit noisy = fit(rows_with(0.1));
  EXPECT_NEAR(noisy.deviation, 0.1, 0.05);
  EXPECT_NEAR(std::log(noisy.calibration.efficiency(OpClass::kGemm) / 0.7), 0, 0.15);
  EXPECT_NEAR(noisy.calibration.log_deviation(OpClass::kGemm), 0.1, 0.06);
}

TEST(Fit, OutliersHardlyMoveIt) {
  std::vector<MeasuredWork> rows = rows_with(0.02);
  for (size_t r = 0; r < rows.size(); r += 9) rows[r].time = rows[r].time * 20;
  EXPECT_NEAR(std::log(fit(rows).calibration.efficiency(OpClass::kGemm) / 0.7), 0, 0.1);
}

TEST(Fit, WhatRowsCannotTellApartStaysAtThePrior) {
  std::vector<MeasuredWork> rows;
  for (double size : {1.0, 2.0, 5.0}) rows.push_back({work(size, size, 0), Seconds(4 * size)});
  const Calibration learned = fit(rows).calibration;
  EXPECT_NEAR(learned.efficiency(OpClass::kGemm), learned.efficiency(OpClass::kOperands), 1e-6);
  EXPECT_NEAR(predicted_time(work(3, 3, 0), learned).count(), 12, 0.05);
}

TEST(Fit, TimesOfAFewTicksCountLittle) {
  std::vector<MeasuredWork> rows = rows_with(0);
  for (MeasuredWork& row : rows) {
    row.time = Seconds(std::max(1.0, std::round(row.time.count() / 2e-5)) * 2e-5);
  }
  const double coarse = fit(rows).calibration.efficiency(OpClass::kGemm);
  const double aware = fit(rows, {}, Seconds(2e-5)).calibration.efficiency(OpClass::kGemm);
  EXPECT_LE(std::abs(std::log(aware / 0.7)), std::abs(std::log(coarse / 0.7)) + 1e-3);
  EXPECT_NEAR(aware, 0.7, 0.03);
}

TEST(Fit, RefusesTimesThatMeanNothing) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (double bad : {nan, 0.0, -1.0, std::numeric_limits<double>::infinity()}) {
    const std::vector<MeasuredWork> time = {{work(1, 1, 1), Seconds(bad)}};
    EXPECT_THROW(fit(time), Error) << bad;
    const std::vector<MeasuredWork> ideal = {{work(bad, 0, 0), Seconds(1)}};
    EXPECT_THROW(fit(ideal), Error) << bad;
  }
  EXPECT_EQ(fit({}).parameters, 0);
}

}  // namespace
}  // namespace nereus
