// Copies between two GPUs.
#include "nereus/cuda/state_ops.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "nereus/cuda/device.h"

namespace nereus {
namespace {

// Boxes of rows and columns with odd and even edges, as bytes, bf16 and fp32, between GPUs in both
// directions, and within one.
TEST(Copies, CopyWhatIsAskedForAndNothingElse) {
  if (cuda::device_count() == 0) GTEST_SKIP() << "needs a GPU";
  const at::Device here(at::kCUDA, 0);
  const at::Device there(at::kCUDA, cuda::device_count() > 1 ? 1 : 0);
  at::manual_seed(5);
  for (const bool beside_kernels : {false, true}) {
    for (const at::ScalarType type : {at::kByte, at::kBFloat16, at::kFloat}) {
      cuda::Copies copies(beside_kernels);
      const at::Tensor from = at::randint(200, {96, 512}, at::kInt).to(there).to(type);
      const at::Tensor to = at::zeros({96, 512}, at::device(here).dtype(type));
      at::Tensor expected = at::zeros({96, 512}, type);
      for (const auto& [row, rows, column, columns, shift] :
           {std::array<int64_t, 5>{0, 8, 0, 256, 256},
            {8, 30, 64, 128, 0},
            {40, 1, 7, 33, 3},
            {41, 20, 1, 100, 1},
            {61, 35, 0, 512, 0}}) {
        const auto box = [&](const at::Tensor& x, int64_t at) {
          return x.narrow(0, row, rows).narrow(1, at, columns);
        };
        copies.add(box(to, column + shift), box(from, column));
        box(expected, column + shift).copy_(box(from, column).cpu());
      }
      copies.enqueue();
      copies.join();
      EXPECT_TRUE(at::equal(to.cpu(), expected)) << type << (beside_kernels ? " beside" : "");
    }
  }
}

}  // namespace
}  // namespace nereus
