// Statements: whoever asks, before or after, gets what was said first, and nobody waits for what will not come.
#include "cc/collective/statements.h"

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace tfsched {
namespace {

const char kMember[] = "/job:worker/replica:0/task:1/device:CPU:0";

struct Asked {
  int answers = 0;
  Outcome outcome;
  std::string said = "nothing";
};

void Ask(Statements* statements, const CollectiveCall& call, Asked* asked) {
  statements->Ask(kMember, call, [asked](const Outcome& outcome, const std::string& said) {
    ++asked->answers;
    asked->outcome = outcome;
    asked->said = said;
  });
}

TEST(StatementsTest, BeforeAndAfter) {
  Statements statements;
  const CollectiveCall call{1, 100, ""};
  Asked before, after;
  Ask(&statements, call, &before);
  EXPECT_EQ(before.answers, 0);
  EXPECT_EQ(statements.counters().waiting, 1);
  EXPECT_EQ(statements.Say(kMember, call, "pieces=1"), "pieces=1");
  Ask(&statements, call, &after);
  EXPECT_EQ(before.said, "pieces=1");
  EXPECT_EQ(after.said, "pieces=1");
  EXPECT_EQ(statements.Say(kMember, call, "pieces=2"), "pieces=1");
  EXPECT_EQ(before.answers, 1);
  EXPECT_EQ(statements.counters().waiting, 0);
}

TEST(StatementsTest, StockAnswersEveryTurnAndForbidsPlans) {
  Statements statements;
  Asked first, second;
  Ask(&statements, {1, 100, "0"}, &first);
  statements.SayStock(kMember, 1, 100);
  Ask(&statements, {1, 100, "1"}, &second);
  EXPECT_EQ(first.said, Statements::kStock);
  EXPECT_EQ(second.said, Statements::kStock);
  EXPECT_EQ(statements.Say(kMember, {1, 100, "2"}, "pieces=1"), Statements::kStock);
}

TEST(StatementsTest, ASessionsStepsAreDifferentCalls) {
  Statements statements;
  CollectiveCall first{1, 100, "0.0", 7}, second{1, 100, "0.0", 8};
  statements.Say(kMember, first, "pieces=1");
  Asked asked;
  Ask(&statements, second, &asked);
  EXPECT_EQ(asked.answers, 0);  // what was said of the first step says nothing of the second
  statements.SayStock(kMember, 1, 100, 8);
  EXPECT_EQ(asked.said, Statements::kStock);
  EXPECT_EQ(statements.Say(kMember, first, "pieces=2"), "pieces=1");
  EXPECT_EQ(statements.Say(kMember, {1, 100, "0.0", 9}, "pieces=2"), "pieces=2");
}

TEST(StatementsTest, ACallsNameSaysWhichItIs) {
  for (const CollectiveCall& call : {CollectiveCall{0, -5, "3.4", int64_t{1} << 56}, CollectiveCall{0, 7, "", 0}}) {
    const CollectiveCall read = CallNamed(NameOf(call));
    EXPECT_EQ(read.instance, call.instance);
    EXPECT_EQ(read.step, call.step);
    EXPECT_EQ(read.turn, call.turn);
  }
  EXPECT_EQ(CallNamed("").instance, 0);
  EXPECT_EQ(CallNamed("12").instance, 12);
}

TEST(StatementsTest, APlanIsNotTakenBackByTheStockOpBehindIt) {
  Statements statements;
  statements.Say(kMember, {1, 100, "0"}, "pieces=1");
  statements.SayStock(kMember, 1, 100);  // what all have agreed on
  EXPECT_EQ(statements.Say(kMember, {1, 100, "1"}, "pieces=1"), "pieces=1");
}

TEST(StatementsTest, MembersGroupsAndCallsAreApart) {
  Statements statements;
  Asked asked;
  Ask(&statements, {1, 100, ""}, &asked);
  statements.Say("another", {1, 100, ""}, "a=1");
  statements.Say(kMember, {2, 100, ""}, "a=2");
  statements.Say(kMember, {1, 101, ""}, "a=3");
  statements.Say(kMember, {1, 100, "7"}, "a=4");
  statements.SayStock(kMember, 2, 100);
  EXPECT_EQ(asked.answers, 0);
}

TEST(StatementsTest, AFailedGroupAnswersEverybody) {
  Statements statements;
  Asked before, after;
  Ask(&statements, {1, 100, ""}, &before);
  statements.Fail(kMember, 1, {kAbortedCode, "gone", false});
  statements.Fail(kMember, 1, {kInternalCode, "later", false});
  Ask(&statements, {1, 200, ""}, &after);
  EXPECT_EQ(before.outcome.message, "gone");
  EXPECT_EQ(after.outcome.message, "gone");
  EXPECT_EQ(statements.counters().calls, 0);
}

TEST(StatementsTest, OldCallsAreForgottenAndTheirAskersTold) {
  Statements statements;
  Asked asked;
  Ask(&statements, {1, 0, ""}, &asked);
  const int last = static_cast<int>(Statements::kRemembered) + 10;
  for (int instance = 1; instance < last; ++instance) statements.Say(kMember, {1, instance, ""}, "a=1");
  EXPECT_EQ(asked.answers, 1);
  EXPECT_EQ(asked.outcome.code, kAbortedCode);
  EXPECT_EQ(statements.counters().calls, static_cast<int64_t>(Statements::kRemembered));
}

// Three members, each with one of two plans or stock, come and ask in every order: all know the same.
TEST(StatementsTest, AllMembersDecideAlike) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    Statements statements;  // one for all three processes: what a member says is its own
    const std::vector<std::string> names = {"a", "b", "c"};
    std::vector<std::string> plans;
    for (int i = 0; i < 3; ++i) plans.push_back(std::vector<std::string>{"", "p=1", "p=1", "p=2"}[random() % 4]);
    std::vector<std::vector<std::pair<std::string, std::string>>> known(3);
    std::vector<std::pair<int, int>> acts;  // (member, whom it asks; itself: it speaks)
    for (int i = 0; i < 9; ++i) acts.emplace_back(i / 3, i % 3);
    std::shuffle(acts.begin(), acts.end(), random);
    for (const auto& [member, whom] : acts) {
      if (member == whom && plans[member].empty()) {
        statements.SayStock(names[member], 1, 5);
      } else if (member == whom) {
        statements.Say(names[member], {1, 5, ""}, plans[member]);
      }
      statements.Ask(names[whom], {1, 5, ""},
                     [&known, member = member, name = names[whom]](const Outcome&, const std::string& said) {
                       known[member].emplace_back(name, said);
                     });
    }
    const bool same = !plans[0].empty() && plans[0] == plans[1] && plans[1] == plans[2];
    for (auto& said : known) {
      std::sort(said.begin(), said.end());
      ASSERT_EQ(said.size(), 3U);
      EXPECT_EQ(said, known[0]);
      EXPECT_EQ(Difference(said).empty(), same);
    }
  }
}

