// ReceivedAhead: who asks gets the value of the token that was named, whichever of the two comes first.
#include "cc/barrier/received_ahead.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

namespace tfsched {
namespace {

const ReceivedAhead::Key kKey{"client", "key"};

ReceivedAhead::Value Number(int value) { return std::make_shared<int>(value); }

// What a taker was called with: -1 for an error, -2 not called.
struct Asker {
  std::shared_ptr<std::atomic<int>> got = std::make_shared<std::atomic<int>>(-2);
  std::shared_ptr<ReceivedAhead::Taker> taker =
      std::make_shared<ReceivedAhead::Taker>([got = got](const Outcome& outcome, const ReceivedAhead::Value& value) {
        *got = outcome.ok() ? *static_cast<const int*>(value.get()) : -1;
      });
};

TEST(ReceivedAhead, KeepsAValueForItsReader) {
  ReceivedAhead received;
  received.AddReader(kKey);
  received.Put(kKey, 1, Number(10));
  Asker asker;
  EXPECT_TRUE(received.Take(kKey, 1, asker.taker));
  EXPECT_EQ(*asker.got, 10);
  EXPECT_EQ(received.counters().values, 0);
}

TEST(ReceivedAhead, AReaderMayComeBeforeTheValue) {
  ReceivedAhead received;
  received.AddReader(kKey);
  Asker first, second;
  EXPECT_TRUE(received.Take(kKey, 1, first.taker));
  EXPECT_TRUE(received.Take(kKey, 2, second.taker));
  received.Put(kKey, 2, Number(20));
  EXPECT_EQ(*first.got, -2);
  EXPECT_EQ(*second.got, 20);
  received.Put(kKey, 1, Number(10));
  EXPECT_EQ(*first.got, 10);
  EXPECT_EQ(received.counters().waiting, 0);
}

TEST(ReceivedAhead, DropsWhatNobodyMayAskFor) {
  ReceivedAhead received;
  const ReceivedAhead::Value value = Number(10);
  received.Put(kKey, 1, value);
  EXPECT_EQ(value.use_count(), 1);
  received.AddReader(kKey);
  received.AddReader(kKey);
  received.Put(kKey, 1, value);
  received.RemoveReader(kKey);
  EXPECT_EQ(value.use_count(), 2);
  received.RemoveReader(kKey);
  EXPECT_EQ(value.use_count(), 1);
}

TEST(ReceivedAhead, AValueThatOvertakesAnotherFunctionsIsKept) {
  ReceivedAhead received;
  received.AddReader(kKey);
  received.Put(kKey, 2, Number(20));
  received.Put(kKey, 1, Number(10));
  Asker first, second;
  EXPECT_TRUE(received.Take(kKey, 1, first.taker));
  EXPECT_EQ(*first.got, 10);
  EXPECT_TRUE(received.Take(kKey, 2, second.taker));
  EXPECT_EQ(*second.got, 20);
}

TEST(ReceivedAhead, KeepsTheLastTwo) {
  ReceivedAhead received;
  received.AddReader(kKey);
  std::vector<ReceivedAhead::Value> values;
  for (int i = 0; i < 4; ++i) {
    values.push_back(Number(i));
    received.Put(kKey, i + 1, values.back());
  }
  EXPECT_EQ(received.counters().values, 2);
  EXPECT_EQ(values[1].use_count(), 1);
  Asker asker;
  EXPECT_TRUE(received.Take(kKey, 4, asker.taker));
  EXPECT_EQ(*asker.got, 3);
  received.Put(kKey, 5, Number(4));
  received.Put(kKey, 6, Number(5));
  EXPECT_EQ(values[2].use_count(), 1) << "nobody has asked for it";
}

TEST(ReceivedAhead, SaysThatAValueWillNotCome) {
  ReceivedAhead received;
  received.AddReader(kKey);
  Asker waiting, late, other;
  EXPECT_TRUE(received.Take(kKey, 1, waiting.taker));
  EXPECT_TRUE(received.Take(kKey, 2, other.taker));
  const auto lost = received.EndToken(1);
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0].client, kKey.first);
  EXPECT_EQ(lost[0].taker, waiting.taker);
  EXPECT_FALSE(received.Take(kKey, 1, late.taker));
  received.Put(kKey, 2, Number(2));
  EXPECT_EQ(*other.got, 2);
}

TEST(ReceivedAhead, AGivenUpTakerIsForgotten) {
  ReceivedAhead received;
  received.AddReader(kKey);
  Asker asker, before;
  EXPECT_TRUE(received.Take(kKey, 1, asker.taker));
  ASSERT_TRUE(asker.taker->Claim());
  received.CancelTake(kKey, asker.taker);
  EXPECT_EQ(received.counters().waiting, 0);
  ASSERT_TRUE(before.taker->Claim());
  EXPECT_TRUE(received.Take(kKey, 1, before.taker));  // given up before it began
  EXPECT_EQ(received.counters().waiting, 0);
  received.Put(kKey, 1, Number(1));
  EXPECT_EQ(received.counters().values, 1);
}

TEST(ReceivedAhead, TakersAndValuesOfManyThreadsMeet) {
  ReceivedAhead received;
  received.AddReader(kKey);
  constexpr int kRounds = 500;
  std::vector<Asker> askers(kRounds);
  std::thread taking([&] {
    for (int i = 0; i < kRounds; ++i) {
      EXPECT_TRUE(received.Take(kKey, i + 1, askers[static_cast<size_t>(i)].taker));
      while (*askers[static_cast<size_t>(i)].got == -2) std::this_thread::yield();
    }
  });
  std::thread putting([&] {
    for (int i = 0; i < kRounds; ++i) {
      received.Put(kKey, i + 1, Number(i));
      while (*askers[static_cast<size_t>(i)].got == -2) std::this_thread::yield();
    }
  });
  taking.join();
  putting.join();
  for (int i = 0; i < kRounds; ++i) EXPECT_EQ(*askers[static_cast<size_t>(i)].got, i);
}

}  // namespace
}  // namespace tfsched
