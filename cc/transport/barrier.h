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

// For a taker of the client whose value was lost. Tells it why as soon as that is known here, unless the step's
// TfschedBackgroundCall does. After ten seconds, as where the home is another task, it says that the value was lost.
void GiveUpLater(const std::string& client, std::shared_ptr<ReceivedAhead::Taker> taker, int64_t waited_us = 0);

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
