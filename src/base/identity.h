// What this machine is called.
#pragma once

#include <string>

namespace tutti {

/// Host name up to the first dot; "unknown" when the system does not tell.
std::string hostName();

}  // namespace tutti
