// Preprocessed C++ as tokens that remember the space before them, so that lines keep their numbers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti::hostkernels {

struct Token {
  enum class Kind { identifier, number, text, punctuation };
  Kind kind = Kind::punctuation;
  std::string space;  // blanks and line markers before it
  std::string text;
  std::string file;  // from the line markers
  unsigned line = 0;
  bool isSystem = false;    // of a system header
  std::string replacement;  // instead of the text, when `isReplaced`
  bool isReplaced = false;
  std::string after;

  bool is(std::string_view what) const { return text == what; }
  void replace(std::string with) {
    replacement = std::move(with);
    isReplaced = true;
  }
};

/// Single characters except for identifiers, numbers, literals, "::", "->" and "...". Angle brackets are
/// never joined. The last token is empty and carries the space at the end.
std::vector<Token> tokenize(std::string_view source);
std::string join(const std::vector<Token>& tokens);

}  // namespace tutti::hostkernels
