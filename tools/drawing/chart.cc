#include "drawing/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "drawing/svg.h"

namespace tutti::drawing {
namespace {

// Pixels.
constexpr double kPanelWidth = 560, kPanelHeight = 400, kLeft = 92, kRight = 24, kTop = 40, kBottom = 62;
constexpr size_t kPanelsAcross = 2;
constexpr double kTitle = 64, kLegendRow = 22, kLegendColumn = 270, kMargin = 16;

struct Range {
  double low = 0, high = 1;  // logarithms to base 2 or 10
  double base = 10;
  double at(double value) const { return (std::log(value) / std::log(base) - low) / (high - low); }
};

Range rangeOf(const std::vector<Curve>& curves, bool ofX, double base) {
  double low = INFINITY, high = -INFINITY;
  for (const Curve& curve : curves)
    for (const auto& [x, y] : curve.points) {
      const double value = std::log(ofX ? x : y) / std::log(base);
      low = std::min(low, value);
      high = std::max(high, value);
    }
  if (!(low <= high)) return {0, 1, base};
  // A curve must not run along the frame; y begins and ends at a line.
  if (!ofX) {
    low = std::floor(low + 1e-9);
    high = std::ceil(high - 1e-9);
  }
  if (high - low < 1e-9) high = low + 1;
  return {low, high, base};
}

/// Values that get a line, at most about `most` of them.
std::vector<double> ticksOf(const Range& range, double most) {
  std::vector<double> ticks;
  const double step = std::max(1.0, std::ceil((range.high - range.low) / most));
  for (double power = std::ceil(range.low - 1e-9); power <= range.high + 1e-9; power += step)
    ticks.push_back(std::pow(range.base, power));
  return ticks;
}

void drawPanel(Svg& svg, const Panel& panel, double left, double top) {
  const double x0 = left + kLeft, width = kPanelWidth - kLeft - kRight;
  const double y0 = top + kTop, height = kPanelHeight - kTop - kBottom;
  const Range xs = rangeOf(panel.curves, true, 2);
  const Range ys = rangeOf(panel.curves, false, 10);
  svg.text(x0 + width / 2, top + 24, panel.title, {.size = 14, .bold = true, .centred = true});
  for (const double tick : ticksOf(xs, 9)) {
    const double x = x0 + width * xs.at(tick);
    svg.line(x, y0, x, y0 + height, "#ddd", 1);
    svg.text(x, y0 + height + 18, axisText(tick, panel.x.unit), {.size = 11, .centred = true});
  }
  for (const double tick : ticksOf(ys, 12)) {
    const double y = y0 + height * (1 - ys.at(tick));
    svg.line(x0, y, x0 + width, y, "#ccc", 1);
    svg.text(x0 - 8, y + 4, axisText(tick, panel.y.unit), {.size = 11, .toTheLeft = true});
    for (int i = 2; i < 10 && tick * i < std::pow(10, ys.high) * 0.999; ++i) {
      const double between = y0 + height * (1 - ys.at(tick * i));
      svg.line(x0, between, x0 + width, between, "#f0f0f0", 1);
    }
  }
  svg.line(x0, y0, x0, y0 + height, "#444", 1.2);
  svg.line(x0, y0 + height, x0 + width, y0 + height, "#444", 1.2);
  svg.text(x0 + width / 2, y0 + height + 42, panel.x.title, {.size = 12, .centred = true});
  svg.text(left + 18, y0 + height / 2, panel.y.title, {.size = 12, .centred = true, .upright = true});
  for (size_t i = 0; i < panel.curves.size(); ++i) {
    std::vector<std::pair<double, double>> points;
    const char* const colour = kColours[i % kColours.size()];
    for (const auto& [x, y] : panel.curves[i].points)
      points.emplace_back(x0 + width * xs.at(x), y0 + height * (1 - ys.at(y)));
    svg.polyline(points, colour, panel.curves[i].thick ? 4 : 2, i >= kColours.size());
    for (const auto& [x, y] : points) svg.dot(x, y, 2.6, colour);
  }
}

}  // namespace

std::string axisText(double value, Unit unit) {
  const auto scaled = [&](double factor, const std::array<const char*, 6>& names) {
    size_t i = 0;
    for (; i + 1 < names.size() && value >= factor * 0.9999; ++i) value /= factor;
    return fmt::format("{:.3g}{}", value, names[i]);
  };
  switch (unit) {
    case Unit::bytes:
      return scaled(1024, {"", "K", "M", "G", "T", "P"});
    case Unit::seconds:
      value *= 1e9;
      return scaled(1000, {" ns", " us", " ms", " s", " ks", " Ms"});
    case Unit::bytesPerSecond:
      return scaled(1000, {" B/s", " kB/s", " MB/s", " GB/s", " TB/s", " PB/s"});
    case Unit::count:
      break;
  }
  return fmt::format("{:g}", value);
}

std::string chartSvg(const std::string& title, const std::vector<std::string>& notes,
                     const std::vector<Panel>& panels) {
  Svg svg;
  const size_t across = std::clamp<size_t>(panels.size(), 1, kPanelsAcross);
  const double width = static_cast<double>(across) * kPanelWidth + 2 * kMargin;
  svg.text(kMargin + 8, 30, title, {.size = 18, .bold = true});
  for (size_t i = 0; i < notes.size(); ++i)
    svg.text(kMargin + 8, 52 + 17 * static_cast<double>(i), notes[i], {.size = 12, .fill = "#555"});
  const double top = kTitle + 17 * std::max(0.0, static_cast<double>(notes.size()) - 1);
  for (size_t i = 0; i < panels.size(); ++i)
    drawPanel(svg, panels[i], kMargin + kPanelWidth * static_cast<double>(i % across),
              top + kPanelHeight * static_cast<double>(i / across));
  const size_t rows = (std::max<size_t>(panels.size(), 1) + across - 1) / across;
  double y = top + kPanelHeight * static_cast<double>(rows) + 12;
  const auto columns = static_cast<size_t>(std::max(1.0, std::floor((width - 2 * kMargin) / kLegendColumn)));
  const std::vector<Curve> none;
  const std::vector<Curve>& curves = panels.empty() ? none : panels[0].curves;
  for (size_t i = 0; i < curves.size(); ++i) {
    const double x = kMargin + 20 + kLegendColumn * static_cast<double>(i % columns);
    if (i > 0 && i % columns == 0) y += kLegendRow;
    svg.polyline({{x, y}, {x + 34, y}}, kColours[i % kColours.size()], curves[i].thick ? 5 : 3,
                 i >= kColours.size());
    svg.text(x + 42, y + 4, fitted(curves[i].name, kLegendColumn - 60, 12), {.size = 12});
  }
  return svg.finish(width, y + 28);
}

}  // namespace tutti::drawing
