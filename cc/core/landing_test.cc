// Tests of landings: chunks that were learnt get places side by side, once a step, and nothing else gets one.
#include "cc/core/landing.h"

#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace tfsched {
namespace {

const std::vector<std::string> kKeys = {"a", "b", "c"};
const std::vector<int64_t> kSizes = {128, 64, 20};
constexpr int64_t kBytes = 212;

TEST(BlockTest, IsAlignedAndAllItsBytesCanBeWritten) {
  for (const int64_t bytes : {1, 63, 64, 65, 100'000}) {
    const auto block = Block::Allocate(bytes);
    ASSERT_NE(block, nullptr);
    EXPECT_EQ(block->bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block->data()) % Block::kAlignment, 0u);
    std::memset(block->data(), 1, static_cast<size_t>(bytes));
  }
  EXPECT_EQ(Block::Allocate(0), nullptr);
  EXPECT_EQ(Block::Allocate(-1), nullptr);
}

TEST(LandingsTest, NothingIsKnownAtFirst) {
  Landings landings;
  StepBlocks step;
  EXPECT_EQ(landings.Find("a").layout, nullptr);
  EXPECT_EQ(step.Take(landings, "a", 128).block, nullptr);
}

TEST(LandingsTest, ChunksLandSideBySide) {
  Landings landings;
  landings.Learn(kKeys, kSizes);
  StepBlocks step;
  const Landing last = step.Take(landings, "c", 20);  // in any order
  const Landing first = step.Take(landings, "a", 128);
  const Landing second = step.Take(landings, "b", 64);
  ASSERT_NE(first.block, nullptr);
  EXPECT_EQ(first.block->bytes(), kBytes);
  EXPECT_EQ(first.block, second.block);
  EXPECT_EQ(first.block, last.block);
  EXPECT_EQ(first.data(), first.block->data());
  EXPECT_EQ(second.data(), first.data() + 128);
  EXPECT_EQ(last.data(), first.data() + 192);
}

TEST(LandingsTest, EachStepHasABlockOfItsOwn) {
  Landings landings;
  landings.Learn(kKeys, kSizes);
  StepBlocks one;
  StepBlocks other;
  const Landing first = one.Take(landings, "a", 128);
  EXPECT_NE(other.Take(landings, "a", 128).block, first.block);
}

TEST(LandingsTest, APlaceIsGivenOnceAStep) {
  Landings landings;
  landings.Learn(kKeys, kSizes);
  StepBlocks step;
  const Landing first = step.Take(landings, "a", 128);
  EXPECT_NE(first.block, nullptr);
  EXPECT_EQ(step.Take(landings, "a", 128).block, nullptr);
}

TEST(LandingsTest, AnotherNumberOfBytesHasNoPlace) {
  Landings landings;
  landings.Learn(kKeys, kSizes);
  StepBlocks step;
  EXPECT_EQ(step.Take(landings, "a", 127).block, nullptr);
  EXPECT_EQ(step.Take(landings, "a", 129).block, nullptr);
  EXPECT_NE(step.Take(landings, "a", 128).block, nullptr);
}

TEST(LandingsTest, ABlockLivesAsLongAsAChunkAndItsPlacesAreNotGivenAnew) {
  Landings landings;
  landings.Learn(kKeys, kSizes);
  StepBlocks step;
  Landing first = step.Take(landings, "a", 128);
  const std::weak_ptr<Block> block = first.block;
  first = {};
  EXPECT_TRUE(block.expired());
  EXPECT_EQ(step.Take(landings, "b", 64).block, nullptr);  // beside what is gone
}

TEST(LandingsTest, WhatCannotLieSideBySideIsNotLearnt) {
  Landings landings;
  landings.Learn({"a"}, {64});
  landings.Learn({"a", "b"}, {64});
  landings.Learn({"a", "b"}, {60, 64});  // the second would not begin aligned
  landings.Learn({"a", "b"}, {64, 0});
  landings.Learn({"a", "b"}, {0, 64});
  landings.Learn({"a", "b"}, {-64, 64});
  EXPECT_EQ(landings.counters().keys, 0);
}

TEST(LandingsTest, LearningTheSameAgainChangesNothing) {
  Landings landings;
  landings.Learn(kKeys, kSizes);
  const auto layout = landings.Find("b").layout;
  landings.Learn(kKeys, kSizes);
  EXPECT_EQ(landings.Find("b").layout, layout);
}

TEST(LandingsTest, AnotherLayoutOfAKeyReplacesTheFormerAsAWhole) {
  Landings landings;
  landings.Learn(kKeys, kSizes);
  landings.Learn({"b", "d"}, {64, 64});
  EXPECT_EQ(landings.Find("a").layout, nullptr);
  EXPECT_EQ(landings.Find("c").layout, nullptr);
  EXPECT_EQ(landings.Find("b").layout, landings.Find("d").layout);
  EXPECT_EQ(landings.Find("d").number, 1u);
  // The order counts, too.
  landings.Learn({"d", "b"}, {64, 64});
  EXPECT_EQ(landings.Find("d").number, 0u);
}

TEST(LandingsTest, ItsMemoryIsBounded) {
  Landings landings;
  for (size_t graph = 0; graph <= Landings::kMaxKeys / 2; ++graph) {
    landings.Learn({"a" + std::to_string(graph), "b" + std::to_string(graph)}, {64, 64});
    ASSERT_LE(landings.counters().keys, static_cast<int64_t>(Landings::kMaxKeys));
  }
  EXPECT_EQ(landings.counters().keys, 2);  // the last one's
}

TEST(LandingsTest, ThreadsShareOneBlockWithoutOverlap) {
  Landings landings;
  constexpr int kChunks = 8;
  constexpr int kSteps = 200;
  std::vector<std::string> keys;
  for (int chunk = 0; chunk < kChunks; ++chunk) keys.push_back(std::to_string(chunk));
  landings.Learn(keys, std::vector<int64_t>(kChunks, 64));
  std::vector<StepBlocks> steps(kSteps);
  std::vector<std::vector<Landing>> landed(kSteps, std::vector<Landing>(kChunks));
  std::vector<std::thread> threads;
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    threads.emplace_back([&, chunk] {
      for (int step = 0; step < kSteps; ++step) {
        landed[step][chunk] = steps[step].Take(landings, keys[chunk], 64);
        std::memset(landed[step][chunk].data(), chunk, 64);
        landings.Learn(keys, std::vector<int64_t>(kChunks, 64));
        landings.Count(true);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int step = 0; step < kSteps; ++step) {
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      EXPECT_EQ(landed[step][chunk].block, landed[step][0].block);
      EXPECT_EQ(landed[step][0].block->data()[chunk * 64 + 63], chunk);
    }
  }
  EXPECT_EQ(landings.counters().in_place, kChunks * kSteps);
}

}  // namespace
}  // namespace tfsched
