// Messages of a rank to itself.
#pragma once

#include <vector>

#include "base/status.h"
#include "core/operation.h"

namespace tutti {

/// The first send of a rank to itself and its first receive from itself become one copy, and so on:
/// `messages` loses the receives. The group has checked that there are as many of one as of the other.
void pairSelfMessages(int self, std::vector<Operation>& messages);

/// An error where the two sides of a message of `self` to itself have different sizes. After
/// pairSelfMessages().
Status checkSelfMessage(int self, const Operation& message);

}  // namespace tutti
