#include "nereus/transition/schedule.h"

#include <algorithm>
#include <optional>
#include <queue>
#include <tuple>

#include "nereus/transition/ancestors.h"

namespace nereus {

namespace {

class Scheduler {
 public:
  explicit Scheduler(const ScheduleProblem& problem)
      : problem_(problem),
        ancestors_(problem.tasks.size()),
        open_needs_(problem.tasks.size()),
        successors_(problem.tasks.size()),
        devices_(problem.used.size()),
        free_lanes_(problem.lanes),
        waiting_for_lanes_(problem.lanes.size()) {
    schedule_.start.resize(problem.tasks.size());
    schedule_.chunked.resize(problem.tasks.size());
    schedule_.order.reserve(problem.tasks.size());
    schedule_.peak = problem.used;
    for (int task = 0; task < static_cast<int>(problem.tasks.size()); ++task) {
      open_needs_[task] = static_cast<int>(problem.tasks[task].needs.size());
      for (const int need : problem.tasks[task].needs) successors_[need].push_back(task);
      if (open_needs_[task] == 0) candidates_.push_back(task);
    }
  }

  std::variant<Schedule, Stuck> run() {
    while (true) {
      start_candidates();
      if (running_.empty()) break;
      now_ = std::get<0>(running_.top());
      while (!running_.empty() && std::get<0>(running_.top()) == now_) {
        const int task = std::get<1>(running_.top());
        running_.pop();
        end(task);
      }
    }
    if (schedule_.order.size() < problem_.tasks.size()) return why_stuck();
    schedule_.makespan = now_;
    return std::move(schedule_);
  }

 private:
  struct Use {
    int task = 0;
    Bytes rise;
    Bytes net;
  };
  struct Device {
    bool busy = false;
    std::vector<int> waiting_for_it;
    std::vector<int> waiting_for_memory;
    std::vector<Use> uses;  // of started tasks, in order
  };
  struct Shortage {
    int device = 0;
    Bytes needed;
    Bytes free;
  };
  // Memory on one device before a task, in the worst execution, and the task's own rise there.
  struct Admission {
    Ancestors::Set ancestors;
    std::vector<int> waits;
    std::vector<Bytes> peaks;  // by use of the task
    std::optional<Shortage> shortage;
  };

  void start_candidates() {
    std::ranges::sort(candidates_, {},
                      [&](int task) { return std::pair(problem_.tasks[task].priority, task); });
    for (const int task : std::exchange(candidates_, {})) try_start(task);
  }

  void try_start(int id) {
    const Task& task = problem_.tasks[id];
    for (const DeviceUse& use : task.uses) {
      Device& device = devices_[use.device];
      if (device.busy) return device.waiting_for_it.push_back(id);
    }
    for (const NicUse& nic : task.nics) {
      if (free_lanes_[nic.host] < nic.lanes) return waiting_for_lanes_[nic.host].push_back(id);
    }
    bool chunked = false;
    Admission admission = admit(id, chunked);
    if (admission.shortage) admission = admit(id, chunked = true);
    if (admission.shortage) {
      return devices_[admission.shortage->device].waiting_for_memory.push_back(id);
    }
    start(id, admission, chunked);
  }

  Admission admit(int id, bool chunked) const {
    const Task& task = problem_.tasks[id];
    Admission admission{ancestors_.of(id), {}, {}, {}};
    for (const int need : task.needs) ancestors_.join(admission.ancestors, need);
    admission.peaks.reserve(task.uses.size());
    for (const DeviceUse& use : task.uses) {
      const Bytes rise = chunked ? use.chunked_rise : use.rise;
      const Bytes capacity = problem_.capacity[use.device];
      Bytes worst = worst_before(use.device, admission.ancestors);
      // Its device is idle, so every earlier task there has ended and may be waited for.
      for (const Use& earlier : devices_[use.device].uses) {
        if (rise <= Bytes() || worst + rise <= capacity) break;
        if (Ancestors::contains(admission.ancestors, earlier.task)) continue;
        if (earlier.net >= std::max(earlier.rise, Bytes())) continue;
        admission.waits.push_back(earlier.task);
        ancestors_.join(admission.ancestors, earlier.task);
        worst = worst_before(use.device, admission.ancestors);
      }
      if (rise > Bytes() && worst + rise > capacity) {
        admission.shortage = Shortage{use.device, rise, capacity - worst};
        return admission;
      }
      admission.peaks.push_back(worst + rise);
    }
    return admission;
  }

