#include "base/identity.h"

#include <unistd.h>

namespace tutti {

std::string hostName() {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') return "unknown";
  const std::string host = name;
  return host.substr(0, host.find('.'));
}

}  // namespace tutti
