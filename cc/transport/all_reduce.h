// All-reduces over the rendezvous: agreeing on one, and exchanging its messages under the scheduler.
#ifndef TFSCHED_CC_TRANSPORT_ALL_REDUCE_H_
#define TFSCHED_CC_TRANSPORT_ALL_REDUCE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cc/barrier/outcome.h"
#include "cc/barrier/waiter.h"
#include "cc/collective/exchange.h"
#include "cc/collective/statements.h"
#include "cc/core/comm_task.h"
#include "cc/transport/collective_group.h"
#include "tensorflow/core/framework/tensor.h"

namespace tfsched {

// Called with whether all members of the group exchange the call's tensors through tfsched.
using AgreeWaiter = Waiter<const Outcome&, bool>;

// Says what this member plans to do and asks every other one. All members come to the same answer: yes if all plan the same.
// If not, says why, once for each reason. Waits for members that have not come to the call, as the all-reduce itself would.
void Agree(const std::shared_ptr<const CollectiveGroup>& group, CollectiveCall call, const std::string& plan,
           std::shared_ptr<AgreeWaiter> waiter);

// From its next statement on, this process asks for pieces of at most so many bytes, on behalf of all members; 0: it leaves
// them to the graphs. All members take them from the same call on, for they are part of what is agreed on.
void SetPieceBytes(int64_t bytes);

// One tensor of a call that was agreed on.
struct AllReduceRequest {
  std::shared_ptr<const CollectiveGroup> group;
  CollectiveCall call;
  int64_t element = 0;           // which of the call's tensors
  ExchangeSpec spec;             // but for the way, which was settled with the agreement
  int64_t whole_bytes = 0;       // see Choose()
  bool follow_link = false;      // see PieceBytes()
  TransferInfo tag;              // of its messages, but for the receiver; a credit of -1: FittingCredit()
  int contribution_rank = 0;     // of contributions that results follow; all other messages have the tag's
  int64_t window_bytes = 0;      // see RequestWindow; found with the way
  int64_t pace_bps = 0;          // by which the window was found
  std::vector<int> piece_ranks;  // of the messages of each piece, where these have their own; they count instead
  tensorflow::Tensor input, output;
};

using AllReduceWaiter = Waiter<const Outcome&>;

// Calls the waiter when `output` is complete; what others have yet to fetch of it goes on. A failure breaks the group.
void AllReduce(AllReduceRequest request, std::shared_ptr<AllReduceWaiter> waiter);

struct CollectiveCounters {
  int64_t agreed = 0;       // calls that all members exchange through tfsched
  int64_t stock = 0;        // calls that were left to stock TensorFlow
  int64_t all_reduces = 0;  // tensors exchanged
  int64_t failed = 0;
};
CollectiveCounters ReadCollectiveCounters();

}  // namespace tfsched

#endif  // TFSCHED_CC_TRANSPORT_ALL_REDUCE_H_
