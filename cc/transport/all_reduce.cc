// The exchange of one tensor over the rendezvous; see all_reduce.h.
#include "cc/transport/all_reduce.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "cc/collective/choice.h"
#include "cc/collective/request_window.h"
#include "cc/core/mutex.h"
#include "cc/core/thread_annotations.h"
#include "cc/transport/collective_counts.h"
#include "cc/transport/fetch.h"
#include "cc/transport/tagged_buffer.h"
#include "tensorflow/core/common_runtime/device_mgr.h"
#include "tensorflow/core/distributed_runtime/rendezvous_mgr_interface.h"
#include "tensorflow/core/distributed_runtime/session_mgr.h"
#include "tensorflow/core/platform/errors.h"

namespace tfsched {
namespace {

using tensorflow::Rendezvous;
using tensorflow::Tensor;

// More turns than an exchange has. Of exchanges with equal ranks the one that began first goes first.
int64_t NextTurns() {
  static std::atomic<int64_t> begun{0};
  return ++begun << 24;
}

class Running;

// Who exchanges in this process. While there is one only, its window holds (request_window.h): nothing else could use the
// links. Among several, each asks for everything, so that no link waits for a question while another tensor's bytes pass.
//
// A sender whose peers ask for little at a time is never busy for long, and then measures no pace (pace.h). So after one
// that was slower or faster than the pace says the next window does not hold, or one that was found for another link would
// stay.
class Exchanging {
 public:
  // Whether its window holds. If another one's did until now, that one's window ends.
  bool Begin(const std::shared_ptr<Running>& one) TFSCHED_EXCLUDES(mu_);
  void End() TFSCHED_EXCLUDES(mu_);

  // One whose window has held until its end.
  void Ended(bool at_pace) TFSCHED_EXCLUDES(mu_);

 private:
  Mutex mu_;
  int64_t count_ TFSCHED_GUARDED_BY(mu_) = 0;
  bool at_pace_ TFSCHED_GUARDED_BY(mu_) = true;
  std::weak_ptr<Running> alone_ TFSCHED_GUARDED_BY(mu_);
};

// Never destroyed: exchanges may end while the process does.
Exchanging& ProcessExchanging() {
  static auto* exchanging = new Exchanging();
  return *exchanging;
}

// Lives until the last message that it waits for has come: its tensors are written to until then.
class Running : public std::enable_shared_from_this<Running> {
 public:
  Running(AllReduceRequest request, std::shared_ptr<AllReduceWaiter> waiter)
      : request_(std::move(request)),
        waiter_(std::move(waiter)),
        bytes_(SizeOf(request_.spec.type)),
        scratch_(request_.input.dtype(), tensorflow::TensorShape({Exchange::ScratchElements(request_.spec)})),
        exchange_(request_.spec, request_.input.data(), request_.output.data(), scratch_.data()),
        window_(exchange_.Incoming(), request_.spec.members, exchange_.pieces(), bytes_, request_.window_bytes),
        first_turn_(NextTurns()) {
    for (const Message& message : exchange_.Incoming()) incoming_bytes_ += message.range.size() * bytes_;
    const uint64_t call = std::hash<std::string>()(NameOf(request_.call));
    const std::vector<int>& ranks = request_.piece_ranks;
    for (size_t piece = 0; piece < std::max<size_t>(ranks.size(), 1); ++piece) {
      infos_.emplace_back();
      contribution_infos_.emplace_back();
      for (const auto& member : request_.group->members) {
        TransferInfo info = request_.tag;
        info.call = call;
        info.receiver = member.task;
        if (!ranks.empty()) info.rank = ranks[piece];
        infos_.back().push_back(std::make_shared<TransferInfo>(info));
        if (exchange_.in_halves() && ranks.empty()) info.rank = request_.contribution_rank;
        contribution_infos_.back().push_back(std::make_shared<TransferInfo>(info));
      }
    }
  }

  ~Running() {
    if (counted_) ProcessExchanging().End();
  }

