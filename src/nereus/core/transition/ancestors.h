// For each node of a growing DAG the set of nodes that come before it, as bits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace nereus {

class Ancestors final {
 public:
  using Set = std::vector<uint64_t>;

  explicit Ancestors(size_t nodes) : words_((nodes + 63) / 64), rows_(nodes * words_) {}

  Set of(int node) const { return {row(node), row(node) + words_}; }
  // of(), into memory that is there already.
  void copy(int node, Set& into) const { into.assign(row(node), row(node) + words_); }
  void set(int node, const Set& set) { std::ranges::copy(set, row(node)); }
  // Adds `node` and all that come before it.
  void join(Set& set, int node) const {
    for (size_t w = 0; w < words_; ++w) set[w] |= row(node)[w];
    set[node / 64] |= uint64_t{1} << (node % 64);
  }
  bool contains(int node, int earlier) const { return bit(row(node), earlier); }
  static bool contains(const Set& set, int node) { return bit(set.data(), node); }

 private:
  static bool bit(const uint64_t* words, int node) { return (words[node / 64] >> (node % 64)) & 1; }
  uint64_t* row(int node) { return rows_.data() + static_cast<size_t>(node) * words_; }
  const uint64_t* row(int node) const { return rows_.data() + static_cast<size_t>(node) * words_; }

  size_t words_;
  Set rows_;
};

}  // namespace nereus
