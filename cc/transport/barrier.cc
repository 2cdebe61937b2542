// The process-wide state behind the barrier's ops.
#include "cc/transport/barrier.h"

#include <atomic>
#include <random>

#include "cc/transport/piece_updates.h"
#include "cc/transport/read_ahead.h"

namespace tfsched {
namespace {

std::atomic<int64_t> wait_us_total{0};

uint64_t Seed() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) ^ device();
}

}  // namespace

Mailbox& ProcessMailbox() {
  static auto* mailbox = new Mailbox;
  return *mailbox;
}

Expectations& ProcessExpectations() {
  static auto* expectations = new Expectations;
  return *expectations;
}

Calls& ProcessCalls() {
  static auto* calls = new Calls(Seed());
  return *calls;
}

Alarm& ProcessAlarm() {
  static auto* alarm = new Alarm;
  return *alarm;
}

RunNumbers& ProcessRunNumbers() {
  static auto* numbers = new RunNumbers;
  return *numbers;
}

AppliedUpdates& ProcessAppliedUpdates() {
  static auto* applied = new AppliedUpdates;
  return *applied;
}

void EndBackgroundStep(int64_t step_id) {
  if (step_id >= 0) return;
  ProcessMailbox().EndCall(-step_id);
  ProcessExpectations().EndToken(-step_id);
  ProcessPieceUpdates().EndToken(-step_id);
  ProcessAppliedUpdates().EndToken(-step_id);
  for (auto& taker : ProcessStock().EndToken(-step_id)) GiveUpLater(std::move(taker));
}

void CountWait(int64_t waited_us) { wait_us_total += waited_us; }

BarrierCounters ReadBarrierCounters() {
  return {ProcessCalls().counters(), ProcessExpectations().counters(), ProcessMailbox().counters(), wait_us_total.load()};
}

}  // namespace tfsched
