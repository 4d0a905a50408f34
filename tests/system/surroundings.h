// Hostile surroundings for ranks that are processes: for `prepare` of RankProcesses, which runs in each
// process before it uses the library.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include "support/scale.h"
#include "system/ranks.h"

namespace tutti::system_test {

/// For a rank to end.
inline constexpr std::chrono::seconds kRankLimit{40};
/// Elements: so many that slots are used several times.
inline constexpr size_t kLargeCount = test::scaled(600000, 50000);

/// Whether this process may make mount and PID namespaces: root, mostly.
bool mayMakeNamespaces();
/// In a mount namespace of its own from now on: an empty /dev/shm of this size, that nobody else sees.
void ownDevShm(const char* size);
/// In a mount namespace of its own from now on: /dev is empty, so that there is no /dev/shm.
void noDevShm();
/// In a mount namespace of its own from now on: /sys is empty, as in some containers and sandboxes.
void emptySys();
/// Goes into the mount namespace of that process.
void enterMounts(pid_t process);
/// From now on this process can make no Unix sockets, so that no descriptors can be passed to it.
void forbidUnixSockets();
/// Goes on in a new process, the first one of a PID namespace of its own; the calling process waits for it
/// and ends as it does.
void enterPidNamespace();

/// Small and large collectives and messages, over buffers of cudaMalloc and of malloc; all values are
/// compared. Gives the exit status of a rank: 0 when all are right. The communicator lives on.
int checkCollectives(const Rank& self, const ChildSide& parent, size_t largeCount);
/// As above, then destroys the communicator.
int checkAndDestroy(const Rank& self, const ChildSide& parent, size_t largeCount);

}  // namespace tutti::system_test
