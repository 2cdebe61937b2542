// Groups of collectives; see collective_group.h.
#include "cc/transport/collective_group.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "cc/core/mutex.h"
#include "cc/core/per_process.h"
#include "cc/core/thread_annotations.h"
#include "cc/transport/capability.h"
#include "cc/transport/keepalive.h"
#include "cc/transport/runtime.h"
#include "cc/transport/servers.h"
#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/common_runtime/device_mgr.h"
#include "tensorflow/core/distributed_runtime/rendezvous_mgr_interface.h"
#include "tensorflow/core/framework/control_flow.h"
#include "tensorflow/core/platform/env.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/hash.h"
#include "tensorflow/core/platform/tstring.h"

namespace tfsched {
namespace {

using tensorflow::CollGroupParams;
using tensorflow::DeviceAttributes;
using tensorflow::Rendezvous;
using tensorflow::Tensor;
using tensorflow::WorkerEnv;

// Sessions and functions use steps below 2^56, stock collectives some from there on, background functions negative ones;
// copies between devices of eager programs use any.
constexpr int64_t kFirstStep = int64_t{1} << 60;
constexpr uint64_t kStepMask = (uint64_t{1} << 58) - 1;
// In the names of questions and other messages; "tfsched/" as in everything that tfsched sends.
constexpr char kQuestion[] = "tfsched/agree/";
constexpr char kMessage[] = "tfsched/all_reduce/";
// The stock executor of functions (EagerContext); those of sessions end with their steps.
constexpr int64_t kExecutorStep = 0;

// What waits for a peer of a group.
struct Ending {
  std::weak_ptr<void> waiter;
  std::function<void(const absl::Status&)> end;
};

// The waits of a group. Those that are over leave nothing but their place, which is cleared now and then.
struct Endings {
  static constexpr size_t kFew = 64;
  std::vector<Ending> all;
  size_t most = kFew;

