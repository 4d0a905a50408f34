// The words below are macros of base/kernel_shim/kernel_shim.h, so the input is the preprocessed source.
//
//   __global__ void k(P) { ... }     void k(P) { <register Twin<&k>> ... }  auto __tutti_twin_k(P) ->
//   Twin<&k>; k<<<grid, block>>>(a)            decltype(__tutti_twin_k(a))::launch(LaunchConfiguration(grid,
//   block), a)
//   __shared__ float s[64];          struct S { float s[64]; }; auto& s = sharedVariable<S>().s;
//   extern __shared__ float s[];     float (&s)[] = *(float (*)[])dynamicShared();
//   __device__ int x;                int x; static VariableRegistration<x> ...;
//   while (condition) ;              while (condition) { __tutti_spin(); }
//
// __tutti_twin_k is only declared. Calling it in decltype makes the compiler choose among overloads and
// deduce template arguments exactly as for the kernel.
#include "host_kernels/translate.h"

#include <algorithm>
#include <set>

namespace tutti::hostkernels {
namespace {

using Tokens = std::vector<Token>;
constexpr size_t kNone = static_cast<size_t>(-1);

std::string textOf(const Tokens& tokens, size_t begin, size_t end) {
  std::string result;
  for (size_t i = begin; i < end; ++i) {
    if (i > begin) result += ' ';
    result += tokens[i].text;
  }
  return result;
}

bool opens(const Token& t) { return t.is("(") || t.is("[") || t.is("{"); }
bool closes(const Token& t) { return t.is(")") || t.is("]") || t.is("}"); }

/// One past the bracket that closes the one at `open`.
size_t skipGroup(const Tokens& tokens, size_t open) {
  int depth = 0;
  for (size_t i = open; i < tokens.size(); ++i) {
    if (opens(tokens[i])) ++depth;
    if (closes(tokens[i]) && --depth == 0) return i + 1;
  }
  return tokens.size();
}

/// One past the '>' that closes the '<' at `open`; brackets inside are skipped.
size_t skipAngles(const Tokens& tokens, size_t open) {
  int depth = 0;
  for (size_t i = open; i < tokens.size();) {
    if (opens(tokens[i])) {
      i = skipGroup(tokens, i);
      continue;
    }
    if (tokens[i].is("<")) ++depth;
    if (tokens[i].is(">") && --depth == 0) return i + 1;
    if (tokens[i].is(";")) break;
    ++i;
  }
  return kNone;
}

/// Where [begin, end) is cut by commas outside of all brackets.
std::vector<std::pair<size_t, size_t>> splitByCommas(const Tokens& tokens, size_t begin, size_t end) {
  std::vector<std::pair<size_t, size_t>> parts;
  int angles = 0;
  bool sawArray = false;
  size_t start = begin;
  for (size_t i = begin; i < end;) {
    const Token& t = tokens[i];
    if (opens(t)) {
      sawArray = sawArray || t.is("[");
      i = skipGroup(tokens, i);
      continue;
    }
    if (t.is("<") && !sawArray) ++angles;
    if (t.is(">") && angles > 0) --angles;
    if (t.is(",") && angles == 0) {
      parts.emplace_back(start, i);
      start = i + 1;
    }
    ++i;
  }
  if (start < end) parts.emplace_back(start, end);
  return parts;
}

size_t findTopLevel(const Tokens& tokens, size_t begin, size_t end, std::string_view what) {
  for (size_t i = begin; i < end; i = opens(tokens[i]) ? skipGroup(tokens, i) : i + 1)
    if (tokens[i].is(what)) return i;
  return end;
}

class Translator {
 public:
  explicit Translator(Tokens& tokens) : tokens_(tokens) {}

  std::vector<std::string> run() {
    collectKernelNames();
    scopes_.push_back(Scope::space);
    for (at_ = 0; at_ + 1 < tokens_.size(); ++at_) step();
    return std::move(messages_);
  }

 private:
  enum class Scope { space, type, function };

  void complain(const Token& at, const std::string& what) {
    messages_.push_back(at.file + ":" + std::to_string(at.line) + ": " + what);
  }

  void collectKernelNames() {
    for (size_t i = 0; i + 1 < tokens_.size(); ++i) {
      if (!tokens_[i].is("__tutti_global__")) continue;
      const size_t name = kernelName(i);
      if (name != kNone) kernels_.insert(tokens_[name].text);
    }
  }

