// Operation classes: work of one kind shares one efficiency, so what one plan teaches serves all.
#pragma once

#include <array>
#include <string>

namespace nereus {

enum class OpClass {
  kCompute,       // matrix products and attention in training and inference passes
  kDecode,        // generation, local work: prefill and token by token
  kTensorComm,    // collectives between TP ranks
  kPipelineComm,  // sends between pipeline stages, waiting for the previous stage included
  kGradientComm,  // gradient all-reduce between replicas
  kOptimizer,     // AdamW over the flat shards
  kTransfer,      // weight synchronisation and transitions: bytes over links
  kSwitch,        // the fixed part of a transition's primitive: allocating, releasing, set-up
  kHost,          // rewards, advantages, bookkeeping on the host
};
inline constexpr std::array kAllOpClasses = {
    OpClass::kCompute,      OpClass::kDecode,       OpClass::kTensorComm,
    OpClass::kPipelineComm, OpClass::kGradientComm, OpClass::kOptimizer,
    OpClass::kTransfer,     OpClass::kSwitch,       OpClass::kHost};

std::string to_string(OpClass op_class);  // "compute", "decode", "tensor_comm", …
OpClass parse_op_class(const std::string& text);

}  // namespace nereus
