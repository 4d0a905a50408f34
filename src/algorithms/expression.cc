#include "algorithms/expression.h"

namespace tutti {
namespace {

class Parser {
 public:
  Parser(std::string_view text, const ExpressionNames& names) : text_(text), names_(names) {}

  Result<ExpressionValue> run() {
    if (text_.size() > kExpressionMaxLength)
      return invalidUsage("an expression of {} characters; at most {} are read", text_.size(),
                          kExpressionMaxLength);
    ExpressionValue value;
    TUTTI_TRY(expression(&value));
    skipSpaces();
    if (at_ != text_.size()) return invalidUsage("\"{}\" does not belong behind \"{}\"", rest(), before());
    return value;
  }

 private:
  void skipSpaces() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  std::string_view rest() const { return text_.substr(at_); }
  std::string_view before() const { return text_.substr(0, at_); }
  bool take(char c) {
    skipSpaces();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  static bool isLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
  static bool isDigit(char c) { return c >= '0' && c <= '9'; }
  std::string_view word() {
    skipSpaces();
    const size_t from = at_;
    while (at_ < text_.size() && isLetter(text_[at_])) ++at_;
    return text_.substr(from, at_ - from);
  }
  bool takeWord(std::string_view expected) {
    const size_t from = at_;
    if (word() == expected) return true;
    at_ = from;
    return false;
  }

  static Status inRange(const ExpressionValue& value) {
    const auto fits = [](int64_t number) {
      return number >= -kExpressionMaxValue && number <= kExpressionMaxValue;
    };
    if (fits(value.base) && fits(value.stride)) return Status::ok();
    return invalidUsage("a number beyond {}", kExpressionMaxValue);
  }

  Status expression(ExpressionValue* value) {
    TUTTI_TRY(sum(value));
    for (;;) {
      const bool mod = takeWord("mod");
      if (!mod && !takeWord("xor")) return Status::ok();
      ExpressionValue right;
      TUTTI_TRY(sum(&right));
      value->named = value->named || right.named;
      if (right.stride != 0 || right.modulus != 0)
        return invalidUsage("what stands behind {} must not depend on i", mod ? "mod" : "xor");
      TUTTI_TRY(mod ? remainder(value, right.base) : exclusiveOr(value, right.base));
    }
  }

  static Status remainder(ExpressionValue* value, int64_t modulus) {
    if (modulus < 1) return invalidUsage("mod {}: must be at least 1", modulus);
    TUTTI_TRY(notWrapped(*value));
    if (value->stride != 0) {
      value->modulus = modulus;
    } else {
      value->base = (value->base % modulus + modulus) % modulus;
    }
    return Status::ok();
  }

  static Status exclusiveOr(ExpressionValue* value, int64_t right) {
    if (value->stride != 0 || value->modulus != 0) return invalidUsage("xor of what depends on i");
    if (value->base < 0 || right < 0) return invalidUsage("xor of a negative number");
    value->base ^= right;
    return Status::ok();
  }

  /// A remainder of i is the end: nothing can be done with it.
  static Status notWrapped(const ExpressionValue& value) {
    if (value.modulus == 0) return Status::ok();
    return invalidUsage("the remainder of what depends on i must be taken last");
  }

  Status sum(ExpressionValue* value) {
    bool minus = take('-');
    for (bool first = true;; first = false) {
      ExpressionValue term;
      TUTTI_TRY(product(&term));
      if (first && !minus) {
        *value = term;
      } else {
        TUTTI_TRY(notWrapped(*value));
        TUTTI_TRY(notWrapped(term));
        value->base += minus ? -term.base : term.base;
        value->stride += minus ? -term.stride : term.stride;
        value->named = value->named || term.named;
        TUTTI_TRY(inRange(*value));
      }
      minus = false;
      if (take('+')) continue;
      minus = take('-');
      if (!minus) return Status::ok();
    }
  }

  Status product(ExpressionValue* value) {
    TUTTI_TRY(factor(value));
    for (;;) {
      const bool times = take('*');
      if (!times && !take('/')) return Status::ok();
      ExpressionValue right;
      TUTTI_TRY(factor(&right));
      TUTTI_TRY(notWrapped(*value));
      TUTTI_TRY(notWrapped(right));
      value->named = value->named || right.named;
      TUTTI_TRY(times ? multiply(value, right) : divide(value, right));
      TUTTI_TRY(inRange(*value));
    }
  }

  static Status multiply(ExpressionValue* value, const ExpressionValue& right) {
    if (value->stride != 0 && right.stride != 0) return invalidUsage("i times i");
    value->stride = value->stride * right.base + value->base * right.stride;
    value->base *= right.base;
    return Status::ok();
  }

  static Status divide(ExpressionValue* value, const ExpressionValue& right) {
    if (value->stride != 0 || right.stride != 0) return invalidUsage("a quotient of what depends on i");
    if (right.base < 1) return invalidUsage("a division by {}: must be at least 1", right.base);
    const int64_t down = value->base < 0 ? right.base - 1 : 0;
    value->base = (value->base - down) / right.base;
    return Status::ok();
  }

  Status factor(ExpressionValue* value) {
    skipSpaces();
    if (at_ == text_.size())
      return before().empty() ? invalidUsage("an empty expression")
                              : invalidUsage("something is missing behind \"{}\"", before());
    if (take('(')) {
      if (++depth_ > kExpressionMaxDepth)
        return invalidUsage("parentheses more than {} deep", kExpressionMaxDepth);
      TUTTI_TRY(expression(value));
      --depth_;
      return take(')') ? Status::ok() : invalidUsage("a ) is missing behind \"{}\"", before());
    }
    if (isDigit(text_[at_])) return number(value);
    return named(value);
  }

  Status number(ExpressionValue* value) {
    for (; at_ < text_.size() && isDigit(text_[at_]); ++at_) {
      value->base = value->base * 10 + (text_[at_] - '0');
      TUTTI_TRY(inRange(*value));
    }
    return Status::ok();
  }

  Status named(ExpressionValue* value) {
    const std::string_view name = word();
    if (name.empty()) return invalidUsage("\"{}\" is neither a number nor a name", rest());
    value->named = true;
    if (name == "i") {
      if (!names_.iteration) return invalidUsage("i stands only inside \"repeat\"");
      value->stride = 1;
      return Status::ok();
    }
    if (name == "ranks") return known(name, names_.ranks, value);
    if (name == "rank") return known(name, names_.rank, value);
    if (name == "root") return known(name, names_.root, value);
    return invalidUsage("\"{}\" is unknown; known are rank, ranks, root, i", name);
  }

  static Status known(std::string_view name, int64_t number, ExpressionValue* value) {
    if (number < 0) return invalidUsage("{} is not known here", name);
    value->base = number;
    return Status::ok();
  }

  std::string_view text_;
  const ExpressionNames& names_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

Result<ExpressionValue> evaluate(std::string_view text, const ExpressionNames& names) {
  return Parser(text, names).run();
}

}  // namespace tutti
