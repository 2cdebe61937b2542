// ByteScheduler's analysis on the production scheduler under a virtual clock: figure 2's example and section 4.1's bound.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "cc/core/testing.h"
#include "cc/core/virtual_link.h"
#include "gtest/gtest.h"

namespace tfsched {
namespace {

constexpr double kByteAMicrosecond = 8e6;  // bits per second
constexpr char kWorker[] = "/job:worker/replica:0/task:0";
constexpr char kPs[] = "/job:ps/replica:0/task:0";

struct Layer {
  int64_t forward_us = 0;
  int64_t backward_us = 0;
  int64_t bytes = 0;
};

struct Setting {
  std::string policy;
  int64_t partition_bytes = 0;  // 0: whole layers
  int64_t credit_bytes = 0;
  int64_t overhead_us = 0;  // of each partition, on each of the two links
};

// One worker and one parameter server with a link in each direction, as in the paper's figure 1 and without a barrier:
// f_i after f_(i-1) and pull_i; push_i after b_i; b_i after b_(i+1); a partition can be pulled as soon as it is pushed.
class Training {
 public:
  Training(std::vector<Layer> layers, const Setting& setting, int iterations)
      : layers_(std::move(layers)),
        setting_(setting),
        push_(&clock_, WithoutTrace(), kByteAMicrosecond, setting.overhead_us),
        pull_(&clock_, WithoutTrace(), kByteAMicrosecond, setting.overhead_us),
        left_to_run_(iterations) {
    Backward(static_cast<int>(layers_.size()) - 1);
    EXPECT_TRUE(clock_.Run());
    for (const VirtualLink* link : {&push_, &pull_}) {
      const Counters counters = link->scheduler().counters();
      EXPECT_EQ(counters.tasks, iterations * Partitions());
      EXPECT_EQ(counters.groups, 0);
      EXPECT_EQ(counters.on_wire_bytes, 0);
    }
    EXPECT_EQ(iteration_us_.size(), static_cast<size_t>(iterations));
  }

  // From the start of back-propagation to the end of the next forward pass, for each iteration.
  const std::vector<int64_t>& iteration_us() const { return iteration_us_; }

  int64_t Partitions() const {
    int64_t count = 0;
    for (const Layer& layer : layers_) count += static_cast<int64_t>(Cut(layer.bytes).size());
    return count;
  }

 private:
  static SchedulerOptions WithoutTrace() {
    SchedulerOptions options;
    options.trace_capacity = 0;
    return options;
  }

  std::vector<int64_t> Cut(int64_t bytes) const {
    const int64_t most = setting_.partition_bytes == 0 ? bytes : setting_.partition_bytes;
    std::vector<int64_t> parts;
    for (; bytes > 0; bytes -= parts.back()) parts.push_back(std::min(bytes, most));
    return parts;
  }

  CommTask Task(int layer, int64_t bytes, const char* sender, const char* receiver) const {
    GroupSpec spec;
    spec.policy = setting_.policy;
    spec.count = static_cast<int>(layers_.size());
    spec.credit_bytes = setting_.credit_bytes;
    spec.step_id = left_to_run_;
    spec.sender = sender;
    spec.receiver = receiver;
    return TaskOf(spec, layer, bytes);
  }

  void Backward(int layer) {
    if (layer < 0) {
      Forward(0);
      return;
    }
    if (layer + 1 == static_cast<int>(layers_.size())) {
      begin_us_ = clock_.now_us();
      waiting_for_ = -1;
      missing_parts_.clear();
      for (const Layer& one : layers_) missing_parts_.push_back(static_cast<int>(Cut(one.bytes).size()));
    }
    clock_.At(clock_.now_us() + layers_[layer].backward_us, [this, layer] {
      for (const int64_t bytes : Cut(layers_[layer].bytes)) {
        push_.Submit(Task(layer, bytes, kWorker, kPs), [this, layer, bytes](bool) {
          pull_.Submit(Task(layer, bytes, kPs, kWorker), [this, layer](bool) {
            --missing_parts_[layer];
            if (waiting_for_ == layer) Forward(layer);
          });
        });
      }
      Backward(layer - 1);
    });
  }

