#include "host_kernels/tokens.h"

#include <cctype>

namespace tutti::hostkernels {
namespace {

bool isWord(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || (c & 0x80);
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> run() {
    std::vector<Token> tokens;
    do {
      Token token;
      token.space = takeSpace();
      token.file = file_;
      token.line = line_;
      token.isSystem = isSystem_;
      takeText(token);
      tokens.push_back(std::move(token));
    } while (!tokens.back().text.empty());
    return tokens;
  }

 private:
  char at(size_t offset = 0) const { return at_ + offset < source_.size() ? source_[at_ + offset] : '\0'; }

  std::string takeSpace() {
    const size_t begin = at_;
    for (; at_ < source_.size(); ++at_) {
      const char c = source_[at_];
      if (c == '\n') {
        ++line_;
        atLineStart_ = true;
      } else if (c == '#' && atLineStart_) {
        takeDirective();
        --at_;  // the loop's increment stands on the line's end
      } else if (!std::isspace(static_cast<unsigned char>(c))) {
        break;
      }
    }
    atLineStart_ = false;
    return std::string(source_.substr(begin, at_ - begin));
  }

  /// `# 12 "file" flags` or a #pragma, up to its line's end.
  void takeDirective() {
    const size_t end = std::min(source_.find('\n', at_), source_.size());
    const std::string_view text = source_.substr(at_, end - at_);
    at_ = end;
    const size_t number = text.find_first_not_of("# ");
    if (number == std::string_view::npos || !std::isdigit(static_cast<unsigned char>(text[number]))) return;
    line_ = static_cast<unsigned>(std::stoul(std::string(text.substr(number)))) - 1;
    const size_t open = text.find('"');
    const size_t close = text.rfind('"');
    if (open == std::string_view::npos || close == open) return;
    file_ = std::string(text.substr(open + 1, close - open - 1));
    isSystem_ = text.find('3', close) != std::string_view::npos;
  }

  void takeText(Token& token) {
    const size_t begin = at_;
    const char c = at();
    if (at_ >= source_.size()) return;
    if (isWord(c) && !std::isdigit(static_cast<unsigned char>(c))) {
      while (at_ < source_.size() && isWord(at())) ++at_;
      token.kind = Token::Kind::identifier;
      const std::string_view word = source_.substr(begin, at_ - begin);
      if (at() == '"' && (word == "R" || word == "u8R" || word == "uR" || word == "UR" || word == "LR")) {
        takeRawString();
        token.kind = Token::Kind::text;
      } else if ((at() == '"' || at() == '\'') &&
                 (word == "u8" || word == "u" || word == "U" || word == "L")) {
        takeQuoted(at());
        token.kind = Token::Kind::text;
      }
    } else if (std::isdigit(static_cast<unsigned char>(c)) ||
               (c == '.' && std::isdigit(static_cast<unsigned char>(at(1))))) {
      takeNumber();
      token.kind = Token::Kind::number;
    } else if (c == '"' || c == '\'') {
      takeQuoted(c);
      token.kind = Token::Kind::text;
    } else {
      const std::string_view rest = source_.substr(at_);
      at_ += rest.substr(0, 3) == "..." ? 3 : rest.substr(0, 2) == "::" || rest.substr(0, 2) == "->" ? 2 : 1;
    }
    token.text = std::string(source_.substr(begin, at_ - begin));
  }

  void takeNumber() {
    while (at_ < source_.size()) {
      const char c = at();
      const bool isSign =
          (c == '+' || c == '-') && std::string_view("eEpP").find(source_[at_ - 1]) != std::string_view::npos;
      const bool isSeparator = c == '\'' && isWord(at(1));
      if (!isWord(c) && c != '.' && !isSign && !isSeparator) return;
      ++at_;
    }
  }

  void takeQuoted(char quote) {
    for (++at_; at_ < source_.size() && at() != quote; ++at_)
      if (at() == '\\') ++at_;
    ++at_;
  }

  void takeRawString() {
    const size_t open = source_.find('(', at_);
    const std::string end = ")" + std::string(source_.substr(at_ + 1, open - at_ - 1)) + "\"";
    const size_t close = source_.find(end, open);
    const size_t stop = close == std::string_view::npos ? source_.size() : close + end.size();
    for (; at_ < stop; ++at_) line_ += source_[at_] == '\n';
  }

  std::string_view source_;
  size_t at_ = 0;
  unsigned line_ = 1;
  bool atLineStart_ = true;
  bool isSystem_ = false;
  std::string file_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

std::string join(const std::vector<Token>& tokens) {
  std::string result;
  for (const Token& token : tokens)
    result += token.space + (token.isReplaced ? token.replacement : token.text) + token.after;
  return result;
}

}  // namespace tutti::hostkernels
