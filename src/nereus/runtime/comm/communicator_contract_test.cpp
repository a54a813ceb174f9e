#include "nereus/runtime/comm/communicator_contract.h"

#include <ATen/ATen.h>

#include <array>
#include <chrono>

#include "nereus/core/base/error.h"

namespace nereus {

namespace {

// The values of rank `rank` for one test case: awkward numbers, so that the order of adding shows.
at::Tensor sample(int rank, at::IntArrayRef shape, at::ScalarType dtype) {
  at::Tensor numbers = at::arange(at::Tensor(at::empty(shape)).numel(), at::kDouble);
  return at::sin(numbers * 12.9898 + rank * 78.233).mul(1000).reshape(shape).to(dtype);
}

constexpr at::ScalarType kDTypes[] = {at::kDouble, at::kFloat, at::kBFloat16, at::kLong};

}  // namespace

TEST_P(CommunicatorContract, AllReduceAddsInRankOrder) {
  for (const at::ScalarType dtype : kDTypes) {
    at::Tensor sum = sample(0, {3, 5}, dtype);
    at::Tensor largest = sum.clone();
    for (int rank = 1; rank < size(); ++rank) {
      sum.add_(sample(rank, {3, 5}, dtype));
      largest = at::maximum(largest, sample(rank, {3, 5}, dtype));
    }
    on_all_ranks([&](Communicator& comm) {
      at::Tensor tensor = on(comm.rank(), sample(comm.rank(), {3, 5}, dtype));
      comm.all_reduce(tensor);
      EXPECT_TRUE(at::equal(tensor.cpu(), sum)) << dtype;
      tensor = on(comm.rank(), sample(comm.rank(), {3, 5}, dtype));
      comm.all_reduce(tensor, ReduceOp::kMax);
      EXPECT_TRUE(at::equal(tensor.cpu(), largest)) << dtype;
    });
  }
}

TEST_P(CommunicatorContract, StridedTensorsKeepTheirStrides) {
  on_all_ranks([&](Communicator& comm) {
    at::Tensor storage = on(comm.rank(), at::zeros({4, 6}, at::kFloat));
    at::Tensor columns = storage.t().slice(0, 0, 6, 2);  // [3, 4], strides 2 and 6
    columns.copy_(at::arange(12).reshape({3, 4}) + comm.rank());
    comm.all_reduce(columns);
    const int ranks = size() * (size() - 1) / 2;
    EXPECT_TRUE(
        at::equal(columns.cpu(), (at::arange(12).reshape({3, 4}) * size() + ranks).to(at::kFloat)));
    EXPECT_EQ(storage.slice(1, 1, 6, 2).abs().sum().item<float>(), 0);  // in between: untouched
    EXPECT_EQ(comm.all_gather(columns, 1).size(1), 4 * size());
    comm.broadcast(columns, size() - 1);
    comm.send(columns, comm.rank());
    at::Tensor copy = at::empty({4, 3}, columns.options()).t();
    comm.recv(copy, comm.rank());
    EXPECT_TRUE(at::equal(copy, columns));
  });
}

TEST_P(CommunicatorContract, AllGatherTakesUnevenParts) {
  for (const int64_t dim : {0, 1}) {
    std::vector<at::Tensor> parts;
    for (int rank = 0; rank < size(); ++rank) {
      const int64_t extent = rank == 1 ? 0 : rank + 1;
      const std::array<int64_t, 2> shape = {dim == 0 ? extent : 3, dim == 1 ? extent : 3};
      parts.push_back(sample(rank, shape, at::kFloat));
    }
    on_all_ranks([&](Communicator& comm) {
      EXPECT_TRUE(at::equal(comm.all_gather(on(comm.rank(), parts[comm.rank()]), dim).cpu(),
                            at::cat(parts, dim)));
    });
  }
}

TEST_P(CommunicatorContract, ReduceScatterIsAPartOfAllReduce) {
  const int64_t ranks = size();
  for (const at::ScalarType dtype : kDTypes) {
    on_all_ranks([&](Communicator& comm) {
      at::Tensor tensor = on(comm.rank(), sample(comm.rank(), {2, ranks * 3}, dtype));
      const at::Tensor part = comm.reduce_scatter(tensor, 1);
      comm.all_reduce(tensor);
      EXPECT_TRUE(at::equal(part, tensor.chunk(ranks, 1)[comm.rank()]));
    });
  }
}

TEST_P(CommunicatorContract, BroadcastFromEveryRoot) {
  on_all_ranks([&](Communicator& comm) {
    for (int root = 0; root < size(); ++root) {
      at::Tensor tensor = on(comm.rank(), sample(comm.rank(), {7}, at::kBFloat16));
      comm.broadcast(tensor, root);
      EXPECT_TRUE(at::equal(tensor.cpu(), sample(root, {7}, at::kBFloat16)));
    }
  });
}

TEST_P(CommunicatorContract, MessagesArriveInOrderAndMayBeOverwritten) {
  on_all_ranks([&](Communicator& comm) {
    const int next = (comm.rank() + 1) % size();
    const int previous = (comm.rank() + size() - 1) % size();
    at::Tensor message = on(comm.rank(), at::empty({2}, at::kDouble));
    for (int i = 0; i < 20; ++i) comm.send(message.fill_(100 * comm.rank() + i), next);
    for (int i = 0; i < 20; ++i) {
      comm.recv(message, previous);
      EXPECT_EQ(message[1].item<double>(), 100 * previous + i);
    }
  });
}

// Ranks run ahead of each other and reuse their tensors at once: a missing rendezvous shows.
TEST_P(CommunicatorContract, ManyOperationsInARowStayExact) {
  on_all_ranks([&](Communicator& comm) {
    at::Tensor tensor = on(comm.rank(), at::empty({8}, at::kDouble));
    for (int i = 0; i < 300; ++i) {
      tensor.fill_(i + comm.rank());
      comm.all_reduce(tensor);
      ASSERT_EQ(tensor[7].item<double>(), size() * i + size() * (size() - 1) / 2);
      tensor.fill_(-1);
      if (i % 3 == 0) comm.barrier();
      if (i % 5 == 0) {
        comm.broadcast(tensor.fill_(comm.rank()), i % size());
        ASSERT_EQ(tensor[0].item<double>(), i % size());
      }
    }
  });
}

TEST_P(CommunicatorContract, WorksOnTensorsThatRequireGrad) {
  on_all_ranks([&](Communicator& comm) {
    at::Tensor leaf = on(comm.rank(), at::ones({2})).requires_grad_(true);
    comm.all_reduce(leaf);
    EXPECT_EQ(leaf[0].item<float>(), size());
    EXPECT_EQ(comm.all_gather(leaf, 0).numel(), 2 * size());
  });
}

TEST_P(CommunicatorContract, AbortWakesWaitingRanks) {
  if (size() == 1) GTEST_SKIP() << "nobody to wait for";
  using Operation = std::function<void(Communicator&)>;
  const std::vector<Operation> operations = {
      [&](Communicator& comm) {
        at::Tensor t = on(comm.rank(), at::ones({2}));
        comm.all_reduce(t);
      },
      [](Communicator& comm) { comm.barrier(); },
      [&](Communicator& comm) {
        at::Tensor t = on(comm.rank(), at::ones({2}));
        comm.recv(t, 0);
      },
  };
  for (const Operation& operation : operations) {
    on_all_ranks([&](Communicator& comm) {
      if (comm.rank() == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));  // the others are asleep by then
        comm.abort("device 0:0 was lost");
      }
      for (int i = 0; i < 2; ++i) {  // waiting now, and later
        try {
          operation(comm);
          EXPECT_TRUE(i == 0 && enqueues()) << "no error";
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::kAborted);
          EXPECT_STREQ(error.what(), "device 0:0 was lost");
        }
      }
    });
  }
}

TEST_P(CommunicatorContract, CountsTheTimeSpent) {
  on_all_ranks([&](Communicator& comm) {
    comm.send(on(comm.rank(), at::ones({1})), comm.rank());
    EXPECT_GT(comm.take_elapsed().count(), 0);
    EXPECT_EQ(comm.take_elapsed().count(), 0);
  });
}

}  // namespace nereus
