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
  EXPECT_EQ(PieceBytes(Way::kDirect, 1000, asks), 500'000);
  EXPECT_EQ(PieceBytes(Way::kDirect, 1000, At(1)), 1000);
  EXPECT_EQ(PieceBytes(Way::kRing, 1000, asks), 1000);  // its bits would change
}

TEST(ChoiceTest, NamesAreThoseOfTheWays) {
  for (const Way way : {Way::kDirect, Way::kEverybody, Way::kDoubling, Way::kRing}) EXPECT_EQ(WayNamed(NameOf(way)), way);
  EXPECT_FALSE(WayNamed("auto").has_value());
}

}  // namespace
}  // namespace tfsched
