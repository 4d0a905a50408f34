#include "base/hmac.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "base/random.h"

namespace tutti::testing {
namespace {

std::string hex(const Digest& digest) {
  std::string text;
  for (const uint8_t byte : digest) text += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return text;
}

// FIPS 180-4 examples (NIST CSRC, "SHA256" example values) and the million letters a.
TEST(Sha256, MatchesThePublishedValues) {
  EXPECT_EQ(hex(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex(sha256(std::string(1000000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// RFC 4231, test cases 1, 2, 3, 6 and 7.
TEST(HmacSha256, MatchesRfc4231) {
  EXPECT_EQ(hex(hmacSha256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hex(hmacSha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex(hmacSha256(std::string(20, '\xaa'), std::string(50, '\xdd'))),
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  EXPECT_EQ(
      hex(hmacSha256(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First")),
      "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  EXPECT_EQ(hex(hmacSha256(
                std::string(131, '\xaa'),
                "This is a test using a larger than block-size key and a larger than block-size data. The "
                "key needs to be hashed before being used by the HMAC algorithm.")),
            "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

TEST(Secret, DerivedOnesDifferByPurpose) {
  const Secret secret = *Secret::random();
  EXPECT_EQ(secret.derive("a"), secret.derive("a"));
  EXPECT_NE(secret.derive("a"), secret.derive("b"));
  EXPECT_NE(secret.derive("a"), secret);
  EXPECT_NE(*Secret::random(), *Secret::random());
  EXPECT_NE(*randomU64(), *randomU64());
}

TEST(EqualInConstantTime, Compares) {
  EXPECT_TRUE(equalInConstantTime("", ""));
  EXPECT_TRUE(equalInConstantTime("abc", "abc"));
  EXPECT_FALSE(equalInConstantTime("abc", "abd"));
  EXPECT_FALSE(equalInConstantTime("abc", "ab"));
}

}  // namespace
}  // namespace tutti::testing
