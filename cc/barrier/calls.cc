// The calls; see calls.h.
#include "cc/barrier/calls.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <utility>

#include "cc/barrier/background_steps.h"

namespace tfsched {
namespace {

void Run(std::vector<std::function<void()>>* later) {
  for (auto& step : *later) step();
}

Outcome StepCancelled() { return Outcome::Derived(kCancelledCode, "tfsched: the step was cancelled."); }

Outcome Earlier(Outcome outcome) {
  outcome.message = "tfsched: the background update of an earlier step failed: " + outcome.message;
  return outcome;
}

}  // namespace

void Calls::Begin(const std::string& client, std::shared_ptr<Beginner> beginner) {
  Later later;
  {
    const MutexLock lock(&mu_);
    clients_[client].queue.push_back({std::move(beginner), nullptr});
    Pump(client, &later);
  }
  Run(&later);
}

void Calls::CancelBegin(const std::string& client, const std::shared_ptr<Beginner>& beginner) {
  if (!beginner->Claim()) return;
  Later later;
  {
    const MutexLock lock(&mu_);
    Remove(client, beginner.get(), &later);
  }
  beginner->Call(StepCancelled(), 0);
  Run(&later);
}

void Calls::Abandon(Token token) {
  Later later;
  {
    const MutexLock lock(&mu_);
    if (calls_.count(token) == 0) return;
    ++done_;
    Move(token, CallEvent::kAbandon, &later);
    changed_.NotifyAll();
  }
  Run(&later);
}

void Calls::Ack(Token token) {
  Later later;
  {
    const MutexLock lock(&mu_);
    const auto it = calls_.find(token);
    if (it == calls_.end()) return;
    Move(token, CallEvent::kAck, &later);
    for (auto& joiner : it->second.joiners) {
      if (!joiner->Claim()) continue;
      Move(token, CallEvent::kJoin, &later);
      later.push_back([joiner = std::move(joiner)] { joiner->Call(Outcome()); });
    }
    it->second.joiners.clear();
  }
  Run(&later);
}

void Calls::Join(Token token, std::shared_ptr<Joiner> joiner) {
  Later later;
  Outcome outcome;
  {
    const MutexLock lock(&mu_);
    if (joiner->claimed()) return;  // given up before it began
    const auto it = calls_.find(token);
    if (it == calls_.end() || IsStepOver(it->second.state)) {
      if (!joiner->Claim()) return;
      outcome = StepCancelled();
    } else {
      Call& call = it->second;
      if (call.state == CallState::kLaunched) {
        call.joiners.push_back(std::move(joiner));
        return;
      }
      if (!joiner->Claim()) return;
      outcome = Told(call.outcome);
      Move(token, outcome.ok() ? CallEvent::kJoin : CallEvent::kTell, &later);
    }
  }
  joiner->Call(outcome);
  Run(&later);
}

void Calls::CancelJoin(Token token, const std::shared_ptr<Joiner>& joiner) {
  if (!joiner->Claim()) return;
  {
    const MutexLock lock(&mu_);
    const auto it = calls_.find(token);
    if (it != calls_.end()) {
      auto& joiners = it->second.joiners;
      joiners.erase(std::remove(joiners.begin(), joiners.end(), joiner), joiners.end());
    }
  }
  joiner->Call(StepCancelled());
}

void Calls::Applied(Token token) {
  Later later;
  {
    const MutexLock lock(&mu_);
    const auto it = calls_.find(token);
    if (it == calls_.end() || IsDone(it->second.state)) return;
    it->second.applied = true;
    LetNextBegin(it->second.client, &later);
  }
  Run(&later);
}

bool Calls::HasReturned(Token token) const {
  const MutexLock lock(&mu_);
  const auto it = calls_.find(token);
  return it == calls_.end() || IsJoined(it->second.state) || IsDone(it->second.state);
}

Outcome Calls::TakeError(Token token) {
  Later later;
  Outcome outcome;
  {
    const MutexLock lock(&mu_);
    const auto it = calls_.find(token);
    if (it == calls_.end() || it->second.outcome.ok()) return outcome;
    outcome = Told(it->second.outcome);
    Move(token, CallEvent::kTell, &later);
  }
  Run(&later);
  return outcome;
}

bool Calls::HasError(const std::string& client) const {
  const MutexLock lock(&mu_);
  const auto it = clients_.find(client);
  return it != clients_.end() && !it->second.error.ok();
}

Outcome Calls::TakeErrorOf(const std::string& client) {
  const MutexLock lock(&mu_);
  const auto it = clients_.find(client);
  if (it == clients_.end() || it->second.error.ok()) return Outcome();
  Outcome outcome = std::move(it->second.error);
  it->second.error = Outcome();
  return Earlier(std::move(outcome));
}

bool Calls::EndStep(Token token) {
  Later later;
  bool cancel = false;
  {
    const MutexLock lock(&mu_);
    const auto it = calls_.find(token);
    if (it == calls_.end()) return false;
    cancel = !IsDone(it->second.state) && !IsJoined(it->second.state);
    Move(token, CallEvent::kEndStep, &later);
  }
  Run(&later);
  return cancel;
}

void Calls::Done(Token token, Outcome outcome) {
  Later later;
  {
    const MutexLock lock(&mu_);
    const auto it = calls_.find(token);
    if (it == calls_.end() || IsDone(it->second.state)) return;
    Call& call = it->second;
    call.outcome = std::move(outcome);
    const bool ok = call.outcome.ok();
    ++done_;
    if (!ok && (IsJoined(call.state) || (!IsStepOver(call.state) && !call.outcome.derived))) ++failed_;
    bool told = false;
    for (auto& joiner : call.joiners) {
      if (!joiner->Claim()) continue;
      told = true;
      if (ok) Move(token, CallEvent::kJoin, &later);
      later.push_back([joiner = std::move(joiner), outcome = Told(call.outcome)] { joiner->Call(outcome); });
    }
    call.joiners.clear();
    const bool step_over = IsStepOver(call.state);
    Move(token, ok ? CallEvent::kSucceed : CallEvent::kFail, &later);
    if (!ok && told && !step_over) Move(token, CallEvent::kTell, &later);
    changed_.NotifyAll();
  }
  Run(&later);
}

void Calls::Drain(const std::string& client, std::shared_ptr<Drainer> drainer, bool returned) {
  Later later;
  {
    const MutexLock lock(&mu_);
    Client& queued = clients_[client];
    const auto current = calls_.find(queued.current);
    if (!returned) {
      queued.queue.push_back({nullptr, std::move(drainer)});
    } else if (current != calls_.end() && !IsJoined(current->second.state) && !IsStepOver(current->second.state)) {
      // The call began when all updates before it were applied. What waits behind it has not begun.
      if (drainer->Claim()) later.push_back([drainer = std::move(drainer)] { drainer->Call(Outcome()); });
    } else {
      queued.queue.push_front({nullptr, std::move(drainer)});
    }
    Pump(client, &later);
  }
  Run(&later);
}

void Calls::CancelDrain(const std::string& client, const std::shared_ptr<Drainer>& drainer, const Outcome& outcome) {
  if (!drainer->Claim()) return;
  Later later;
  {
    const MutexLock lock(&mu_);
    Remove(client, drainer.get(), &later);
  }
  drainer->Call(outcome);
  Run(&later);
}

int64_t Calls::Outstanding(const std::string& client) const {
  const MutexLock lock(&mu_);
  const auto it = clients_.find(client);
  if (it == clients_.end()) return 0;
  const auto& queue = it->second.queue;
  return (it->second.current != 0 ? 1 : 0) + (it->second.delivering != 0 ? 1 : 0) +
         std::count_if(queue.begin(), queue.end(), [](const Queued& one) { return one.beginner != nullptr; });
}

int64_t Calls::WaitIdle(int64_t timeout_us) {
  const auto deadline = CondVar::Clock::now() + std::chrono::microseconds(timeout_us);
  const MutexLock lock(&mu_);
  while (begun_ != done_ && changed_.WaitUntil(&mu_, deadline)) {
  }
  return begun_ - done_;
}

Calls::Counters Calls::counters() const {
  const MutexLock lock(&mu_);
  Counters counters;
  counters.begun = begun_;
  counters.done = done_;
  counters.failed = failed_;
  counters.outstanding = begun_ - done_;
  counters.held = static_cast<int64_t>(calls_.size());
  for (const auto& entry : clients_) {
    counters.queued += static_cast<int64_t>(entry.second.queue.size());
    if (!entry.second.error.ok()) ++counters.errors;
  }
  return counters;
}

Calls::Token Calls::Committed(const std::string& client) const {
  const MutexLock lock(&mu_);
  const auto it = clients_.find(client);
  return it == clients_.end() ? 0 : it->second.committed;
}

bool Calls::IsUnderWay(const std::string& client, Token token) const {
  const MutexLock lock(&mu_);
  const auto it = clients_.find(client);
  return it != clients_.end() && token != 0 && (it->second.current == token || it->second.delivering == token);
}

// Lets the client go on once the function is over and it is clear who tells its error. The call may be gone after it.
void Calls::Move(Token token, CallEvent event, Later* later) {
  const auto it = calls_.find(token);
  Call& call = it->second;
  const CallState before = call.state;
  const CallTransition next = After(before, event);
  assert(next.possible);
  call.state = next.to;
  const std::string name = call.client;
  if (event == CallEvent::kJoin) clients_[name].committed = token;
  const bool settled = !IsSettled(before) && IsSettled(call.state);
  if (settled) {
    Client& client = clients_[name];
    (client.delivering == token ? client.delivering : client.current) = 0;
    if (!call.outcome.ok() && client.committed == token) client.committed = 0;
    if (!call.outcome.ok() && IsJoined(before) && client.error.ok()) client.error = call.outcome;
  }
  if (call.state == CallState::kOver) calls_.erase(it);
  LetNextBegin(name, later);
  if (settled) Pump(name, later);
}

// The client's current call is in nobody's way if its updates are applied and its step has joined, unless the one before
// still delivers.
void Calls::LetNextBegin(const std::string& name, Later* later) {
  const auto found = clients_.find(name);
  if (found == clients_.end() || found->second.delivering != 0) return;
  const auto it = calls_.find(found->second.current);
  if (it == calls_.end() || !it->second.applied || !IsJoined(it->second.state)) return;
  found->second.delivering = found->second.current;
  found->second.current = 0;
  Pump(name, later);
}

// Serves the client's queue in order, as far as it goes. Who drains waits for what is being delivered, too.
void Calls::Pump(const std::string& name, Later* later) {
  const auto it = clients_.find(name);
  Client& client = it->second;
  while (client.current == 0 && !client.queue.empty()) {
    if (client.delivering != 0 && client.queue.front().drainer != nullptr && !client.queue.front().drainer->claimed())
      return;
    Queued next = std::move(client.queue.front());
    client.queue.pop_front();
    if (next.beginner != nullptr ? !next.beginner->Claim() : !next.drainer->Claim()) continue;
    Outcome outcome = std::move(client.error);
    client.error = Outcome();
    if (!outcome.ok()) outcome = Earlier(std::move(outcome));
    if (next.drainer != nullptr) {
      later->push_back([drainer = std::move(next.drainer), outcome] { drainer->Call(outcome); });
      continue;
    }
    Token token = 0;
    if (outcome.ok()) {
      do {
        token = TokenFrom(random_());
      } while (token == 0 || calls_.count(token) > 0);
      calls_[token].client = name;
      client.current = token;
      ++begun_;
    }
    later->push_back([beginner = std::move(next.beginner), outcome, token] { beginner->Call(outcome, token); });
  }
  if (client.current == 0 && client.delivering == 0 && client.queue.empty() && client.committed == 0 && client.error.ok())
    clients_.erase(it);
}

// Takes a waiter that was given up out of the queue.
void Calls::Remove(const std::string& name, const void* waiter, Later* later) {
  const auto it = clients_.find(name);
  if (it == clients_.end()) return;
  auto& queue = it->second.queue;
  queue.erase(
      std::remove_if(queue.begin(), queue.end(),
                     [waiter](const Queued& one) { return one.beginner.get() == waiter || one.drainer.get() == waiter; }),
      queue.end());
  Pump(name, later);
}

// As the step itself says it.
Outcome Calls::Told(const Outcome& outcome) {
  Outcome told = outcome;
  if (!told.ok()) told.message = "tfsched: the background update of this step failed: " + told.message;
  return told;
}

}  // namespace tfsched
