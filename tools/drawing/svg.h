// The few shapes that tools draw.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::drawing {

/// Of rings and curves.
constexpr std::array<const char*, 8> kColours = {"#1f5fd0", "#d07a00", "#8a2fc0", "#008f8f",
                                                 "#c02f7a", "#5f8f00", "#7a5030", "#404040"};
/// From grey (not used) over yellow to red (full).
const char* loadColour(float share);

/// "GPU number 3 wi..": as much of a text as fits into a box.
std::string fitted(const std::string& text, double width, double size = 10);

struct TextStyle {
  double size = 12;
  bool bold = false;
  const char* fill = "#111";
  bool centred = false;
  bool toTheLeft = false;  // ends at x
  bool upright = false;    // reads from below to above, around (x, y)
};

/// A curve from (from, y) to (to, y) that hangs down.
struct Arc {
  double from = 0, to = 0, y = 0, depth = 0;
  double middle() const { return (from + to) / 2; }
  double lowest() const { return y + 0.75 * depth; }
};

class Svg {
 public:
  void line(double x1, double y1, double x2, double y2, const char* colour, double width, double opacity = 1);
  void polyline(const std::vector<std::pair<double, double>>& points, const char* colour, double width,
                bool dashed = false);
  void dot(double x, double y, double radius, const char* colour);
  void box(double x, double y, double width, double height, const char* fill, const char* border,
           double line = 1.2);
  void arc(const Arc& arc, const char* colour, double width, double opacity, bool arrow);
  /// Upwards, to (x, y).
  void arrow(double x, double y, double length, const char* colour, double width);
  void text(double x, double y, const std::string& text, const TextStyle& style);
  /// The whole document.
  std::string finish(double width, double height) const;

 private:
  void arrowHead(double x, double y, const char* colour, double width);

  std::string body_;
};

}  // namespace tutti::drawing
