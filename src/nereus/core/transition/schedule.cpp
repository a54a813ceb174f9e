#include "nereus/core/transition/schedule.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <queue>
#include <span>
#include <tuple>

#include "nereus/core/transition/ancestors.h"

namespace nereus {

namespace {

class Scheduler {
 public:
  explicit Scheduler(const ScheduleProblem& problem)
      : problem_(problem),
        ancestors_(problem.tasks.size()),
        open_needs_(problem.tasks.size()),
        first_successor_(problem.tasks.size() + 1),
        devices_(problem.used.size()),
        free_lanes_(problem.lanes),
        waiting_for_lanes_(problem.lanes.size()) {
    schedule_.start.resize(problem.tasks.size());
    schedule_.chunked.resize(problem.tasks.size());
    schedule_.order.reserve(problem.tasks.size());
    schedule_.peak = problem.used;
    find_successors();
    reserve_uses();
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
    // Of started tasks, in order: a part of uses_.
    size_t first_use = 0;
    size_t use_count = 0;
  };
  struct Shortage {
    int device = 0;
    Bytes needed;
    Bytes free;
  };
  // If and how a task may start: what it then waits for, and the peaks that it causes.
  struct Admission {
    Ancestors::Set ancestors;
    std::vector<int> waits;
    std::vector<Bytes> peaks;  // by use of the task
    std::optional<Shortage> shortage;
  };

  void find_successors() {
    const auto tasks = static_cast<int>(problem_.tasks.size());
    for (int task = 0; task < tasks; ++task) {
      open_needs_[task] = static_cast<int>(problem_.tasks[task].needs.size());
      if (open_needs_[task] == 0) candidates_.push_back(task);
      for (const int need : problem_.tasks[task].needs) ++first_successor_[need + 1];
    }
    std::partial_sum(first_successor_.begin(), first_successor_.end(), first_successor_.begin());
    successors_.resize(static_cast<size_t>(first_successor_.back()));
    std::vector<int> next(first_successor_.begin(), first_successor_.end() - 1);
    for (int task = 0; task < tasks; ++task) {
      for (const int need : problem_.tasks[task].needs) successors_[next[need]++] = task;
    }
  }

  void reserve_uses() {
    for (const Task& task : problem_.tasks) {
      for (const DeviceUse& use : task.uses) ++devices_[use.device].first_use;
    }
    size_t sum = 0;
    for (Device& device : devices_) sum += std::exchange(device.first_use, sum);
    uses_.resize(sum);
  }

  std::span<const Use> uses(int device) const {
    return std::span(uses_).subspan(devices_[device].first_use, devices_[device].use_count);
  }

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
    admit(id, chunked, admission_);
    if (admission_.shortage) admit(id, chunked = true, admission_);
    if (admission_.shortage) {
      return devices_[admission_.shortage->device].waiting_for_memory.push_back(id);
    }
    start(id, admission_, chunked);
  }

  // Overwrites `admission`, whose memory is used again and again.
  void admit(int id, bool chunked, Admission& admission) const {
    const Task& task = problem_.tasks[id];
    ancestors_.copy(id, admission.ancestors);
    admission.waits.clear();
    admission.peaks.clear();
    admission.shortage.reset();
    for (const int need : task.needs) ancestors_.join(admission.ancestors, need);
    for (const DeviceUse& use : task.uses) {
      const Bytes rise = chunked ? use.chunked_rise : use.rise;
      if (rise <= Bytes()) {
        admission.peaks.emplace_back();
        continue;
      }
      const Bytes capacity = problem_.capacity[use.device];
      Bytes worst = worst_before(use.device, admission.ancestors);
      // Its device is idle, so every earlier task there has ended and may be waited for.
      for (const Use& earlier : uses(use.device)) {
        if (worst + rise <= capacity) break;
        if (Ancestors::contains(admission.ancestors, earlier.task)) continue;
        if (earlier.net >= std::max(earlier.rise, Bytes())) continue;
        admission.waits.push_back(earlier.task);
        ancestors_.join(admission.ancestors, earlier.task);
        worst = worst_before(use.device, admission.ancestors);
      }
      if (worst + rise > capacity) {
        admission.shortage = Shortage{use.device, rise, capacity - worst};
        return;
      }
      admission.peaks.push_back(worst + rise);
    }
  }

  // What was not waited for may have grown already, or not have shrunk yet.
  Bytes worst_before(int device, const Ancestors::Set& ancestors) const {
    Bytes worst = problem_.used[device];
    for (const Use& use : uses(device)) {
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
      uses_[device.first_use + device.use_count++] = {id, chunked ? use.chunked_rise : use.rise,
                                                      use.net};
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
    for (int i = first_successor_[id]; i < first_successor_[id + 1]; ++i) {
      const int successor = successors_[i];
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
    Admission admission;
    admit(stuck.tasks.front(), /*chunked=*/true, admission);
    const Shortage lack = admission.shortage.value();
    return {std::move(stuck.tasks), lack.device, lack.needed, lack.free};
  }

  const ScheduleProblem& problem_;
  Ancestors ancestors_;
  std::vector<int> open_needs_;
  std::vector<int> first_successor_;  // by task, into successors_
  std::vector<int> successors_;
  std::vector<Device> devices_;
  std::vector<Use> uses_;
  std::vector<int> free_lanes_;
  std::vector<std::vector<int>> waiting_for_lanes_;
  std::vector<int> candidates_;
  Admission admission_;
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

ScheduleProblem longest_tail_first(ScheduleProblem problem) {
  std::vector<Task>& tasks = problem.tasks;
  std::vector<Seconds> tails(tasks.size());
  for (size_t task = tasks.size(); task-- > 0;) {
    tails[task] += tasks[task].duration;
    for (const int need : tasks[task].needs) tails[need] = std::max(tails[need], tails[task]);
  }
  std::vector<size_t> order(tasks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t task) {
    return std::pair(tasks[task].priority > 0, Seconds() - tails[task]);
  });
  for (size_t place = 0; place < order.size(); ++place) {
    tasks[order[place]].priority = static_cast<int>(place);
  }
  return problem;
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
