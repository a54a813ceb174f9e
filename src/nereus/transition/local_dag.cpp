#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "nereus/transition/transition_dag.h"

namespace nereus {

namespace {

bool has(const EmuCollection& units, const Emu& unit) {
  return std::ranges::find(units, unit) != units.end();
}

// The sub-units that a unit is cut into: blocks of sub.tp × sub.pp neighbouring ranks.
EmuCollection blocks(const Emu& unit, Layout sub) {
  EmuCollection parts;
  for (int pp = 0; pp < unit.layout.pp; pp += sub.pp) {
    for (int tp = 0; tp < unit.layout.tp; tp += sub.tp) {
      Emu part{unit.model_stage, sub, {}};
      for (int p = pp; p < pp + sub.pp; ++p) {
        const auto row = unit.devices.begin() + p * unit.layout.tp + tp;
        part.devices.insert(part.devices.end(), row, row + sub.tp);
      }
      parts.push_back(std::move(part));
    }
  }
  return parts;
}

bool share_a_device(const Emu& a, const Emu& b) {
  return std::ranges::any_of(a.devices, [&](DeviceId d) { return index_of(b, d) >= 0; });
}

// Of obsolete units the one to copy from when nothing else survives: that which stands least in the
// way of the new ones.
size_t last_copy(const EmuCollection& obsolete, const EmuCollection& needed) {
  const auto in_the_way = [&](const Emu& unit) {
    return std::ranges::count_if(needed, [&](const Emu& n) { return share_a_device(unit, n); });
  };
  return std::ranges::min_element(obsolete, {}, in_the_way) - obsolete.begin();
}

// What a new unit is copied from: the old units that touch its hosts, else new ones that do, so
// that each host is reached from outside once; else all old ones. reshard() balances the load over
// them.
EmuCollection sources_for(const Emu& target, const EmuCollection& old_units,
                          const EmuCollection& new_units) {
  const auto near = [&](const Emu& unit) {
    return std::ranges::any_of(unit.devices, [&](DeviceId d) {
      return std::ranges::count(target.devices, d.host, &DeviceId::host) > 0;
    });
  };
  for (const EmuCollection* units : {&old_units, &new_units}) {
    EmuCollection sources;
    std::ranges::copy_if(*units, std::back_inserter(sources), near);
    if (!sources.empty()) return sources;
  }
  return old_units;
}

void add(LocalDag& dag, PrimitiveKind kind, EmuCollection sources, EmuCollection targets) {
  Primitive primitive;
  primitive.id = static_cast<int>(dag.primitives.size());
  primitive.kind = kind;
  primitive.model_stage = (sources.empty() ? targets : sources).front().model_stage;
  primitive.sources = std::move(sources);
  primitive.targets = std::move(targets);
  dag.primitives.push_back(std::move(primitive));
}

// A unit is made before it is used and read before it is consumed; a redundant copy leaves a device
// before a new one comes.
std::vector<Edge> dependencies(const std::vector<Primitive>& primitives) {
  std::vector<Edge> edges;
  std::map<Emu, int> maker;
  std::map<Emu, std::vector<int>> readers;
  std::vector<std::pair<Emu, int>> destroyed;
  for (const Primitive& p : primitives) {
    for (const Emu& source : p.sources) {
      if (maker.contains(source)) edges.push_back({maker[source], p.id, EdgeKind::kState});
      if (!consumes_sources(p.kind)) {
        readers[source].push_back(p.id);
        continue;
      }
      for (const int reader : readers[source]) edges.push_back({reader, p.id, EdgeKind::kState});
      if (p.kind == PrimitiveKind::kDestroy) destroyed.emplace_back(source, p.id);
    }
    for (const Emu& target : p.targets) {
      maker[target] = p.id;
      if (p.kind != PrimitiveKind::kExtend) continue;
      for (const auto& [unit, id] : destroyed) {
        if (share_a_device(unit, target)) edges.push_back({id, p.id, EdgeKind::kResource});
      }
    }
  }
  // A Merge of parts that one Split made depends on it once.
  std::ranges::sort(edges, {}, [](const Edge& e) { return std::tuple(e.to, e.from, e.kind); });
  const auto repeated = std::ranges::unique(edges);
  edges.erase(repeated.begin(), repeated.end());
  return edges;
}

}  // namespace

LocalDag compile_local(const StagePlan& from, const StagePlan& to) {
  LocalDag dag;
  const Layout sub{std::gcd(from.layout.tp, to.layout.tp), std::gcd(from.layout.pp, to.layout.pp)};
  const EmuCollection before = units_of(from);
  const EmuCollection after = units_of(to);

  EmuCollection needed;  // the sub-units of which the new units are made
  for (const Emu& unit : after) {
    if (has(before, unit)) continue;
    for (Emu& part : blocks(unit, sub)) needed.push_back(std::move(part));
  }
  EmuCollection survivors;
  EmuCollection obsolete;
  for (const Emu& unit : before) {
    const EmuCollection parts = blocks(unit, sub);
    if (has(after, unit)) {
      survivors.push_back(unit);
    } else if (std::ranges::none_of(parts, [&](const Emu& p) { return has(needed, p); })) {
      obsolete.push_back(unit);
    } else {
      if (parts.size() > 1) add(dag, PrimitiveKind::kSplit, {unit}, parts);
      for (const Emu& p : parts) (has(needed, p) ? survivors : obsolete).push_back(p);
    }
  }

  std::optional<Emu> last;
  if (survivors.empty()) {
    const size_t index = last_copy(obsolete, needed);
    last = obsolete[index];
    obsolete.erase(obsolete.begin() + static_cast<std::ptrdiff_t>(index));
  }
  for (const Emu& unit : obsolete) add(dag, PrimitiveKind::kDestroy, {unit}, {});
  const EmuCollection old_units = last ? EmuCollection{*last} : survivors;
  EmuCollection new_units;
  for (const Emu& part : needed) {
    if (has(survivors, part)) continue;
    add(dag, PrimitiveKind::kExtend, sources_for(part, old_units, new_units), {part});
    new_units.push_back(part);
  }
  if (last) add(dag, PrimitiveKind::kDestroy, {*last}, {});
  for (const Emu& unit : after) {
    if (has(before, unit)) continue;
    EmuCollection parts = blocks(unit, sub);
    if (parts.size() > 1) add(dag, PrimitiveKind::kMerge, std::move(parts), {unit});
  }
  dag.edges = dependencies(dag.primitives);
  return dag;
}

}  // namespace nereus
