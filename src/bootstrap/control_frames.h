// Types of the control channel's frames. All integers little-endian; see base/wire.h.
#pragma once

#include <cstdint>

namespace tutti {

enum : uint16_t {
  kGatherFrame = 32,    // to rank 0: u64 sequence, this rank's bytes
  kGatheredFrame = 33,  // from rank 0: u64 sequence, size x string
  kAskFrame = 34,       // to rank 0: u64 sequence: who has not contributed?
  kMissingFrame = 35,   // from rank 0: u64 sequence, text
  kMessageFrame = 36,   // u64 tag, bytes
  kGoodbyeFrame = 37,   // the sender leaves in good order; nothing follows
  kFailureFrame = 38,   // i32 rank concerned, u8 a time-out, string what happened
  kNoteFrame = 39       // bytes for onNote
};

}  // namespace tutti
