#include "base/params.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <set>

#include "base/base_test.h"

namespace tutti::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// What is logged while an environment variable has a value.
template <typename Read>
std::string warningsFor(const char* name, const std::string& value, Read read) {
  const std::string path = temporaryPath("log");
  {
    const ScopedEnv level("NCCL_DEBUG", "WARN"), file("NCCL_DEBUG_FILE", path);
    const ScopedEnv variable(name, value);
    read();
  }
  const std::string text = readFile(path);
  ::unlink(path.c_str());
  return text;
}

TEST(Params, EveryVariableIsDeclaredOnceWithHelp) {
  std::set<std::string> names;
  for (const ParamBase* param : params().all()) {
    EXPECT_TRUE(names.insert(param->name()).second) << param->name();
    EXPECT_TRUE(std::string(param->name()).starts_with("NCCL_") ||
                std::string(param->name()).starts_with("TUTTI_"));
    EXPECT_GT(std::string(param->help()).size(), 10u) << param->name();
    EXPECT_FALSE(param->type().empty()) << param->name();
  }
  EXPECT_GE(names.size(), 25u);
}

TEST(Params, DefaultsAreTakenWhenNothingIsSet) {
  EXPECT_EQ(params().buffSize(), 4 << 20);
  EXPECT_EQ(params().initTimeout(), 120);
  EXPECT_FALSE(params().buffSize.isSet());
  EXPECT_EQ(params().buffSize.sourceText(), "default");
}

TEST(Params, SecondsMayBeFractions) {
  using std::chrono::milliseconds;
  const auto value = [](const char* text) {
    const ScopedEnv env("TUTTI_STALL_WARN", text);
    return params().stallWarn.time();
  };
  EXPECT_EQ(value("2"), milliseconds(2000));
  EXPECT_EQ(value(" 0.25 "), milliseconds(250));
  EXPECT_EQ(value(".5"), milliseconds(500));
  EXPECT_EQ(value("0"), milliseconds(0));
  EXPECT_EQ(value("1.23456"), milliseconds(1234));
  EXPECT_EQ(value(""), milliseconds(30000));
  EXPECT_EQ(params().stallWarn.standardText(), "30");
  for (const char* wrong : {"-1", "1e3", ".", "1.2.3", "ten", "99999999999", "9999999999999999999999"}) {
    const std::string warning = warningsFor(
        "TUTTI_STALL_WARN", wrong, [] { EXPECT_EQ(params().stallWarn.time(), milliseconds(30000)); });
    EXPECT_THAT(warning, HasSubstr("TUTTI_STALL_WARN")) << wrong;
  }
}

TEST(Params, IntegersHaveAnyBaseAndEmptyMeansDefault) {
  const auto value = [](const char* text) {
    const ScopedEnv env("NCCL_MAX_NCHANNELS", text);
    return params().maxNchannels();
  };
  EXPECT_EQ(value("16"), 16);
  EXPECT_EQ(value("0x10"), 16);
  EXPECT_EQ(value("020"), 16);
  EXPECT_EQ(value(" 16 "), 16);
  EXPECT_EQ(value(""), -1);
  EXPECT_EQ(value("  "), -1);
}

TEST(Params, BadValuesAreNamedAndTheDefaultIsUsed) {
  for (const char* bad : {"abc", "12x", "1 2", "99999999999999999999", "65", "-2", "0x", "1.5"}) {
    const std::string text =
        warningsFor("NCCL_MAX_NCHANNELS", bad, [] { EXPECT_EQ(params().maxNchannels(), -1); });
    EXPECT_THAT(text, HasSubstr(fmt::format("NCCL WARN NCCL_MAX_NCHANNELS={} (environment): ", bad)));
    EXPECT_THAT(text, HasSubstr("using the default -1"));
  }
  EXPECT_THAT(warningsFor("NCCL_MAX_NCHANNELS", "65", [] {}), HasSubstr("outside -1..64"));
  EXPECT_THAT(warningsFor("NCCL_MAX_NCHANNELS", "64", [] { EXPECT_EQ(params().maxNchannels(), 64); }),
              IsEmpty());
}

