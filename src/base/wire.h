// Bytes of control messages: little-endian numbers and length-prefixed strings.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace tutti {

/// Appends values to a string of bytes.
class WireWriter {
 public:
  WireWriter& u8(uint8_t v) { return number(v); }
  WireWriter& u16(uint16_t v) { return number(v); }
  WireWriter& u32(uint32_t v) { return number(v); }
  WireWriter& u64(uint64_t v) { return number(v); }
  WireWriter& i32(int32_t v) { return number(static_cast<uint32_t>(v)); }
  WireWriter& i64(int64_t v) { return number(static_cast<uint64_t>(v)); }
  /// 32-bit length, then the bytes.
  WireWriter& string(std::string_view v) {
    u32(static_cast<uint32_t>(v.size()));
    return raw(v);
  }
  WireWriter& raw(std::string_view v) {
    bytes_.append(v);
    return *this;
  }
  const std::string& bytes() const& { return bytes_; }
  std::string bytes() && { return std::move(bytes_); }

 private:
  template <typename T>
  WireWriter& number(T v) {
    for (size_t i = 0; i < sizeof(T); ++i) bytes_.push_back(static_cast<char>(v >> (8 * i)));
    return *this;
  }
  std::string bytes_;
};

/// Takes values off bytes that may be wrong in any way. After the first read beyond the end every value is
/// zero or empty and ok() is false, so a caller checks once, at the end.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : left_(bytes) {}

  uint8_t u8() { return number<uint8_t>(); }
  uint16_t u16() { return number<uint16_t>(); }
  uint32_t u32() { return number<uint32_t>(); }
  uint64_t u64() { return number<uint64_t>(); }
  int32_t i32() { return static_cast<int32_t>(number<uint32_t>()); }
  int64_t i64() { return static_cast<int64_t>(number<uint64_t>()); }
  /// A view into the bytes given to the constructor.
  std::string_view string() { return raw(u32()); }
  std::string_view raw(size_t size) {
    if (size > left_.size()) {
      ok_ = false;
      left_ = {};
      return {};
    }
    const std::string_view view = left_.substr(0, size);
    left_.remove_prefix(size);
    return view;
  }
  size_t left() const { return left_.size(); }
  bool ok() const { return ok_; }
  /// Everything was read, and nothing was missing.
  bool finished() const { return ok_ && left_.empty(); }

 private:
  template <typename T>
  T number() {
    const std::string_view bytes = raw(sizeof(T));
    T value = 0;
    for (size_t i = 0; i < bytes.size(); ++i)
      value =
          static_cast<T>(value | static_cast<T>(static_cast<T>(static_cast<uint8_t>(bytes[i])) << (8 * i)));
    return value;
  }
  std::string_view left_;
  bool ok_ = true;
};

}  // namespace tutti