  void Add(Ending ending) {
    if (all.size() >= most) {
      all.erase(std::remove_if(all.begin(), all.end(), [](const Ending& one) { return one.waiter.expired(); }), all.end());
      most = std::max(kFew, 2 * all.size());
    }
    all.push_back(std::move(ending));
  }
};

// The groups of this process's servers, and those that have ended.
struct Registry {
  Mutex mu;
  std::map<std::pair<const WorkerEnv*, int64_t>, std::shared_ptr<const CollectiveGroup>> groups TFSCHED_GUARDED_BY(mu);
  std::map<std::pair<const WorkerEnv*, int64_t>, absl::Status> broken TFSCHED_GUARDED_BY(mu);
  std::map<std::pair<const WorkerEnv*, int64_t>, Endings> endings TFSCHED_GUARDED_BY(mu);
};

Registry& ProcessRegistry() {
  static PerProcess<Registry> registry;
  return registry.Get();
}

int64_t StepOf(const CollGroupParams& params) {
  uint64_t hash = static_cast<uint32_t>(params.group_key);
  for (const auto& member : params.members) {
    const uint64_t incarnation = member.device.incarnation();
    hash = tensorflow::Hash64(member.device.name().data(), member.device.name().size(), hash ^ incarnation);
  }
  return kFirstStep + static_cast<int64_t>(hash & kStepMask);
}

std::shared_ptr<const CollectiveGroup> GroupOf(const WorkerEnv* env, const std::string& device,
                                               const CollGroupParams& params) {
  Registry& registry = ProcessRegistry();
  const auto id = std::make_pair(env, StepOf(params));
  {
    const MutexLock lock(&registry.mu);
    const auto found = registry.groups.find(id);
    if (found != registry.groups.end() && found->second->self().device == device) return found->second;
  }
  auto group = std::make_shared<CollectiveGroup>();
  group->env = env;
  group->key = params.group_key;
  group->step_id = id.second;
  group->me = -1;
  for (const auto& member : params.members) {
    if (member.device.name() == device) group->me = static_cast<int>(group->members.size());
    group->members.push_back(
        {member.device.name(), member.task, static_cast<uint64_t>(member.device.incarnation()), IsCapable(member.device)});
  }
  if (group->me < 0) return nullptr;
  group->answers = std::make_shared<AnswerTimes>(params.members.size(), group->me);
  for (const CollectiveGroup::Member& member : group->members) {
    if (member.task != group->self().task) GiveUpSilent(AddressOf(env, member.task));
  }
  const MutexLock lock(&registry.mu);
  return registry.groups[id] = group;
}

absl::Status StatusOfStep(const WorkerEnv* env, int64_t step_id) {
  Registry& registry = ProcessRegistry();
  const MutexLock lock(&registry.mu);
  const auto found = registry.broken.find({env, step_id});
  return found == registry.broken.end() ? absl::OkStatus() : found->second;
}

Outcome OutcomeOf(const absl::Status& status) {
  return {static_cast<int>(status.code()), std::string(status.message()), false};
}

// Whether the device is still the one that the caller has in mind.
absl::Status CheckIncarnation(const WorkerEnv* env, const Rendezvous::ParsedKey& key) {
  tensorflow::Device* device = nullptr;
  TF_RETURN_IF_ERROR(env->device_mgr->LookupDevice(key.src_device, &device));
  if (static_cast<uint64_t>(device->attributes().incarnation()) == key.src_incarnation) return absl::OkStatus();
  return tensorflow::errors::Aborted("tfsched: the task of ", device->name(),
                                     " has been started anew since the collective group was formed.");
}

}  // namespace

bool CollectiveGroup::IsCapable() const {
  std::set<std::string> tasks;
  for (const Member& member : members) {
    if (!member.capable || !tasks.insert(member.task).second) return false;
  }
  return true;
}

void CompleteGroup(const WorkerEnv* env, const DeviceAttributes& device, int32_t group_key, int32_t group_size,
                   tensorflow::CancellationManager* cancellation, GroupDone done) {
  auto params = std::make_shared<CollGroupParams>();
  params->group_key = group_key;
  params->group_size = group_size;
  params->device_type = tensorflow::DeviceType(device.device_type());
  env->collective_executor_mgr->GetParamResolver()->CompleteGroupAsync(
      device, params.get(), cancellation,
      [env, params, name = device.name(), done = std::move(done)](const absl::Status& status) {
        if (!status.ok()) return done(status, nullptr);
        auto group = GroupOf(env, name, *params);
        if (group == nullptr) {
          return done(tensorflow::errors::Internal("tfsched: ", name, " is no member of its collective group."), nullptr);
        }
        done(absl::OkStatus(), std::move(group));
      });
}

absl::Status StatusOf(const CollectiveGroup& group) { return StatusOfStep(group.env, group.step_id); }

void BreakGroup(const CollectiveGroup& group, const absl::Status& why) {
  Registry& registry = ProcessRegistry();
  auto endings = std::make_shared<Endings>();
  {
    const MutexLock lock(&registry.mu);
    const auto id = std::make_pair(group.env, group.step_id);
    if (!registry.broken.emplace(id, why).second) return;
    std::swap(*endings, registry.endings[id]);
    registry.endings.erase(id);
  }
  ProcessStatements().Fail(group.self().device, group.step_id, OutcomeOf(why));
  // Elsewhere: whoever finds the failure may be called with locks of TensorFlow's held.
  group.env->env->SchedClosure([env = group.env, step_id = group.step_id, why, endings] {
    for (const Ending& ending : endings->all) {
      if (const auto waiter = ending.waiter.lock()) ending.end(why);
    }
    // What others have asked for and what they will ask for is answered with the reason, and what is queued is dropped.
    env->rendezvous_mgr->Find(step_id)->StartAbort(why);
    ProcessDispatcher().EndStep(step_id);
    tensorflow::CollectiveExecutor* executor = env->collective_executor_mgr->FindOrCreate(kExecutorStep);
    executor->StartAbort(why);
    executor->Unref();
  });
}

void EndWithGroup(const CollectiveGroup& group, std::weak_ptr<void> waiter,
                  std::function<void(const absl::Status& why)> end) {
  Registry& registry = ProcessRegistry();
  absl::Status why;
  {
    const MutexLock lock(&registry.mu);
    const auto id = std::make_pair(group.env, group.step_id);
    const auto broken = registry.broken.find(id);
    if (broken == registry.broken.end()) {
      registry.endings[id].Add({std::move(waiter), std::move(end)});
      return;
    }
    why = broken->second;
  }
  end(why);
}

void BreakGroupsOf(const WorkerEnv* env, const absl::Status& why) {
  std::vector<std::shared_ptr<const CollectiveGroup>> groups;
  Registry& registry = ProcessRegistry();
  {
    const MutexLock lock(&registry.mu);
    for (const auto& [id, group] : registry.groups) {
      if (id.first == env) groups.push_back(group);
    }
  }
  for (const auto& group : groups) BreakGroup(*group, why);
}

void ForgetGroupsOf(const WorkerEnv* env) {
  Registry& registry = ProcessRegistry();
  const MutexLock lock(&registry.mu);
  const auto from = std::make_pair(env, kFirstStep), to = std::make_pair(env, INT64_MAX);
  registry.groups.erase(registry.groups.lower_bound(from), registry.groups.upper_bound(to));
  registry.broken.erase(registry.broken.lower_bound(from), registry.broken.upper_bound(to));
  registry.endings.erase(registry.endings.lower_bound(from), registry.endings.upper_bound(to));
}

void NoteStockReduce(const WorkerEnv* env, const std::string& device, const CollGroupParams& params, int32_t instance_key,
                     int64_t step) {
  if (const auto group = GroupOf(env, device, params)) {
    ProcessStatements().SayStock(device, group->step_id, instance_key, step);
  }
}

std::string QuestionKey(const CollectiveGroup& group, int peer, const CollectiveCall& call) {
  return Rendezvous::CreateKey(group.members[peer].device, group.members[peer].incarnation, group.self().device,
                               kQuestion + NameOf(call), tensorflow::FrameAndIter(0, 0));
}

std::string MessageKey(const CollectiveGroup& group, int from, int to, const std::string& edge) {
  return Rendezvous::CreateKey(group.members[from].device, group.members[from].incarnation, group.members[to].device,
                               kMessage + edge, tensorflow::FrameAndIter(0, 0));
}

bool AnswerForGroup(const WorkerEnv* env, int64_t step_id, const Rendezvous::ParsedKey& key,
                    const Rendezvous::DoneCallback& done) {
  const std::string edge(key.edge_name);
  const bool asks = edge.rfind(kQuestion, 0) == 0;
  // A step alone proves nothing: TensorFlow draws those of copies between devices from all numbers, and a program may have
  // joined this task under another job's name.
  if (step_id < kFirstStep || !(asks || edge.rfind(kMessage, 0) == 0)) return false;
  const auto answer = [done](const absl::Status& status, const Tensor& value) {
    done(status, Rendezvous::Args(), Rendezvous::Args(), value, /*is_dead=*/false);
  };
  absl::Status status = StatusOfStep(env, step_id);
  if (status.ok()) status = CheckIncarnation(env, key);
  if (!status.ok()) {
    answer(status, Tensor());
    return true;
  }
  if (!asks) return false;
  CollectiveCall call = CallNamed(edge.substr(sizeof(kQuestion) - 1));
  call.group = step_id;
  ProcessStatements().Ask(std::string(key.src_device), call, [answer](const Outcome& outcome, const std::string& said) {
    if (!outcome.ok()) return answer(absl::Status(static_cast<absl::StatusCode>(outcome.code), outcome.message), Tensor());
    Tensor text(tensorflow::DT_STRING, tensorflow::TensorShape());
    text.scalar<tensorflow::tstring>()() = said;
    answer(absl::OkStatus(), text);
  });
  return true;
}

Statements& ProcessStatements() {
  static PerProcess<Statements> statements;
  return statements.Get();
}

}  // namespace tfsched