TEST(Params, SizesTakeUnits) {
  const auto value = [](const char* text) {
    const ScopedEnv env("NCCL_BUFFSIZE", text);
    return params().buffSize();
  };
  EXPECT_EQ(value("8192"), 8192);
  EXPECT_EQ(value("8k"), 8192);
  EXPECT_EQ(value("2M"), 2 << 20);
  EXPECT_EQ(value("1G"), 1 << 30);
  EXPECT_EQ(value("0x2000"), 8192);
  for (const char* bad : {"K", "1T", "16777216G", "-8K", "8 192", "5G", "1"})
    EXPECT_EQ(value(bad), 4 << 20) << bad;
}

TEST(Params, BooleansAndWords) {
  for (const auto& [text, expected] :
       {std::pair{"0", false}, {"1", true}, {"2", true}, {"", false}, {"yes", false}}) {
    const ScopedEnv env("NCCL_SHM_DISABLE", text);
    EXPECT_EQ(params().shmDisable(), expected) << text;
  }
  for (const auto& [text, expected] : {std::pair{"AF_INET", 1}, {"af_inet6", 2}, {"", 0}, {"IPX", 0}}) {
    const ScopedEnv env("NCCL_SOCKET_FAMILY", text);
    EXPECT_EQ(params().socketFamily(), expected) << text;
  }
}

TEST(Params, PathLevelsAreNamesOrOldNumbers) {
  const auto level = [](const std::string& text) {
    const ScopedEnv env("NCCL_P2P_LEVEL", text);
    return params().p2pLevel.isAuto() ? -1 : params().p2pLevel.level();
  };
  // LOC NVL NVB C2C PIX PXB P2C PXN PHB SYS
  for (const auto& [text, expected] : {std::pair{"LOC", 0},
                                       {"nvl", 1},
                                       {"PIX", 4},
                                       {"Phb", 8},
                                       {"SYS", 9},
                                       {"0", 0},
                                       {"1", 4},
                                       {"2", 5},
                                       {"3", 8},
                                       {"4", 9},
                                       {"7", 9},
                                       {"99999999999999999999", 9},
                                       {"", -1},
                                       {"AUTO", -1}})
    EXPECT_EQ(level(text), expected) << text;
  const size_t before = params().problems().size();
  const ScopedEnv env("NCCL_P2P_LEVEL", "NEAR");
  EXPECT_TRUE(params().p2pLevel.isAuto());
  ASSERT_EQ(params().problems().size(), before + 1);
  EXPECT_EQ(params().problems().back(),
            "NCCL_P2P_LEVEL=NEAR (environment): not one of AUTO | LOC | NVL | NVB | C2C | PIX | PXB | P2C | "
            "PXN | PHB | SYS; using the default AUTO");
  for (const char* bad : {"-1", "1x", "4.0"}) EXPECT_EQ(level(bad), -1) << bad;
}

TEST(Params, TheEnvironmentWinsOverTheFileAndTheFileOverTheDefault) {
  const std::string path = temporaryPath("conf");
  std::ofstream(path) << "# a comment\nNCCL_BUFFSIZE = 8192\n\n NCCL_ALGO=Ring # "
                         "why\nNCCL_MAX_NCHANNELS=0x8\r\nUNKNOWN_TO_US=1\n"
                         "NCCL_DEBUG_FILE=/tmp/a#b\nNCCL_MIN_NCHANNELS=";
  const ScopedEnv conf("NCCL_CONF_FILE", path);
  EXPECT_EQ(params().buffSize(), 8192);
  EXPECT_EQ(params().algo(), "Ring");
  EXPECT_EQ(params().maxNchannels(), 8);
  EXPECT_EQ(params().minNchannels(), -1);
  EXPECT_EQ(params().debugFile(), "/tmp/a#b");
  EXPECT_EQ(params().buffSize.sourceText(), path + ":2");
  {
    const ScopedEnv env("NCCL_BUFFSIZE", "16384");
    EXPECT_EQ(params().buffSize(), 16384);
    EXPECT_EQ(params().buffSize.sourceText(), "environment");
  }
  ::unlink(path.c_str());
}

TEST(Params, TheUsersFileIsReadWithoutNcclConfFile) {
  const std::string home = temporaryPath("home");
  ASSERT_EQ(::mkdir(home.c_str(), 0700), 0);
  std::ofstream(home + "/.nccl.conf") << "NCCL_BUFFSIZE=32768\n";
  const ScopedEnv env("HOME", home);
  EXPECT_EQ(params().buffSize(), 32768);
  ::unlink((home + "/.nccl.conf").c_str());
  ::rmdir(home.c_str());
}

