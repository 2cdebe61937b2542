// Steps on small clusters whose times can be worked out by hand, and what must hold on any.
#include "cc/simulator/engine.h"

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "cc/core/policy.h"
#include "cc/simulator/jobs.h"
#include "cc/simulator/model.h"
#include "gtest/gtest.h"

namespace tfsched::simulator {
namespace {

constexpr double kByteAMicrosecond = 8e6;  // bits per second

void Add(Table* table, const std::vector<int32_t>& row) {
  table->values.insert(table->values.end(), row.begin(), row.end());
  table->offsets.push_back(static_cast<int32_t>(table->values.size()));
}

// A chain of layers: op i is its forward pass; with `train`, op 2n - 1 - i its backward pass. `cuts` pieces a layer.
Model Chain(const std::vector<int64_t>& bytes, double op_us, bool train, int32_t workers, int32_t servers,
            int32_t cuts = 1) {
  Model model;
  const auto layers = static_cast<int32_t>(bytes.size());
  model.workers = workers;
  model.servers = servers;
  model.steps = 3;
  model.measured_from = 1;
  model.recorded_from = 0;
  const int32_t ops = train ? 2 * layers : layers;
  for (int32_t op = 0; op < ops; ++op) {
    model.op_us.push_back(op_us);
    Add(&model.op_inputs, op > 0 ? std::vector<int32_t>{op - 1} : std::vector<int32_t>{});
    Add(&model.op_reads, op < layers ? std::vector<int32_t>{op} : std::vector<int32_t>{});
  }
  std::vector<int32_t> ranks(static_cast<size_t>(std::max(servers, 1)), 0);
  for (int32_t layer = 0; layer < layers; ++layer) {
    const int32_t server = servers == 0 ? 0 : layer % servers;
    model.tensor_bytes.push_back(bytes[static_cast<size_t>(layer)]);
    for (int32_t cut = 0; cut < cuts; ++cut) {
      model.piece_bytes.push_back(bytes[static_cast<size_t>(layer)] / cuts);
      model.piece_server.push_back(server);
      model.piece_group.push_back(-1);
      model.piece_pulled.push_back(servers > 0);
      model.pull_rank.push_back(ranks[static_cast<size_t>(server)]);
      model.push_rank.push_back(ranks[static_cast<size_t>(server)]++);
      model.piece_hold_us.push_back(0);
      Add(&model.piece_tensors, {layer});
      Add(&model.pull_inputs, {});
      Add(&model.push_inputs, train ? std::vector<int32_t>{2 * layers - 1 - layer} : std::vector<int32_t>{});
    }
  }
  for (int32_t worker = 0; worker < workers; ++worker) model.worker_host.push_back(worker);
  for (int32_t server = 0; server < servers; ++server) model.server_host.push_back(workers + server);
  model.host_bps.assign(static_cast<size_t>(workers + servers), kByteAMicrosecond);
  model.compute_scale.assign(static_cast<size_t>(model.steps) * static_cast<size_t>(workers), 1.0);
  model.pull_policy = model.push_policy = "p3";
  return model;
}

Result RunModel(const Model& model) {
  EXPECT_EQ(model.Check(), "");
  std::vector<Result> results;
  EXPECT_TRUE(RunJobs({model}, &results));
  return results[0];
}

// From one step's beginning to the next's, of worker 0.
double StepUs(const Model& model, const Result& result, int32_t step) {
  const auto at = static_cast<size_t>(step) * static_cast<size_t>(model.workers);
  return result.begin_us[at + static_cast<size_t>(model.workers)] - result.begin_us[at];
}

TEST(EngineTest, AForwardPassIsAPipeline) {
  const Model model = Chain({100, 100, 100}, 50, false, 1, 1);
  const Result result = RunModel(model);
  for (int32_t step = 0; step < 3; ++step) EXPECT_DOUBLE_EQ(StepUs(model, result, step), 3 * 100 + 50);
  EXPECT_EQ(result.pulled_bytes, 3 * 300);
  EXPECT_EQ(result.pushed_bytes, 0);
  EXPECT_DOUBLE_EQ(result.tensor_wait_us[0], 2 * 100);  // of the two measured steps
  EXPECT_DOUBLE_EQ(result.tensor_wait_us[2], 2 * 50);
  EXPECT_DOUBLE_EQ(result.compute_busy_us[0], 2 * 150);
}

TEST(EngineTest, WorkersShareTheServersLink) {
  const Model model = Chain({100, 100}, 10, false, 4, 1);
  EXPECT_NEAR(StepUs(model, RunModel(model), 1), 4 * 200 + 10, 1e-6);
}

TEST(EngineTest, StartUpIsPaidByEachMessage) {
  Model model = Chain({100, 100}, 10, false, 1, 1);
  model.startup_us = 7;
  EXPECT_DOUBLE_EQ(StepUs(model, RunModel(model), 1), 2 * 107 + 10);
}

TEST(EngineTest, TheBarrierWaitsForPushesAndUpdates) {
  Model model = Chain({100, 60}, 10, true, 1, 1);
  // Pulls until 160, forward until 170, backward until 190; the last push, of layer 0, begins behind layer 1's at 240.
  EXPECT_DOUBLE_EQ(StepUs(model, RunModel(model), 1), 180 + 60 + 100);
  model.update_us_per_byte = 0.5;
  EXPECT_DOUBLE_EQ(StepUs(model, RunModel(model), 1), 180 + 60 + 100 + 50);
}

// Whole tensors are updated when their last piece is there, and pulled then; pieces by themselves at once.
TEST(EngineTest, AcrossTheBarrierPiecesOverlapIfTheyAreUpdatedAlone) {
  Model model = Chain({100}, 10, true, 1, 1, 2);
  model.barrier = false;
  EXPECT_DOUBLE_EQ(StepUs(model, RunModel(model), 1), 20 + 100 + 100);
  model.update_pieces = true;
  EXPECT_DOUBLE_EQ(StepUs(model, RunModel(model), 1), 20 + 50 + 100);
}

TEST(EngineTest, PiecesOfAGroupAreUpdatedTogether) {
  Model model = Chain({100, 100}, 10, true, 1, 1, 2);
  model.barrier = false;
  model.update_pieces = true;
  const double alone_us = StepUs(model, RunModel(model), 1);
  model.piece_group = {0, 0, -1, -1};
  const double grouped_us = StepUs(model, RunModel(model), 1);
  // The first layer's first piece waits for its second one, which is 50 µs behind it.
  EXPECT_DOUBLE_EQ(grouped_us, alone_us + 50);
  model.piece_group = {1, 1, 3, 3};
  EXPECT_GE(StepUs(model, RunModel(model), 1), grouped_us);
  model.piece_group = {0, 4, -1, -1};
  EXPECT_EQ(model.Check(), "piece_group");
}

// Piece `piece` is only pushed, and what it carries is pulled as pieces of `bytes`, all of its group.
void PullApart(Model* model, int32_t piece, const std::vector<int64_t>& bytes, const std::vector<int32_t>& tensors) {
  const auto i = static_cast<size_t>(piece);
  model->piece_pulled[i] = 0;
  model->piece_group[i] = piece;
  for (size_t part = 0; part < bytes.size(); ++part) {
    model->piece_bytes.push_back(bytes[part]);
    model->piece_server.push_back(model->piece_server[i]);
    model->piece_group.push_back(piece);
    model->piece_pulled.push_back(1);
    model->pull_rank.push_back(model->pull_rank[i]);
    model->push_rank.push_back(-1);
    model->piece_hold_us.push_back(0);
    Add(&model->piece_tensors, {tensors[part]});
    Add(&model->pull_inputs, {});
    Add(&model->push_inputs, {});
  }
}

// Two layers are pushed as one message of 200 bytes: together they are pulled as one, or each by itself.
TEST(EngineTest, WhatIsPushedAsOneMayBePulledApart) {
  Model model = Chain({100, 100}, 30, true, 1, 1);
  model.barrier = false;
  model.piece_bytes = {200};
  model.piece_tensors = {{0, 2}, {0, 1}};
  model.push_inputs = {{0, 2}, {2, 3}};
  model.pull_inputs = {{0, 0}, {}};
  model.piece_server.resize(1);
  model.piece_group.resize(1);
  model.piece_pulled.resize(1);
  model.pull_rank.resize(1);
  model.push_rank.resize(1);
  model.piece_hold_us.resize(1);
  for (const bool pieces : {false, true}) {
    model.update_pieces = pieces;
    EXPECT_DOUBLE_EQ(StepUs(model, RunModel(model), 1), 200 + 200 + 4 * 30);
    Model apart = model;
    PullApart(&apart, 0, {100, 100}, {0, 1});
    // The first layer computes while the second one is pulled.
    EXPECT_DOUBLE_EQ(StepUs(apart, RunModel(apart), 1), 200 + 200 + 3 * 30);
    apart.barrier = true;
    EXPECT_DOUBLE_EQ(StepUs(apart, RunModel(apart), 1), 200 + 200 + 3 * 30);
  }
}

// 300 bytes and 100 bytes, pulled in this order: whole, or 100 bytes of each in turn.
TEST(EngineTest, AConnectionSendsWindowsInTurn) {
  Model model = Chain({100, 300}, 10, false, 1, 1);
  model.pull_rank = {1, 0};
  model.pull_policy = "bytescheduler";
  EXPECT_DOUBLE_EQ(StepUs(model, RunModel(model), 1), 400 + 10 + 10);
  model.window_bytes = 100;
  EXPECT_DOUBLE_EQ(StepUs(model, RunModel(model), 1), 400 + 10);
  model.startup_us = 5;  // once for each message
  EXPECT_DOUBLE_EQ(StepUs(model, RunModel(model), 1), 410 + 10);
}

TEST(EngineTest, APieceIsHeldBackFromTheOriginOn) {
  Model model = Chain({100}, 10, true, 2, 0);
  model.origin_op = 1;
  model.piece_hold_us = {200};
  EXPECT_DOUBLE_EQ(StepUs(model, RunModel(model), 1), 10 + 200 + 100);
  model.piece_hold_us = {5};
  EXPECT_DOUBLE_EQ(StepUs(model, RunModel(model), 1), 20 + 100);
}

TEST(EngineTest, ARingTakesTheFormulasTime) {
  for (const int32_t workers : {1, 2, 5}) {
    Model model = Chain({1000}, 10, true, workers, 0);
    model.startup_us = 3;
    const double ring_us = 2.0 * (workers - 1) / workers * 1000 + 2 * (workers - 1) * 3;
    EXPECT_NEAR(StepUs(model, RunModel(model), 1), 20 + ring_us, 1e-9) << workers;
  }
}

TEST(EngineTest, ARingWaitsForTheSlowestGradient) {
  Model model = Chain({1000}, 10, true, 2, 0);
  model.compute_scale = {1, 1, 1, 4, 1, 1};
  EXPECT_NEAR(StepUs(model, RunModel(model), 1), 80 + 1000, 1e-9);
  EXPECT_NEAR(StepUs(model, RunModel(model), 2), 20 + 1000, 1e-9);
}

// Workers that exchange a layer, in pieces of so many bytes.
Model Exchanging(const std::vector<int64_t>& bytes, int32_t workers, int64_t piece_bytes, Way way) {
  Model model = Chain(bytes, 10, true, workers, 0);
  model.exchange_piece_bytes = piece_bytes;
  model.way = static_cast<int32_t>(way);
  model.push_policy = "bytescheduler";
  model.credit_bytes = 4 * piece_bytes;
  return model;
}

// All links send and receive all the time: 2 (N - 1) / N of the bytes leave each worker.
TEST(EngineTest, AnExchangeOfEvenPiecesTakesTheRingsTime) {
  for (const int32_t workers : {1, 2, 3, 4}) {
    const int64_t bytes = 64 * 1200;
    const double least_us = 2.0 * (workers - 1) / workers * static_cast<double>(bytes);
    Model ring = Chain({bytes}, 10, true, workers, 0);
    EXPECT_NEAR(StepUs(ring, RunModel(ring), 1), 20 + least_us, 1e-6);
    for (const Way way : {Way::kDirect, Way::kRing}) {
      const Model model = Exchanging({bytes}, workers, 64 * workers, way);
      const Result result = RunModel(model);
      const double took_us = StepUs(model, result, 1) - 20;
      // Results follow contributions, so one piece more is under way than the formula has.
      EXPECT_GE(took_us, least_us - 1e-6) << workers << " " << NameOf(way);
      EXPECT_LE(took_us, least_us * 1.02 + 64 * 2 * workers) << workers << " " << NameOf(way);
      EXPECT_NEAR(result.sent_bytes[0], 2 * least_us, 1);  // in two measured steps
    }
  }
}

TEST(EngineTest, TwoWorkersSendEachOtherEverything) {
  const Model model = Exchanging({1000, 500}, 2, 100000, Way::kEverybody);
  EXPECT_NEAR(StepUs(model, RunModel(model), 1), 40 - 10 + 500 + 1000, 1e-6);  // the last layer's while the first computes
}

TEST(EngineTest, EachMessageOfAnExchangePaysItsStartUp) {
  Model model = Exchanging({1000}, 2, 100000, Way::kEverybody);
  model.startup_us = 7;
  model.processing_us_per_byte = 0.01;
  EXPECT_NEAR(StepUs(model, RunModel(model), 1), 20 + 7 + 1000 + 10, 1e-6);
  model = Exchanging({1000}, 8, 100000, Way::kDoubling);
  model.startup_us = 7;
  EXPECT_NEAR(StepUs(model, RunModel(model), 1), 20 + 3 * 7 + 7 * 1000, 1e-6);
}

TEST(EngineTest, AnExchangeWaitsForAGradientOfBoth) {
  Model model = Exchanging({1000}, 2, 100000, Way::kEverybody);
  model.compute_scale = {1, 1, 1, 4, 1, 1};
  const Result result = RunModel(model);
  EXPECT_NEAR(StepUs(model, result, 1), 80 + 1000, 1e-6);
  EXPECT_NEAR(StepUs(model, result, 2), 20 + 1000, 1e-6);
}

TEST(EngineTest, AsynchronousWorkersDoNotWaitForEachOther) {
  Model model = Chain({100}, 10, true, 2, 2);
  model.server_host = {2, 3};
  model.synchronous = false;
  model.compute_scale = {1, 3, 1, 3, 1, 3};
  const Result result = RunModel(model);
  EXPECT_LT(result.begin_us[3 * 2 + 0], result.begin_us[3 * 2 + 1]);
}

TEST(EngineTest, ReleaseDelaysStopAndWaitOnly) {
  Model model = Chain({100, 100, 100}, 0, false, 1, 1);
  model.release_us = 40;
  EXPECT_DOUBLE_EQ(StepUs(model, RunModel(model), 0), 3 * 100 + 2 * 40);
  model.pull_policy = "bytescheduler";
  model.credit_bytes = 200;
  EXPECT_DOUBLE_EQ(StepUs(model, RunModel(model), 0), 3 * 100);
}

TEST(EngineTest, TheCriticalPathHasNoGaps) {
  const Model model = Chain({100, 60}, 10, true, 2, 1);
  const Result result = RunModel(model);
  ASSERT_FALSE(result.path.empty());
  double at_us = result.begin_us[4];
  for (const int32_t event : result.path) {
    EXPECT_NEAR(result.events[static_cast<size_t>(event)].start_us, at_us, 1e-6);
    at_us = result.events[static_cast<size_t>(event)].end_us;
  }
  EXPECT_NEAR(at_us, result.begin_us[6], 1e-6);
}

Model RandomModel(uint32_t seed) {
  std::mt19937 random(seed);
  const auto draw = [&random](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  std::vector<int64_t> bytes;
  for (int i = draw(1, 6); i > 0; --i) bytes.push_back(draw(0, 300));
  const bool ring = draw(0, 4) == 0;
  Model model = Chain(bytes, draw(0, 60), ring || draw(0, 1) == 0, draw(1, 4), ring ? 0 : draw(1, 3), draw(1, 3));
  const std::vector<std::string> policies = PolicyNames();
  model.pull_policy = policies[static_cast<size_t>(draw(0, static_cast<int>(policies.size()) - 1))];
  model.push_policy = model.pull_policy == "tictac" ? "fifo" : model.pull_policy;
  model.barrier = draw(0, 1) == 0;
  model.synchronous = ring || draw(0, 1) == 0;
  model.update_pieces = draw(0, 1) == 0;
  model.shuffle = draw(0, 1) == 0;
  model.streams = draw(1, 2);
  model.seed = seed;
  model.credit_bytes = draw(0, 400);
  model.startup_us = draw(0, 1) * 5;
  model.release_us = draw(0, 1) * 3;
  model.step_overhead_us = draw(0, 1) * 20;
  model.update_us_per_byte = draw(0, 1) * 0.1;
  model.processing_us_per_byte = draw(0, 1) * 0.05;
  model.contention = 1 + draw(0, 1) * 0.5;
  model.window_bytes = draw(0, 1) * draw(1, 200);
  if (draw(0, 1) == 0) {
    for (int32_t& group : model.piece_group) group = draw(-1, model.pieces() - 1);
  }
  if (!ring && draw(0, 2) == 0) {
    for (int32_t piece = 0, whole = model.pieces(); piece < whole; ++piece) {
      const int32_t tensor = *model.piece_tensors[piece].begin();
      const int64_t part = draw(0, static_cast<int>(model.piece_bytes[static_cast<size_t>(piece)]));
      const int64_t rest = model.piece_bytes[static_cast<size_t>(piece)] - part;
      if (draw(0, 1) == 0) PullApart(&model, piece, {part, rest}, {tensor, tensor});
    }
  }
  if (ring && draw(0, 1) == 0) {
    model.exchange_piece_bytes = draw(1, 500);
    model.whole_bytes = draw(0, 1) * 100;
    model.way = draw(-1, 3);
  }
  for (double& scale : model.compute_scale) scale = 0.5 + draw(0, 10) * 0.1;
  return model;
}

// Whatever the cluster: everything is delivered, nothing runs before its inputs, and an op of a step follows its tensors.
TEST(EngineTest, HoldsOnRandomClusters) {
  for (uint32_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Model model = RandomModel(seed);
    const Result result = RunModel(model);
    int64_t pulled = 0, pushed = 0;
    for (size_t i = 0; i < model.piece_bytes.size(); ++i) {
      pulled += model.piece_pulled[i] != 0 ? model.piece_bytes[i] : 0;
      pushed += model.push_inputs[static_cast<int32_t>(i)].size() > 0 ? model.piece_bytes[i] : 0;
    }
    ASSERT_EQ(result.pulled_bytes, pulled * model.workers * model.steps);
    ASSERT_EQ(result.pushed_bytes, pushed * model.steps * (model.all_reduces() ? 1 : model.workers));
    for (const double bytes : result.sent_bytes) ASSERT_LE(bytes * 8e6 / kByteAMicrosecond, 1e-6 + result.end_us);
    for (size_t i = 0; i < result.events.size(); ++i) {
      const Event& event = result.events[i];
      ASSERT_GE(event.start_us, event.ready_us);
      ASSERT_GE(event.end_us, event.start_us);
      for (const int32_t before : {event.ready_event, event.busy_event}) {
        if (before == kNone) continue;
        ASSERT_LT(before, static_cast<int32_t>(i));
        ASSERT_LE(result.events[static_cast<size_t>(before)].end_us, event.start_us + 1e-9);
      }
    }
    const Result again = RunModel(model);
    ASSERT_EQ(result.begin_us, again.begin_us);
  }
}

TEST(EngineTest, RefusesArraysThatDoNotFit) {
  Model model = Chain({100}, 10, true, 2, 1);
  model.op_reads.values[0] = 7;
  EXPECT_EQ(model.Check(), "op_reads");
  model = Chain({100}, 10, true, 2, 1);
  model.pull_policy = "none";
  EXPECT_EQ(model.Check(), "policy");
  model = Chain({100}, 10, true, 2, 1);
  model.compute_scale.pop_back();
  EXPECT_EQ(model.Check(), "compute_scale");
}

}  // namespace
}  // namespace tfsched::simulator