TEST(StatementsTest, TheTermsOfACallAreRememberedWithIt) {
  Statements statements;
  Conditions terms;
  terms.pace_bps = 7;
  EXPECT_FALSE(statements.Settled("a", {1, 5, "0"}).has_value());
  statements.Say("a", {1, 5, "0"}, "p=1");
  EXPECT_FALSE(statements.Settled("a", {1, 5, "0"}).has_value());
  statements.Settle("a", {1, 5, "0"}, terms);
  EXPECT_EQ(statements.Settled("a", {1, 5, "0"})->pace_bps, 7);
  EXPECT_FALSE(statements.Settled("a", {1, 5, "1"}).has_value());
  EXPECT_FALSE(statements.Settled("b", {1, 5, "0"}).has_value());
  for (size_t call = 0; call < Statements::kRemembered; ++call) {
    statements.Say("a", {1, static_cast<int32_t>(6 + call), "0"}, "p=1");
  }
  EXPECT_FALSE(statements.Settled("a", {1, 5, "0"}).has_value());  // too long ago
  statements.Settle("a", {1, 6, "0"}, terms);
  statements.Fail("a", 1, {kAbortedCode, "down", false});
  EXPECT_FALSE(statements.Settled("a", {1, 6, "0"}).has_value());
}

TEST(StatementsTest, TheDifferenceIsNamed) {
  EXPECT_EQ(Difference({{"a", "x=1 y=2"}, {"b", "x=1 y=2"}}), "");
  EXPECT_EQ(Difference({{"a", "x=1 y=2"}, {"b", "x=1 y=3"}}), "b has y 3 and a has 2");
  EXPECT_EQ(Difference({{"a", "x=1"}, {"b", ""}}), "b runs it without tfsched");
  EXPECT_EQ(Difference({{"a", "x=1"}, {"b", "x=1 z=4"}}), "b plans \"x=1 z=4\" and a plans \"x=1\"");
}

}  // namespace
}  // namespace tfsched
