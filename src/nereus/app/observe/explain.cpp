#include "nereus/app/observe/explain.h"

#include <sstream>

#include "nereus/app/observe/records.h"
#include "nereus/app/observe/tables.h"
#include "nereus/core/base/error.h"
#include "nereus/core/base/text.h"
#include "nereus/core/base/units.h"
#include "nereus/core/plan/plan.h"
#include "nereus/runtime/files/regular_file.h"

namespace nereus {

namespace {

Seconds seconds(const Json& event, const char* key) { return Seconds(number_in(event, key)); }

std::string indented(const std::string& text, const std::string& margin) {
  std::string out;
  for (const std::string& line : split(text, '\n')) {
    if (!line.empty()) out += margin + line + "\n";
  }
  return out;
}

// "transition 0.1 s ≤ γ 0.5 · H 16 · gain 0.9 s = 7.2 s".
std::string inequality(const Json& decision) {
  const double gamma = number_in(decision, "gamma");
  const double horizon = number_in(decision, "horizon");
  const Seconds gain = seconds(decision, "gain_s");
  const Seconds cost = seconds(decision, "transition_s");
  const Seconds allowed = gain * (gamma * horizon);
  return "transition " + to_string(cost) + (cost <= allowed ? " ≤ " : " > ") + "γ " +
         format_number(gamma) + " · H " + format_number(horizon) + " · gain " + to_string(gain) +
         " = " + to_string(allowed);
}

std::string signals(const Json& decision) {
  std::vector<std::string> parts;
  const Json values = value_in(decision, "signals");
  for (const auto& [name, value] : values.items()) {
    if (value.is_number()) parts.push_back(name + " " + format_number(value.get<double>()));
  }
  return join(parts, ", ");
}

// Events count steps from 0, people count those that are done: as in the config's schedules, [5, 2]
// means two devices after five steps.
std::string after(int steps) {
  return "After " + std::to_string(steps) + (steps == 1 ? " step: " : " steps: ");
}

std::string explain_decision(const Json& decision) {
  const bool urgent = flag_in(decision, "urgent");
  const std::string verdict = text_in(decision, "verdict");
  std::ostringstream out;
  out << after(step_in(decision) + 1) << text_in(decision, "trigger") << (urgent ? " (urgent)" : "")
      << "\n"
      << "  why         " << text_in(decision, "trigger_detail") << "\n"
      << "  signals     " << signals(decision) << "\n";
  if (const Json best = value_in(decision, "best"); !best.is_null()) {
    out << "  now         " << to_string(seconds(decision, "current_step_s"))
        << " a step predicted for the plan in force\n"
        << "  best found  " << to_string(seconds(decision, "best_step_s")) << " a step, gain "
        << to_string(seconds(decision, "gain_s")) << "\n"
        << indented(to_string(best.get<Plan>()), "              ");
  }
  if (number_in(decision, "transition_s") > 0) {
    out << "  payback     " << inequality(decision) << (urgent ? " (waived: urgent)" : "") << "\n";
  }
  out << "  verdict     " << verdict << ": " << text_in(decision, "reason") << "\n";
  return out.str();
}

std::string explain_transition(const Json& event) {
  std::vector<std::vector<std::string>> rows{{"id", "moved", "predicted", "measured", "primitive"}};
  for (const Json& primitive : event.at("primitives")) {
    const Json measured = value_in(primitive, "measured_s");
    rows.push_back({std::to_string(primitive.at("id").get<int>()),
                    to_string(primitive.at("bytes_moved").get<Bytes>()),
                    to_string(primitive.at("predicted_s").get<Seconds>()),
                    measured.is_null() ? "-" : to_string(measured.get<Seconds>()),
                    text_in(primitive, "text")});
  }
  std::ostringstream out;
  out << "  transition  predicted " << to_string(seconds(event, "predicted_s")) << ", measured "
      << to_string(seconds(event, "measured_s")) << ", moved "
      << to_string(event.at("moved_bytes").get<Bytes>()) << ", "
      << (flag_in(event, "verified") ? "verified bit-equal" : "not verified") << "\n"
      << indented(render_table(rows), "    ");
  return out.str();
}

std::string explain_event(const Json& event) {
  const std::string type = text_in(event, "type");
  if (type == "decision") {
    const std::string trigger = text_in(event, "trigger");
    return trigger.empty() || trigger == "none" ? "" : explain_decision(event);
  }
  if (type == "transition") return explain_transition(event);
  if (type == "plan") {
    return after(step_in(event)) + "plan " + text_in(event, "file") + "\n" +
           indented(text_in(event, "text"), "              ");
  }
  if (type == "fault") {
    return after(step_in(event)) + "fault: " + text_in(event, "message") + "\n";
  }
  return "";
}

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::kInvalidInput,
              what + "\nGive the directory of a run, or restore that file");
}

// How many steps were done when it happened.
int steps_done(const Json& event) {
  const std::string type = text_in(event, "type");
  return step_in(event) + (type == "decision" || type == "transition" ? 1 : 0);
}

}  // namespace

std::vector<Json> read_events(const std::filesystem::path& file) {
  const Records records = read_records(file, RecordKind::kEvents);
  if (!records.problems.empty()) refuse(records.problems.front());
  if (records.lines.empty() && regular_file_size(file) > 0) {
    refuse(file.string() + ": holds no event of a run");
  }
  return records.lines;
}

std::string render_explain(const std::vector<Json>& events, std::optional<int> step) {
  std::string text;
  std::string previous;
  for (const Json& event : events) {
    const std::string type = text_in(event, "type");
    // The plan that a transition leads to was shown with the decision.
    const bool shown = type == "plan" && previous == "transition";
    previous = type;
    if (!shown && (!step || steps_done(event) == *step)) text += explain_event(event);
  }
  if (text.empty())
    text = "Nothing asked for another plan" + std::string(step ? " there" : "") + ".\n";
  return text;
}

}  // namespace nereus
