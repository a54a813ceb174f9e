#include "nereus/app/observe/limits.h"

#include <sys/resource.h>

#include <cerrno>
#include <initializer_list>
#include <new>
#include <string_view>
#include <system_error>

#include "nereus/core/base/error.h"
#include "nereus/core/base/units.h"

namespace nereus {

namespace {

bool says(const std::string& text, std::initializer_list<std::string_view> any) {
  for (const std::string_view part : any) {
    if (text.find(part) != std::string::npos) return true;
  }
  return false;
}

// What libraries say in a word or two.
std::string what_was_wanted(const std::exception& error) {
  std::string what = error.what();
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return "memory of this machine was wanted and not given (" + what + ")";
  }
  const auto* system = dynamic_cast<const std::system_error*>(&error);
  const bool ours = dynamic_cast<const Error*>(&error) != nullptr;
  if (!ours && system != nullptr && system->code().value() == EAGAIN) {
    return "a thread was wanted and could not be started (" + what + ")";
  }
  return what;
}

std::string limit(int resource, const char* name, const char* command, bool bytes) {
  rlimit found = {};
  if (getrlimit(static_cast<__rlimit_resource_t>(resource), &found) != 0) return "";
  const auto soft = static_cast<int64_t>(found.rlim_cur);
  std::string amount = bytes ? to_string(Bytes(soft)) : std::to_string(soft);
  if (found.rlim_cur == RLIM_INFINITY) amount = "unlimited";
  return std::string("\n  ") + name + ": " + amount + " (" + command + ")";
}

}  // namespace

std::string with_limits(const std::exception& error) {
  std::string text = what_was_wanted(error);
  const bool threads = says(text, {"thread was wanted", "Resource temporarily unavailable",
                                   "can't start new thread", "Thread creation failed"});
  const bool memory = says(text, {"memory of this machine", "Cannot allocate memory",
                                  "can't allocate memory", "MemoryError"});
  const bool files = says(text, {"Too many open files"});
  if (!threads && !memory && !files) return text;
  text += "\nLimits of this process:";
  if (threads) text += limit(RLIMIT_NPROC, "processes and threads of the user", "ulimit -u", false);
  // A thread needs address space for its stack.
  if (threads || memory) text += limit(RLIMIT_AS, "address space", "ulimit -v", true);
  if (threads) text += limit(RLIMIT_STACK, "stack of a thread", "ulimit -s", true);
  if (files) text += limit(RLIMIT_NOFILE, "open files", "ulimit -n", false);
  return text +
         "\nRaise the one that is too low; a container or batch system may set others (pids, "
         "memory).";
}

}  // namespace nereus
