// The choice: the same for all who have heard the same, and where the rule's sums say.
#include "cc/collective/choice.h"

#include "cc/collective/statements.h"
#include "gtest/gtest.h"

namespace tfsched {
namespace {

Conditions At(int64_t pace_bps) {
  Conditions conditions;
  conditions.pace_bps = pace_bps;
  return conditions;
}

TEST(ChoiceTest, TwoMembersSendEachOtherTheirPieces) {
  for (const int64_t bytes : {1, 1 << 30}) EXPECT_EQ(Choose(2, bytes, 0, At(0)), Way::kEverybody);
}

TEST(ChoiceTest, WithoutAPaceTheFixedSizeDecides) {
  EXPECT_EQ(Choose(3, 16384, 16384, At(0)), Way::kEverybody);
  EXPECT_EQ(Choose(3, 16385, 16384, At(0)), Way::kDirect);
  EXPECT_EQ(Choose(9, 16384, 16384, At(0)), Way::kDoubling);
}

TEST(ChoiceTest, FastLinksSendMoreToEverybody) {
  const int64_t gigabit = 1'000'000'000;                          // 125 bytes a us: a message's 30 us are 3,750 bytes
  EXPECT_EQ(Choose(3, 11'250, 0, At(gigabit)), Way::kEverybody);  // 3,750 x 3 x 2 / (2 x 1)
  EXPECT_EQ(Choose(3, 11'251, 0, At(gigabit)), Way::kDirect);
  EXPECT_EQ(Choose(8, 7'857, 0, At(gigabit)), Way::kDoubling);  // 3,750 x 8 x 11 / (7 x 6)
  EXPECT_EQ(Choose(8, 7'858, 0, At(gigabit)), Way::kDirect);
  EXPECT_EQ(Choose(3, 100'000, 0, At(10 * gigabit)), Way::kEverybody);
  EXPECT_EQ(Choose(3, 300'000, 0, At(1000 * gigabit)), Way::kDirect);
  EXPECT_EQ(Choose(3, 20'000, 0, At(gigabit / 4)), Way::kDirect);
}

TEST(ChoiceTest, WhatTheUserAsksForIsDone) {
  Conditions ring = At(0);
  ring.way = Way::kRing;
  for (const int members : {2, 3, 16}) EXPECT_EQ(Choose(members, 1 << 20, 0, ring), Way::kRing);
}

TEST(ChoiceTest, TheSlowestMembersPaceCounts) {
  EXPECT_EQ(CommonConditions({WordsOf(At(300)), WordsOf(At(200)), WordsOf(At(400))}).pace_bps, 200);
  EXPECT_EQ(CommonConditions({WordsOf(At(300)), WordsOf(At(0))}).pace_bps, 0);
  EXPECT_EQ(CommonConditions({"~pace_bps=-5"}).pace_bps, 0);
  EXPECT_FALSE(CommonConditions({WordsOf(At(1)), WordsOf(At(1))}).way.has_value());
  Conditions ring = At(7);
  ring.way = Way::kRing;
  EXPECT_EQ(CommonConditions({WordsOf(ring), WordsOf(ring)}).way, Way::kRing);
}

TEST(ChoiceTest, APaceMayDifferAndAWayMayNot) {
  EXPECT_EQ(Difference({{"a", "x=1 " + WordsOf(At(1))}, {"b", "x=1 " + WordsOf(At(2))}}), "");
  Conditions ring = At(1);
  ring.way = Way::kRing;
  EXPECT_EQ(Difference({{"a", "x=1 " + WordsOf(At(1))}, {"b", "x=1 " + WordsOf(ring)}}),
            "b has algorithm ring and a has auto");
}

TEST(ChoiceTest, TheFirstMemberThatAsksForPiecesIsFollowed) {
  Conditions asks = At(1), asks_too = At(1);
  asks.piece_bytes = 500'000;
  asks_too.piece_bytes = 9'000;
  const std::string silent = WordsOf(At(1));
  EXPECT_EQ(CommonConditions({silent, silent}).piece_bytes, 0);
  EXPECT_EQ(CommonConditions({WordsOf(asks), silent}).piece_bytes, 500'000);
  EXPECT_EQ(CommonConditions({silent, WordsOf(asks), WordsOf(asks_too)}).piece_bytes, 500'000);
  EXPECT_EQ(CommonConditions({"~piece_bytes=-5", "~piece_bytes=x", "~piece_bytes=1"}).piece_bytes, 4096);
  EXPECT_EQ(Difference({{"a", "x=1 " + WordsOf(asks)}, {"b", "x=1 " + silent}}), "");
  for (const bool follow_link : {false, true}) {
    EXPECT_EQ(PieceBytes(Way::kDirect, 3, 1000, follow_link, asks), 500'000);
    EXPECT_EQ(PieceBytes(Way::kDirect, 3, 1000, follow_link, At(1)), 1000);
    EXPECT_EQ(PieceBytes(Way::kRing, 3, 1000, follow_link, asks), 1000);  // its bits would change
  }
}

// exchange_bytes of tfsched/_rules.py has the same table (tests/grappler/test_bundles.py).
TEST(ChoiceTest, PiecesFollowTheLinkUpToMessagesOfAFixedSize) {
  const auto pieces = [](int members, int64_t megabits) {
    const int64_t least = int64_t{250'000} * members;
    return PieceBytes(members == 2 ? Way::kEverybody : Way::kDirect, members, least, true, At(megabits * 1'000'000));
  };
  for (const int members : {2, 3, 8}) EXPECT_EQ(pieces(members, 0), 250'000 * members);
  EXPECT_EQ(pieces(2, 500), 500'000);
  EXPECT_EQ(pieces(2, 749), 500'000);
  EXPECT_EQ(pieces(2, 750), 1'000'000);
  EXPECT_EQ(pieces(2, 4'000), 1'000'000);
  EXPECT_EQ(pieces(2, 1'000'000), 1'000'000);
  EXPECT_EQ(pieces(4, 250), 4 * 250'000);
  EXPECT_EQ(pieces(4, 375), 4 * 500'000);
  EXPECT_EQ(pieces(4, 1'000), 4 * 1'000'000);
  EXPECT_EQ(pieces(4, 100'000), 4 * 1'000'000);
  EXPECT_EQ(PieceBytes(Way::kDirect, 4, 1'000'000, false, At(int64_t{1} << 40)), 1'000'000);  // the graph's own
  EXPECT_EQ(PieceBytes(Way::kRing, 4, 1'000'000, true, At(int64_t{1} << 40)), 1'000'000);     // its bits would change
  EXPECT_EQ(PieceBytes(Way::kDirect, 4, 3, true, At(int64_t{1} << 40)), 3);                   // no byte for each member
}

TEST(ChoiceTest, TheCreditHoldsTwoMessages) {
  const auto credit = [](Way way, int members, int64_t piece_bytes, int64_t megabits) {
    return FittingCredit(MessageBytes(way, members, piece_bytes), members, At(megabits * 1'000'000));
  };
  EXPECT_EQ(credit(Way::kDirect, 4, 1'000'000, 10'000), 1'000'000);
  EXPECT_EQ(credit(Way::kDirect, 4, 4'000'000, 10'000), 2'000'000);
  EXPECT_EQ(credit(Way::kEverybody, 2, 600'000, 2'000), 1'200'000);
  EXPECT_EQ(credit(Way::kEverybody, 2, 0, 2'000), 1'000'000);
}

// A plan's VGG16 went as if first come, first served: its largest gradient, sent whole, made the credit 822 MB.
TEST(ChoiceTest, LargeMessagesDoNotMakeTheCreditLarger) {
  for (const int64_t bytes : {4'000'000, 411'000'000}) {
    EXPECT_EQ(FittingCredit(bytes, 2, At(0)), 1'000'000);
    EXPECT_EQ(FittingCredit(bytes, 2, At(500'000'000)), 1'000'000);
    EXPECT_EQ(FittingCredit(bytes, 2, At(2'000'000'000)), 2'000'000);
    EXPECT_EQ(FittingCredit(bytes, 4, At(100'000'000)), 1'000'000);
    EXPECT_EQ(FittingCredit(bytes, 4, At(10'000'000'000)), 2'000'000);
  }
  Conditions tuned = At(500'000'000);
  tuned.piece_bytes = 4'000'000;
  EXPECT_EQ(FittingCredit(4'000'000, 2, tuned), 8'000'000);
}

TEST(ChoiceTest, AsksForWhatTheLinkCarriesInEightMillisecondsAndUntilAnAnswerComes) {
  EXPECT_EQ(RequestWindowBytes(Way::kDirect, 3, 1'000, At(250'000'000)), 281'250);
  EXPECT_EQ(RequestWindowBytes(Way::kDirect, 3, 32'000, At(250'000'000)), 1'250'000);
  EXPECT_EQ(RequestWindowBytes(Way::kDirect, 4, 2'000, At(10'000'000'000)), 12'500'000);
  EXPECT_EQ(RequestWindowBytes(Way::kDirect, 4, 1, At(1)), 1);  // 0 would be all at once
  EXPECT_EQ(RequestWindowBytes(Way::kDirect, 4, 1'000, At(0)), 0);
  EXPECT_EQ(RequestWindowBytes(Way::kDirect, 4, 0, At(250'000'000)), 0);
  // One peer only sends.
  EXPECT_EQ(RequestWindowBytes(Way::kDirect, 2, 1'000, At(250'000'000)), 0);
  EXPECT_EQ(RequestWindowBytes(Way::kEverybody, 2, 1'000, At(250'000'000)), 0);
  EXPECT_EQ(RequestWindowBytes(Way::kRing, 4, 1'000, At(250'000'000)), 0);
}

TEST(ChoiceTest, KnowsWhatIsNotAtPace) {
  // 1 MB takes 32 ms at 250 Mbit/s.
  EXPECT_TRUE(IsAtPace(1'000'000, 32'000, 250'000'000));
  EXPECT_TRUE(IsAtPace(1'000'000, 42'000, 250'000'000));
  EXPECT_FALSE(IsAtPace(1'000'000, 43'000, 250'000'000));
  EXPECT_TRUE(IsAtPace(1'000'000, 25'000, 250'000'000));
  EXPECT_FALSE(IsAtPace(1'000'000, 24'000, 250'000'000));
  EXPECT_FALSE(IsAtPace(1'000'000, 0, 250'000'000));
}

TEST(ChoiceTest, NamesAreThoseOfTheWays) {
  for (const Way way : {Way::kDirect, Way::kEverybody, Way::kDoubling, Way::kRing}) EXPECT_EQ(WayNamed(NameOf(way)), way);
  EXPECT_FALSE(WayNamed("auto").has_value());
}

}  // namespace
}  // namespace tfsched
