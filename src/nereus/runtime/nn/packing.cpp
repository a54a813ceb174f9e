#include "nereus/runtime/nn/packing.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <utility>

#include "nereus/core/base/error.h"

namespace nereus {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// Rows of x go to the given rows of a new tensor of `rows` rows, zero elsewhere.
at::Tensor spread(const at::Tensor& x, const at::Tensor& slots, int64_t rows) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes[0] = rows;
  return at::zeros(sizes, x.options()).index_copy_(0, slots, x);
}

// Each row has a place of its own, so each of these is the other's backward.
struct Spread : Function<Spread> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& slots,
                            int64_t rows) {
    ctx->save_for_backward({slots});
    return spread(x, slots, rows);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    return {grads[0].index_select(0, ctx->get_saved_variables()[0]), {}, {}};
  }
};

struct Pick : Function<Pick> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& slots) {
    ctx->save_for_backward({slots});
    ctx->saved_data["rows"] = x.size(0);
    return x.index_select(0, slots);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const at::Tensor slots = ctx->get_saved_variables()[0];
    return {spread(grads[0], slots, ctx->saved_data["rows"].toInt()), {}};
  }
};

}  // namespace

int64_t Packing::longest() const { return std::ranges::max(lengths); }

Packing pack(std::vector<int64_t> lengths, at::Device device) {
  const int64_t longest = std::ranges::max(lengths);
  std::vector<int64_t> positions, slots;
  std::vector<int32_t> boundaries = {0};
  for (size_t i = 0; i < lengths.size(); ++i) {
    NEREUS_CHECK(lengths[i] > 0, "sequence " + std::to_string(i) + " is empty");
    for (int64_t position = 0; position < lengths[i]; ++position) {
      positions.push_back(position);
      slots.push_back(static_cast<int64_t>(i) * longest + position);
    }
    boundaries.push_back(static_cast<int32_t>(positions.size()));
  }
  return {.lengths = std::move(lengths),
          .positions = at::tensor(positions, at::kLong).to(device),
          .boundaries = at::tensor(boundaries, at::kInt).to(device),
          .slots = at::tensor(slots, at::kLong).to(device)};
}

at::Tensor pad(const at::Tensor& x, const Packing& packing) {
  const int64_t sequences = packing.sequences(), longest = packing.longest();
  if (packing.uniform()) return x.unflatten(0, {sequences, longest});
  const int64_t rows = sequences * longest;
  const at::Tensor padded = at::GradMode::is_enabled() ? Spread::apply(x, packing.slots, rows)
                                                       : spread(x, packing.slots, rows);
  return padded.unflatten(0, {sequences, longest});
}

at::Tensor unpad(const at::Tensor& padded, const Packing& packing) {
  at::Tensor rows = padded.flatten(0, 1);
  if (packing.uniform()) return rows;
  if (!at::GradMode::is_enabled()) return rows.index_select(0, packing.slots);
  return Pick::apply(rows, packing.slots);
}

}  // namespace nereus
