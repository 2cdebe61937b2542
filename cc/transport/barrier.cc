// The process-wide state behind the barrier's ops.
#include "cc/transport/barrier.h"

#include <atomic>
#include <random>
#include <utility>

#include "cc/core/per_process.h"
#include "cc/transport/runtime.h"
#include "tensorflow/core/platform/env.h"

namespace tfsched {
namespace {

constexpr int64_t kGiveUpUs = 10'000'000, kAskUs = 250'000;
constexpr int64_t kSweepUs = 1'000'000;
// Variables that are swept at a time: an update that comes meanwhile waits for so many.
constexpr size_t kSweptAtOnce = 16;

std::atomic<int64_t> wait_us_total{0};
std::atomic<bool> sweeping{false};

uint64_t Seed() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) ^ device();
}

}  // namespace

Mailbox& ProcessMailbox() {
  static PerProcess<Mailbox> mailbox;
  return mailbox.Get();
}

Expectations& ProcessExpectations() {
  static PerProcess<Expectations> expectations;
  return expectations.Get();
}

Calls& ProcessCalls() {
  static PerProcess<Calls> calls;
  return calls.Get([] { return new Calls(Seed()); });
}

Alarm& ProcessAlarm() {
  static PerProcess<Alarm> alarm;
  return alarm.Get();
}

RunNumbers& ProcessRunNumbers() {
  static PerProcess<RunNumbers> numbers;
  return numbers.Get();
}

AppliedUpdates& ProcessAppliedUpdates() {
  static PerProcess<AppliedUpdates> applied;
  return applied.Get();
}

MemoryBudget& ProcessMemoryBudget() {
  static PerProcess<MemoryBudget> budget;
  return budget.Get([] { return new MemoryBudget(ServerMemoryBytes()); });
}

SentAhead& ProcessSentAhead() {
  static PerProcess<SentAhead> sent;
  return sent.Get([] { return new SentAhead(&ProcessMemoryBudget()); });
}

ReceivedAhead& ProcessReceivedAhead() {
  static PerProcess<ReceivedAhead> received;
  return received.Get();
}

PieceUpdates& ProcessPieceUpdates() {
  static PerProcess<PieceUpdates> updates;
  return updates.Get();
}

void SweepSentAhead() {
  if (sweeping.load(std::memory_order_relaxed) || sweeping.exchange(true)) return;
  ProcessAlarm().After(kSweepUs, [] {
    size_t variables = kSweptAtOnce, swept = 0;
    for (; swept < variables; swept += kSweptAtOnce) {
      SentAhead::Freed freed;
      variables = ProcessSentAhead().Sweep(kSweptAtOnce, &freed);
    }
    sweeping = false;
    if (variables > 0) SweepSentAhead();
  });
}

void GiveUpLater(const std::string& client, std::shared_ptr<ReceivedAhead::Taker> taker, int64_t waited_us) {
  ProcessAlarm().After(kAskUs, [client, taker, waited_us] {
    if (taker->claimed()) return;
    const int64_t waited = waited_us + kAskUs;
    if (!ProcessCalls().HasError(client) && waited < kGiveUpUs) return GiveUpLater(client, taker, waited);
    if (!taker->Claim()) return;
    // What follows is the step's business, not the alarm's.
    tensorflow::Env::Default()->SchedClosure([client, taker] {
      const Outcome outcome = ProcessCalls().TakeErrorOf(client);
      if (!outcome.ok()) return taker->Call(outcome, nullptr);
      taker->Call(
          {kAbortedCode, "tfsched: a value was lost with the background update that sent it; run the step again.", false},
          nullptr);
    });
  });
}

void EndBackgroundStep(int64_t step_id) {
  if (step_id >= 0) return;
  ProcessMailbox().EndCall(-step_id);
  ProcessExpectations().EndToken(-step_id);
  ProcessPieceUpdates().EndToken(-step_id);
  ProcessAppliedUpdates().EndToken(-step_id);
  for (auto& lost : ProcessReceivedAhead().EndToken(-step_id)) GiveUpLater(lost.client, std::move(lost.taker));
}

void CountWait(int64_t waited_us) { wait_us_total += waited_us; }

BarrierCounters ReadBarrierCounters() {
  return {ProcessCalls().counters(), ProcessExpectations().counters(), ProcessMailbox().counters(), wait_us_total.load()};
}

}  // namespace tfsched
