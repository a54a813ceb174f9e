#include "nereus/core/state/assignment.h"

#include <algorithm>
#include <limits>

#include "nereus/core/base/error.h"

namespace nereus {

namespace {

constexpr int kNone = -1;

// The Hungarian method: rows are added one at a time, each along a shortest augmenting path under
// potentials that keep all reduced costs at least 0.
class Hungarian {
 public:
  explicit Hungarian(const std::vector<std::vector<int64_t>>& worth)
      : worth_(worth),
        columns_(worth.front().size()),
        row_potential_(worth.size(), 0),
        column_potential_(columns_, 0),
        row_of_(columns_, kNone) {}

  std::vector<int> run() {
    for (int row = 0; row < static_cast<int>(worth_.size()); ++row) augment(row);
    std::vector<int> column_of(worth_.size());
    for (size_t column = 0; column < columns_; ++column) {
      if (row_of_[column] != kNone) column_of[row_of_[column]] = static_cast<int>(column);
    }
    return column_of;
  }

 private:
  void augment(int row) {
    std::vector<int64_t> reach(columns_, std::numeric_limits<int64_t>::max());
    std::vector<int> previous(columns_, kNone);  // column before this one on the shortest path
    std::vector<bool> visited(columns_, false);
    int64_t length = 0;
    int column = kNone;
    for (int at = row; at != kNone; at = row_of_[column]) {
      // Leave `at`, reached over `column`, for the nearest column not yet visited.
      int next = kNone;
      for (int c = 0; c < static_cast<int>(columns_); ++c) {
        if (visited[c]) continue;
        const int64_t through = length - worth_[at][c] - row_potential_[at] - column_potential_[c];
        if (through < reach[c]) {
          reach[c] = through;
          previous[c] = column;
        }
        if (next == kNone || reach[c] < reach[next]) next = c;
      }
      column = next;
      visited[column] = true;
      length = reach[column];
    }
    row_potential_[row] += length;
    for (int c = 0; c < static_cast<int>(columns_); ++c) {
      if (!visited[c] || c == column) continue;
      row_potential_[row_of_[c]] += length - reach[c];
      column_potential_[c] -= length - reach[c];
    }
    for (; column != kNone; column = previous[column]) {
      row_of_[column] = previous[column] == kNone ? row : row_of_[previous[column]];
    }
  }

  const std::vector<std::vector<int64_t>>& worth_;
  size_t columns_;
  std::vector<int64_t> row_potential_;
  std::vector<int64_t> column_potential_;
  std::vector<int> row_of_;  // by column
};

}  // namespace

std::vector<int> best_assignment(const std::vector<std::vector<int64_t>>& worth) {
  if (worth.empty()) return {};
  NEREUS_CHECK(worth.size() <= worth.front().size(), "more rows than columns");
  return Hungarian(worth).run();
}

}  // namespace nereus
