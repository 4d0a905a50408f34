#include "base/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>
#include <stdexcept>

namespace tutti::testing {
namespace {

using ::testing::HasSubstr;

TEST(Status, OfABodyThatRunsOutOfMemorySaysSo) {
  const Status status = statusOf([]() -> Status { throw std::bad_alloc(); });
  EXPECT_EQ(status.code(), ncclSystemError);
  EXPECT_THAT(status.message(), HasSubstr("out of memory"));
}

TEST(Status, OfABodyThatThrowsAnythingElseIsAnInternalErrorWithItsWords) {
  const Status status = statusOf([]() -> Status { throw std::out_of_range("beyond the end"); });
  EXPECT_EQ(status.code(), ncclInternalError);
  EXPECT_EQ(status.message(), "beyond the end");
  EXPECT_EQ(statusOf([]() -> Status { throw 7; }).code(), ncclInternalError);
}

TEST(Status, OfABodyThatReturnsIsWhatItReturns) {
  EXPECT_TRUE(statusOf([] { return Status::ok(); }).isOk());
  EXPECT_EQ(statusOf([] { return invalidUsage("no"); }).code(), ncclInvalidUsage);
}

}  // namespace
}  // namespace tutti::testing