  void Forward(int layer) {
    if (layer == static_cast<int>(layers_.size())) {
      iteration_us_.push_back(clock_.now_us() - begin_us_);
      if (--left_to_run_ > 0) Backward(layer - 1);
      return;
    }
    waiting_for_ = layer;
    if (missing_parts_[layer] > 0) return;
    waiting_for_ = -1;
    clock_.At(clock_.now_us() + layers_[layer].forward_us, [this, layer] { Forward(layer + 1); });
  }

  const std::vector<Layer> layers_;
  const Setting setting_;
  VirtualClock clock_;
  VirtualLink push_, pull_;
  int left_to_run_;
  int64_t begin_us_ = 0;
  int waiting_for_ = -1;
  std::vector<int> missing_parts_;
  std::vector<int64_t> iteration_us_;
};

// The shortest possible iteration, with infinitely small partitions and no overhead (Theorem 1). The pushes are one machine
// with release times (b_i is done) and tails (f_i and all later layers), where preemption is allowed; its optimum is the
// largest over all subsets of: first release, plus all work, plus shortest tail. Earlier layers are released later and have
// longer tails, so only the subsets {0..k} matter.
int64_t OptimumUs(const std::vector<Layer>& layers) {
  int64_t optimum_us = 0, bytes_to = 0;
  for (size_t last = 0; last < layers.size(); ++last) {
    bytes_to += layers[last].bytes;
    int64_t release_us = 0, tail_us = 0;
    for (size_t layer = last; layer < layers.size(); ++layer) {
      release_us += layers[layer].backward_us;
      tail_us += layers[layer].forward_us;
    }
    optimum_us = std::max(optimum_us, release_us + bytes_to + tail_us);
  }
  return optimum_us;
}

// Figure 2 is a picture; of its numbers the text has only "44.4 % training speed-up". The reading chosen: in units of time,
// a unit of bytes taking one, the smallest example with three layers of different sizes, and BP and FP of different times,
// whose speed-up is exactly 13/9 = 1.444: sizes 1, 2, 3; FP 1, 1, 1; BP 1, 2, 1; FIFO sends whole layers, the better
// schedule partitions of one unit by priority.
std::vector<Layer> Figure2() {
  constexpr int64_t kUnit = 1000;
  return {{1 * kUnit, 1 * kUnit, 1 * kUnit}, {1 * kUnit, 2 * kUnit, 2 * kUnit}, {1 * kUnit, 1 * kUnit, 3 * kUnit}};
}

TEST(TrainingChainTest, Figure2IsFasterBy44Percent) {
  const std::vector<int64_t> fifo = Training(Figure2(), Setting{"fifo"}, 3).iteration_us();
  for (const char* policy : {"bytescheduler", "p3"}) {
    const std::vector<int64_t> best = Training(Figure2(), Setting{policy, 1000, 1000}, 3).iteration_us();
    for (const int64_t us : fifo) EXPECT_EQ(us, 13000);
    for (const int64_t us : best) EXPECT_EQ(us, 9000) << policy;
    EXPECT_NEAR(100.0 * static_cast<double>(fifo[0]) / static_cast<double>(best[0]) - 100.0, 44.4, 0.05);
  }
}

// What each half of it is worth alone: neither priority nor partitioning does it.
TEST(TrainingChainTest, Figure2NeedsPriorityAndPartitioning) {
  const int64_t whole = Training(Figure2(), Setting{"bytescheduler", 0, 1000}, 1).iteration_us()[0];
  const int64_t pieces = Training(Figure2(), Setting{"fifo", 1000}, 1).iteration_us()[0];
  EXPECT_GT(whole, 9000);
  EXPECT_GT(pieces, 9000);
  EXPECT_LE(whole, 13000);
  EXPECT_LE(pieces, 13000);
}

// Section 4.1: with partitions of size d and an overhead of o for each, an iteration takes at most
//   sum over the layers of floor(s_i / d) * o,  plus o,  plus 2 * d / bandwidth
// longer than the optimum. Two readings: a layer that is no multiple of d has one partition more than floor(s_i / d), which
// costs its overhead too ("O(n o) where n is the number of partitions"); and what preemption has to wait for is not one
// partition but all that were handed over, so with a credit c the last term is 2 * max(c, d) / bandwidth (section 4.2).
int64_t BoundUs(int64_t partitions, const Setting& setting) {
  return partitions * setting.overhead_us + setting.overhead_us +
         2 * std::max(setting.credit_bytes, setting.partition_bytes);
}

TEST(TrainingChainTest, TheBoundAsPrintedLeavesOutAPartialPartition) {
  const std::vector<Layer> layers = {{0, 0, 19}};
  const Setting setting = {"bytescheduler", 20, 20, 50};
  const int64_t delay_us = Training(layers, setting, 1).iteration_us()[0] - OptimumUs(layers);
  EXPECT_EQ(delay_us, 119) << "two overheads, and the pull begins when the push has ended";
  EXPECT_GT(delay_us, BoundUs(/*partitions=*/19 / 20, setting));
  EXPECT_LE(delay_us, BoundUs(/*partitions=*/1, setting));
}

struct Example {
  std::vector<Layer> layers;
  Setting setting;
};

Example RandomExample(uint32_t seed) {
  std::mt19937 random(seed);
  const auto draw = [&random](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  Example example;
  Setting& setting = example.setting;
  setting.policy = "bytescheduler";
  setting.partition_bytes = draw(20, 400);
  setting.credit_bytes = draw(0, 2) == 0 ? setting.partition_bytes : draw(1, 6 * setting.partition_bytes);
  setting.overhead_us = draw(0, 2) == 0 ? 0 : draw(1, 50);
  const bool multiples = draw(0, 1) == 0;  // then floor(s_i / d) is the number of partitions, as printed
  const int64_t longest_us = draw(1, 2000), largest = draw(1, 4000);
  for (int64_t layer = 0, count = draw(1, 12); layer < count; ++layer) {
    const int64_t bytes = draw(1, largest);
    const int64_t whole = (bytes + setting.partition_bytes - 1) / setting.partition_bytes * setting.partition_bytes;
    example.layers.push_back(Layer{draw(0, longest_us), draw(0, longest_us), multiples ? whole : bytes});
  }
  return example;
}

TEST(TrainingChainTest, StaysWithinTheBoundOfTheOptimum) {
  for (uint32_t seed = 0; seed < 1000; ++seed) {
    const Example example = RandomExample(seed);
    const Training training(example.layers, example.setting, 2);
    const int64_t optimum_us = OptimumUs(example.layers);
    for (const int64_t us : training.iteration_us()) {
      ASSERT_GE(us, optimum_us) << "seed " << seed;
      ASSERT_LE(us, optimum_us + BoundUs(training.Partitions(), example.setting)) << "seed " << seed;
    }
  }
}

// With small partitions and no overhead nothing is lost, up to the two partitions that the links hold.
TEST(TrainingChainTest, TendsToTheOptimumWithThePartitionSize) {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    Example example = RandomExample(seed);
    for (Layer& layer : example.layers) layer.bytes = 1 + layer.bytes % 300;
    example.setting = Setting{"bytescheduler", 1, 1};
    const int64_t us = Training(example.layers, example.setting, 1).iteration_us()[0];
    ASSERT_LE(us, OptimumUs(example.layers) + 2) << "seed " << seed;
  }
}

// The bound says something: whole layers in FIFO order break it on most chains.
TEST(TrainingChainTest, FifoDoesNotStayWithinTheBound) {
  int beyond = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    Example example = RandomExample(seed);
    const int64_t optimum_us = OptimumUs(example.layers);
    const int64_t partitions = Training(example.layers, example.setting, 1).Partitions();
    const int64_t fifo_us = Training(example.layers, Setting{"fifo"}, 1).iteration_us()[0];
    beyond += fifo_us > optimum_us + BoundUs(partitions, example.setting);
  }
  EXPECT_GT(beyond, 100);
}

}  // namespace
}  // namespace tfsched
