// The process-wide dispatcher and its JSON.
#include "cc/transport/runtime.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "cc/core/log_level.h"
#include "cc/core/per_process.h"
#include "cc/transport/all_reduce.h"
#include "cc/transport/barrier.h"
#include "cc/transport/capability.h"
#include "cc/transport/received_buffer.h"
#include "cc/transport/servers.h"
#include "tensorflow/core/platform/env.h"
#include "tensorflow/core/platform/logging.h"

namespace tfsched {
namespace {

std::atomic<int64_t> crossing_variables{0};

// The variable's value, or `fallback` where it is unset or no number.
double EnvNumber(const char* name, double fallback) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return fallback;
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  if (*end != '\0' || !(value >= 0) || value > 1e15) {
    TFSCHED_WARNING << name << "=" << text << " is not a number from 0 up; " << fallback << " is used instead.";
    return fallback;
  }
  return value;
}

Dispatcher::Options OptionsFromEnvironment() {
  Dispatcher::Options options;
  options.scheduler.grace_us = static_cast<int64_t>(EnvNumber("TFSCHED_GRACE_US", options.scheduler.grace_us));
  options.scheduler.quick_us = static_cast<int64_t>(EnvNumber("TFSCHED_QUICK_US", 500));
  options.scheduler.trace_capacity =
      1 + static_cast<size_t>(EnvNumber("TFSCHED_TRACE_CAPACITY", options.scheduler.trace_capacity));
  options.emulated_bps = EnvNumber("TFSCHED_EMULATED_BPS", 0);
  // Unix time when the process started, and monotonic from then on: a clock that is set back must not prolong a wait.
  using Clock = std::chrono::steady_clock;
  const auto unix_us = static_cast<int64_t>(tensorflow::Env::Default()->NowMicros());
  options.now_us = [unix_us, start = Clock::now()] {
    return unix_us + std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start).count();
  };
  return options;
}

void AppendString(const std::string& text, std::string* out) {
  out->push_back('"');
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out->push_back('\\');
      out->push_back(c);
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof(escaped), "\\u%04x", c);
      out->append(escaped);
    } else {
      out->push_back(c);
    }
  }
  out->push_back('"');
}

void AppendField(const char* key, const std::string& value, std::string* out) {
  out->append(out->back() == '{' ? "\"" : ",\"").append(key).append("\":");
  AppendString(value, out);
}

void AppendField(const char* key, int64_t value, std::string* out) {
  out->append(out->back() == '{' ? "\"" : ",\"").append(key).append("\":").append(std::to_string(value));
}

}  // namespace

int64_t SendBacklogBytes() { return static_cast<int64_t>(EnvNumber("TFSCHED_SEND_BACKLOG_BYTES", 1 << 18)); }

int Dscp() {
  constexpr int kMost = 63;
  const double value = EnvNumber("TFSCHED_DSCP", 0);
  if (value <= kMost && value == std::floor(value)) return static_cast<int>(value);
  TFSCHED_WARNING << "TFSCHED_DSCP=" << value << " is not a whole number from 0 to " << kMost << "; packets are not marked.";
  return 0;
}

int KeepAliveSeconds() {
  constexpr double kMost = 32767;  // the kernel's
  return static_cast<int>(std::ceil(std::min(EnvNumber("TFSCHED_KEEPALIVE_S", 10), kMost)));
}

int64_t ServerMemoryBytes() { return static_cast<int64_t>(EnvNumber("TFSCHED_SERVER_MEMORY_BYTES", 1 << 30)); }

std::optional<Way> WantedWay() {
  static const std::optional<Way> wanted = [] {
    const char* text = std::getenv("TFSCHED_ALL_REDUCE");
    const std::string name = text == nullptr ? "" : text;
    const auto way = WayNamed(name);
    if (!way && !name.empty() && name != "auto") {
      TFSCHED_WARNING << "TFSCHED_ALL_REDUCE=" << name
                      << " is none of auto, direct, everybody, doubling and ring; auto is used instead.";
    }
    return way;
  }();
  return wanted;
}

Dispatcher& ProcessDispatcher() {
  static PerProcess<Dispatcher> dispatcher;
  return dispatcher.Get([] { return new Dispatcher(OptionsFromEnvironment()); });
}

StepTimes& ProcessStepTimes() {
  static PerProcess<StepTimes> times;
  return times.Get();
}

void SetCrossingVariables(int64_t count) { crossing_variables = count; }