  void Start() {
    const CollectiveGroup& group = *request_.group;
    absl::Status status = StatusOf(group);
    if (status.ok()) status = Prepare();
    if (!status.ok()) return End(status);
    if (exchange_.done()) return End(absl::OkStatus());
    // All are asked first: then they send as soon as they have something.
    begin_ = std::chrono::steady_clock::now();
    for (const Message& message : window_.First()) Receive(message);
    counted_ = true;
    if (!ProcessExchanging().Begin(shared_from_this())) AskForTheRest();
    for (const Message& message : exchange_.Outgoing()) Send(message);
  }

  void AskForTheRest() {
    held_ = false;
    Ask(window_.Rest());
  }

 private:
  absl::Status Prepare() {
    const tensorflow::WorkerEnv* env = request_.group->env;
    session_ = env->session_mgr->LegacySession();
    rendezvous_ = env->rendezvous_mgr->Find(request_.group->step_id);
    TF_RETURN_IF_ERROR(rendezvous_->Initialize(session_.get()));
    return env->device_mgr->LookupDevice(request_.group->self().device, &device_);
  }

  // The same on both sides of a message. That the sizes are the same was agreed on.
  std::string EdgeOf(const Message& message) const {
    return NameOf(request_.call) + "/" + std::to_string(request_.element) + "," +
           (message.kind == Message::Kind::kResult ? "r" : "c") + std::to_string(message.piece) + "." +
           std::to_string(message.number);
  }

  void Receive(const Message& message) {
    const CollectiveGroup& group = *request_.group;
    FetchRequest fetch;
    fetch.session = session_;
    fetch.task = group.members[message.peer].task;
    fetch.step_id = group.step_id;
    fetch.key = MessageKey(group, message.peer, group.me, EdgeOf(message));
    fetch.device = device_;
    fetch.place = exchange_.PlaceOf(message);
    fetch.place_bytes = message.range.size() * bytes_;
    Fetch(fetch, [self = shared_from_this(), message](const absl::Status& status, const Tensor& value) {
      self->Received(message, status, value);
    });
  }

  // Nobody would answer in a group that is broken.
  void Ask(const std::vector<Message>& messages) {
    if (!StatusOf(*request_.group).ok()) return;
    for (const Message& message : messages) Receive(message);
  }

  void Received(const Message& message, const absl::Status& status, const Tensor& value) {
    const std::string& peer = request_.group->members[message.peer].task;
    if (!status.ok()) return Fail(FailedWith(peer, status));
    if (value.dtype() != request_.input.dtype() || value.NumElements() != message.range.size()) {
      return Fail(tensorflow::errors::Internal("tfsched: ", peer, " has sent ", value.NumElements(), " elements of type ",
                                               tensorflow::DataTypeString(value.dtype()), " of ", request_.tag.name,
                                               ", and this worker expects ", message.range.size(), " of type ",
                                               tensorflow::DataTypeString(request_.input.dtype()), "."));
    }
    Ask(window_.Arrived(message));
    // What has no place is kept; the other lies there, or is copied there.
    std::shared_ptr<void> owner;
    if (message.memory == Memory::kArrived) owner = std::make_shared<Tensor>(value);
    for (const Message& next : exchange_.Arrived(message, value.data(), std::move(owner))) Send(next);
    if (!exchange_.done()) return;
    if (held_ && request_.window_bytes > 0) {
      const auto took = std::chrono::steady_clock::now() - begin_;
      const int64_t took_us = std::chrono::duration_cast<std::chrono::microseconds>(took).count();
      ProcessExchanging().Ended(IsAtPace(incoming_bytes_, took_us, request_.pace_bps));
    }
    End(absl::OkStatus());
  }

  // Leaves a view of the bytes for the peer to fetch: no copy, and the scheduler sees its tag.
  void Send(const Message& message) {
    const Tensor& source = message.memory == Memory::kInput    ? request_.input
                           : message.memory == Memory::kOutput ? request_.output
                                                               : scratch_;
    const auto& by_piece = message.kind == Message::Kind::kContribution ? contribution_infos_ : infos_;
    const auto& infos = by_piece[request_.piece_ranks.empty() ? 0 : message.piece];
    auto* view = new TaggedBuffer(BufferOf(source), message.range.begin * bytes_, message.range.size() * bytes_,
                                  infos[message.peer], first_turn_ + TurnOf(message, exchange_.pieces()));
    const Tensor value(source.dtype(), tensorflow::TensorShape({message.range.size()}), view);
    view->Unref();
    Rendezvous::ParsedKey key;
    const CollectiveGroup& group = *request_.group;
    absl::Status status = Rendezvous::ParseKey(MessageKey(group, group.me, message.peer, EdgeOf(message)), &key);
    if (status.ok()) status = rendezvous_->Send(key, Rendezvous::Args(), value, /*is_dead=*/false);
    if (!status.ok()) Fail(status);
  }

