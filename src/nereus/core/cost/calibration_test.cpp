#include "nereus/core/cost/calibration.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "nereus/core/base/error.h"

namespace nereus {
namespace {

constexpr OpClass kClass = OpClass::kCompute;

TEST(OpClass, NamesReadBack) {
  for (OpClass op_class : kAllOpClasses) EXPECT_EQ(parse_op_class(to_string(op_class)), op_class);
  EXPECT_THROW(parse_op_class("matmul"), Error);
}

TEST(Calibration, UnseenClassesAreConservativeAndMarked) {
  const Calibration calibration;
  for (OpClass op_class : kAllOpClasses) {
    EXPECT_FALSE(calibration.seen(op_class));
    EXPECT_DOUBLE_EQ(calibration.efficiency(op_class), default_efficiency(op_class));
    EXPECT_GT(calibration.log_deviation(op_class), 0.5);
  }
}

TEST(Calibration, FirstObservationReplacesTheDefault) {
  Calibration calibration;
  calibration.observe(kClass, Seconds(1), Seconds(100));
  EXPECT_TRUE(calibration.seen(kClass));
  EXPECT_NEAR(calibration.efficiency(kClass), 0.01, 1e-12);
  EXPECT_FALSE(calibration.seen(OpClass::kDecode));
}

TEST(Calibration, AnUnseenCollectiveIsNotTrustedMoreThanTheSeenOnes) {
  Calibration calibration;
  calibration.observe(OpClass::kCompute, Seconds(1), Seconds(1000));
  EXPECT_DOUBLE_EQ(calibration.efficiency(OpClass::kTensorComm), 0.2);
  calibration.observe(OpClass::kGradientComm, Seconds(0.03), Seconds(1));
  EXPECT_NEAR(calibration.efficiency(OpClass::kTensorComm), 0.02, 1e-12);
  EXPECT_DOUBLE_EQ(calibration.efficiency(OpClass::kOptimizer), 0.3);
  Calibration fast;
  fast.observe(OpClass::kGradientComm, Seconds(0.9), Seconds(1));
  EXPECT_DOUBLE_EQ(fast.efficiency(OpClass::kTensorComm), 0.2);
}

TEST(Calibration, ConvergesAndTheDeviationShrinks) {
  Calibration calibration;
  calibration.observe(kClass, Seconds(1), Seconds(100));
  for (int i = 0; i < 60; ++i) calibration.observe(kClass, Seconds(1), Seconds(4));
  EXPECT_NEAR(calibration.efficiency(kClass), 0.25, 1e-6);
  EXPECT_LT(calibration.log_deviation(kClass), 0.01);
}

TEST(Calibration, OneOutlierMovesLittle) {
  Calibration calibration;
  for (int i = 0; i < 20; ++i) calibration.observe(kClass, Seconds(1), Seconds(4));
  const double before = std::log(calibration.efficiency(kClass));
  calibration.observe(kClass, Seconds(1), Seconds(1e9));
  EXPECT_NEAR(std::log(calibration.efficiency(kClass)), before - 0.3 * std::log(4.0), 1e-9);
}

TEST(Calibration, IgnoresTimesThatMeanNothing) {
  const Calibration fresh;
  Calibration calibration;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  for (const auto& [ideal, measured] : {std::pair{0.0, 1.0},
                                        {1.0, 0.0},
                                        {1.0, -1.0},
                                        {nan, 1.0},
                                        {1.0, inf},
                                        {inf, 1.0},
                                        {1.0, nan}}) {
    calibration.observe(kClass, Seconds(ideal), Seconds(measured));
  }
  EXPECT_EQ(calibration, fresh);
}

TEST(Calibration, MemoryFactorJumpsUpAndFadesSlowly) {
  Calibration calibration;
  calibration.observe_memory(Bytes(1000), Bytes(1500));
  EXPECT_DOUBLE_EQ(calibration.memory_factor(), 1.5);
  calibration.observe_memory(Bytes(1000), Bytes(1000));
  EXPECT_DOUBLE_EQ(calibration.memory_factor(), 1.45);
  for (int i = 0; i < 200; ++i) calibration.observe_memory(Bytes(1000), Bytes(10));
  EXPECT_NEAR(calibration.memory_factor(), 0.5, 1e-6);
  calibration.observe_memory(Bytes(1), Bytes(1000000));
  EXPECT_DOUBLE_EQ(calibration.memory_factor(), 4);
}

TEST(Calibration, SurvivesJson) {
  Calibration calibration;
  calibration.observe(kClass, Seconds(1), Seconds(3));
  calibration.observe(OpClass::kDecode, Seconds(1), Seconds(7));
  calibration.observe(kClass, Seconds(1), Seconds(5));
  calibration.observe_memory(Bytes(1000), Bytes(1234));
  const Json saved = calibration;
  EXPECT_EQ(parse_json(saved.dump(), "saved").get<Calibration>(), calibration);
}

}  // namespace
}  // namespace nereus
