// Copies between two GPUs.
#include "nereus/runtime/cuda/state_ops.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "nereus/runtime/cuda/device.h"

namespace nereus {
namespace {

// Boxes of rows and columns with odd and even edges, of bytes, bf16 and fp32, and whole tensors
// whose memory happens to lie side by side.
TEST(Copies, CopyWhatIsAskedForAndNothingElse) {
  if (cuda::device_count() == 0) GTEST_SKIP() << "needs a GPU";
  const at::Device here(at::kCUDA, 0);
  const at::Device there(at::kCUDA, cuda::device_count() > 1 ? 1 : 0);
  at::manual_seed(5);
  cuda::Copies copies;
  std::vector<at::Tensor> to, expected, sources;  // sources live until all is copied
  for (const at::ScalarType type : {at::kByte, at::kBFloat16, at::kFloat}) {
    const at::Tensor from = at::randint(200, {96, 512}, at::kInt).to(there).to(type);
    sources.push_back(from);
    to.push_back(at::zeros({96, 512}, at::device(here).dtype(type)));
    expected.push_back(at::zeros({96, 512}, type));
    for (const auto& [row, rows, column, columns, shift] :
         {std::array<int64_t, 5>{0, 8, 0, 256, 256},
          {8, 30, 64, 128, 0},
          {40, 1, 7, 33, 3},
          {41, 20, 1, 100, 1},
          {61, 35, 0, 512, 0}}) {
      const auto box = [&](const at::Tensor& x, int64_t first) {
        return x.narrow(0, row, rows).narrow(1, first, columns);
      };
      copies.add(box(to.back(), column + shift), box(from, column));
      box(expected.back(), column + shift).copy_(box(from, column).cpu());
    }
    // Rows that lie side by side on one of the sides only.
    const at::Tensor packed = from.narrow(0, 3, 70).narrow(1, 128, 256).contiguous();
    sources.push_back(packed);
    to.push_back(at::zeros({70, 512}, at::device(here).dtype(type)));
    copies.add(to.back().narrow(1, 256, 256), packed);
    expected.push_back(at::zeros({70, 512}, type));
    expected.back().narrow(1, 256, 256).copy_(packed.cpu());
    to.push_back(at::zeros({70, 256}, at::device(here).dtype(type)));
    copies.add(to.back(), from.narrow(0, 3, 70).narrow(1, 128, 256));
    expected.push_back(packed.cpu());
    copies.enqueue();
  }
  constexpr int64_t kSegment = 20 << 20;  // the allocator asks the driver for each of these
  for (int i = 0; i < 4; ++i) {
    const at::Tensor from = at::full({kSegment}, i + 1, at::device(there).dtype(at::kByte));
    sources.push_back(from);
    to.push_back(at::zeros_like(from, at::device(here)));
    expected.push_back(from.cpu());
    copies.add(to.back(), from);
  }
  copies.enqueue();
  copies.join();
  for (size_t i = 0; i < to.size(); ++i) EXPECT_TRUE(at::equal(to[i].cpu(), expected[i])) << i;
}

}  // namespace
}  // namespace nereus
