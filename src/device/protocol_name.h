// Protocols' names in messages.
#pragma once

#include "base/device_program.h"

namespace tutti {

inline const char* nameOf(device::Protocol protocol) {
  switch (protocol) {
    case device::Protocol::simple:
      return "Simple";
    case device::Protocol::ll:
      return "LL";
    case device::Protocol::ll128:
      return "LL128";
  }
  return "unknown";
}

}  // namespace tutti
