#include "nereus/app/cli/app.h"

#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include <cerrno>
#include <filesystem>
#include <iostream>
#include <new>

#include "nereus/app/cli/commands.h"
#include "nereus/app/observe/limits.h"
#include "nereus/core/base/error.h"

namespace nereus {

namespace {

constexpr int kInvalidArguments = 2;

// Else the first files to be opened would take the place of standard streams that were closed, and
// get what is written to those.
void fill_missing_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) != -1 || errno != EBADF) continue;
    // The lowest number that is free: this one.
    ::open("/dev/null", stream == STDIN_FILENO ? O_RDONLY : O_WRONLY);
  }
}

}  // namespace

int run_command_line(int argc, const char* const* argv, const DeviceCommands& devices) {
  fill_missing_streams();
  CLI::App app{
      "RL post-training of language models that changes its own parallel layout while it runs"};
  app.name("nereus");
  app.require_subcommand(1);
  app.set_version_flag("--version", "nereus " NEREUS_VERSION);
  app.footer("Start with:  ./nereus train examples/quickstart.yaml");
  Action action;
  add_train(app, devices, action);
  add_plan(app, action);
  add_check(app, devices, action);
  add_transition(app, devices, action);
  add_explain(app, action);
  add_export(app, devices, action);
  add_config(app, action);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kInvalidArguments;
  }
  try {
    return action();
  } catch (const Error& error) {
    std::cerr << "error: " << with_limits(error) << std::endl;
    return exit_code(error.code());
  } catch (const std::filesystem::filesystem_error& error) {
    const Error plain(ErrorCode::kIo, error.path1().string() + ": " + error.code().message());
    std::cerr << "error: " << with_limits(plain) << std::endl;
    return exit_code(ErrorCode::kIo);
  } catch (const std::bad_alloc& error) {
    std::cerr << "error: " << with_limits(error) << std::endl;
    return exit_code(ErrorCode::kOutOfMemory);
  } catch (const std::exception& error) {
    // What no limit explains should have been an Error.
    const std::string text = with_limits(error);
    const bool unexplained = text == error.what();
    std::cerr << "error: " << (unexplained ? "a bug of nereus, please report it: " : "") << text
              << std::endl;
    return exit_code(ErrorCode::kInternal);
  }
}

}  // namespace nereus