  void step() {
    Token& t = tokens_[at_];
    if (t.is("{")) return enter();
    if (t.is("}")) return leave();
    if (t.is(";")) {
      statement_ = at_ + 1;
      return;
    }
    if (t.kind == Token::Kind::identifier) return word(t);
    const bool isLaunch = t.is("<") && tokens_[at_ + 1].is("<") && tokens_[at_ + 2].is("<") &&
                          tokens_[at_ + 1].space.empty() && tokens_[at_ + 2].space.empty();
    if (isLaunch) launch();
  }

  void word(Token& t) {
    if (t.is("__tutti_global__")) return kernel();
    if (t.is("__tutti_shared__")) return shared();
    if (t.is("__tutti_device__")) {
      t.replace("");
      if (scopes_.back() == Scope::space) deviceVariable();
    } else if (t.is("__tutti_launch_bounds__")) {
      erase(at_, skipGroup(tokens_, at_ + 1));
    } else if (t.is("__assert_fail") && at_ > 0 && tokens_[at_ - 1].is(":")) {  // in assert's expansion
      t.replace("__tutti_assert_fail");
    } else if (!t.isSystem && (t.is("while") || t.is("for"))) {
      loop();
    } else if (!t.isSystem && t.is("do")) {
      doLoop();
    }
  }

  // ---- scopes

  void enter() {
    Scope scope = Scope::function;
    if (scopes_.back() != Scope::function) {
      bool isSpace = false;
      bool isType = false;
      for (size_t i = statement_; i < at_; ++i) {
        const Token& t = tokens_[i];
        if (t.is("(") || t.is("<") || t.is("[")) {
          const size_t end = t.is("<") ? skipAngles(tokens_, i) : skipGroup(tokens_, i);
          if (end != kNone && end <= at_) i = end - 1;
          if (t.is("(")) isType = false;
          continue;
        }
        isSpace =
            isSpace || t.is("namespace") || (t.is("extern") && tokens_[i + 1].kind == Token::Kind::text);
        isType = isType || t.is("struct") || t.is("class") || t.is("union") || t.is("enum");
      }
      if (isSpace)
        scope = Scope::space;
      else if (isType)
        scope = Scope::type;
    }
    scopes_.push_back(scope);
    statement_ = at_ + 1;
  }

  void leave() {
    if (scopes_.size() > 1) scopes_.pop_back();
    statement_ = at_ + 1;
  }

  void erase(size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) tokens_[i].replace("");
  }

  // ---- kernels

  /// The name in a declaration whose __tutti_global__ stands at `marker`.
  size_t kernelName(size_t marker) const {
    for (size_t i = marker + 1; i < tokens_.size(); ++i) {
      const Token& t = tokens_[i];
      if (t.is("__tutti_launch_bounds__") || t.is("__attribute__") || t.is("alignas")) {
        i = skipGroup(tokens_, i + 1) - 1;
      } else if (t.is(";") || t.is("{") || t.is("}")) {
        return kNone;
      } else if (t.kind == Token::Kind::identifier && (tokens_[i + 1].is("(") || tokens_[i + 1].is("<"))) {
        return i;
      }
    }
    return kNone;
  }

  struct KernelHead {
    size_t name = 0;
    size_t parameters = 0;   // the '('
    size_t end = 0;          // one past the ')'
    bool isSpecial = false;  // an explicit specialisation or instantiation
    std::string bound;       // of __launch_bounds__
    std::string templateHead;
    std::string templateArguments;
  };

  bool readHead(KernelHead& head) {
    head.name = kernelName(at_);
    if (head.name == kNone) return false;
    head.parameters = head.name + 1;
    if (tokens_[head.parameters].is("<")) {
      head.isSpecial = true;
      head.parameters = skipAngles(tokens_, head.parameters);
      if (head.parameters == kNone) return false;
    }
    if (!tokens_[head.parameters].is("(")) return false;
    head.end = skipGroup(tokens_, head.parameters);
    for (size_t i = statement_; i < head.name; ++i)
      if (tokens_[i].is("__tutti_launch_bounds__")) {
        const auto parts = splitByCommas(tokens_, i + 2, skipGroup(tokens_, i + 1) - 1);
        if (!parts.empty()) head.bound = textOf(tokens_, parts[0].first, parts[0].second);
        erase(i, skipGroup(tokens_, i + 1));
      }
    return readTemplateHead(head);
  }

