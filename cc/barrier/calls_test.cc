// The calls, event by event: whose turn it is, every error told exactly once and to the right one, nothing is left over.
#include <thread>

#include "cc/barrier/background_steps.h"
#include "cc/barrier/calls_testing.h"
#include "gtest/gtest.h"

namespace tfsched {
namespace {

TEST(Calls, OneAtATimePerClient) {
  Calls calls(1);
  const auto first = Begin(&calls), second = Begin(&calls), other = Begin(&calls, "d");
  EXPECT_GT(first->token, 0);
  EXPECT_GT(other->token, 0);
  EXPECT_TRUE(IsBackgroundStep(-first->token));
  EXPECT_EQ(second->calls, 0);
  EXPECT_EQ(calls.Outstanding("c"), 2);
  calls.Ack(first->token);
  EXPECT_TRUE(Join(&calls, first->token)->outcome.ok());
  EXPECT_FALSE(calls.EndStep(first->token));
  EXPECT_EQ(second->calls, 0) << "f goes on";
  calls.Done(first->token, {});
  EXPECT_GT(second->token, 0);
  for (const auto& begun : {second, other}) {
    calls.Done(begun->token, {});
    EXPECT_TRUE(Join(&calls, begun->token)->outcome.ok()) << "f may be over before the step joins";
    calls.EndStep(begun->token);
  }
  EXPECT_TRUE(IsEmpty(calls));
}

TEST(Calls, TheNextStepIsToldOnce) {
  Calls calls(1);
  const auto first = Begin(&calls);
  calls.Ack(first->token);
  Join(&calls, first->token);
  const auto waiting = Begin(&calls);
  calls.EndStep(first->token);
  calls.Done(first->token, kFailure);
  EXPECT_EQ(waiting->outcome.code, kFailure.code);
  EXPECT_EQ(waiting->outcome.message, "tfsched: the background update of an earlier step failed: boom");
  EXPECT_EQ(waiting->token, 0);
  const auto next = Begin(&calls);
  EXPECT_TRUE(next->outcome.ok());
  calls.Abandon(next->token);
  EXPECT_EQ(calls.counters().failed, 1);
  EXPECT_TRUE(IsEmpty(calls));
}

// A call whose step has joined and whose updates are applied.
int64_t Delivering(Calls* calls) {
  const int64_t token = Begin(calls)->token;
  calls->Ack(token);
  EXPECT_TRUE(Join(calls, token)->outcome.ok());
  EXPECT_FALSE(calls->EndStep(token));
  calls->Applied(token);
  return token;
}

TEST(Calls, TheNextBeginsWhenTheUpdatesAreAppliedUnlessTwoDeliver) {
  Calls calls(1);
  const int64_t first = Delivering(&calls);
  EXPECT_TRUE(calls.IsUnderWay("c", first)) << "f goes on";
  EXPECT_EQ(calls.Committed("c"), first);
  const int64_t second = Delivering(&calls);
  EXPECT_GT(second, 0);
  EXPECT_TRUE(calls.IsUnderWay("c", first));
  EXPECT_TRUE(calls.IsUnderWay("c", second));
  EXPECT_EQ(calls.Committed("c"), second);
  EXPECT_EQ(calls.Outstanding("c"), 2);
  const auto third = Begin(&calls);
  EXPECT_EQ(third->calls, 0);
  calls.Done(first, {});
  EXPECT_GT(third->token, 0);
  EXPECT_FALSE(calls.IsUnderWay("c", first));
  EXPECT_EQ(calls.Committed("c"), second);
  calls.Abandon(third->token);
  calls.Done(second, {});
  EXPECT_TRUE(IsEmpty(calls));
}

TEST(Calls, AppliedCountsWhenTheStepHasJoined) {
  Calls calls(1);
  const auto first = Begin(&calls), second = Begin(&calls);
  calls.Applied(first->token);
  EXPECT_EQ(second->calls, 0) << "the step may still fail";
  calls.Ack(first->token);
  EXPECT_EQ(second->calls, 0);
  Join(&calls, first->token);
  EXPECT_GT(second->token, 0);
  calls.Applied(second->token);
  EXPECT_TRUE(calls.EndStep(second->token)) << "it has failed";
  const auto third = Begin(&calls);
  EXPECT_EQ(third->calls, 0);
  calls.Done(second->token, Outcome::Derived(kCancelledCode, "cancelled"));
  EXPECT_GT(third->token, 0);
  calls.Abandon(third->token);
  calls.EndStep(first->token);
  calls.Done(first->token, {});
  calls.Applied(first->token);  // late
  EXPECT_TRUE(IsEmpty(calls));
}

TEST(Calls, WhoDrainsWaitsForWhatIsDelivered) {
  Calls calls(1);
  const int64_t first = Delivering(&calls);
  const auto drained = Drain(&calls), returned = DrainReturned(&calls);
  const auto next = Begin(&calls);
  EXPECT_EQ(drained->calls + returned->calls + next->calls, 0);
  calls.Done(first, {});
  EXPECT_EQ(drained->calls + returned->calls, 2);
  EXPECT_GT(next->token, 0);
  calls.Abandon(next->token);

  const int64_t second = Delivering(&calls);
  const auto given_up = Drain(&calls);
  const auto after = Begin(&calls);
  calls.CancelDrain("c", given_up->waiter, {kDeadlineExceededCode, "late"});
  EXPECT_GT(after->token, 0);
  EXPECT_EQ(DrainReturned(&calls)->calls, 1) << "all that has returned is applied";
  calls.Abandon(after->token);
  calls.Done(second, {});
  EXPECT_TRUE(IsEmpty(calls));
}

TEST(Calls, AFailureToDeliverIsToldOnceAndToTheNext) {
  for (const bool both : {false, true}) {
    Calls calls(1);
    const int64_t first = Delivering(&calls), second = Delivering(&calls);
    const auto next = Begin(&calls);
    calls.Done(first, kFailure);
    EXPECT_EQ(next->outcome.code, kFailure.code);
    EXPECT_EQ(calls.Committed("c"), second) << "what that one has sent is not lost";
    calls.Done(second, both ? kFailure : Outcome());
    EXPECT_EQ(calls.Committed("c"), both ? 0 : second);
    EXPECT_EQ(Drain(&calls)->outcome.ok(), !both);
    EXPECT_TRUE(IsEmpty(calls));
  }
  Calls calls(1);
  const int64_t first = Delivering(&calls), second = Delivering(&calls);
  calls.Done(second, {9, "what followed"});
  calls.Done(first, kFailure);
  EXPECT_EQ(calls.counters().failed, 2);
  EXPECT_FALSE(Drain(&calls)->outcome.ok());
  EXPECT_TRUE(Drain(&calls)->outcome.ok()) << "of two at the same time the first is told";
  EXPECT_TRUE(IsEmpty(calls));
}

TEST(Calls, WhoWaitsForALostValueMayTellTheError) {
  Calls calls(1);
  const int64_t first = Delivering(&calls);
  const auto second = Begin(&calls);
  EXPECT_FALSE(calls.HasError("c"));
  EXPECT_TRUE(calls.TakeErrorOf("c").ok());
  calls.Done(first, kFailure);
  EXPECT_TRUE(calls.HasError("c"));
  EXPECT_FALSE(calls.HasError("d"));
  EXPECT_EQ(calls.TakeErrorOf("c").message, "tfsched: the background update of an earlier step failed: boom");
  EXPECT_FALSE(calls.HasError("c"));
  calls.Abandon(second->token);
  EXPECT_TRUE(Drain(&calls)->outcome.ok());
  EXPECT_TRUE(IsEmpty(calls));
}

TEST(Calls, CommittedIsTheLastTokenThatWasJoinedUnlessItFailed) {
  Calls calls(1);
  EXPECT_EQ(calls.Committed("c"), 0);
  const auto first = Begin(&calls);
  calls.Ack(first->token);
  EXPECT_EQ(calls.Committed("c"), 0) << "its step may still fail, which cancels f";
  Join(&calls, first->token);
  EXPECT_EQ(calls.Committed("c"), first->token) << "while f runs";
  EXPECT_TRUE(calls.IsUnderWay("c", first->token));
  EXPECT_FALSE(calls.IsUnderWay("d", first->token));
  EXPECT_FALSE(calls.IsUnderWay("c", 0));
  EXPECT_EQ(calls.Committed("d"), 0);
  calls.EndStep(first->token);
  calls.Done(first->token, Outcome());
  EXPECT_EQ(calls.Committed("c"), first->token) << "and after it";
  EXPECT_FALSE(calls.IsUnderWay("c", first->token));

  const auto second = Begin(&calls);
  auto joined = NewJoined();
  calls.Join(second->token, joined->waiter);
  EXPECT_EQ(calls.Committed("c"), first->token);
  calls.Ack(second->token);
  EXPECT_EQ(calls.Committed("c"), second->token);
  calls.EndStep(second->token);
  calls.Done(second->token, kFailure);
  EXPECT_EQ(calls.Committed("c"), 0) << "what a failed f has sent may be lost";
  Begin(&calls);  // is told

  const auto third = Begin(&calls);
  EXPECT_TRUE(calls.EndStep(third->token)) << "its step failed";
  calls.Done(third->token, Outcome::Derived(kAbortedCode, "no gradient"));
  EXPECT_EQ(calls.Committed("c"), 0);
  EXPECT_EQ(calls.counters().held, 0);
}

TEST(Calls, AStepHasReturnedOnceItHasJoined) {
  Calls calls(1);
  const int64_t first = Begin(&calls)->token;
  EXPECT_FALSE(calls.HasReturned(first));
  const auto early = Join(&calls, first);
  EXPECT_FALSE(calls.HasReturned(first)) << "it waits for the Ack";
  EXPECT_EQ(early->calls, 0);
  calls.Ack(first);
  EXPECT_EQ(early->calls, 1);
  EXPECT_TRUE(calls.HasReturned(first));
  EXPECT_FALSE(calls.EndStep(first));
  EXPECT_TRUE(calls.HasReturned(first)) << "the step is over, the function is not";
  calls.Done(first, Outcome());
  EXPECT_TRUE(calls.HasReturned(first)) << "nothing of it is outstanding";

  const int64_t second = Begin(&calls)->token;
  calls.Ack(second);
  EXPECT_FALSE(calls.HasReturned(second));
  EXPECT_TRUE(calls.EndStep(second));
  EXPECT_FALSE(calls.HasReturned(second)) << "it has failed";
  calls.Done(second, Outcome::Derived(kCancelledCode, "cancelled"));
  EXPECT_EQ(calls.counters().held, 0);
}

TEST(Calls, AFailureBeforeTheJoinIsTheStepsOwn) {
  for (const bool join_first : {true, false}) {
    Calls calls(1);
    const auto begun = Begin(&calls), next = Begin(&calls);
    auto joined = join_first ? Join(&calls, begun->token) : nullptr;
    calls.Done(begun->token, kFailure);
    EXPECT_EQ(next->calls, join_first ? 1 : 0) << "who tells it has to be clear first";
    if (!join_first) joined = Join(&calls, begun->token);
    EXPECT_EQ(joined->outcome.code, kFailure.code);
    EXPECT_EQ(joined->outcome.message, "tfsched: the background update of this step failed: boom");
    EXPECT_TRUE(next->outcome.ok());
    calls.EndStep(begun->token);
    calls.Abandon(next->token);
    EXPECT_TRUE(IsEmpty(calls));
  }
}

TEST(Calls, APutMayTellItToo) {
  Calls calls(1);
  const auto begun = Begin(&calls);
  EXPECT_TRUE(calls.TakeError(begun->token).ok());
  calls.Done(begun->token, kFailure);
  EXPECT_EQ(calls.TakeError(begun->token).code, kFailure.code);
  calls.EndStep(begun->token);
  EXPECT_TRUE(calls.TakeError(begun->token).ok());
  EXPECT_TRUE(Drain(&calls)->outcome.ok());
  EXPECT_TRUE(IsEmpty(calls));
}

TEST(Calls, AStepThatFailsBeforeItsJoinCancelsAndTellsNobody) {
  for (const bool done_first : {true, false}) {
    Calls calls(1);
    const auto begun = Begin(&calls), next = Begin(&calls);
    if (done_first) calls.Done(begun->token, Outcome::Derived(kAbortedCode, "no gradient"));
    EXPECT_EQ(calls.EndStep(begun->token), !done_first);
    EXPECT_EQ(Join(&calls, begun->token)->outcome.code, kCancelledCode);
    if (!done_first) calls.Done(begun->token, kFailure);
    EXPECT_TRUE(next->outcome.ok());
    calls.Abandon(next->token);
    EXPECT_EQ(calls.counters().failed, 0);
    EXPECT_TRUE(IsEmpty(calls));
  }
}

TEST(Calls, DrainWaitsInTurnAndTells) {
  Calls calls(1);
  EXPECT_EQ(Drain(&calls)->calls, 1);
  const auto begun = Begin(&calls);
  const auto drained = Drain(&calls), again = Drain(&calls);
  const auto next = Begin(&calls);
  calls.Ack(begun->token);
  Join(&calls, begun->token);
  calls.EndStep(begun->token);
  EXPECT_EQ(drained->calls, 0);
  calls.Done(begun->token, kFailure);
  EXPECT_EQ(drained->outcome.code, kFailure.code);
  EXPECT_TRUE(again->outcome.ok());
  EXPECT_TRUE(next->outcome.ok());
  calls.Abandon(next->token);
  EXPECT_TRUE(IsEmpty(calls));
}

TEST(Calls, WhoAsksForWhatHasReturnedDoesNotWaitForAStepThatRuns) {
  Calls calls(1);
  EXPECT_EQ(DrainReturned(&calls)->calls, 1);
  const auto begun = Begin(&calls), next = Begin(&calls);
  EXPECT_EQ(DrainReturned(&calls)->calls, 1);
  calls.Ack(begun->token);
  EXPECT_EQ(DrainReturned(&calls)->calls, 1);
  Join(&calls, begun->token);
  // Now it may have returned. The step that waits behind it has not begun, and whoever asks does not wait for that one.
  const auto drained = DrainReturned(&calls), all = Drain(&calls);
  EXPECT_EQ(drained->calls, 0);
  calls.EndStep(begun->token);
  calls.Done(begun->token, kFailure);
  EXPECT_EQ(drained->outcome.code, kFailure.code);
  EXPECT_TRUE(next->outcome.ok());
  EXPECT_EQ(all->calls, 0);
  calls.Abandon(next->token);
  EXPECT_EQ(all->calls, 1);
  EXPECT_TRUE(IsEmpty(calls));
}

TEST(Calls, AStepThatFailedHasReturned) {
  Calls calls(1);
  const auto begun = Begin(&calls);
  EXPECT_TRUE(calls.EndStep(begun->token));
  const auto drained = DrainReturned(&calls), late = DrainReturned(&calls);
  EXPECT_EQ(drained->calls, 0);
  calls.CancelDrain("c", late->waiter, {kDeadlineExceededCode, "late"});
  EXPECT_EQ(late->outcome.code, kDeadlineExceededCode);
  calls.Done(begun->token, {kCancelledCode, "cancelled"});
  EXPECT_EQ(drained->calls, 1);
  EXPECT_TRUE(drained->outcome.ok());
  EXPECT_TRUE(IsEmpty(calls));
}

TEST(Calls, WhatIsGivenUpLeavesNothing) {
  Calls calls(1);
  const auto begun = Begin(&calls), waiting = Begin(&calls);
  const auto drained = Drain(&calls), joined = Join(&calls, begun->token);
  calls.CancelBegin("c", waiting->waiter);
  calls.CancelDrain("c", drained->waiter, {kDeadlineExceededCode, "late"});
  calls.CancelJoin(begun->token, joined->waiter);
  EXPECT_EQ(waiting->outcome.code, kCancelledCode);
  EXPECT_EQ(drained->outcome.code, kDeadlineExceededCode);
  EXPECT_EQ(joined->outcome.code, kCancelledCode);
  EXPECT_TRUE(calls.EndStep(begun->token));
  calls.Done(begun->token, {kCancelledCode, "cancelled"});
  const auto before = std::make_shared<Calls::Beginner>([](const Outcome& outcome, int64_t token) {
    EXPECT_EQ(outcome.code, kCancelledCode);
    EXPECT_EQ(token, 0);
  });
  calls.CancelBegin("c", before);
  calls.Begin("c", before);
  EXPECT_EQ(waiting->calls + drained->calls + joined->calls, 3);
  EXPECT_TRUE(IsEmpty(calls));
}

TEST(Calls, WaitIdleIsBounded) {
  Calls calls(1);
  EXPECT_EQ(calls.WaitIdle(0), 0);
  const auto begun = Begin(&calls);
  EXPECT_EQ(calls.WaitIdle(1000), 1);
  std::thread other([&] { calls.Done(begun->token, {}); });
  EXPECT_EQ(calls.WaitIdle(60'000'000), 0);
  other.join();
  calls.EndStep(begun->token);
  EXPECT_TRUE(IsEmpty(calls));
}

}  // namespace
}  // namespace tfsched
