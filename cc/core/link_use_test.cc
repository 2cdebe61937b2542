// Tests of what links have on the wire while they send.
#include "cc/core/link_use.h"

#include "gtest/gtest.h"

namespace tfsched {
namespace {

const LinkUse::Link kFirst{"/job:ps/replica:0/task:0", "/job:worker/replica:0/task:0"};
const LinkUse::Link kSecond{"/job:ps/replica:0/task:0", "/job:worker/replica:0/task:1"};

TEST(LinkUseTest, OnlyTheTimeInWhichSomethingIsOnTheWireCounts) {
  LinkUse use;
  use.Started(use.Of(kFirst), 1000, 5000000);
  use.Started(use.Of(kFirst), 3000, 6000000);   // 1 s of 1000
  use.Released(use.Of(kFirst), 1000, 8000000);  // 2 s of 4000
  use.Released(use.Of(kFirst), 3000, 9000000);  // 1 s of 3000
  EXPECT_EQ(use.sending_us(), 4000000);
  EXPECT_EQ(use.byte_seconds(), 12000);
  use.Started(use.Of(kFirst), 1, 99000000);  // nothing was on the wire
  EXPECT_EQ(use.sending_us(), 4000000);
  EXPECT_EQ(use.byte_seconds(), 12000);
}

TEST(LinkUseTest, LinksAddUp) {
  LinkUse use;
  for (const auto& link : {kFirst, kSecond}) use.Started(use.Of(link), 500, 0);
  for (const auto& link : {kFirst, kSecond}) use.Released(use.Of(link), 500, 2000000);
  EXPECT_EQ(use.sending_us(), 4000000);
  EXPECT_EQ(use.byte_seconds(), 2000) << "500 bytes on each link while it sends";
}

TEST(LinkUseTest, ATransferWithoutBytesSendsAndATimeThatGoesBackIsNone) {
  LinkUse use;
  use.Started(use.Of(kFirst), 0, 100);
  use.Released(use.Of(kFirst), 0, 90);
  EXPECT_EQ(use.sending_us(), 0);
  use.Started(use.Of(kFirst), 0, 90);
  use.Released(use.Of(kFirst), 0, 130);
  EXPECT_EQ(use.sending_us(), 30) << "from the latest event on";
  EXPECT_EQ(use.byte_seconds(), 0);
}

TEST(LinkUseTest, ManyBytesForLongDoNotOverflow) {
  LinkUse use;
  use.Started(use.Of(kFirst), int64_t{1} << 32, 0);
  use.Released(use.Of(kFirst), int64_t{1} << 32, int64_t{86400} * 365 * 1000000);
  EXPECT_NEAR(static_cast<double>(use.byte_seconds()), 4294967296.0 * 86400 * 365, 1e3);
}

}  // namespace
}  // namespace tfsched
