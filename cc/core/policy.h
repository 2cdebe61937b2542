// The interface of a policy: which of the ready transfers goes next, and when.
#ifndef TFSCHED_CC_CORE_POLICY_H_
#define TFSCHED_CC_CORE_POLICY_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "cc/core/comm_task.h"

namespace tfsched {

class Pace;
class ReadyProfile;

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// A policy object orders one group of tasks: those from one sender to one receiver, of one step or, where the policy spans
// steps, of all steps. Groups are independent, so a dead receiver can hold back nobody else. Created by the scheduler with a
// group's first task and destroyed with its last. Not thread safe: the scheduler calls it under its own lock.
// Implementations keep what they need of a task and never start it themselves.
class Policy {
 public:
  virtual ~Policy() = default;

  // `task` is ready to leave at `now_us`.
  virtual void Add(const CommTask& task, int64_t now_us) = 0;

  // The id of the task to hand to gRPC now, or 0 for none. A task that was returned is on the wire until Finished().
  // Called again until it returns 0.
  virtual uint64_t Next(int64_t now_us) = 0;

  // gRPC no longer holds the bytes of `task`.
  virtual void Finished(const CommTask& task, int64_t now_us) = 0;

  // `task`, which was added and not yet returned, is to be forgotten: its step is over while the group goes on.
  virtual void Remove(const CommTask& task, int64_t now_us) = 0;

  // `task` was handed to gRPC under another policy and is on the wire until Finished(). Never added before.
  virtual void Adopt(const CommTask& task, int64_t now_us) = 0;

  // From now on; see PolicyOptions.
  virtual void SetCreditBytes(int64_t credit_bytes) = 0;

  // When Next() could answer differently although nothing was added or finished; kNever if time changes nothing.
  virtual int64_t WakeAtUs() const { return kNever; }

  // Whether every transfer of the group has been handed over, so that its state may be freed once nothing is on the wire.
  virtual bool Complete() const = 0;

  // How often the policy gave up an order it was asked for.
  virtual int64_t step_asides() const { return 0; }
};

// What a policy may depend on besides its tasks.
struct PolicyOptions {
  int count = 0;             // ordered transfers in the group
  int64_t credit_bytes = 0;  // bytes that may be on the wire before the next transfer has to wait; 0: no limit
  int64_t grace_us = 0;      // see TicTacPolicy
  int64_t quick_us = 0;      // see P3Policy
  // The group's first tasks come from another policy, in the middle of their step: what went before them is not known.
  bool midway = false;
  // What the policy may know of its link, which outlives it: how fast the sender is, and when transfers become ready. A
  // profile is made when it is first asked for. Without them (null) a policy knows neither.
  std::string sender;
  const Pace* pace = nullptr;
  std::function<std::shared_ptr<ReadyProfile>()> profile;
};

using PolicyFactory = std::function<std::unique_ptr<Policy>(const PolicyOptions&)>;

// Which tasks share a policy object. With crossed barriers two steps share a link; a policy that needs no more than the
// tasks at hand orders them together. One that counts the transfers of a step cannot.
enum class PolicySpan { kStep, kAllSteps };

// Registers a policy by name, at static initialisation. A policy is one file that ends with one such object.
struct PolicyRegistrar {
  PolicyRegistrar(const std::string& name, PolicySpan span, PolicyFactory factory);
};

bool HasPolicy(const std::string& name);

// kStep if no policy has that name.
PolicySpan SpanOf(const std::string& name);

// nullptr if no policy has that name.
std::unique_ptr<Policy> MakePolicy(const std::string& name, const PolicyOptions& options);
std::vector<std::string> PolicyNames();

}  // namespace tfsched

#endif  // TFSCHED_CC_CORE_POLICY_H_
