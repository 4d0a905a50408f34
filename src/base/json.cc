#include "base/json.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

namespace tutti {
namespace {

using Kind = JsonValue::Kind;

/// What a message shows of text from a file.
std::string shown(std::string_view text, size_t most) {
  std::string result(text.substr(0, most));
  for (char& c : result)
    if (c < ' ' || c > '~') c = '?';
  return result + (text.size() > most ? "..." : "");
}

/// How far the parser has read. It gives no positions with its events.
struct Position {
  const char* lineBegin = nullptr;  // up to here lines are counted
  const char* read = nullptr;       // behind the last character that was taken
  int32_t line = 1;

  /// The line of the last character but one: a number is known to end only by the character behind it, which
  /// may be a line's end; all other values end before one or on the same line.
  int32_t lineOfValue() {
    for (; read - lineBegin > 1; ++lineBegin) line += *lineBegin == '\n' ? 1 : 0;
    return line;
  }
};

/// Characters of a text; notes how many were taken.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator() = default;
  CountingIterator(const char* at, Position* position) : at_(at), position_(position) {}
  reference operator*() const { return *at_; }
  pointer operator->() const { return at_; }
  CountingIterator& operator++() {
    position_->read = ++at_;
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator before = *this;
    ++*this;
    return before;
  }
  friend bool operator==(const CountingIterator& a, const CountingIterator& b) { return a.at_ == b.at_; }
  friend bool operator!=(const CountingIterator& a, const CountingIterator& b) { return a.at_ != b.at_; }

 private:
  const char* at_ = nullptr;
  Position* position_ = nullptr;
};

/// Builds the tree from the parser's events; stops at the first thing that is wrong or too much.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  Builder(std::string_view file, const JsonLimits& limits, Position& position, JsonValue& root)
      : file_(file), limits_(limits), position_(position), root_(root) {}

  const Status& status() const { return status_; }

  bool null() override { return add(Kind::null) != nullptr; }
  bool boolean(bool value) override { return addInteger(Kind::boolean, value ? 1 : 0); }
  bool number_integer(number_integer_t value) override { return addInteger(Kind::integer, value); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<number_unsigned_t>(INT64_MAX)) return fail("the number {} is too large", value);
    return addInteger(Kind::integer, static_cast<int64_t>(value));
  }
  bool number_float(number_float_t value, const string_t&) override {
    JsonValue* added = add(Kind::real);
    if (added != nullptr) added->real = value;
    return added != nullptr;
  }
  bool string(string_t& value) override {
    JsonValue* added = add(Kind::string);
    if (added != nullptr) added->text = std::move(value);
    return added != nullptr;
  }
  bool binary(binary_t&) override { return fail("binary data"); }
  bool start_object(size_t) override { return open(Kind::object); }
  bool start_array(size_t) override { return open(Kind::array); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& value) override {
    const std::vector<JsonValue>& members = path_.back()->children;
    if (std::ranges::find(members, value, &JsonValue::key) != members.end())
      return fail("\"{}\" stands twice in one object", shown(value, 40));
    if (members.size() >= limits_.members) return fail("an object of more than {} members", limits_.members);
    key_ = std::move(value);
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception& problem) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error while ..."
    std::string_view what = problem.what();
    if (const size_t column = what.find("column "); column != std::string_view::npos)
      if (const size_t colon = what.find(": ", column); colon != std::string_view::npos)
        what.remove_prefix(colon + 2);
    return fail("not JSON: {}", shown(what, 200));
  }

 private:
  template <typename... Args>
  bool fail(fmt::format_string<Args...> format, Args&&... args) {
    status_ = invalidUsage("{}:{}: {}", file_, position_.lineOfValue(),
                           fmt::format(format, std::forward<Args>(args)...));
    return false;
  }

  JsonValue* add(Kind kind) {
    if (++count_ > limits_.values) {
      fail("more than {} values", limits_.values);
      return nullptr;
    }
    JsonValue* value = path_.empty() ? &root_ : &path_.back()->children.emplace_back();
    value->kind = kind;
    value->line = position_.lineOfValue();
    value->key = std::exchange(key_, {});
    return value;
  }
  bool addInteger(Kind kind, int64_t value) {
    JsonValue* added = add(kind);
    if (added != nullptr) added->integer = value;
    return added != nullptr;
  }
  bool open(Kind kind) {
    if (path_.size() >= static_cast<size_t>(limits_.depth))
      return fail("nested more than {} deep", limits_.depth);
    JsonValue* added = add(kind);
    if (added != nullptr) path_.push_back(added);
    return added != nullptr;
  }
  bool close() {
    path_.pop_back();
    return true;
  }

  std::string_view file_;
  const JsonLimits& limits_;
  Position& position_;
  JsonValue& root_;
  /// From the outermost to the value that is being read. Stays valid: only the last one's children grow.
  std::vector<JsonValue*> path_;
  std::string key_;
  size_t count_ = 0;
  Status status_;
};

