// How well the cost model fits public measurements (Figure 10a of the paper): each group of rows
// teaches one efficiency per operation class with every other row, and predicts the others.
// Reads the document that tables.py writes; run.py runs both and draws.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <utility>
#include <vector>

#include "common/record.h"
#include "cost_fit/rows.h"
#include "nereus/core/cost/step_latency.h"

namespace nereus::bench {
namespace {

struct Point {
  std::string table, group, name;
  std::string block;  // operators of one block have the same, not empty
  Operations ideal;
  double measured = 0;
  double predicted = 0;
  double deviation = 0;  // of the log prediction
  bool taught = false;   // a row that the efficiencies were fitted to
};

std::vector<Point> read_points(const Json& document) {
  const Hardware all = hardware(document);
  std::vector<Point> points;
  for (const Json& row : document.at("rows")) {
    points.push_back({.table = row.at("table"),
                      .group = row.at("group"),
                      .name = row.at("name"),
                      .block = row.value("block", ""),
                      .ideal = ideal_work(row, all),
                      .measured = row.at("seconds"),
                      .taught = row.at("teaches")});
  }
  return points;
}

// What was learned, by table and group.
using Learned = std::map<std::pair<std::string, std::string>, Calibration>;

// Of the named groups, [[table, group], …]; where they overlap, of the last.
Calibration prior_of(const Json& names, const Learned& learned) {
  Calibration prior;
  for (const Json& name : names) {
    const Calibration& one = learned.at({name.at(0), name.at(1)});
    for (OpClass op_class : kAllOpClasses) {
      if (!one.seen(op_class)) continue;
      prior.set(op_class, {.log_efficiency = std::log(one.efficiency(op_class)),
                           .variance = std::pow(one.log_deviation(op_class), 2),
                           .observations = 1});
    }
  }
  return prior;
}

// Fits the group's teaching rows and fills in all predictions; returns what was learned.
Json fit_group(std::span<Point> group, const Calibration& prior, Seconds tick, Learned& learned) {
  std::vector<MeasuredWork> rows;
  for (const Point& point : group) {
    if (point.taught) rows.push_back({point.ideal, Seconds(point.measured)});
  }
  const Fit found = fit(rows, prior, tick);
  learned[{group.front().table, group.front().group}] = found.calibration;
  for (Point& point : group) {
    const Work work = {{OpClass::kCompute, point.ideal}};
    const TimeEstimate estimate = estimated_time(work, found.calibration);
    point.predicted = predicted_time(point.ideal, found.calibration).count();
    point.deviation = std::log(estimate.high / estimate.expected) / 1.645;
  }
  Json efficiencies = Json::object();
  for (OpClass op_class : kAllOpClasses) {
    if (!found.calibration.seen(op_class)) continue;
    efficiencies[to_string(op_class)] = {{"efficiency", found.calibration.efficiency(op_class)},
                                         {"deviation", found.calibration.log_deviation(op_class)}};
  }
  return {{"group", group.front().group},
          {"rows_taught", rows.size()},
          {"parameters", found.parameters},
          {"classes", efficiencies}};
}

// Over the rows that taught nothing.
Json accuracy(std::span<const Point> points) {
  std::vector<double> errors;
  double mean = 0, residual = 0, spread = 0;
  int within = 0;
  std::vector<const Point*> held_out;
  for (const Point& point : points) {
    if (!point.taught) held_out.push_back(&point);
  }
  for (const Point* point : held_out) mean += point->measured / double(held_out.size());
  for (const Point* point : held_out) {
    const double error = point->predicted / point->measured - 1;
    errors.push_back(std::abs(error));
    residual += std::pow(point->predicted - point->measured, 2);
    spread += std::pow(point->measured - mean, 2);
    if (std::abs(std::log1p(error)) <= 1.645 * point->deviation) ++within;
  }
  if (errors.empty()) return nullptr;
  double sum = 0;
  for (double error : errors) sum += error;
  return {{"rows", errors.size()},
          {"mape", sum / double(errors.size())},
          {"median", quantile(errors, 0.5)},
          {"max", std::ranges::max(errors)},
          {"r2", spread > 0 ? Json(1 - residual / spread) : Json(nullptr)},
          {"in_interval", double(within) / double(errors.size())}};
}

// The operators of each block added up, as a table of its own.
std::vector<Point> blocks_of(std::span<const Point> operators) {
  std::vector<Point> blocks;
  for (const Point& each : operators) {
    if (each.block.empty()) continue;
    if (blocks.empty() || blocks.back().block != each.block) {
      blocks.push_back({.table = each.table + " blocks",
                        .group = each.group,
                        .name = each.block,
                        .block = each.block,
                        .taught = each.taught});
    }
    Point& block = blocks.back();
    const double total = block.predicted + each.predicted;
    block.deviation = (block.deviation * block.predicted + each.deviation * each.predicted) / total;
    block.measured += each.measured;
    block.predicted = total;
  }
  return blocks;
}

// The held-out rows, of a large table some evenly spread ones.
void write_csv(std::ostream& csv, std::span<const Point> points) {
  constexpr size_t kMost = 200;
  std::vector<const Point*> held_out;
  for (const Point& point : points) {
    if (!point.taught) held_out.push_back(&point);
  }
  const size_t stride = (held_out.size() + kMost - 1) / kMost;
  for (size_t i = 0; i < held_out.size(); i += stride) {
    const Point& point = *held_out[i];
    csv << point.table << ',' << point.group << ',' << point.name << ',' << point.measured << ','
        << point.predicted << '\n';
  }
}

Json run(const Json& document, const std::filesystem::path& csv_file) {
  std::vector<Point> points = read_points(document);
  std::ofstream csv(csv_file);
  csv << "table,group,name,measured_s,predicted_s\n";
  Json tables = Json::array();
  Learned learned;
  for (auto first = points.begin(); first != points.end();) {
    const auto last =
        std::find_if(first, points.end(), [&](const Point& p) { return p.table != first->table; });
    Json fits = Json::array();
    for (auto begin = first; begin != last;) {
      const auto end =
          std::find_if(begin, last, [&](const Point& p) { return p.group != begin->group; });
      const Calibration prior =
          prior_of(document.at("priors").value(first->table, Json::array()), learned);
      fits.push_back(
          fit_group({begin, end}, prior, document.at("ticks").at(first->table), learned));
      begin = end;
    }
    const std::span<const Point> table(first, last);
    write_csv(csv, table);
    tables.push_back({{"table", first->table}, {"held_out", accuracy(table)}, {"fits", fits}});
    if (const std::vector<Point> blocks = blocks_of(table); !blocks.empty()) {
      write_csv(csv, blocks);
      tables.push_back({{"table", blocks.front().table}, {"held_out", accuracy(blocks)}});
    }
    first = last;
  }
  return tables;
}

}  // namespace
}  // namespace nereus::bench

int main(int argc, char** argv) {
  CLI::App app("Fits the cost model to tables of measurements");
  std::filesystem::path input, output;
  app.add_option("--input", input, "What tables.py wrote")->required();
  app.add_option("--output", output, "Folder for cost_fit.json and cost_fit.csv")->required();
  CLI11_PARSE(app, argc, argv);
  try {
    std::ifstream file(input);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const nereus::Json document = nereus::parse_json(text, input.string());
    nereus::Json record = nereus::bench::record_head(argc, argv);
    record["tables"] = nereus::bench::run(document, output / "cost_fit.csv");
    nereus::bench::write_record(output / "cost_fit.json", record);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}