  bool readTemplateHead(KernelHead& head) {
    size_t i = statement_;
    // Attributes and the like do not come before "template".
    if (!tokens_[i].is("template")) return true;
    if (!tokens_[i + 1].is("<")) {
      head.isSpecial = true;
      return true;
    }
    const size_t end = skipAngles(tokens_, i + 1);
    if (end == kNone) return false;
    if (end == i + 3) {
      head.isSpecial = true;
      return true;
    }
    size_t stop = end;
    if (tokens_[end].is("requires"))
      while (stop < at_ && !isDeclarationWord(tokens_[stop])) ++stop;
    head.templateHead = textOf(tokens_, i, stop);
    for (const auto& [from, to] : splitByCommas(tokens_, i + 2, end - 1)) {
      const std::string name = templateParameterName(from, to);
      if (name.empty()) break;  // unnamed: it has a default, and so have those behind it
      head.templateArguments += (head.templateArguments.empty() ? "" : ", ") + name;
    }
    return true;
  }

  static bool isDeclarationWord(const Token& t) {
    return t.is("__tutti_global__") || t.is("__tutti_launch_bounds__") || t.is("static") || t.is("inline") ||
           t.is("void") || t.is("extern") || t.is("constexpr") || t.is("__attribute__");
  }

  std::string templateParameterName(size_t from, size_t to) const {
    const size_t end = findTopLevel(tokens_, from, to, "=");
    if (end == from) return "";
    const Token& last = tokens_[end - 1];
    const bool isWord = last.kind == Token::Kind::identifier;
    const bool isKey = last.is("class") || last.is("typename") || last.is("int") || last.is("bool") ||
                       last.is("unsigned") || last.is("auto") || last.is("long") || last.is("char");
    if (!isWord || isKey || end - from < 2) return "";
    if (tokens_[end - 2].is("::")) return "";  // the end of a type's name
    return last.text + (tokens_[end - 2].is("...") ? "..." : "");
  }

  /// The parameters without default arguments: they are not allowed in the type of a pointer.
  std::string parameterTypes(const KernelHead& head) const {
    std::string result;
    for (const auto& [from, to] : splitByCommas(tokens_, head.parameters + 1, head.end - 1))
      result += (result.empty() ? "" : ", ") + textOf(tokens_, from, findTopLevel(tokens_, from, to, "="));
    return result;
  }

  void kernel() {
    tokens_[at_].replace("");
    KernelHead head;
    if (!readHead(head)) return complain(tokens_[at_], "a kernel's declaration is not understood");
    size_t body = head.end;
    while (body < tokens_.size() && !tokens_[body].is("{") && !tokens_[body].is(";")) ++body;
    const std::string name = tokens_[head.name].text;
    const std::string arguments = head.templateArguments.empty() ? "" : "<" + head.templateArguments + ">";
    const std::string parameters = parameterTypes(head);
    std::string kernel = "static_cast<void (*)(" + parameters + ")>(&" + name + arguments + ")";
    if (head.isSpecial) kernel = "&" + textOf(tokens_, head.name, head.parameters);
    const bool isTemplateName = head.isSpecial && head.parameters == head.name + 1;
    if (isTemplateName)
      return complain(tokens_[at_], "write the template arguments of " + name + " in its specialisation");
    const std::string resolver = head.isSpecial
                                     ? ""
                                     : " " + head.templateHead + " [[maybe_unused]] auto __tutti_twin_" +
                                           name + "(" + textOf(tokens_, head.parameters + 1, head.end - 1) +
                                           ") -> ::tutti::shim::Twin<" + kernel + ">;";
    if (tokens_[body].is(";")) {
      tokens_[body].after += resolver;
      at_ = body;
      statement_ = at_ + 1;
      return;
    }
    std::string prologue = " (void)&::tutti::shim::Twin<" + kernel + ">::registered;";
    if (!head.bound.empty())
      prologue += " (void)&::tutti::shim::Bound<" + kernel + ", (" + head.bound + ")>::registered;";
    tokens_[body].after += prologue;
    tokens_[skipGroup(tokens_, body) - 1].after += resolver;
    at_ = body;
    scopes_.push_back(Scope::function);
    statement_ = at_ + 1;
  }

  // ---- launches

  /// The first token of the expression that ends before `end` and names a kernel.
  size_t kernelExpression(size_t end) const {
    size_t i = end;
    while (i > 0) {
      --i;
      if (tokens_[i].is(">"))
        i = openingBefore(i, "<", ">");
      else if (tokens_[i].is(")")) {
        i = openingBefore(i, "(", ")");
        if (i == 0 || tokens_[i - 1].kind != Token::Kind::identifier) return i;
        continue;
      }
      if (tokens_[i].is("<")) continue;
      if (tokens_[i].kind != Token::Kind::identifier) return kNone;
      if (i == 0 || !tokens_[i - 1].is("::")) return i;
      --i;  // the "::"
      if (i == 0 || (tokens_[i - 1].kind != Token::Kind::identifier && !tokens_[i - 1].is(">"))) return i;
      static const std::set<std::string> keys = {"return", "else", "do"};
      if (keys.count(tokens_[i - 1].text)) return i;
    }
    return kNone;
  }