std::string describe(const JsonValue& value) {
  switch (value.kind) {
    case Kind::null:
      return "null";
    case Kind::boolean:
      return value.integer != 0 ? "true" : "false";
    case Kind::integer:
      return fmt::format("{}", value.integer);
    case Kind::real:
      return fmt::format("{}", value.real);
    case Kind::string:
      return fmt::format("\"{}\"", shown(value.text, 60));
    case Kind::array:
      return "an array";
    case Kind::object:
      return "an object";
  }
  return "?";
}

}  // namespace

std::string JsonElement::where() const {
  return path_.empty() ? fmt::format("{}:{}", file_, line()) : fmt::format("{}:{}: {}", file_, line(), path_);
}

Status JsonElement::mustBe(std::string_view what) const {
  return error("must be {}, not {}", what, describe(*value_));
}

Status JsonElement::onlyMembers(std::span<const char* const> allowed) const {
  if (!isObject()) return mustBe("an object");
  for (const JsonValue& one : value_->children) {
    if (std::ranges::find(allowed, std::string_view(one.key)) != allowed.end()) continue;
    return JsonElement(one, path_, file_)
        .error("\"{}\" means nothing here; known are {}", shown(one.key, 40), fmt::join(allowed, ", "));
  }
  return Status::ok();
}

std::optional<JsonElement> JsonElement::member(std::string_view key) const {
  if (!isObject()) return std::nullopt;
  for (const JsonValue& one : value_->children)
    if (one.key == key)
      return JsonElement(one, fmt::format("{}{}{}", path_, path_.empty() ? "" : ".", key), file_);
  return std::nullopt;
}

Result<JsonElement> JsonElement::required(std::string_view key) const {
  if (!isObject()) return mustBe("an object");
  if (auto found = member(key)) return *std::move(found);
  return error("\"{}\" is missing", key);
}

Result<std::vector<JsonElement>> JsonElement::items(size_t limit) const {
  if (!isArray()) return mustBe("an array");
  const std::vector<JsonValue>& values = value_->children;
  if (values.size() > limit) return error("has {} elements; at most {} are read", values.size(), limit);
  std::vector<JsonElement> found;
  found.reserve(values.size());
  for (size_t i = 0; i < values.size(); ++i)
    found.emplace_back(values[i], fmt::format("{}[{}]", path_, i), file_);
  return found;
}

Result<int64_t> JsonElement::integer(int64_t low, int64_t high) const {
  if (!isInteger()) return mustBe("a whole number");
  if (value_->integer < low || value_->integer > high)
    return error("{} is not in {} .. {}", value_->integer, low, high);
  return value_->integer;
}

Result<double> JsonElement::number(double low, double high) const {
  if (!isInteger() && kind() != Kind::real) return mustBe("a number");
  const double value = isInteger() ? static_cast<double>(value_->integer) : value_->real;
  if (!(value >= low && value <= high)) return error("{} is not in {} .. {}", value, low, high);
  return value;
}

Result<bool> JsonElement::boolean() const {
  if (kind() != Kind::boolean) return mustBe("true or false");
  return value_->integer != 0;
}

Result<std::string_view> JsonElement::string() const {
  if (!isString()) return mustBe("a text");
  return std::string_view(value_->text);
}

Result<JsonDocument> JsonDocument::parse(std::string_view text, std::string_view file,
                                         const JsonLimits& limits) {
  if (text.size() > limits.bytes)
    return invalidUsage("{}: {} bytes; at most {} are read", file, text.size(), limits.bytes);
  // The parser takes it for the end.
  if (const size_t at = text.find('\0'); at != std::string_view::npos)
    return invalidUsage("{}:{}: not JSON: a byte 0", file,
                        1 + std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(at), '\n'));
  const auto content = std::make_shared<Content>();
  content->file = file;
  Position position{text.data(), text.data()};
  Builder builder(file, limits, position, content->value);
  const bool good = nlohmann::json::sax_parse(CountingIterator(text.data(), &position),
                                              CountingIterator(text.data() + text.size(), &position),
                                              &builder, nlohmann::json::input_format_t::json, true, true);
  if (!builder.status().isOk()) return builder.status();
  if (!good) return invalidUsage("{}: not JSON", file);
  JsonDocument document;
  document.content_ = content;
  return document;
}

std::string jsonQuoted(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (c >= ' ' && c <= '~') {
      result += c;
    } else {
      result += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    }
  }
  return result + "\"";
}

}  // namespace tutti