TEST(Params, MalformedLinesAreNamedByFileAndLine) {
  std::vector<std::string> problems;
  const auto values =
      Params::parseFile("NCCL_A=1\nnonsense\n=5\nNCCL B=2\n#x\nNCCL_C=a=b", "some.conf", problems);
  EXPECT_EQ(values.size(), 2u);
  EXPECT_EQ(values.at("NCCL_C").value, "a=b");
  EXPECT_EQ(values.at("NCCL_C").line, 6);
  EXPECT_THAT(problems, ElementsAre(HasSubstr("some.conf:2: expected NAME=VALUE"), HasSubstr("some.conf:3:"),
                                    HasSubstr("some.conf:4:")));
}

TEST(Params, FilesThatCannotBeReadAreNamed) {
  EXPECT_THAT(warningsFor("NCCL_CONF_FILE", "/nonexistent.conf", [] {}),
              HasSubstr("/nonexistent.conf: No such file"));
  EXPECT_THAT(warningsFor("NCCL_CONF_FILE", "/tmp", [] {}), HasSubstr("not a regular file"));
  const std::string fifo = temporaryPath("fifo");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_THAT(warningsFor("NCCL_CONF_FILE", fifo, [] {}), HasSubstr("not a regular file"));
  ::unlink(fifo.c_str());
}

TEST(Params, ABadValueInAFileIsNamedWithItsLine) {
  const std::string path = temporaryPath("conf");
  std::ofstream(path) << "\nNCCL_BUFFSIZE=big\n";
  EXPECT_THAT(warningsFor("NCCL_CONF_FILE", path, [] {}),
              HasSubstr(fmt::format("NCCL_BUFFSIZE=big ({}:2): not a whole number", path)));
  ::unlink(path.c_str());
}

TEST(Params, WhatNobodyReadsIsListedWithWhereItStands) {
  const std::string path = temporaryPath("conf");
  std::ofstream(path) << "NCCL_IB_TC=106\nNCCL_BUFFSIZE=8192\nPATH=x\nTUTTI_NO_SUCH=1\n";
  const ScopedEnv conf("NCCL_CONF_FILE", path);
  const ScopedEnv typo("NCCL_SOCKET_IFNAM", "eth0");
  EXPECT_THAT(params().unread(),
              ::testing::IsSupersetOf({std::string("NCCL_SOCKET_IFNAM (environment)"),
                                       "NCCL_IB_TC (" + path + ":1)", "TUTTI_NO_SUCH (" + path + ":4)"}));
  for (const std::string& text : params().unread()) EXPECT_THAT(text, ::testing::Not(HasSubstr("BUFFSIZE")));
  ::unlink(path.c_str());
}

TEST(Params, MisspeltNamesOfOursAreSaidWhateverTheLogLevel) {
  const auto said = [](const char* name) { return warningsFor(name, "5", [] {}); };
  EXPECT_THAT(said("TUTTI_TIMOUT"),
              HasSubstr("TUTTI_TIMOUT (environment) is no variable of Tutti, did you mean TUTTI_TIMEOUT?"));
  EXPECT_THAT(said("TUTTI_CHEK"), HasSubstr("did you mean TUTTI_CHECK?"));
  EXPECT_THAT(said("TUTTI_SOMETHING_ELSE"),
              HasSubstr("TUTTI_SOMETHING_ELSE (environment) is no variable of Tutti: tutti-info lists them"));
  EXPECT_THAT(said("TUTTI_TIMEOUT"), IsEmpty());
  EXPECT_THAT(said("TUTTI_RUNTIME_RESTARTED"), IsEmpty());
  EXPECT_THAT(said("NCCL_SOCKET_IFNAM"), IsEmpty()) << "may be of another release";
}

TEST(Params, ProblemsCanBeAskedForLater) {
  {
    const ScopedEnv env("NCCL_BUFFSIZE", "much");
    EXPECT_THAT(params().problems(),
                ElementsAre(HasSubstr("NCCL_BUFFSIZE=much (environment): not a whole number")));
  }
  EXPECT_THAT(params().problems(), IsEmpty());
}

}  // namespace
}  // namespace tutti::testing
