// Agreeing on an all-reduce: each member asks each other one what it is about to do; and what is counted of it.
#include <atomic>
#include <chrono>
#include <set>
#include <utility>
#include <vector>

#include "cc/core/log_level.h"
#include "cc/core/mutex.h"
#include "cc/core/thread_annotations.h"
#include "cc/transport/all_reduce.h"
#include "cc/transport/barrier.h"
#include "cc/transport/collective_counts.h"
#include "cc/transport/fetch.h"
#include "cc/transport/runtime.h"
#include "tensorflow/core/common_runtime/device_mgr.h"
#include "tensorflow/core/distributed_runtime/session_mgr.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/logging.h"
#include "tensorflow/core/platform/tstring.h"

namespace tfsched {
namespace {

// After so long it is said once for whom a group waits: a member that is missing looks like a slow one.
constexpr int64_t kPatienceUs = 10'000'000;

std::atomic<int64_t> agreed_calls{0}, stock_calls{0}, all_reduces{0}, failed_all_reduces{0};
std::atomic<int64_t> wanted_piece_bytes{0};

// Says it once for each group.
void SayOnce(const CollectiveGroup& group, const std::string& sentence) {
  static Mutex mu;
  static auto* said = new std::set<std::pair<int64_t, std::string>>;
  {
    const MutexLock lock(&mu);
    if (!said->emplace(group.step_id, sentence).second) return;
  }
  TFSCHED_WARNING << sentence;
}

void SayWhyStock(const CollectiveGroup& group, const std::string& why) {
  SayOnce(group, "all-reduces of collective group " + std::to_string(group.key) + " run as in stock TensorFlow: " + why +
                     ". Start all workers with the same tfsched, tfsched.enable() and the same options.");
}

// The first member that cannot take part.
std::string WhyNotCapable(const CollectiveGroup& group) {
  for (const auto& member : group.members) {
    if (!member.capable) return member.task + " does not run this build of tfsched";
  }
  return "a worker has several devices";
}

class Agreement : public std::enable_shared_from_this<Agreement> {
 public:
  Agreement(std::shared_ptr<const CollectiveGroup> group, CollectiveCall call, std::shared_ptr<AgreeWaiter> waiter)
      : group_(std::move(group)), call_(std::move(call)), waiter_(std::move(waiter)), said_(group_->members.size()) {}

  void Start(const std::string& plan) {
    const size_t peers = group_->members.size() - 1;
    {
      const MutexLock lock(&mu_);
      missing_ = peers;
      said_[group_->me] = {true, ProcessStatements().Say(group_->self().device, call_, plan + " " + WordsOf(Own()))};
    }
    if (peers == 0) return Conclude();
    const auto session = group_->env->session_mgr->LegacySession();
    tensorflow::Device* device = nullptr;
    const absl::Status found = group_->env->device_mgr->LookupDevice(group_->self().device, &device);
    if (!found.ok()) return End(found, false);
    asked_ = std::chrono::steady_clock::now();
    for (size_t step = 1; step <= peers; ++step) {
      const int peer = static_cast<int>((group_->me + step) % group_->members.size());
      FetchRequest question;
      question.session = session;
      question.task = group_->members[peer].task;
      question.step_id = group_->step_id;
      question.key = QuestionKey(*group_, peer, call_);
      question.device = device;
      Fetch(question, [self = shared_from_this(), peer](const absl::Status& status, const tensorflow::Tensor& text) {
        self->Answered(peer, status, text);
      });
    }
    ProcessAlarm().After(kPatienceUs, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->SayWhoIsMissing();
    });
  }

 private:
  void Answered(int peer, const absl::Status& status, const tensorflow::Tensor& text) {
    if (!status.ok()) {
      BreakGroup(*group_, FailedWith(group_->members[peer].task, status));
      return End(StatusOf(*group_), false);
    }
    const auto took = std::chrono::steady_clock::now() - asked_;
    group_->answers->Answered(peer, std::chrono::duration_cast<std::chrono::microseconds>(took).count());
    {
      const MutexLock lock(&mu_);
      const bool is_text = text.dtype() == tensorflow::DT_STRING && text.NumElements() == 1;
      said_[peer] = {true, is_text ? std::string(text.scalar<tensorflow::tstring>()()) : Statements::kStock};
      if (--missing_ > 0) return;
    }
    Conclude();
  }

