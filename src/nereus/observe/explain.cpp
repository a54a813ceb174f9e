#include "nereus/observe/explain.h"

#include <sstream>
#include <utility>

#include "nereus/base/error.h"
#include "nereus/base/text.h"
#include "nereus/base/units.h"
#include "nereus/data/files.h"
#include "nereus/observe/tables.h"
#include "nereus/plan/plan.h"

namespace nereus {

namespace {

Seconds seconds(const Json& event, const char* key) { return Seconds(event.value(key, 0.0)); }

std::string indented(const std::string& text, const std::string& margin) {
  std::string out;
  for (const std::string& line : split(text, '\n')) {
    if (!line.empty()) out += margin + line + "\n";
  }
  return out;
}

// "transition 0.1 s ≤ γ 0.5 · H 16 · gain 0.9 s = 7.2 s".
std::string inequality(const Json& decision) {
  const double gamma = decision.value("gamma", 0.0);
  const double horizon = decision.value("horizon", 0.0);
  const Seconds gain = seconds(decision, "gain_s");
  const Seconds cost = seconds(decision, "transition_s");
  const Seconds allowed = gain * (gamma * horizon);
  return "transition " + to_string(cost) + (cost <= allowed ? " ≤ " : " > ") + "γ " +
         format_number(gamma) + " · H " + format_number(horizon) + " · gain " + to_string(gain) +
         " = " + to_string(allowed);
}

std::string signals(const Json& decision) {
  std::vector<std::string> parts;
  const Json values = decision.value("signals", Json::object());
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
  const bool urgent = decision.value("urgent", false);
  const std::string verdict = decision.value("verdict", "");
  std::ostringstream out;
  out << after(decision.value("step", 0) + 1) << decision.value("trigger", "")
      << (urgent ? " (urgent)" : "") << "\n"
      << "  why         " << decision.value("trigger_detail", "") << "\n"
      << "  signals     " << signals(decision) << "\n";
  if (decision.contains("best") && !decision.at("best").is_null()) {
    out << "  now         " << to_string(seconds(decision, "current_step_s"))
        << " a step predicted for the plan in force\n"
        << "  best found  " << to_string(seconds(decision, "best_step_s")) << " a step, gain "
        << to_string(seconds(decision, "gain_s")) << "\n"
        << indented(to_string(decision.at("best").get<Plan>()), "              ");
  }
  if (decision.value("transition_s", 0.0) > 0) {
    out << "  payback     " << inequality(decision) << (urgent ? " (waived: urgent)" : "") << "\n";
  }
  out << "  verdict     " << verdict << ": " << decision.value("reason", "") << "\n";
  return out.str();
}

std::string explain_transition(const Json& event) {
  std::vector<std::vector<std::string>> rows{{"id", "moved", "predicted", "measured", "primitive"}};
  for (const Json& primitive : event.at("primitives")) {
    const Json& measured = primitive.at("measured_s");
    rows.push_back({std::to_string(primitive.at("id").get<int>()),
                    to_string(primitive.at("bytes_moved").get<Bytes>()),
                    to_string(primitive.at("predicted_s").get<Seconds>()),
                    measured.is_null() ? "-" : to_string(measured.get<Seconds>()),
                    primitive.value("text", "")});
  }
  std::ostringstream out;
  out << "  transition  predicted " << to_string(seconds(event, "predicted_s")) << ", measured "
      << to_string(seconds(event, "measured_s")) << ", moved "
      << to_string(event.at("moved_bytes").get<Bytes>()) << ", "
      << (event.value("verified", false) ? "verified bit-equal" : "not verified") << "\n"
      << indented(render_table(rows), "    ");
  return out.str();
}

std::string explain_event(const Json& event) {
  const std::string type = event.value("type", "");
  if (type == "decision") {
    return event.value("trigger", "none") == "none" ? "" : explain_decision(event);
  }
  if (type == "transition") return explain_transition(event);
  if (type == "plan") {
    return after(event.value("step", 0)) + "plan " + event.value("file", "") + "\n" +
           indented(event.value("text", ""), "              ");
  }
  if (type == "fault") {
    return after(event.value("step", 0)) + "fault: " + event.value("message", "") + "\n";
  }
  return "";
}

[[noreturn]] void refuse(const std::filesystem::path& file, const std::string& what) {
  throw Error(ErrorCode::kInvalidInput,
              file.string() + ": " + what + "\nGive the directory of a run, or restore that file");
}

// The beginning of a line, in quotes.
std::string brief(const std::string& line) {
  constexpr size_t kShown = 60;
  std::string text(1, '"');
  text += line.substr(0, kShown);
  return text += line.size() > kShown ? "…\"" : "\"";
}

// How many steps were done when it happened.
int steps_done(const Json& event) {
  const std::string type = event.value("type", "");
  return event.value("step", 0) + (type == "decision" || type == "transition" ? 1 : 0);
}

}  // namespace

std::vector<Json> read_events(const std::filesystem::path& file) {
  const std::string text = read_text(file);
  const std::vector<std::string> lines = split(text, '\n');
  std::vector<Json> events;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].empty()) continue;
    Json event = Json::parse(lines[i], nullptr, /*allow_exceptions=*/false);
    if (event.is_object() && event.contains("type") && event["type"].is_string()) {
      events.push_back(std::move(event));
    } else if (i + 1 < lines.size()) {  // a line that was cut off is the last and does not end
      refuse(file, "line " + std::to_string(i + 1) + " is no event of a run: " + brief(lines[i]));
    }
  }
  if (events.empty() && !text.empty()) refuse(file, "holds no event of a run: " + brief(text));
  return events;
}

std::string render_explain(const std::vector<Json>& events, std::optional<int> step) {
  std::string text;
  std::string previous;
  for (const Json& event : events) {
    const std::string type = event.value("type", "");
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
