// Groups of collectives: who the members are, what they say to each other, and how a group ends.
#ifndef TFSCHED_CC_TRANSPORT_COLLECTIVE_GROUP_H_
#define TFSCHED_CC_TRANSPORT_COLLECTIVE_GROUP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cc/barrier/outcome.h"
#include "cc/collective/answer_times.h"
#include "cc/collective/statements.h"
#include "tensorflow/core/distributed_runtime/worker_env.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/collective.h"
#include "tensorflow/core/framework/device_attributes.pb.h"
#include "tensorflow/core/framework/rendezvous.h"
#include "tensorflow/core/platform/status.h"

namespace tfsched {

// One member's view of a group. Members that have been started anew are another group.
struct CollectiveGroup {
  struct Member {
    std::string device;
    std::string task;
    uint64_t incarnation = 0;
    bool capable = false;  // runs this very build of tfsched
  };
  const tensorflow::WorkerEnv* env = nullptr;
  int32_t key = 0;
  int me = 0;
  // Of the rendezvous through which its messages go: the same on all members, and no step's of a session or function.
  int64_t step_id = 0;
  std::vector<Member> members;
  std::shared_ptr<AnswerTimes> answers;  // of the members to this one's questions

  const Member& self() const { return members[me]; }
  // All members run this build, each in a task of its own.
  bool IsCapable() const;
};

using GroupDone = std::function<void(const absl::Status& status, std::shared_ptr<const CollectiveGroup> group)>;

// Waits, as stock collectives do, until all members have asked for the group; `device` is this process's member.
void CompleteGroup(const tensorflow::WorkerEnv* env, const tensorflow::DeviceAttributes& device, int32_t group_key,
                   int32_t group_size, tensorflow::CancellationManager* cancellation, GroupDone done);

// OK, or why nothing of the group works any more.
absl::Status StatusOf(const CollectiveGroup& group);

// Ends the group for good, as a failed collective does in stock TensorFlow: nobody waits for this member any more, and stock
// collectives of this process end as well. The first reason stands.
void BreakGroup(const CollectiveGroup& group, const absl::Status& why);

// Has `end` called with the reason when the group ends, or now if it has ended, as long as there is somebody at `waiter` by
// then: a peer that has vanished without a word never answers.
void EndWithGroup(const CollectiveGroup& group, std::weak_ptr<void> waiter,
                  std::function<void(const absl::Status& why)> end);

// Stock collectives of the server have ended (a peer is down, or the user has aborted them): its groups end with them.
void BreakGroupsOf(const tensorflow::WorkerEnv* env, const absl::Status& why);

// The server goes.
void ForgetGroupsOf(const tensorflow::WorkerEnv* env);

// Stock TensorFlow begins an all-reduce on `device`, in a group that is complete. `step`: CollectiveCall's.
void NoteStockReduce(const tensorflow::WorkerEnv* env, const std::string& device, const tensorflow::CollGroupParams& params,
                     int32_t instance_key, int64_t step);

// What `peer` is asked for to know what it says about a call.
std::string QuestionKey(const CollectiveGroup& group, int peer, const CollectiveCall& call);

// The key of anything else that goes from one member to another. `edge` names it among all of the group.
std::string MessageKey(const CollectiveGroup& group, int from, int to, const std::string& edge);

// For the rendezvous: whether `step_id` is a group's and its question has been, or will be, answered by calling `done`. To
// be asked before the step's rendezvous is looked up: for a group that has ended a new one would be made, in which the
// caller would wait for ever.
bool AnswerForGroup(const tensorflow::WorkerEnv* env, int64_t step_id, const tensorflow::Rendezvous::ParsedKey& key,
                    const tensorflow::Rendezvous::DoneCallback& done);

// Created at first use, never destroyed.
Statements& ProcessStatements();

}  // namespace tfsched

#endif  // TFSCHED_CC_TRANSPORT_COLLECTIVE_GROUP_H_