  size_t openingBefore(size_t close, std::string_view open, std::string_view shut) const {
    int depth = 0;
    for (size_t i = close + 1; i-- > 0;) {
      if (tokens_[i].is(shut)) ++depth;
      if (tokens_[i].is(open) && --depth == 0) return i;
    }
    return 0;
  }

  void launch() {
    const size_t begin = kernelExpression(at_);
    size_t close = at_ + 3;
    for (; close + 2 < tokens_.size(); close = opens(tokens_[close]) ? skipGroup(tokens_, close) : close + 1)
      if (tokens_[close].is(">") && tokens_[close + 1].is(">") && tokens_[close + 2].is(">")) break;
    const size_t parameters = close + 3;
    if (begin == kNone || parameters >= tokens_.size() || !tokens_[parameters].is("("))
      return complain(tokens_[at_], "a kernel launch is not understood");
    const size_t end = skipGroup(tokens_, parameters);
    const bool hasArguments = end - parameters > 2;
    size_t name = begin;  // the last identifier outside of template arguments
    for (size_t i = begin; i < at_; ++i) {
      if (tokens_[i].kind == Token::Kind::identifier) name = i;
      if (tokens_[i].is("<")) i = skipAngles(tokens_, i) - 1;
    }
    std::string head;
    if (kernels_.count(tokens_[name].text)) {
      const std::string prefix = textOf(tokens_, begin, name);
      head = "decltype(" + prefix + (prefix.empty() ? "" : " ") + "__tutti_twin_" + tokens_[name].text +
             textOf(tokens_, name + 1, at_) + "(" + textOf(tokens_, parameters + 1, end - 1) +
             "))::launch(::tutti::shim::LaunchConfiguration(";
      tokens_[parameters].replace(hasArguments ? ", " : "");
    } else {
      head = "::tutti::shim::launchPointer(::tutti::shim::LaunchConfiguration(";
      tokens_[parameters].replace(", " + textOf(tokens_, begin, at_) + (hasArguments ? ", " : ""));
    }
    erase(begin, at_ + 3);
    tokens_[begin].replace(head);
    erase(close, close + 3);
    tokens_[close].replace(")");
  }

  // ---- variables

  /// The names that the declaration in [begin, end) declares.
  std::vector<std::string> declaredNames(size_t begin, size_t end) const {
    std::vector<std::string> names;
    for (const auto& [from, to] : splitByCommas(tokens_, begin, end)) {
      std::string name;
      for (size_t i = from; i < to; ++i) {
        const Token& t = tokens_[i];
        if (t.is("__attribute__") || t.is("alignas") || t.is("__tutti_launch_bounds__") || t.is("decltype")) {
          i = skipGroup(tokens_, i + 1) - 1;
        } else if (t.is("<")) {
          const size_t close = skipAngles(tokens_, i);
          if (close == kNone || close > to) return {};
          i = close - 1;
        } else if (t.is("{") && i + 1 < to && !name.empty() && skipGroup(tokens_, i) < to &&
                   tokens_[skipGroup(tokens_, i)].kind == Token::Kind::identifier) {
          i = skipGroup(tokens_, i) - 1;  // struct { ... } name
        } else if (t.is("[") || t.is("=") || t.is("{")) {
          break;
        } else if (t.kind == Token::Kind::identifier) {
          name = t.text;
        }
      }
      if (name.empty()) return {};
      names.push_back(name);
    }
    return names;
  }

  size_t statementEnd() const { return findTopLevel(tokens_, statement_, tokens_.size() - 1, ";"); }

  bool statementHas(size_t end, std::string_view what) const {
    for (size_t i = statement_; i < end; ++i)
      if (tokens_[i].is(what)) return true;
    return false;
  }

  /// [statement_, end) without the words that do not belong into a member's declaration.
  std::string plainDeclaration(size_t begin, size_t end) const {
    std::string result;
    for (size_t i = begin; i < end; ++i) {
      const Token& t = tokens_[i];
      if (t.is("__tutti_shared__") || t.is("__tutti_device__") || t.is("static") || t.is("extern")) continue;
      result += t.text + " ";
    }
    return result;
  }

