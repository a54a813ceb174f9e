// Functions of strangers in Python (rewards, chat templates), called in worker processes, so that
// nothing they do touches the job: a call that hangs, dies or eats memory costs its own answer.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "nereus/core/base/json.h"
#include "nereus/core/base/stop_token.h"
#include "nereus/core/base/units.h"
#include "nereus/runtime/bridge/pool_process.h"

namespace nereus {

struct PythonWorkersOptions {
  std::string source;  // a Python module whose open_task(**arguments) gives the function
  Json arguments;
  int workers = 0;                   // processes at most; 0: default_workers()
  Seconds timeout{60};               // of a call, from when it starts
  Seconds start_timeout{600};        // of open_task()
  Bytes memory{0};                   // resident, of a worker with all that it starts; 0: no limit
  int64_t largest_answer = 1 << 20;  // characters of JSON
};

// What became of a call.
struct PythonAnswer {
  Json value;
  // Empty: there is a value. Otherwise "raised", "timeout", "memory", "size" or "died".
  std::string failure;
  std::string reason;  // for a person, one line
};

// For functions that mostly wait as well as for those that compute: at least 8, one per core from
// there up to 32. Workers are only started when calls have to wait for them.
int default_workers();

// Processes with a folder and a session of their own, started by executing Python; they end with
// this object or with the job, however that ends, and so does all that they started. Used by one
// thread at a time.
class PythonWorkers final {
 public:
  // Waits until the first worker has its function. Throws Error(kInvalidInput) with the reason if
  // it has not: what open_task() raised, that it took too long, or how the process died; or if
  // Python or its package pebble is missing, naming the remedy.
  explicit PythonWorkers(PythonWorkersOptions options);

  // Calls the function with each argument (a JSON text, passed on as it is); answers in the order
  // of the arguments. `stop` is looked at ten times a second: if it says so, all calls are dropped
  // and Stopped is thrown, after which the pool can be used again. Calls that were under way when
  // the pool itself was killed are failures, and it is started anew.
  std::vector<PythonAnswer> call(const std::vector<std::string>& arguments,
                                 const StopToken& stop = {});

  // Begins one call, and gives its number.
  uint64_t post(const std::string& argument);
  // The calls that came to their ends since the last poll(), of which at least one is waited for,
  // for `patience` at most.
  std::map<uint64_t, PythonAnswer> poll(std::chrono::milliseconds patience);
  // Drops all calls under way.
  void drop();

 private:
  void start();

  PythonWorkersOptions options_;
  std::unique_ptr<PoolProcess> process_;
  uint64_t next_ = 1;        // number of the next call
  std::set<uint64_t> open_;  // calls under way
};

}  // namespace nereus