  // What was not waited for may have grown already, or not have shrunk yet.
  Bytes worst_before(int device, const Ancestors::Set& ancestors) const {
    Bytes worst = problem_.used[device];
    for (const Use& use : devices_[device].uses) {
      worst += Ancestors::contains(ancestors, use.task) ? use.net : std::max(use.rise, Bytes());
    }
    return worst;
  }

  void start(int id, const Admission& admission, bool chunked) {
    const Task& task = problem_.tasks[id];
    ancestors_.set(id, admission.ancestors);
    for (const int release : admission.waits) schedule_.waits.emplace_back(release, id);
    for (size_t i = 0; i < task.uses.size(); ++i) {
      const DeviceUse& use = task.uses[i];
      Device& device = devices_[use.device];
      device.busy = true;
      device.uses.push_back({id, chunked ? use.chunked_rise : use.rise, use.net});
      schedule_.peak[use.device] = std::max(schedule_.peak[use.device], admission.peaks[i]);
    }
    for (const NicUse& nic : task.nics) free_lanes_[nic.host] -= nic.lanes;
    schedule_.order.push_back(id);
    schedule_.start[id] = now_;
    schedule_.chunked[id] = chunked;
    running_.emplace(now_ + task.duration, id);
  }

  void end(int id) {
    const Task& task = problem_.tasks[id];
    for (const DeviceUse& use : task.uses) {
      Device& device = devices_[use.device];
      device.busy = false;
      retry(device.waiting_for_it);
      if (use.net < std::max(use.rise, Bytes())) retry(device.waiting_for_memory);
    }
    for (const NicUse& nic : task.nics) {
      free_lanes_[nic.host] += nic.lanes;
      retry(waiting_for_lanes_[nic.host]);
    }
    for (const int successor : successors_[id]) {
      if (--open_needs_[successor] == 0) candidates_.push_back(successor);
    }
  }

  void retry(std::vector<int>& waiting) {
    candidates_.insert(candidates_.end(), waiting.begin(), waiting.end());
    waiting.clear();
  }

  Stuck why_stuck() const {
    Stuck stuck;
    for (const Device& device : devices_) {
      stuck.tasks.insert(stuck.tasks.end(), device.waiting_for_memory.begin(),
                         device.waiting_for_memory.end());
    }
    std::ranges::sort(stuck.tasks, {},
                      [&](int task) { return std::pair(problem_.tasks[task].priority, task); });
    const Shortage lack = admit(stuck.tasks.front(), /*chunked=*/true).shortage.value();
    return {std::move(stuck.tasks), lack.device, lack.needed, lack.free};
  }

  const ScheduleProblem& problem_;
  Ancestors ancestors_;
  std::vector<int> open_needs_;
  std::vector<std::vector<int>> successors_;
  std::vector<Device> devices_;
  std::vector<int> free_lanes_;
  std::vector<std::vector<int>> waiting_for_lanes_;
  std::vector<int> candidates_;
  // Ends of running tasks, earliest first; ties by task.
  std::priority_queue<std::pair<Seconds, int>, std::vector<std::pair<Seconds, int>>, std::greater<>>
      running_;
  Seconds now_;
  Schedule schedule_;
};

}  // namespace

std::variant<Schedule, Stuck> schedule(const ScheduleProblem& problem) {
  return Scheduler(problem).run();
}

void to_json(Json& j, const ScheduleProblem& problem) {
  Json tasks = Json::array();
  for (const Task& task : problem.tasks) {
    Json uses = Json::array();
    for (const DeviceUse& use : task.uses) {
      uses.push_back({{"device", use.device},
                      {"rise", use.rise},
                      {"chunked_rise", use.chunked_rise},
                      {"net", use.net}});
    }
    Json nics = Json::array();
    for (const NicUse& nic : task.nics) {
      nics.push_back({{"host", nic.host}, {"lanes", nic.lanes}});
    }
    tasks.push_back({{"duration_s", task.duration},
                     {"priority", task.priority},
                     {"uses", std::move(uses)},
                     {"nics", std::move(nics)},
                     {"needs", task.needs}});
  }
  j = Json{{"tasks", std::move(tasks)},
           {"used", problem.used},
           {"capacity", problem.capacity},
           {"lanes", problem.lanes}};
}

}  // namespace nereus