  void shared() {
    const size_t end = statementEnd();
    const bool isDynamic = statementHas(at_, "extern") || statementHas(end, "extern");
    const auto names = declaredNames(statement_, end);
    if (names.empty()) return complain(tokens_[at_], "a __shared__ declaration is not understood");
    const std::string number = std::to_string(++counter_);
    std::string text;
    if (isDynamic) {
      const size_t bracket = findTopLevel(tokens_, statement_, end, "[");
      size_t name = end;
      for (size_t i = statement_; i < bracket; ++i)
        if (tokens_[i].is(names[0])) name = i;
      if (name == end || bracket == end)
        return complain(tokens_[at_], "extern __shared__: expected an array");
      const std::string type = plainDeclaration(statement_, name);
      text = "typedef " + type + "__tutti_dynamic_" + number + "; ";
      if (scopes_.back() == Scope::function)
        text += "[[maybe_unused]] __tutti_dynamic_" + number + " (&" + names[0] +
                ")[] = *static_cast<__tutti_dynamic_" + number + " (*)[]>(::tutti::shim::dynamicShared());";
      else
        text += "[[maybe_unused]] static const ::tutti::shim::DynamicShared<__tutti_dynamic_" + number +
                "> " + names[0] + "{};";
    } else if (scopes_.back() != Scope::function) {
      text = "static thread_local " + plainDeclaration(statement_, end) + ";";
    } else {
      const std::string type = "__tutti_shared_" + number;
      text = "struct " + type + " { " + plainDeclaration(statement_, end) + "; };";
      for (const std::string& name : names)
        text += " [[maybe_unused]] auto& " + name + " = ::tutti::shim::sharedVariable<" + type + ">()." +
                name + ";";
    }
    erase(statement_, end + 1);
    tokens_[statement_].replace(text);
    at_ = end;
    statement_ = end + 1;
  }

  void deviceVariable() {
    if (tokens_[statement_].is("template") || tokens_[statement_].is("friend")) return;
    for (size_t i = statement_; i < tokens_.size(); ++i) {
      const Token& t = tokens_[i];
      if (t.is("__attribute__") || t.is("alignas") || t.is("decltype")) {
        i = skipGroup(tokens_, i + 1) - 1;
        continue;
      }
      if (t.is("(") || t.is("operator") || t.is("extern") || t.is("using") || t.is("typedef") ||
          t.is("__tutti_global__"))
        return;
      const bool isType = t.is("struct") || t.is("class") || t.is("union") || t.is("enum");
      if (isType && (tokens_[i + 1].is("{") || tokens_[i + 2].is("{"))) return;
      if (t.is(";") || t.is("=") || t.is("{") || t.is("[")) break;
    }
    const size_t end = statementEnd();
    std::string text;
    for (const std::string& name : declaredNames(statement_, end))
      text += " [[maybe_unused]] static const ::tutti::shim::VariableRegistration<" + name +
              "> __tutti_variable_" + std::to_string(++counter_) + " __attribute__((init_priority(200)));";
    tokens_[end].after += text;
  }

  // ---- loops that poll

  static constexpr const char* kSpin = "::__tutti_spin();";

  void loop() {
    if (!tokens_[at_ + 1].is("(") || tails_.count(at_)) return;
    const size_t body = skipGroup(tokens_, at_ + 1);
    if (body >= tokens_.size()) return;
    if (tokens_[body].is(";")) tokens_[body].replace(std::string("{ ") + kSpin + " }");
    if (tokens_[body].is("{") && tokens_[body + 1].is("}")) tokens_[body].after += kSpin;
  }

  /// The `while` of a do loop is no loop of its own; its condition gets the call.
  void doLoop() {
    if (!tokens_[at_ + 1].is("{")) return;
    const size_t tail = skipGroup(tokens_, at_ + 1);
    if (tail + 1 >= tokens_.size() || !tokens_[tail].is("while") || !tokens_[tail + 1].is("(")) return;
    tokens_[tail + 1].after += "::__tutti_spin(), (";
    tokens_[skipGroup(tokens_, tail + 1) - 1].replace("))");
    tails_.insert(tail);
  }

  Tokens& tokens_;
  size_t at_ = 0;
  size_t statement_ = 0;  // where the current statement begins
  int counter_ = 0;
  std::vector<Scope> scopes_;
  std::set<std::string> kernels_;
  std::set<size_t> tails_;
  std::vector<std::string> messages_;
};

}  // namespace

std::vector<std::string> translate(Tokens& tokens) { return Translator(tokens).run(); }

}  // namespace tutti::hostkernels
