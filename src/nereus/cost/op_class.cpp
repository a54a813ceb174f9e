#include "nereus/cost/op_class.h"

#include <vector>

#include "nereus/base/error.h"
#include "nereus/base/text.h"

namespace nereus {

std::string to_string(OpClass op_class) {
  switch (op_class) {
    case OpClass::kCompute:
      return "compute";
    case OpClass::kDecode:
      return "decode";
    case OpClass::kTensorComm:
      return "tensor_comm";
    case OpClass::kPipelineComm:
      return "pipeline_comm";
    case OpClass::kGradientComm:
      return "gradient_comm";
    case OpClass::kOptimizer:
      return "optimizer";
    case OpClass::kTransfer:
      return "transfer";
    case OpClass::kSwitch:
      return "switch";
    case OpClass::kHost:
      return "host";
  }
  throw Error(ErrorCode::kInternal, "unknown operation class");
}

OpClass parse_op_class(const std::string& text) {
  std::vector<std::string> words;
  for (OpClass op_class : kAllOpClasses) {
    if (to_string(op_class) == text) return op_class;
    words.push_back(to_string(op_class));
  }
  throw Error(ErrorCode::kInvalidInput,
              "unknown operation class \"" + text + "\"; one of " + join(words, ", "));
}

}  // namespace nereus