  void Fail(const absl::Status& status) {
    BreakGroup(*request_.group, status);
    End(StatusOf(*request_.group));  // the first reason, where several come at a time
  }

  void End(const absl::Status& status) {
    if (!waiter_->Claim()) return;
    CountAllReduce(status.ok());
    waiter_->Call({static_cast<int>(status.code()), std::string(status.message()), false});
  }

  const AllReduceRequest request_;
  const std::shared_ptr<AllReduceWaiter> waiter_;
  const int64_t bytes_;
  const Tensor scratch_;
  Exchange exchange_;
  RequestWindow window_;
  int64_t incoming_bytes_ = 0;
  std::chrono::steady_clock::time_point begin_;  // set before anything is asked for
  bool counted_ = false;                         // by Exchanging
  std::atomic<bool> held_{true};                 // the window
  const int64_t first_turn_;
  // By piece, where pieces have ranks of their own, and by receiver.
  std::vector<std::vector<std::shared_ptr<const TransferInfo>>> infos_, contribution_infos_;
  std::shared_ptr<tensorflow::WorkerSession> session_;
  tsl::core::RefCountPtr<tensorflow::RemoteRendezvous> rendezvous_;
  tensorflow::Device* device_ = nullptr;
};

bool Exchanging::Begin(const std::shared_ptr<Running>& one) {
  std::shared_ptr<Running> other;
  bool holds = false;
  {
    const MutexLock lock(&mu_);
    other = alone_.lock();
    alone_.reset();
    holds = ++count_ == 1 && at_pace_;
    if (count_ == 1) at_pace_ = true;
    if (holds) alone_ = one;
  }
  if (other != nullptr) other->AskForTheRest();
  return holds;
}

void Exchanging::Ended(bool at_pace) {
  const MutexLock lock(&mu_);
  at_pace_ = at_pace;
}

void Exchanging::End() {
  const MutexLock lock(&mu_);
  --count_;
}

}  // namespace

void AllReduce(AllReduceRequest request, std::shared_ptr<AllReduceWaiter> waiter) {
  const CollectiveGroup& group = *request.group;
  ExchangeSpec& spec = request.spec;
  spec.members = static_cast<int>(group.members.size());
  spec.me = group.me;
  absl::Status status = StatusOf(group);
  if (status.ok() && spec.members > 1) {
    // All members have settled on the same, and with it on the same way for each tensor.
    const auto conditions = ProcessStatements().Settled(group.self().device, request.call);
    if (conditions) {
      spec.way = Choose(spec.members, spec.elements * SizeOf(spec.type), request.whole_bytes, *conditions);
      spec.piece_bytes = PieceBytes(spec.way, spec.members, spec.piece_bytes, request.follow_link, *conditions);
      // A plan says when each piece leaves: it can only if all are asked for.
      if (request.piece_ranks.empty()) {
        request.window_bytes = RequestWindowBytes(spec.way, spec.members, group.answers->FarthestUs(), *conditions);
        request.pace_bps = conditions->pace_bps;
      }
      if (request.tag.credit_bytes < 0) {
        const int64_t message_bytes = MessageBytes(spec.way, spec.members, spec.piece_bytes);
        request.tag.credit_bytes = FittingCredit(message_bytes, spec.members, *conditions);
      }
    } else {
      status = tensorflow::errors::Aborted("tfsched: ", request.tag.name, " belongs to all-reduce ", request.call.instance,
                                           ", which was not agreed on, or more than ", Statements::kRemembered,
                                           " all-reduces ago.");
    }
  }
  if (!status.ok()) {
    BreakGroup(group, status);
    if (!waiter->Claim()) return;
    CountAllReduce(false);
    waiter->Call({static_cast<int>(status.code()), std::string(status.message()), false});
    return;
  }
  std::make_shared<Running>(std::move(request), std::move(waiter))->Start();
}

}  // namespace tfsched
