// Learns when transfers become ready, and predicts it; see ready_profile.h.
#include "cc/core/ready_profile.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>

namespace tfsched {
namespace {

// The same in every step. Two transfers with one key would spoil a prediction, nothing else.
uint64_t TransferKey(const TransferInfo& info) {
  const uint64_t name = std::hash<std::string>()(info.name);
  return name ^ (static_cast<uint64_t>(info.rank) + 1) * 0x9e3779b97f4a7c15u;
}

}  // namespace

ReadyProfile::Graph& ReadyProfile::GraphOf(int count) {
  const auto found = graphs_.find(count);
  if (found != graphs_.end()) return found->second;
  if (graphs_.size() >= kMostGraphs) {
    graphs_.erase(std::min_element(graphs_.begin(), graphs_.end(),
                                   [](const auto& a, const auto& b) { return a.second.used < b.second.used; }));
  }
  return graphs_[count];
}

ReadyProfile::Steps::iterator ReadyProfile::Find(const CommTask& task) {
  return std::find_if(open_.begin(), open_.end(),
                      [&task](const Step& step) { return step.step_id == task.step_id && step.count == task.info->count; });
}

ReadyProfile::Steps::iterator ReadyProfile::Begin(const CommTask& task, int64_t now_us) {
  if (open_.size() >= kMostOpen) {
    Learn(open_.front());
    open_.pop_front();
  }
  const auto step = open_.emplace(open_.end());
  step->number = next_step_++;
  step->step_id = task.step_id;
  step->count = task.info->count;
  step->first_us = step->last_us = now_us;
  Graph& graph = GraphOf(step->count);
  graph.used = step->number;
  if (graph.left_out > 0) {
    --graph.left_out;
    return step;
  }
  for (const auto& entry : graph.transfers) {
    const Transfer& transfer = entry.second;
    if (transfer.steps < kTrusted) continue;
    step->expected.emplace(std::llround(transfer.offset_us), transfer.rank, entry.first);
  }
  step->predicted = !step->expected.empty();
  return step;
}

void ReadyProfile::Ready(const CommTask& task, int64_t now_us) {
  const uint64_t key = TransferKey(*task.info);
  const uint64_t call = task.info->call;
  auto step = Find(task);
  if (step == open_.end()) {
    step = Begin(task, now_us);
  } else {
    const auto came = step->came.find(key);
    if (came != step->came.end()) {
      if (came->second.call == call) return;  // another piece of it, or the policy has been changed in between
      // A piece of the step before that is late.
      const auto before = step->calls_before.find(key);
      if (before != step->calls_before.end() && before->second == call) return;
      // The step has begun again.
      std::unordered_map<uint64_t, uint64_t> calls;
      for (const auto& entry : step->came) calls.emplace(entry.first, entry.second.call);
      Learn(*step);
      open_.erase(step);
      step = Begin(task, now_us);
      step->calls_before = std::move(calls);
    } else {
      const auto before = step->calls_before.find(key);
      if (before != step->calls_before.end() && before->second == call) return;
    }
  }
  if (step->came.size() >= kMostTransfers) return;
  const int64_t offset_us = now_us - step->first_us;
  step->came.emplace(key, Arrival{task.info->rank, call, offset_us});

  Graph& graph = GraphOf(step->count);
  const auto known = graph.transfers.find(key);
  if (known == graph.transfers.end()) return;
  Transfer& transfer = known->second;
  const int64_t usual_us = std::llround(transfer.offset_us);
  if (now_us - step->last_us > kBurstUs) step->shift_before_us = step->shift_us;
  step->last_us = now_us;
  const int64_t shift_us = offset_us - usual_us;
  if (step->shifted) {
    const double error_us = std::abs(static_cast<double>(shift_us - step->shift_before_us));
    transfer.error_us = transfer.steps <= 1 ? error_us : transfer.error_us + kNewest * (error_us - transfer.error_us);
  } else {
    step->shifted = true;
    step->shift_before_us = shift_us;
  }
  step->shift_us = shift_us;
  step->expected.erase({usual_us, transfer.rank, key});
}

std::optional<ReadyProfile::Coming> ReadyProfile::Next(int rank, int64_t now_us) {
  std::optional<Coming> next;
  for (Step& step : open_) {
    if (step.failed || !step.shifted || step.expected.empty()) continue;
    const Graph& graph = GraphOf(step.count);
    int looks = 64;  // what comes first is nearly always among the most urgent: a long search would find nothing
    for (auto it = step.expected.begin(); it != step.expected.end() && looks > 0; --looks) {
      const auto known = graph.transfers.find(std::get<2>(*it));
      Coming coming;
      coming.step = step.number;
      coming.at_us = step.first_us + step.shift_us + std::get<0>(*it);
      coming.error_us = known == graph.transfers.end() ? kMostLateUs : std::llround(known->second.error_us);
      coming.until_us = coming.at_us + std::min(kMostLateUs, kLateUs + 2 * coming.error_us);
      if (coming.until_us <= now_us) {
        it = step.expected.erase(it);  // it is late, or does not come
        continue;
      }
      if (next && coming.at_us >= next->at_us) break;
      if (std::get<1>(*it) < rank) {
        next = coming;
        break;
      }
      ++it;
    }
  }
  return next;
}

void ReadyProfile::Failed(uint64_t number) {
  for (Step& step : open_) {
    if (step.number != number || step.failed) continue;
    step.failed = true;
    Graph& graph = GraphOf(step.count);
    graph.failed = std::min(graph.failed + 1, 16);
    graph.left_out = std::min(1 << graph.failed, kMostLeftOut);
  }
}

void ReadyProfile::StepEnded(int64_t step_id) {
  for (auto it = open_.begin(); it != open_.end();) {
    if (it->step_id == step_id) {
      Learn(*it);
      it = open_.erase(it);
    } else {
      ++it;
    }
  }
}

void ReadyProfile::Learn(const Step& step) {
  const auto found = graphs_.find(step.count);
  if (found == graphs_.end()) return;
  Graph& graph = found->second;
  if (step.predicted && !step.failed) graph.failed = std::max(graph.failed - 1, 0);
  if (step.came.size() >= kMostTransfers) {
    graph.transfers.clear();
    return;
  }
  for (auto it = graph.transfers.begin(); it != graph.transfers.end();) {
    it = step.came.count(it->first) == 0 ? graph.transfers.erase(it) : std::next(it);
  }
  for (const auto& entry : step.came) {
    Transfer& transfer = graph.transfers[entry.first];
    const auto offset_us = static_cast<double>(entry.second.offset_us);
    transfer.offset_us = transfer.steps == 0 ? offset_us : transfer.offset_us + kNewest * (offset_us - transfer.offset_us);
    transfer.steps = std::min(transfer.steps + 1, kTrusted);
    transfer.rank = entry.second.rank;
  }
}

std::shared_ptr<ReadyProfile> ReadyProfiles::Of(const Link& link) {
  const auto found = profiles_.find(link);
  if (found != profiles_.end()) return found->second;
  if (profiles_.size() >= most_) {
    const auto unused =
        std::find_if(profiles_.begin(), profiles_.end(), [](const auto& entry) { return entry.second.use_count() == 1; });
    if (unused != profiles_.end()) profiles_.erase(unused);
  }
  return profiles_[link] = std::make_shared<ReadyProfile>();
}

void ReadyProfiles::StepEnded(int64_t step_id) {
  for (auto& entry : profiles_) entry.second->StepEnded(step_id);
}

}  // namespace tfsched
