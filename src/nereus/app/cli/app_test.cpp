#include "nereus/app/cli/app.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "nereus/app/cli/hand_over.h"

namespace nereus {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Outcome {
  int code;
  std::string out;
  std::string err;
};

Outcome run(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "nereus");
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const DeviceCommands none = handed_over("nowhere/nereus-runtime", arguments.data());
  const int code = run_command_line(static_cast<int>(arguments.size()), arguments.data(), none);
  return {code, testing::internal::GetCapturedStdout(), testing::internal::GetCapturedStderr()};
}

TEST(CommandLine, HelpOfEachCommandShowsAnExample) {
  for (const char* command :
       {"train", "plan", "check", "transition", "explain", "export", "config"}) {
    const Outcome help = run({command, "--help"});
    EXPECT_EQ(help.code, 0) << command;
    EXPECT_THAT(help.out, ContainsRegex(std::string("Examples?:  ./nereus ") + command));
  }
}

TEST(CommandLine, BadArgumentsAndInputExitWithTwo) {
  EXPECT_EQ(run({}).code, 2);
  EXPECT_EQ(run({"dance"}).code, 2);
  EXPECT_EQ(run({"plan", "c.yaml", "--gpus", "-1"}).code, 2);
  const Outcome none = run({"plan", "c.yaml", "--gpus", "0"});
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(none.err, StartsWith("--gpus: 0 is not a whole number of at least 1\n"));
  for (const char* option : {"--gpus", "--length", "--zero"}) {
    const Outcome huge = run({"plan", "c.yaml", option, "9000000000000000000"});
    EXPECT_EQ(huge.code, 2);
    EXPECT_THAT(huge.err, HasSubstr("9000000000000000000 is too large: 1 to "));
  }
  const Outcome missing = run({"train", "nowhere.yaml"});
  EXPECT_EQ(missing.code, 2);
  EXPECT_THAT(missing.err, HasSubstr("nowhere.yaml"));
  EXPECT_EQ(run({"explain", "nowhere"}).code, 2);
  EXPECT_EQ(run({"config"}).code, 2);
}

// Arguments and config are judged first, without PyTorch.
TEST(CommandLine, WhatNeedsTensorsIsHandedToTheProgramBesideIt) {
  const std::string quickstart = std::string(NEREUS_SOURCE_DIR) + "/examples/quickstart.yaml";
  for (const char* command : {"train", "check"}) {
    const Outcome outcome = run({command, quickstart.c_str()});
    EXPECT_EQ(outcome.code, 1) << command;
    EXPECT_THAT(outcome.err, HasSubstr("cannot start nowhere/nereus-runtime")) << command;
  }
}

TEST(CommandLine, ConfigPrintsTheReferencePage) {
  EXPECT_THAT(run({"config", "--markdown"}).out, HasSubstr("`data.train_files`"));
}

}  // namespace
}  // namespace nereus
