// JSON files with messages that say where: file, line, and the path inside the document.
//
//   TUTTI_ASSIGN(const JsonDocument document, JsonDocument::parse(text, "a.json", {}));
//   TUTTI_ASSIGN(const JsonElement name, document.root().required("name"));
//   TUTTI_ASSIGN(const std::string_view text, name.string());   // "a.json:3: name: must be a text, not 5"
//
// `//` and `/* */` comments are read over, as people write such files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tutti {

/// A value as it stands in the text. Numbers with a fraction or an exponent are of kind `real`.
struct JsonValue {
  enum class Kind : uint8_t { null, boolean, integer, real, string, array, object };
  Kind kind = Kind::null;
  int32_t line = 1;
  int64_t integer = 0;  // also of a boolean
  double real = 0;
  std::string text;
  std::string key;                  // where this is a member of an object
  std::vector<JsonValue> children;  // elements or members, in the order of the text
};

/// What a document may hold at most. Memory is a small multiple of these, whatever the text says.
struct JsonLimits {
  size_t bytes = size_t{4} << 20;
  int32_t depth = 16;
  size_t values = size_t{1} << 18;
  size_t members = 64;  // of one object
};

/// A value with what is needed to speak about it. Valid as long as its document.
class JsonElement {
 public:
  JsonElement(const JsonValue& value, std::string path, std::string_view file)
      : value_(&value), path_(std::move(path)), file_(file) {}

  const JsonValue& value() const { return *value_; }
  JsonValue::Kind kind() const { return value_->kind; }
  bool isObject() const { return kind() == JsonValue::Kind::object; }
  bool isArray() const { return kind() == JsonValue::Kind::array; }
  bool isString() const { return kind() == JsonValue::Kind::string; }
  bool isInteger() const { return kind() == JsonValue::Kind::integer; }
  int32_t line() const { return value_->line; }
  /// "a.json:12: programs[0].lanes[1][3].from"
  std::string where() const;
  template <typename... Args>
  Status error(fmt::format_string<Args...> format, Args&&... args) const {
    return invalidUsage("{}: {}", where(), fmt::format(format, std::forward<Args>(args)...));
  }
  /// An error that says what the element must be and what it is.
  Status mustBe(std::string_view what) const;

  /// Fails where this is no object, or one with a member whose name is not in `allowed`.
  Status onlyMembers(std::span<const char* const> allowed) const;
  /// None when there is no such member.
  std::optional<JsonElement> member(std::string_view key) const;
  Result<JsonElement> required(std::string_view key) const;
  /// The elements of an array; fails where this is none or has more than `limit`.
  Result<std::vector<JsonElement>> items(size_t limit) const;

  Result<int64_t> integer(int64_t low, int64_t high) const;
  Result<double> number(double low, double high) const;
  Result<bool> boolean() const;
  /// The text lives as long as the document.
  Result<std::string_view> string() const;

 private:
  const JsonValue* value_;
  std::string path_;
  std::string_view file_;
};

/// A parsed text.
class JsonDocument {
 public:
  /// Errors (invalidUsage) name file, line and reason. Handles any bytes; never throws for what the text
  /// says.
  static Result<JsonDocument> parse(std::string_view text, std::string_view file, const JsonLimits& limits);

  JsonElement root() const { return JsonElement(content_->value, {}, content_->file); }
  const std::string& file() const { return content_->file; }

 private:
  struct Content {
    std::string file;
    JsonValue value;
  };
  std::shared_ptr<const Content> content_;
};

/// `text` between quotation marks, as JSON writes it. Bytes that are no printable ASCII are escaped.
std::string jsonQuoted(std::string_view text);

}  // namespace tutti
