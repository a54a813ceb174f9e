// Operation classes: work of one kind shares one efficiency, so what one plan teaches serves all.
#pragma once

#include <array>
#include <string>

namespace nereus {

enum class OpClass {
  // What a worker's clock tells apart, and a live job reports.
  kCompute,       // matrix products and attention in training and inference passes
  kDecode,        // generation, local work: prefill and token by token
  kTensorComm,    // collectives between TP ranks
  kPipelineComm,  // sends between pipeline stages, waiting for the previous stage included
  kGradientComm,  // gradient all-reduce between replicas
  kOptimizer,     // AdamW over the flat shards
  kTransfer,      // weight synchronisation, offload and transitions: bytes over links
  kSwitch,        // the fixed part of a transition's primitive: allocating, releasing, set-up
  kHost,          // rewards, advantages, bookkeeping on the host

  // The operations that those consist of: what a profile tells apart. A matrix product takes its
  // arithmetic plus the reading of its operands, so small ones are as slow as memory and large ones
  // as fast as arithmetic.
  kGemm,          // arithmetic of matrix products, FLOPs
  kOperands,      // their weights and activations to and from memory, bytes
  kAttention,     // arithmetic of attention, FLOPs
  kCache,         // reading keys and values while decoding, bytes
  kNorm,          // normalisations, bytes
  kElementwise,   // activation functions, residuals, softmax over the vocabulary, bytes
  kRotary,        // rotary embedding, bytes: strided, so slower than what streams
  kLaunch,        // the fixed cost of an operator
  kAllReduce,     // bytes between devices of a host
  kAllGather,     // also reduce-scatter
  kSend,          // point to point
  kHop,           // latency of each step of any of these
  kRamp,          // filling the pipeline of chunks in which a ring passes on its bytes
  kFarAllReduce,  // the same between hosts
  kFarAllGather,
  kFarSend,
  kFarHop,
  kFarRamp,
  kHostCopy,  // between a device and the memory of its host
};
inline constexpr size_t kOpClasses = static_cast<size_t>(OpClass::kHostCopy) + 1;

// In the enum's order.
inline constexpr std::array<OpClass, kOpClasses> kAllOpClasses = [] {
  std::array<OpClass, kOpClasses> all{};
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<OpClass>(i);
  return all;
}();

std::string to_string(OpClass op_class);  // "compute", "decode", "tensor_comm", …
OpClass parse_op_class(const std::string& text);
// All kinds of communication between devices.
bool is_collective(OpClass op_class);

}  // namespace nereus
