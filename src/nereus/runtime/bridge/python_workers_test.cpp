#include "nereus/runtime/bridge/python_workers.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "nereus/core/base/error.h"

namespace nereus {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Does what its argument says. What it starts bears MARK in its command line. What hangs does so
// for 30 s: without limits, tests would fail, not hang.
constexpr const char* kTask = R"python(
import ctypes, json, os, signal, subprocess, sys, time

def open_task(mark):
    def call(argument):
        what = json.loads(argument)
        if what == "pid": return os.getpid()
        if what == "hang": time.sleep(30)
        if what == "exit": os._exit(0)
        if what == "crash": ctypes.string_at(0)
        if what == "memory": block = b"x" * (8 << 30)
        if what == "grow":
            blocks = []
            while True: blocks.append(b"x" * (1 << 20))
        if what == "raise": raise ValueError("no\nluck")
        if what == "large": return "x" * 100000
        if what in ("child", "orphan"):
            subprocess.Popen(["setsid", sys.executable, "-c", "import time; time.sleep(1000)", mark])
        if what == "orphan": os._exit(0)
        if what == "killer": os.kill(os.getppid(), signal.SIGKILL); time.sleep(1000)
        if what == "signals":
            default = all(signal.getsignal(n) == signal.SIG_DFL for n in (signal.SIGTERM, signal.SIGUSR1))
            return default and not signal.pthread_sigmask(signal.SIG_BLOCK, [])
        if what == "descriptors": return sorted(os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{n}"))
        return what
    return call
)python";

PythonWorkersOptions options(const std::string& source = kTask) {
  return {.source = source,
          .arguments = {{"mark", "nereus-mark-" + std::to_string(::getpid())}},
          .workers = 4,
          .timeout = Seconds(5),
          .start_timeout = Seconds(60),
          .memory = Bytes(256 << 20),
          .largest_answer = 10000};
}

std::vector<std::string> texts(const std::vector<Json>& values) {
  std::vector<std::string> texts;
  for (const Json& value : values) texts.push_back(value.dump());
  return texts;
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(to_string(error.code()), to_string(ErrorCode::kInvalidInput));
    return error.what();
  }
  return "no error";
}

// Processes whose command line has a word.
int count_processes(const std::string& word) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream stream(entry.path() / "cmdline", std::ios::binary);
    const std::string line(std::istreambuf_iterator<char>(stream), {});
    if (line.find(word) != std::string::npos) ++count;
  }
  return count;
}

TEST(PythonWorkers, AnswersComeInTheOrderOfTheCalls) {
  PythonWorkers workers(options());
  std::vector<Json> arguments;
  for (int i = 0; i < 300; ++i) arguments.push_back({i, "äß", 0.1, nullptr});
  const auto answers = workers.call(texts(arguments));
  ASSERT_EQ(answers.size(), arguments.size());
  for (size_t i = 0; i < answers.size(); ++i) EXPECT_EQ(answers[i].value, arguments[i]);
  EXPECT_TRUE(workers.call({}).empty());
}

TEST(PythonWorkers, AFailureIsThatOfItsCallAlone) {
  const std::vector<std::pair<const char*, std::pair<const char*, const char*>>> kinds = {
      {"raise", {"raised", "ValueError: no luck"}},
      {"exit", {"died", "exit code 0"}},
      {"crash", {"died", "SIGSEGV"}},
      {"memory", {"memory", "MemoryError"}},
      {"grow", {"memory", "more memory"}},
      {"large", {"size", "at most 10000"}}};
  std::vector<Json> arguments;
  for (const auto& [what, expected] : kinds) {
    arguments.insert(arguments.end(), {"before", what, "after"});
  }
  PythonWorkers workers(options());
  const auto answers = workers.call(texts(arguments));
  for (size_t i = 0; i < kinds.size(); ++i) {
    EXPECT_EQ(answers[3 * i].value, "before");
    EXPECT_EQ(answers[3 * i + 1].failure, kinds[i].second.first) << kinds[i].first;
    EXPECT_THAT(answers[3 * i + 1].reason, HasSubstr(kinds[i].second.second));
    EXPECT_EQ(answers[3 * i + 2].value, "after");
  }
}

