#include "drawing/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tutti::drawing {
namespace {

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (static_cast<unsigned char>(c) >= 0x80)  // of a file's names: perhaps no UTF-8
      out += '?';
    else
      out += c;
  }
  return out;
}

}  // namespace

const char* loadColour(float share) {
  if (share >= 0.995f) return "#d01818";
  if (share >= 0.5f) return "#e08a1e";
  if (share > 0) return "#d9c04a";
  return "#b5b5b5";
}

std::string fitted(const std::string& text, double width, double size) {
  const auto most = static_cast<size_t>(std::max(3.0, (width - 4) / (size * 0.6)));
  return text.size() <= most ? text : text.substr(0, most - 2) + "..";
}

void Svg::line(double x1, double y1, double x2, double y2, const char* colour, double width, double opacity) {
  body_ += fmt::format(
      "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" stroke-width=\"{:.1f}\" "
      "stroke-opacity=\"{:g}\"/>\n",
      x1, y1, x2, y2, colour, width, opacity);
}

void Svg::polyline(const std::vector<std::pair<double, double>>& points, const char* colour, double width,
                   bool dashed) {
  std::string list;
  for (const auto& [x, y] : points) list += fmt::format("{:.1f},{:.1f} ", x, y);
  body_ += fmt::format(
      "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{:.1f}\" "
      "stroke-linejoin=\"round\"{}/>\n",
      list, colour, width, dashed ? " stroke-dasharray=\"7 4\"" : "");
}

void Svg::dot(double x, double y, double radius, const char* colour) {
  body_ +=
      fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:.1f}\" fill=\"{}\"/>\n", x, y, radius, colour);
}

void Svg::box(double x, double y, double width, double height, const char* fill, const char* border,
              double line) {
  body_ += fmt::format(
      "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"4\" fill=\"{}\" stroke=\"{}\" "
      "stroke-width=\"{:g}\"/>\n",
      x, y, width, height, fill, border, line);
}

void Svg::arc(const Arc& arc, const char* colour, double width, double opacity, bool arrow) {
  body_ += fmt::format(
      "<path d=\"M {0:.1f} {1:.1f} C {0:.1f} {2:.1f} {3:.1f} {2:.1f} {3:.1f} {4:.1f}\" fill=\"none\" "
      "stroke=\"{5}\" stroke-width=\"{6:.1f}\" stroke-opacity=\"{7:g}\"/>\n",
      arc.from, arc.y, arc.y + arc.depth, arc.to, arc.y + (arrow ? 7 : 0), colour, width, opacity);
  if (!arrow) return;
  arrowHead(arc.to, arc.y, colour, width);
}

void Svg::arrow(double x, double y, double length, const char* colour, double width) {
  line(x, y + 7, x, y + length, colour, width);
  arrowHead(x, y, colour, width);
}

void Svg::arrowHead(double x, double y, const char* colour, double width) {
  const double half = 2.5 + width;
  body_ += fmt::format("<path d=\"M {:.1f} {:.1f} l {:.1f} {:.1f} l {:.1f} 0 z\" fill=\"{}\"/>\n", x, y + 1,
                       -half, 2.2 * half, 2 * half, colour);
}

void Svg::text(double x, double y, const std::string& text, const TextStyle& style) {
  if (text.empty()) return;
  const char* const anchor = style.centred     ? " text-anchor=\"middle\""
                             : style.toTheLeft ? " text-anchor=\"end\""
                                               : "";
  const std::string turned =
      style.upright ? fmt::format(" transform=\"rotate(-90 {:.1f} {:.1f})\"", x, y) : "";
  body_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{:g}\" fill=\"{}\"{}{}{}>{}</text>\n", x,
                       y, style.size, style.fill, style.bold ? " font-weight=\"bold\"" : "", anchor, turned,
                       escaped(text));
}

std::string Svg::finish(double width, double height) const {
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 "
             "{0:.0f} "
             "{1:.0f}\" font-family=\"DejaVu Sans, Verdana, sans-serif\">\n<rect width=\"100%\" "
             "height=\"100%\" "
             "fill=\"white\"/>\n",
             width, height) +
         body_ + "</svg>\n";
}

}  // namespace tutti::drawing
