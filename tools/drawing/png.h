// An SVG as a PNG.
#pragma once

#include <string>

#include "base/status.h"

namespace tutti::drawing {

/// Writes an SVG's text as a PNG. Fails where this program was built without librsvg, and says what to do.
Status writePng(const std::string& svg, const std::string& path);

}  // namespace tutti::drawing
