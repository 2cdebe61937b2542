// What crosses the steps' barrier in this process: the one mailbox, the expectations, the calls (docs/barrier.md).
#ifndef TFSCHED_CC_TRANSPORT_BARRIER_H_
#define TFSCHED_CC_TRANSPORT_BARRIER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "cc/barrier/alarm.h"
#include "cc/barrier/applied_updates.h"
#include "cc/barrier/calls.h"
#include "cc/barrier/expectations.h"
#include "cc/barrier/mailbox.h"
#include "cc/barrier/memory_budget.h"
#include "cc/barrier/piece_updates.h"
#include "cc/barrier/received_ahead.h"
#include "cc/barrier/run_numbers.h"
#include "cc/barrier/sent_ahead.h"

namespace tfsched {

// Created at first use, never destroyed: kernels and RPCs may use them until the very end of the process.
Mailbox& ProcessMailbox();
Expectations& ProcessExpectations();
Calls& ProcessCalls();
Alarm& ProcessAlarm();
RunNumbers& ProcessRunNumbers();
AppliedUpdates& ProcessAppliedUpdates();
MemoryBudget& ProcessMemoryBudget();
SentAhead& ProcessSentAhead();
ReceivedAhead& ProcessReceivedAhead();
PieceUpdates& ProcessPieceUpdates();

// From now on, once a second for as long as something is held, the values that no variable has any more are let go.
void SweepSentAhead();

// For a taker whose value was lost: the step's TfschedBackgroundCall is about to say why, so it is given time to do that.
void GiveUpLater(std::shared_ptr<ReceivedAhead::Taker> taker);

// The step in which the background function runs bears its token, so that TensorFlow's own end of a step tells every task
// that it is over there. Sessions' steps are positive.
inline int64_t StepOfToken(int64_t token) { return -token; }

// A step of any kind has ended in this process: if it was a background function, nothing of it may be left.
void EndBackgroundStep(int64_t step_id);

// A Wait has taken this long.
void CountWait(int64_t waited_us);

struct BarrierCounters {
  Calls::Counters calls;
  Expectations::Counters expectations;
  Mailbox::Counters mailbox;
  int64_t wait_us_total = 0;
};
BarrierCounters ReadBarrierCounters();

}  // namespace tfsched

#endif  // TFSCHED_CC_TRANSPORT_BARRIER_H_
