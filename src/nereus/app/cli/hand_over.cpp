#include "nereus/app/cli/hand_over.h"

#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "nereus/core/base/error.h"

namespace nereus {

namespace {

[[noreturn]] void become(const std::filesystem::path& program, const char* const* argv) {
  // execv() changes none of the strings.
  ::execv(program.c_str(), const_cast<char* const*>(argv));
  throw Error(ErrorCode::kIo,
              "cannot start " + program.string() +
                  ", which computes with tensors: " + std::generic_category().message(errno) +
                  "; ./setup builds it, and it must stay beside this program");
}

}  // namespace

std::filesystem::path runtime_program() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / "nereus-runtime";
}

DeviceCommands handed_over(const std::filesystem::path& program, const char* const* argv) {
  return {.train = [=](const Config&) -> int { become(program, argv); },
          .check = [=](const Config&) -> std::vector<std::string> { become(program, argv); },
          .export_run = [=](const std::filesystem::path&,
                            const std::filesystem::path&) -> std::string { become(program, argv); },
          .try_transition = [=](const TransitionDag&, const JobSpec&,
                                const Cluster&) -> TransitionReport { become(program, argv); }};
}

}  // namespace nereus
