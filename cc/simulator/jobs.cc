// The clock of all jobs; see jobs.h.
#include "cc/simulator/jobs.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "cc/simulator/engine.h"
#include "cc/simulator/links.h"
#include "cc/simulator/network.h"
#include "cc/simulator/priority_network.h"
#include "cc/simulator/traffic.h"

namespace tfsched::simulator {

bool RunJobs(const std::vector<Model>& jobs, std::vector<Result>* results) {
  std::vector<int32_t> from, to, priority, first_flow;
  std::vector<size_t> job_of;  // per flow
  bool alike = true;
  for (size_t job = 0; job < jobs.size(); ++job) {
    first_flow.push_back(static_cast<int32_t>(from.size()));
    Traffic::AddFlows(jobs[job], &from, &to);
    priority.resize(from.size(), jobs[job].priority);
    job_of.resize(from.size(), job);
    alike = alike && jobs[job].priority == jobs[0].priority;
  }
  std::unique_ptr<Links> links;
  if (alike) {
    links = std::make_unique<Network>(jobs[0].host_bps, from, to);
  } else {
    links = std::make_unique<PriorityNetwork>(jobs[0].host_bps, from, to, priority);
  }
  results->resize(jobs.size());
  std::vector<std::unique_ptr<Engine>> engines;
  for (size_t job = 0; job < jobs.size(); ++job) {
    engines.push_back(std::make_unique<Engine>(jobs[job], links.get(), first_flow[job], &(*results)[job]));
  }
  double now_us = 0;
  std::vector<int32_t> ended;
  while (true) {
    // What happens at one moment is seen together, so that no result hangs on the order of simultaneous events.
    for (const auto& engine : engines) engine->Settle(now_us);
    now_us = links->NextUs();
    for (const auto& engine : engines) now_us = std::min(now_us, engine->NextUs());
    if (now_us == kNeverUs) break;
    for (const auto& engine : engines) engine->Advance(now_us);
    ended.clear();
    links->Collect(now_us, &ended);
    for (const int32_t flow : ended) {
      const size_t job = job_of[static_cast<size_t>(flow)];
      engines[job]->FlowEnded(flow - first_flow[job]);
    }
    for (const auto& engine : engines) engine->Arrive();
  }
  return std::all_of(engines.begin(), engines.end(), [](const auto& engine) { return engine->Finish(); });
}

}  // namespace tfsched::simulator