std::string StatsJson() {
  const Counters counters = ProcessDispatcher().scheduler().counters();
  std::string json = "{";
  AppendField("capability", BuildVersion(), &json);
  AppendField("servers", CountServers(), &json);
  AppendField("tasks", counters.tasks, &json);
  AppendField("bytes", counters.bytes, &json);
  AppendField("bypassed_tasks", counters.bypassed_tasks, &json);
  AppendField("bypassed_bytes", counters.bypassed_bytes, &json);
  AppendField("queue_depth", counters.queue_depth, &json);
  AppendField("max_queue_depth", counters.max_queue_depth, &json);
  AppendField("on_wire_bytes", counters.on_wire_bytes, &json);
  AppendField("reorderings", counters.reorderings, &json);
  AppendField("late", counters.late, &json);
  AppendField("step_asides", counters.step_asides, &json);
  AppendField("dropped", counters.dropped, &json);
  AppendField("groups", counters.groups, &json);
  AppendField("sending_us_total", counters.sending_us, &json);
  AppendField("wire_byte_seconds", counters.wire_byte_seconds, &json);
  AppendField("credit_in_force_bytes", counters.credit_bytes, &json);
  const StepTimes::Counters steps = ProcessStepTimes().counters();
  AppendField("steps", steps.steps, &json);
  AppendField("step_us_total", steps.step_us, &json);
  AppendField("emulated", ProcessDispatcher().emulated() ? 1 : 0, &json);
  AppendField("crossing_variables", crossing_variables, &json);
  const BarrierCounters barrier = ReadBarrierCounters();
  AppendField("background_calls", barrier.calls.begun, &json);
  AppendField("background_done", barrier.calls.done, &json);
  AppendField("background_failed", barrier.calls.failed, &json);
  AppendField("background_outstanding", barrier.calls.outstanding, &json);
  AppendField("waits", barrier.expectations.waits, &json);
  AppendField("waits_blocked", barrier.expectations.waits_blocked, &json);
  AppendField("wait_us_total", barrier.wait_us_total, &json);
  AppendField("mailboxes", barrier.mailbox.boxes, &json);
  const SentAhead::Counters ahead = ProcessSentAhead().counters();
  AppendField("sent_ahead", ahead.sent, &json);
  AppendField("sent_ahead_used", ahead.used, &json);
  AppendField("sent_ahead_behind", ahead.behind, &json);
  AppendField("sent_ahead_missed", ahead.missed, &json);
  const MemoryBudget::Counters memory = ProcessMemoryBudget().counters();
  AppendField("beyond_stock_bytes", memory.reserved_bytes + ahead.stale_bytes, &json);
  AppendField("most_beyond_stock_bytes", memory.most_reserved_bytes, &json);
  AppendField("beyond_stock_limit_bytes", memory.limit_bytes, &json);
  AppendField("refused_for_memory", memory.refused, &json);
  const PieceUpdates::Counters pieces = ProcessPieceUpdates().counters();
  AppendField("updates_by_chunks", pieces.from_chunks, &json);
  AppendField("updates_whole_after_all", pieces.whole, &json);
  AppendField("updates_in_chunks", pieces.under_way, &json);
  const AppliedUpdates::Counters applied = ProcessAppliedUpdates().counters();
  AppendField("updates_made_before", applied.made_before, &json);
  AppendField("updates_kept", applied.kept, &json);
  const Landings::Counters landings = ProcessLandings().counters();
  AppendField("merges_in_place", landings.in_place, &json);
  AppendField("merges_copied", landings.copied, &json);
  AppendField("expectations", barrier.expectations.tickets, &json);
  const CollectiveCounters collectives = ReadCollectiveCounters();
  AppendField("all_reduces", collectives.all_reduces, &json);
  AppendField("all_reduces_failed", collectives.failed, &json);
  AppendField("packs_scheduled", collectives.agreed, &json);
  AppendField("packs_stock", collectives.stock, &json);
  const Statements::Counters statements = ProcessStatements().counters();
  AppendField("calls_remembered", statements.calls, &json);
  AppendField("calls_awaited", statements.waiting, &json);
  const Overrides overrides = ProcessDispatcher().scheduler().overrides();
  AppendField("policy", overrides.policy, &json);
  AppendField("credit_bytes", overrides.credit_bytes, &json);
  AppendField("rate_bps", overrides.rate_bps, &json);
  json.push_back('}');
  return json;
}

bool Configure(const std::string& policy, int64_t credit_bytes, int64_t rate_bps) {
  OverridesChange change;
  if (!policy.empty()) change.policy = policy;
  if (credit_bytes >= kGraphCredit) change.credit_bytes = credit_bytes;
  if (rate_bps >= 0) change.rate_bps = rate_bps;
  return ProcessDispatcher().Configure(change);
}

std::string PoliciesJson() {
  std::string json = "[";
  for (const std::string& name : PolicyNames()) {
    if (json.size() > 1) json.push_back(',');
    AppendString(name, &json);
  }
  json.push_back(']');
  return json;
}

std::string TraceJson() {
  std::string json = "[";
  for (const TransferRecord& record : ProcessDispatcher().scheduler().Trace()) {
    if (json.size() > 1) json.append(",\n");
    std::string row = "{";
    AppendField("name", record.name, &row);
    AppendField("from", record.sender, &row);
    AppendField("to", record.receiver, &row);
    AppendField("step_id", record.step_id, &row);
    AppendField("bytes", record.bytes, &row);
    AppendField("rank", record.rank, &row);
    AppendField("requested_us", record.requested_us, &row);
    AppendField("ready_us", record.ready_us, &row);
    AppendField("started_us", record.started_us, &row);
    AppendField("released_us", record.released_us, &row);
    AppendField("dropped", record.dropped ? 1 : 0, &row);
    row.push_back('}');
    json.append(row);
  }
  json.push_back(']');
  return json;
}

}  // namespace tfsched
