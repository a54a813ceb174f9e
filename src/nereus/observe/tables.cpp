#include "nereus/observe/tables.h"

#include <algorithm>
#include <map>

namespace nereus {

namespace {

// Characters, not bytes: UTF-8 continuation bytes take no column.
size_t width(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

}  // namespace

std::string render_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += row[i] + std::string(i + 1 < row.size() ? widths[i] - width(row[i]) + 2 : 0, ' ');
    }
    text += line + "\n";
  }
  return text;
}

std::string render_memory(const MemoryPrediction& prediction, const Cluster& cluster) {
  std::vector<std::string> components;  // in the order in which the prediction has them
  std::map<DeviceId, std::map<std::string, Bytes>> cells;
  for (const MemoryEntry& entry : prediction.entries) {
    if (std::ranges::find(components, entry.component) == components.end()) {
      components.push_back(entry.component);
    }
    Bytes& cell = cells[entry.device][entry.component];
    cell = entry.resident ? cell + entry.bytes : std::max(cell, entry.bytes);
  }
  std::vector<std::vector<std::string>> rows{{"device"}};
  rows[0].insert(rows[0].end(), components.begin(), components.end());
  rows[0].insert(rows[0].end(), {"peak", "capacity"});
  for (const auto& [device, peak] : prediction.peak) {
    std::vector<std::string> row{to_string(device)};
    for (const std::string& component : components) {
      row.push_back(to_string(cells[device][component]));
    }
    row.push_back(to_string(peak));
    row.push_back(to_string(is_host_memory(device)
                                ? cluster.hosts.at(static_cast<size_t>(device.host)).memory
                                : cluster.device.memory));
    rows.push_back(row);
  }
  return render_table(rows);
}

std::string render_latency(const StepLatency& latency, const Calibration& calibration) {
  std::vector<std::vector<std::string>> rows{{"pass", "predicted", "of which"}};
  for (const NodeLatency& node : latency.nodes) {
    std::string parts;
    for (const auto& [op_class, ideal] : node.ideal) {
      if (ideal.count() == 0) continue;
      parts += (parts.empty() ? "" : ", ") + to_string(op_class) + " " +
               to_string(ideal * (1 / calibration.efficiency(op_class)));
    }
    rows.push_back({node.name, to_string(node.predicted), parts});
  }
  rows.push_back({"step", to_string(latency.total), ""});
  return render_table(rows);
}

}  // namespace nereus
