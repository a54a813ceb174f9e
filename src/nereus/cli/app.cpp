#include "nereus/cli/app.h"

#include <CLI/CLI.hpp>

#include <filesystem>
#include <iostream>
#include <new>

#include "nereus/base/error.h"
#include "nereus/cli/commands.h"

namespace nereus {

namespace {

constexpr int kInvalidArguments = 2;

}  // namespace

int run_command_line(int argc, const char* const* argv) {
  CLI::App app{
      "RL post-training of language models that changes its own parallel layout while it runs"};
  app.name("nereus");
  app.require_subcommand(1);
  app.footer("Start with:  ./nereus train examples/quickstart.yaml");
  Action action;
  add_train(app, action);
  add_plan(app, action);
  add_check(app, action);
  add_transition(app, action);
  add_explain(app, action);
  add_export(app, action);
  add_config(app, action);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kInvalidArguments;
  }
  try {
    return action();
  } catch (const Error& error) {
    std::cerr << "error: " << error.what() << std::endl;
    return exit_code(error.code());
  } catch (const std::filesystem::filesystem_error& error) {
    std::cerr << "error: " << error.path1().string() << ": " << error.code().message() << std::endl;
    return exit_code(ErrorCode::kIo);
  } catch (const std::bad_alloc&) {
    std::cerr << "error: out of memory" << std::endl;
    return exit_code(ErrorCode::kOutOfMemory);
  } catch (const std::exception& error) {
    std::cerr << "error: a bug of nereus, please report it: " << error.what() << std::endl;
    return exit_code(ErrorCode::kInternal);
  }
}

}  // namespace nereus
