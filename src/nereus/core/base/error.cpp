#include "nereus/core/base/error.h"

namespace nereus {

int exit_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidInput:
      return 2;
    case ErrorCode::kInfeasible:
      return 3;
    default:
      return 1;
  }
}

std::string to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidInput:
      return "invalid input";
    case ErrorCode::kInfeasible:
      return "infeasible";
    case ErrorCode::kIo:
      return "input/output";
    case ErrorCode::kOutOfMemory:
      return "out of memory";
    case ErrorCode::kNumeric:
      return "numeric";
    case ErrorCode::kAborted:
      return "aborted";
    case ErrorCode::kInternal:
      return "internal";
  }
  return "unknown";
}

namespace detail {

void check_failed(const char* condition, const char* file, int line, const std::string& message) {
  throw Error(ErrorCode::kInternal, std::string(file) + ":" + std::to_string(line) + ": " +
                                        message + " (broken: " + condition + ")");
}

}  // namespace detail

}  // namespace nereus