TEST(PythonWorkers, ACallThatTakesTooLongIsEnded) {
  PythonWorkersOptions brief = options();
  brief.timeout = Seconds(0.3);
  PythonWorkers workers(brief);
  const auto answers = workers.call(texts({"a", "hang", "b", "hang"}));
  for (const size_t hanging : {1, 3}) {
    EXPECT_EQ(answers[hanging].failure, "timeout");
    EXPECT_THAT(answers[hanging].reason, HasSubstr("longer than 0.3 s"));
  }
  EXPECT_EQ(answers[2].value, "b");
}

TEST(PythonWorkers, CanBeInterrupted) {
  PythonWorkers workers(options());
  std::atomic<bool> flag = false;
  std::thread later([&flag] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    flag = true;
  });
  EXPECT_THROW(workers.call(texts({"hang", "a"}), StopToken(flag)), Stopped);
  later.join();
  EXPECT_EQ(workers.call(texts({"again"})).front().value, "again") << "still usable";
}

TEST(PythonWorkers, NothingIsInherited) {
  std::signal(SIGUSR1, SIG_IGN);
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
  const std::string path = ::testing::TempDir() + "/nereus_inherited";
  const int open_file = ::open(path.c_str(), O_CREAT | O_RDWR, 0600);  // not closed by exec
  PythonWorkers workers(options());
  pthread_sigmask(SIG_UNBLOCK, &blocked, nullptr);
  std::signal(SIGUSR1, SIG_DFL);
  const auto answers = workers.call(texts({"signals", "descriptors"}));
  ::close(open_file);
  EXPECT_EQ(answers[0].value, true);
  for (const std::string descriptor : answers[1].value) {
    EXPECT_EQ(descriptor.find("nereus_inherited"), std::string::npos);
  }
}

TEST(PythonWorkers, LeaveNoProcessBehind) {
  const std::string mark = options().arguments["mark"];
  {
    PythonWorkers workers(options());
    workers.call(texts({"child", "child"}));
    EXPECT_GE(count_processes(mark), 2);
  }
  EXPECT_EQ(count_processes(mark), 0);
}

TEST(PythonWorkers, WhatAWorkerLeavesBehindEndsWhileThePoolGoesOn) {
  const std::string mark = options().arguments["mark"];
  PythonWorkers workers(options());
  EXPECT_EQ(workers.call(texts({"orphan"})).front().failure, "died");
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (count_processes(mark) > 0 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(count_processes(mark), 0);
  EXPECT_EQ(workers.call(texts({"again"})).front().value, "again");
}

TEST(PythonWorkers, APoolThatIsKilledIsStartedAnew) {
  PythonWorkers workers(options());
  EXPECT_EQ(workers.call(texts({"killer"})).front().failure, "died");
  EXPECT_EQ(workers.call(texts({"again"})).front().value, "again");
}

TEST(PythonWorkers, WhatCannotBeLoadedIsRefused) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"def open_task(mark:", "SyntaxError"},
      {"def open_task(mark): raise RuntimeError('not today')", "not today"},
      {"import os\nos._exit(0)", "exit code 0"},
      {"import ctypes\nctypes.string_at(0)", "SIGSEGV"},
      {"import time\nend = time.monotonic() + 30\nwhile time.monotonic() < end: pass",
       "longer than 0.5 s"}};
  for (const auto& [source, reason] : cases) {
    PythonWorkersOptions bad = options(source);
    bad.start_timeout = Seconds(0.5);
    EXPECT_THAT(refusal([&] { PythonWorkers{bad}; }), HasSubstr(reason));
  }
}

TEST(PythonWorkers, AMissingInterpreterIsNamed) {
  ::setenv("NEREUS_PYTHON", "/absent/python", 1);
  const std::string absent = refusal([] { PythonWorkers{options()}; });
  ::setenv("NEREUS_PYTHON", "/bin/true", 1);
  const std::string silent = refusal([] { PythonWorkers{options()}; });
  ::unsetenv("NEREUS_PYTHON");
  EXPECT_THAT(absent, AllOf(HasSubstr("/absent/python"), HasSubstr("NEREUS_PYTHON")));
  EXPECT_THAT(silent, AllOf(HasSubstr("/bin/true"), HasSubstr("NEREUS_PYTHON")));
}

}  // namespace
}  // namespace nereus
