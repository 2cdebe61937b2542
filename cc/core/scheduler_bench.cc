// What one task costs in the core: submit, poll, finish, poll. Prints a table; the target is below 5 microseconds.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "cc/core/scheduler.h"
#include "cc/core/testing.h"

namespace tfsched {
namespace {

constexpr int kTasksPerRun = 100000;
constexpr int kRuns = 7;

// Nanoseconds per task, for steps of `count` transfers that arrive in random order; each is released before the next poll.
double OneRun(const char* policy, int count, uint32_t seed) {
  std::mt19937 random(seed);
  SchedulerOptions options;
  Scheduler scheduler(options);
  const int steps = std::max(1, kTasksPerRun / count);

  // Tags are made once, by the proxy ops, so not in the loop.
  GroupSpec spec;
  spec.policy = policy;
  spec.count = count;
  spec.credit_bytes = 4000000;
  std::vector<CommTask> tasks;
  for (int rank = 0; rank < count; ++rank) {
    tasks.push_back(TaskOf(spec, rank, 500000));
    tasks.back().start = [](uint64_t, bool) {};
  }
  std::vector<std::vector<int>> orders(8, std::vector<int>(tasks.size()));
  for (auto& order : orders) {
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
  }

  std::vector<Start> starts;
  std::vector<uint64_t> on_wire;
  const std::clock_t begin = std::clock();  // the thread's own time, whatever else the machine does
  int64_t now_us = 0;
  for (int step = 0; step < steps; ++step) {
    for (const int index : orders[static_cast<size_t>(step) % orders.size()]) {
      CommTask task = tasks[static_cast<size_t>(index)];
      task.step_id = step;
      scheduler.Submit(std::move(task), ++now_us);
      scheduler.Poll(now_us, &starts);
      for (const Start& start : starts) on_wire.push_back(start.task.id);
      starts.clear();
    }
    while (!on_wire.empty()) {
      const uint64_t id = on_wire.back();
      on_wire.pop_back();
      scheduler.Finish(id, ++now_us);
      scheduler.Poll(now_us, &starts);
      for (const Start& start : starts) on_wire.push_back(start.task.id);
      starts.clear();
    }
  }
  const double taken_ns = static_cast<double>(std::clock() - begin) * 1e9 / CLOCKS_PER_SEC;
  const Counters counters = scheduler.counters();
  if (counters.tasks != static_cast<int64_t>(steps) * count || counters.groups != 0) {
    std::fprintf(stderr, "scheduler_bench: %s with %d tasks a step lost tasks\n", policy, count);
    std::exit(1);
  }
  return taken_ns / (static_cast<double>(steps) * count);
}

}  // namespace
}  // namespace tfsched

int main() {
  std::printf(
      "ns of processor time per task (submit + poll + finish + poll), %d tasks a run, %d runs; credit 4 MB, tasks of 0.5 "
      "MB\n",
      tfsched::kTasksPerRun, tfsched::kRuns);
  std::printf("%-13s %10s %10s %10s\n", "policy", "tasks/step", "median", "worst");
  for (const char* policy : {"fifo", "tictac", "bytescheduler", "p3"}) {
    for (const int count : {10, 200, 2000}) {
      std::vector<double> ns;
      for (uint32_t run = 0; run < tfsched::kRuns; ++run) ns.push_back(tfsched::OneRun(policy, count, run));
      std::sort(ns.begin(), ns.end());
      std::printf("%-13s %10d %10.0f %10.0f\n", policy, count, ns[ns.size() / 2], ns.back());
    }
  }
  return 0;
}