  // All have spoken.
  void Conclude() {
    std::vector<std::pair<std::string, std::string>> all;
    std::vector<std::string> said;
    {
      const MutexLock lock(&mu_);
      for (size_t member = 0; member < said_.size(); ++member) {
        all.emplace_back(group_->members[member].task, said_[member].second);
        said.push_back(said_[member].second);
      }
    }
    const std::string why = Difference(all);
    if (why.empty()) {
      ProcessStatements().Settle(group_->self().device, call_, CommonConditions(said));
    } else {
      SayWhyStock(*group_, why);
    }
    End(absl::OkStatus(), why.empty());
  }

  // What this member says of itself.
  Conditions Own() const {
    Conditions own;
    own.way = WantedWay();
    own.piece_bytes = wanted_piece_bytes.load();
    own.pace_bps = ProcessDispatcher().scheduler().PaceBps(group_->self().task);
    return own;
  }

  void SayWhoIsMissing() {
    std::string who;
    {
      const MutexLock lock(&mu_);
      for (size_t member = 0; member < said_.size(); ++member) {
        if (!said_[member].first) who += (who.empty() ? "" : ", ") + group_->members[member].task;
      }
    }
    if (waiter_->claimed() || who.empty()) return;
    SayOnce(*group_, "an all-reduce of collective group " + std::to_string(group_->key) + " has waited " +
                         std::to_string(kPatienceUs / 1'000'000) + " s for " + who + ", and goes on waiting.");
  }

  void End(const absl::Status& status, bool agreed) {
    if (!waiter_->Claim()) return;
    if (status.ok()) CountAgreement(agreed);
    waiter_->Call({static_cast<int>(status.code()), std::string(status.message()), false}, std::move(agreed));
  }

  const std::shared_ptr<const CollectiveGroup> group_;
  const CollectiveCall call_;
  const std::shared_ptr<AgreeWaiter> waiter_;
  Mutex mu_;
  std::vector<std::pair<bool, std::string>> said_ TFSCHED_GUARDED_BY(mu_);  // by member: whether it has spoken, and what
  size_t missing_ TFSCHED_GUARDED_BY(mu_) = 0;
  std::chrono::steady_clock::time_point asked_;  // set before anybody is
};

}  // namespace

void Agree(const std::shared_ptr<const CollectiveGroup>& group, CollectiveCall call, const std::string& plan,
           std::shared_ptr<AgreeWaiter> waiter) {
  call.group = group->step_id;
  const absl::Status status = StatusOf(*group);
  if (!status.ok()) {
    if (waiter->Claim()) waiter->Call({static_cast<int>(status.code()), std::string(status.message()), false}, false);
    return;
  }
  if (!group->IsCapable()) {  // which all members see alike
    SayWhyStock(*group, WhyNotCapable(*group));
    CountAgreement(false);
    if (waiter->Claim()) waiter->Call(Outcome(), false);
    return;
  }
  std::make_shared<Agreement>(group, std::move(call), std::move(waiter))->Start(plan);
}

void SetPieceBytes(int64_t bytes) { wanted_piece_bytes = bytes; }

void CountAgreement(bool agreed) { ++(agreed ? agreed_calls : stock_calls); }

void CountAllReduce(bool ok) { ++(ok ? all_reduces : failed_all_reduces); }

CollectiveCounters ReadCollectiveCounters() {
  return {agreed_calls.load(), stock_calls.load(), all_reduces.load(), failed_all_reduces.load()};
}

absl::Status FailedWith(const std::string& task, const absl::Status& reason) {
  return absl::Status(reason.code(),
                      "tfsched: the all-reduce with " + task + " has failed: " + std::string(reason.message()));
}

}  // namespace tfsched
