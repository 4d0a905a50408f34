// A report as text for people, or as JSON.
#pragma once

#include <string>

#include "tutti_info/machine.h"

namespace tutti::info {

/// With `allSettings` also those that have their defaults.
std::string asText(const Report& report, bool allSettings);
/// One object; keys as the members of Report. All settings are in it.
std::string asJson(const Report& report);

}  // namespace tutti::info
