#include "nereus/runtime/bridge/pool_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <thread>

#include "nereus/core/base/error.h"
#include "nereus/core/base/json.h"
#include "nereus/runtime/bridge/python.h"
#include "workers/processes_source.h"
#include "workers/worker_pool_source.h"
#include "workers/worker_source.h"

namespace nereus {

namespace {

// What the child finds where: worker_pool.py knows the first of these numbers.
constexpr int kChannel = 3;
constexpr int kSources = 4;

// Without the working directory on its path, in which a random.py may lie.
constexpr const char* kBeginning = R"python(
import sys
del sys.path[0]
import json
import types
with open(4, encoding="utf-8") as file:
    sources = json.load(file)
for name, text in sources.items():
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(compile(text, "<" + name + ">", "exec"), module.__dict__)
sys.modules["nereus_worker_pool"].main()
)python";

[[noreturn]] void refuse(const std::string& what, int error) {
  throw Error(ErrorCode::kInvalidInput, "Python workers: " + what + ": " +
                                            std::generic_category().message(error) +
                                            "; set NEREUS_PYTHON to the python of a working "
                                            "virtual environment");
}

class Descriptor final {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

// Above those that the child is given, so that none of these overwrites another.
int out_of_the_way(int descriptor) {
  constexpr int kLowest = 10;
  return ::fcntl(descriptor, F_DUPFD_CLOEXEC, kLowest);
}

// A file in memory with the Python modules by name, in the order in which they need each other.
int sources_file() {
  const Json sources = {{"nereus_processes", kProcessesSource},
                        {"nereus_worker", kWorkerSource},
                        {"nereus_worker_pool", kWorkerPoolSource}};
  const std::string bytes = sources.dump();
  const Descriptor file(::memfd_create("nereus-workers", MFD_CLOEXEC));
  if (file.number() < 0 || ::write(file.number(), bytes.data(), bytes.size()) < 0 ||
      ::lseek(file.number(), 0, SEEK_SET) < 0) {
    refuse("no file in memory", errno);
  }
  return out_of_the_way(file.number());
}

struct SpawnSettings {
  SpawnSettings() {
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
};

void give_descriptors(posix_spawn_file_actions_t& actions, int channel, int sources) {
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  // Prints of strangers must not mix with what the job writes to its standard output.
  if (::fcntl(STDERR_FILENO, F_GETFD) < 0) {
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  }
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, channel, kChannel);
  posix_spawn_file_actions_adddup2(&actions, sources, kSources);
}

void forget_signals(posix_spawnattr_t& attributes) {
  sigset_t all, none;
  sigfillset(&all);
  sigemptyset(&none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSID);
}

pid_t spawn(int channel, int sources) {
  SpawnSettings settings;
  give_descriptors(settings.actions, channel, sources);
  forget_signals(settings.attributes);
  std::string interpreter = python_interpreter(), option = "-c", text = kBeginning,
              title = "nereus-workers";
  std::array<char*, 5> arguments = {interpreter.data(), option.data(), text.data(), title.data(),
                                    nullptr};
  pid_t process = -1;
  const int error = ::posix_spawnp(&process, interpreter.c_str(), &settings.actions,
                                   &settings.attributes, arguments.data(), environ);
  if (error != 0) refuse("the interpreter " + interpreter + " does not start", error);
  return process;
}

}  // namespace

PoolProcess::PoolProcess() {
  int pair[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
    refuse("no socket", errno);
  }
  Descriptor mine(pair[0]);
  const Descriptor its(pair[1]), child_end(out_of_the_way(pair[1])), sources(sources_file());
  socket_ = out_of_the_way(mine.number());
  if (socket_ < 0 || child_end.number() < 0 || sources.number() < 0) {
    refuse("no descriptor is left", errno);
  }
  process_ = spawn(child_end.number(), sources.number());
}

PoolProcess::~PoolProcess() {
  ::close(socket_);
  constexpr int kLooks = 1000;
  for (int look = 0; look < kLooks; ++look) {
    if (::waitpid(process_, nullptr, WNOHANG) != 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ::kill(process_, SIGKILL);
  ::waitpid(process_, nullptr, 0);
}

void PoolProcess::post(uint64_t number, const std::string& text) {
  const std::array<uint64_t, 2> header = {text.size(), number};
  to_send_.append(reinterpret_cast<const char*>(header.data()), sizeof(header));
  to_send_ += text;
}

std::vector<PoolMessage> PoolProcess::exchange(std::chrono::milliseconds patience) {
  const bool sends = sent_ < to_send_.size();
  pollfd ready = {socket_, static_cast<short>(sends ? POLLIN | POLLOUT : POLLIN), 0};
  if (::poll(&ready, 1, static_cast<int>(patience.count())) > 0) {
    if ((ready.revents & POLLOUT) != 0) send_posted();
    if ((ready.revents & ~POLLOUT) != 0) receive_bytes();
  }
  return whole_messages();
}

void PoolProcess::send_posted() {
  const ssize_t count = ::send(socket_, to_send_.data() + sent_, to_send_.size() - sent_,
                               MSG_DONTWAIT | MSG_NOSIGNAL);
  if (count < 0 && errno != EAGAIN && errno != EINTR) gone_ = true;
  if (count > 0) sent_ += static_cast<size_t>(count);
  if (sent_ < to_send_.size()) return;
  to_send_.clear();
  sent_ = 0;
}

void PoolProcess::receive_bytes() {
  std::array<char, 1 << 16> buffer;
  const ssize_t count = ::recv(socket_, buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) gone_ = true;
  if (count > 0) received_.append(buffer.data(), static_cast<size_t>(count));
}

std::vector<PoolMessage> PoolProcess::whole_messages() {
  std::vector<PoolMessage> messages;
  size_t begin = 0;
  std::array<uint64_t, 2> header;  // length, number
  while (received_.size() - begin >= sizeof(header)) {
    std::memcpy(header.data(), received_.data() + begin, sizeof(header));
    if (received_.size() - begin - sizeof(header) < header[0]) break;
    messages.push_back({header[1], received_.substr(begin + sizeof(header), header[0])});
    begin += sizeof(header) + header[0];
  }
  received_.erase(0, begin);
  return messages;
}

}  // namespace nereus
