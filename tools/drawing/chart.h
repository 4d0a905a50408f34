// Curves over logarithmic axes.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace tutti::drawing {

struct Curve {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x, y; both positive
  bool thick = false;
};

/// How the numbers of an axis are written.
enum class Unit { count, bytes, seconds, bytesPerSecond };

struct Axis {
  std::string title;
  Unit unit = Unit::count;
};

struct Panel {
  std::string title;
  Axis x, y;
  std::vector<Curve> curves;  // the i-th has the same colour in all panels
};

/// "64K", "1.5G" (powers of 1024), "20 us", "370 GB/s" (powers of 1000).
std::string axisText(double value, Unit unit);

/// SVG: the panels, two in a row, a legend of all curves' names below.
std::string chartSvg(const std::string& title, const std::vector<std::string>& notes,
                     const std::vector<Panel>& panels);

}  // namespace tutti::drawing
