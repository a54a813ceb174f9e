// The one exception type of Nereus, and the expected type for refusals that are not errors.
#pragma once

#include <stdexcept>
#include <string>
#include <tl/expected.hpp>

namespace nereus {

enum class ErrorCode {
  kInvalidInput,  // the user's config, files or arguments; exit code 2
  kInfeasible,    // no plan fits the devices at hand; exit code 3
  kIo,            // the file system refused
  kOutOfMemory,   // a device's budget was exceeded
  kNumeric,       // NaN or Inf where none may be
  kAborted,       // another worker failed, or the job was told to stop
  kInternal,      // a broken invariant: a bug of ours
};

// Thrown on the control path. what() says what was wrong, the value, and what to do about it.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

// The process exit code for an error: 2 invalid input, 3 infeasible, 1 everything else.
int exit_code(ErrorCode code);
std::string to_string(ErrorCode code);

// A value, or the reason (for a person) why there is none: an infeasible plan is a value.
template <class T>
using Expected = tl::expected<T, std::string>;

}  // namespace nereus

// Throws Error(kInternal) with file, line and `message` (a std::string expression) unless
// `condition`.
#define NEREUS_CHECK(condition, message)                                                         \
  do {                                                                                           \
    if (!(condition)) ::nereus::detail::check_failed(#condition, __FILE__, __LINE__, (message)); \
  } while (false)

namespace nereus::detail {
[[noreturn]] void check_failed(const char* condition, const char* file, int line,
                               const std::string& message);
}
