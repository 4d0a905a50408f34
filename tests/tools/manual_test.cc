// The manual says what is so: tables against headers, sources, declarations.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "base/params.h"
#include "support/command.h"
#include "support/files.h"

namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using tutti::test::contentOf;
using tutti::test::Outcome;
using tutti::test::runCommand;

const std::string kSource = TUTTI_SOURCE_DIR;

struct Row {
  std::string served;
  std::string note;
};

/// Rows of the tables of docs/compatibility.md whose first cell is `name` with that prefix.
std::map<std::string, Row> rowsOf(const std::string& page, const std::string& prefix, size_t servedCell) {
  std::map<std::string, Row> rows;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| `" + prefix)) continue;
    std::vector<std::string> cells;
    std::istringstream parts(line.substr(1));
    for (std::string cell; std::getline(parts, cell, '|');) {
      const size_t first = cell.find_first_not_of(' '), last = cell.find_last_not_of(' ');
      cells.push_back(first == std::string::npos ? "" : cell.substr(first, last - first + 1));
    }
    const std::string name = cells.at(0).substr(1, cells.at(0).size() - 2);
    const Row row = {cells.at(servedCell), cells.at(servedCell + 1)};
    EXPECT_TRUE(rows.emplace(name, row).second) << name << " has two rows";
    EXPECT_TRUE(row.served == "yes" || row.served == "differs" || row.served == "no") << line;
    EXPECT_TRUE(row.served == "yes" || !row.note.empty()) << name << ": say why";
  }
  return rows;
}

std::map<std::string, Row> functionRows() {
  return rowsOf(contentOf(kSource + "/docs/compatibility.md"), "nccl", 2);
}
std::map<std::string, Row> variableRows() {
  return rowsOf(contentOf(kSource + "/docs/compatibility.md"), "NCCL_", 1);
}

std::set<std::string> matches(const std::string& text, const std::string& pattern,
                              const std::string& prefix = "") {
  std::set<std::string> found;
  const std::regex expression(pattern);
  for (std::sregex_iterator at(text.begin(), text.end(), expression), end; at != end; ++at)
    found.insert(prefix + (*at)[1].str());
  return found;
}

/// Functions that the headers declare.
std::set<std::string> declaredFunctions() {
  std::set<std::string> names = {"ncclGetErrorString", "ncclGetLastError", "ncclResetDebugInit"};
  names.merge(matches(contentOf(kSource + "/include/nccl.h"), R"(TUTTI_NCCL_FUNCTION\((\w+),\s+\()", "nccl"));
  names.merge(matches(contentOf(kSource + "/include/nccl_device.h"),
                      R"(TUTTI_NCCL_FUNCTION\(\w+,\s+(\w+),\s+\()", "nccl"));
  names.erase("ncclname");  // the macro itself
  return names;
}

/// Functions that answer that they are not served.
std::set<std::string> unservedFunctions() {
  std::set<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(kSource + "/src/api"))
    if (file.path().extension() == ".cc") {
      names.merge(matches(contentOf(file.path()), R"re(notServed\("(\w+)"\))re"));
      names.merge(matches(contentOf(file.path()), R"re(needsGpu\("(\w+)")re"));
    }
  names.insert("ncclDevCommDestroy");
  return names;
}

std::set<std::string> namesOf(const std::map<std::string, Row>& rows) {
  std::set<std::string> names;
  for (const auto& [name, row] : rows) names.insert(name);
  return names;
}

TEST(Manual, TheCompatibilityTableHasEveryFunctionOfTheHeaders) {
  EXPECT_GE(declaredFunctions().size(), 59u);
  EXPECT_EQ(namesOf(functionRows()), declaredFunctions());
}

TEST(Manual, FunctionsAreServedExactlyWhenTheTableSaysSo) {
  std::set<std::string> no;
  for (const auto& [name, row] : functionRows())
    if (row.served == "no") no.insert(name);
  EXPECT_EQ(no, unservedFunctions());
}

TEST(Manual, TheCompatibilityTableHasEveryVariableOfNccl) {
  std::set<std::string> known;
  std::istringstream lines(contentOf(kSource + "/tests/tools/data/nccl_variables.txt"));
  for (std::string line; std::getline(lines, line);)
    if (!line.empty() && line[0] != '#') known.insert(line);
  EXPECT_GE(known.size(), 70u);
  EXPECT_EQ(namesOf(variableRows()), known);
}

TEST(Manual, VariablesAreReadExactlyWhenTheTableSaysSo) {
  std::set<std::string> served, declared = {"NCCL_CONF_FILE"};
  for (const auto& [name, row] : variableRows())
    if (row.served != "no") served.insert(name);
  for (const tutti::ParamBase* param : tutti::params().all())
    if (std::string(param->name()).starts_with("NCCL_")) declared.insert(param->name());
  EXPECT_EQ(served, declared);
}

TEST(Manual, TheEnvironmentPageIsTheOneThatTheDeclarationsMake) {
  const Outcome made = runCommand(TUTTI_BINARY_DIR "/bin/environment_page");
  ASSERT_EQ(made.status, 0);
  EXPECT_EQ(made.output, contentOf(kSource + "/docs/environment.md"))
      << "build the target `docs`, and commit docs/environment.md";
}

/// Links of a page: (text)[target], without those to the web.
TEST(Manual, LinksLeadToFiles) {
  std::set<std::string> broken;
  std::vector<std::filesystem::path> pages = {kSource + "/README.md", kSource + "/examples/README.md"};
  for (const auto& file : std::filesystem::directory_iterator(kSource + "/docs"))
    if (file.path().extension() == ".md") pages.push_back(file.path());
  for (const auto& page : pages)
    for (const std::string& target : matches(contentOf(page), R"(\]\(([^)#]+)[^)]*\))"))
      if (!target.starts_with("http") && !std::filesystem::exists(page.parent_path() / target))
        broken.insert(page.filename().string() + " -> " + target);
  EXPECT_THAT(broken, IsEmpty());
}

TEST(TuttiInfo, SaysWhatIsInForceAndWhereItComesFrom) {
  const std::string conf = testing::TempDir() + "/info.conf";
  std::ofstream(conf) << "NCCL_BUFFSIZE=65536\nNCCL_IB_TC=106\nnonsense\n";
  const Outcome text = runCommand("NCCL_CONF_FILE=" + conf +
                                  " NCCL_DEBUG=INFO TUTTI_SIMD_TARGET=scalar NCCL_MAX_NCHANNELS=abc " +
                                  TUTTI_BINARY_DIR "/bin/tutti-info");
  EXPECT_EQ(text.status, 1);
  EXPECT_THAT(text.output, HasSubstr("NCCL_BUFFSIZE=65536  (" + conf + ":1)"));
  EXPECT_THAT(text.output, HasSubstr("TUTTI_SIMD_TARGET=scalar  (environment)"));
  EXPECT_THAT(text.output, HasSubstr("SIMD          scalar (of scalar"));
  EXPECT_THAT(text.output,
              HasSubstr("NCCL_MAX_NCHANNELS=abc (environment): not a whole number; using the default -1"));
  EXPECT_THAT(text.output, HasSubstr("NCCL_IB_TC (" + conf + ":2) has no effect"));
  EXPECT_THAT(text.output, HasSubstr("info.conf:3: expected NAME=VALUE"));
  EXPECT_THAT(text.output, HasSubstr("runtime       host, 8 devices"));
  EXPECT_THAT(text.output, testing::Not(HasSubstr("NCCL INFO")));
  EXPECT_THAT(text.output, testing::Not(HasSubstr("NCCL_P2P_DISABLE")));
  ::unlink(conf.c_str());
}

TEST(TuttiInfo, GivesJsonWhateverTheSettingsAre) {
  const Outcome outcome = runCommand(
      "NCCL_DEBUG=TRACE NCCL_DEBUG_SUBSYS=ALL TUTTI_SECRET_FILE=$(printf 'a\\377\"\\\\b') " TUTTI_BINARY_DIR
      "/bin/tutti-info --json | python3 -c 'import json,sys; d=json.load(sys.stdin); "
      "print(d[\"library\"][\"isTutti\"], len(d[\"settings\"]) > 25, d[\"machine\"][\"devices\"])'");
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  // The sanitizer's dlopen does not look where the program's run path says: another NCCL may be found.
  EXPECT_THAT(outcome.output, HasSubstr(" True 8\n"));
#else
  EXPECT_EQ(outcome.output, "True True 8\n");
#endif
}

TEST(TuttiInfo, SaysWhatEveryCommunicatorWouldRefuse) {
  const std::pair<std::string, std::string> cases[] = {
      {"NCCL_ALGO=rong", "NCCL_ALGO=rong: \"rong\" is no algorithm"},
      {"NCCL_PROTO=fast", "NCCL_PROTO=fast"},
      {"TUTTI_TUNING_FILE=/no/such.csv", "TUTTI_TUNING_FILE: "},
      {"TUTTI_ALGO_FILES=/no/such.json", "TUTTI_ALGO_FILES: "},
  };
  for (const auto& [setting, warning] : cases) {
    const auto outcome = runCommand(setting + " " + TUTTI_BINARY_DIR "/bin/tutti-info");
    EXPECT_EQ(outcome.status, 1) << setting;
    EXPECT_THAT(outcome.output, testing::HasSubstr(warning));
  }
  const auto right = runCommand("NCCL_ALGO=allreduce:my-hosts TUTTI_ALGO_FILES=" + kSource +
                                "/examples/algorithms " + TUTTI_BINARY_DIR "/bin/tutti-info");
  EXPECT_THAT(right.output,
              testing::Not(testing::AnyOf(HasSubstr("is no algorithm"), HasSubstr("TUTTI_ALGO_FILES: "))));
}

TEST(TuttiInfo, ExplainsWrongUse) {
  const Outcome outcome = runCommand(TUTTI_BINARY_DIR "/bin/tutti-info --jsno");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.output, HasSubstr("unknown argument --jsno"));
  EXPECT_EQ(runCommand(TUTTI_BINARY_DIR "/bin/tutti-info --help").status, 0);
}

}  // namespace
