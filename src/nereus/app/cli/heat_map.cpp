#include <algorithm>
#include <set>

#include "nereus/app/cli/plan_text.h"
#include "nereus/core/base/text.h"

namespace nereus {

namespace {

constexpr int kCell = 92;
constexpr int kHeight = 52;
constexpr int kLeft = 60;
constexpr int kTop = 64;

std::string text_at(int x, int y, const std::string& text, const std::string& style) {
  return "<text x=\"" + std::to_string(x) + "\" y=\"" + std::to_string(y) + "\" " + style + ">" +
         text + "</text>\n";
}

// From light green (best) over yellow to red (three times as long and beyond).
std::string colour(double slowdown) {
  constexpr double kWorst = 3;
  const double share = std::clamp((slowdown - 1) / (kWorst - 1), 0.0, 1.0);
  return "hsl(" + format_number(120 * (1 - share), "%.0f") + ",65%," +
         format_number(78 - 18 * share, "%.0f") + "%)";
}

int place(const std::set<int>& degrees, int degree) {
  return static_cast<int>(std::distance(degrees.begin(), degrees.find(degree)));
}

}  // namespace

std::string render_heat_map(const std::vector<LayoutStep>& layouts, const std::string& title) {
  std::set<int> tps, pps;
  std::optional<Seconds> best;
  for (const auto& [layout, step] : layouts) {
    tps.insert(layout.tp);
    pps.insert(layout.pp);
    if (step && (!best || *step < *best)) best = step;
  }
  const int width = kLeft + kCell * std::max<int>(4, static_cast<int>(tps.size())) + 20;
  const int height = kTop + kHeight * static_cast<int>(pps.size()) + 20;
  std::string svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + std::to_string(width) +
                    "\" height=\"" + std::to_string(height) +
                    "\" font-family=\"sans-serif\" font-size=\"13\">\n"
                    "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
  svg += text_at(kLeft, 20, title, "font-weight=\"bold\"");
  const std::string centred = "text-anchor=\"middle\"";
  for (int tp : tps) {
    svg += text_at(kLeft + place(tps, tp) * kCell + kCell / 2, kTop - 10,
                   "TP " + std::to_string(tp), centred);
  }
  for (int pp : pps) {
    svg += text_at(8, kTop + place(pps, pp) * kHeight + kHeight / 2 + 5, "PP " + std::to_string(pp),
                   "");
  }
  for (const auto& [layout, step] : layouts) {
    const int x = kLeft + place(tps, layout.tp) * kCell;
    const int y = kTop + place(pps, layout.pp) * kHeight;
    const std::string fill = step ? colour(*step / *best) : "#d0d0d0";
    svg += "<rect x=\"" + std::to_string(x) + "\" y=\"" + std::to_string(y) + "\" width=\"" +
           std::to_string(kCell - 3) + "\" height=\"" + std::to_string(kHeight - 3) +
           "\" rx=\"4\" fill=\"" + fill + "\"" +
           (step && *step == *best ? " stroke=\"black\" stroke-width=\"2\"" : "") + "/>\n";
    svg += text_at(x + (kCell - 3) / 2, y + kHeight / 2 + 4,
                   step ? to_string(*step) : "does not fit", centred);
  }
  return svg + "</svg>\n";
}

}  // namespace nereus
