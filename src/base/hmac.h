// Keyed message authentication: SHA-256 (FIPS 180-4) and HMAC (RFC 2104).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace tutti {

using Digest = std::array<uint8_t, 32>;

Digest sha256(std::string_view message);
Digest hmacSha256(std::string_view key, std::string_view message);

/// Compares in time that does not depend on where the difference is.
bool equalInConstantTime(std::string_view a, std::string_view b);

/// A 128-bit secret.
struct Secret {
  std::array<uint8_t, 16> bytes{};

  static Result<Secret> random();
  /// A secret that follows from this one, different for every purpose; tells nothing about this one.
  Secret derive(std::string_view purpose) const;
  std::string_view view() const { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }
  bool operator==(const Secret&) const = default;
};

}  // namespace tutti
