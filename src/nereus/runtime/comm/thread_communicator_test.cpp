#include "nereus/runtime/comm/communicator_contract.h"

namespace nereus {

INSTANTIATE_TEST_SUITE_P(Threads, CommunicatorContract,
                         testing::Combine(testing::Values(CommunicatorKind{
                                              &make_thread_communicators}),
                                          testing::Values(1, 2, 3, 4)),
                         [](const auto& info) { return std::to_string(std::get<1>(info.param)); });

}  // namespace nereus
