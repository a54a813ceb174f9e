#include "nereus/core/cost/fit.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "nereus/core/base/error.h"

namespace nereus {
namespace {

constexpr int kRounds = 50;
constexpr double kHuber = 1.5;  // deviations beyond which a row's pull stops growing
constexpr double kSmallestDeviation = 1e-4;
constexpr double kLargestStep = 1;  // of a log efficiency in one round
constexpr double kConverged = 1e-10;

using Matrix = std::vector<std::vector<double>>;

// Solves a x = b for a symmetric positive definite a, by Gauss-Jordan; a becomes its inverse.
std::vector<double> solve(Matrix& a, const std::vector<double>& b) {
  const size_t n = a.size();
  for (size_t pivot = 0; pivot < n; ++pivot) {
    const double scale = 1 / a[pivot][pivot];
    a[pivot][pivot] = 1;
    for (double& value : a[pivot]) value *= scale;
    for (size_t row = 0; row < n; ++row) {
      if (row == pivot) continue;
      const double factor = std::exchange(a[row][pivot], 0.0);
      for (size_t column = 0; column < n; ++column) a[row][column] -= factor * a[pivot][column];
    }
  }
  std::vector<double> x;
  for (const auto& row : a) x.push_back(std::inner_product(row.begin(), row.end(), b.begin(), 0.0));
  return x;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

class Fitter {
 public:
  Fitter(std::span<const MeasuredWork> rows, const Calibration& prior, Seconds tick)
      : rows_(rows), prior_(prior) {
    for (OpClass op_class : kAllOpClasses) {
      const bool occurs = std::ranges::any_of(
          rows, [&](const MeasuredWork& row) { return row.ideal[op_class] > 0; });
      if (occurs) classes_.push_back(op_class);
    }
    for (OpClass op_class : classes_) log_.push_back(std::log(prior.efficiency(op_class)));
    for (const MeasuredWork& row : rows) {
      // Half a tick of error, beside a deviation of a twentieth that tables have anyway.
      const double ticks = 0.5 * tick.count() / row.time.count() / 0.05;
      reliability_.push_back(1 / (1 + ticks * ticks));
    }
  }

  Fit run() {
    // What is known before says more of how classes compare than of how fast they all are.
    linearise();
    const double common = median(residuals_);
    for (double& log : log_) log -= common;
    start_ = log_;
    for (int round = 0; round < kRounds; ++round) {
      linearise();
      if (step() < kConverged) break;
    }
    linearise();
    step();
    return result();
  }

 private:
  // Residuals, and the share of each class in each row's prediction, at the present efficiencies.
  void linearise() {
    residuals_.clear();
    shares_.clear();
    for (const MeasuredWork& row : rows_) {
      std::vector<double> parts;
      for (size_t c = 0; c < classes_.size(); ++c) {
        parts.push_back(row.ideal[classes_[c]] * std::exp(-log_[c]));
      }
      const double total = std::accumulate(parts.begin(), parts.end(), 0.0);
      for (double& part : parts) part /= total;
      shares_.push_back(std::move(parts));
      residuals_.push_back(std::log(row.time.count() / total));
    }
    std::vector<double> sizes;
    for (double residual : residuals_) sizes.push_back(std::abs(residual));
    deviation_ = std::max(kSmallestDeviation, 1.48 * median(std::move(sizes)));
  }

  // One Gauss-Newton step; returns its largest change. A class's share is minus the derivative of
  // the log prediction by its log efficiency.
  double step() {
    const size_t n = classes_.size();
    Matrix normal(n, std::vector<double>(n, 0));
    std::vector<double> pull(n, 0);
    for (size_t r = 0; r < rows_.size(); ++r) {
      const double size = std::abs(residuals_[r]) / deviation_;
      const double weight = reliability_[r] * std::min(1.0, kHuber / std::max(size, 1e-12)) /
                            (deviation_ * deviation_);
      for (size_t i = 0; i < n; ++i) {
        pull[i] -= weight * shares_[r][i] * residuals_[r];
        for (size_t j = 0; j < n; ++j) normal[i][j] += weight * shares_[r][i] * shares_[r][j];
      }
    }
    for (size_t i = 0; i < n; ++i) {
      const double precision = std::pow(prior_.log_deviation(classes_[i]), -2);
      normal[i][i] += precision;
      pull[i] += precision * (start_[i] - log_[i]);
    }
    const std::vector<double> change = solve(normal, pull);
    covariance_ = std::move(normal);
    double largest = 0;
    for (size_t i = 0; i < n; ++i) {
      log_[i] += std::clamp(change[i], -kLargestStep, kLargestStep);
      largest = std::max(largest, std::abs(change[i]));
    }
    return largest;
  }

  Fit result() const {
    Fit fit{.calibration = prior_,
            .parameters = static_cast<int>(classes_.size()),
            .deviation = deviation_};
    for (size_t c = 0; c < classes_.size(); ++c) {
      double squares = 0, shares = 0;
      for (size_t r = 0; r < rows_.size(); ++r) {
        const double bounded = std::clamp(residuals_[r], -3 * deviation_, 3 * deviation_);
        squares += shares_[r][c] * bounded * bounded;
        shares += shares_[r][c];
      }
      fit.calibration.set(classes_[c], {.log_efficiency = log_[c],
                                        .variance = squares / shares + covariance_[c][c],
                                        .observations = static_cast<int>(std::ceil(shares))});
    }
    return fit;
  }

  std::span<const MeasuredWork> rows_;
  const Calibration& prior_;
  std::vector<OpClass> classes_;
  std::vector<double> log_, start_;  // efficiencies, by class
  std::vector<double> reliability_;  // by row
  std::vector<double> residuals_;    // by row
  Matrix shares_;                    // by row and class
  Matrix covariance_;                // of the log efficiencies
  double deviation_ = 1;
};

}  // namespace

Fit fit(std::span<const MeasuredWork> rows, const Calibration& prior, Seconds tick) {
  for (size_t r = 0; r < rows.size(); ++r) {
    const double ideal = rows[r].ideal.sum(), time = rows[r].time.count();
    if (std::isfinite(time) && time > 0 && std::isfinite(ideal) && ideal > 0) continue;
    throw Error(ErrorCode::kInvalidInput, "row " + std::to_string(r) + ": " + std::to_string(time) +
                                              " s measured for " + std::to_string(ideal) +
                                              " s of ideal work; both must be positive and finite");
  }
  if (rows.empty()) return {.calibration = prior};
  return Fitter(rows, prior, tick).run();
}

Seconds predicted_time(const Operations& ideal, const Calibration& calibration) {
  double total = 0;
  for (OpClass op_class : kAllOpClasses) {
    if (ideal[op_class] > 0) total += ideal[op_class] / calibration.efficiency(op_class);
  }
  return Seconds(total);
}

}  // namespace nereus
