// Settings that all ranks of a communicator must share, and the sizes that follow from them.
#pragma once

#include <map>
#include <string>

#include "base/hmac.h"
#include "transport/endpoint.h"

namespace tutti {

/// Name and value of everything that must be equal on all ranks; a difference is an error at init that names
/// both ranks and both values.
std::map<std::string, std::string> agreedSettings();

/// Channels, slots and scratch of a communicator of `ranks` ranks on `hosts` hosts.
EndpointOptions endpointOptions(int ranks, int hosts, const Secret& secret);

}  // namespace tutti
