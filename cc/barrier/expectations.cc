// The expectations; see expectations.h.
#include "cc/barrier/expectations.h"

#include <algorithm>

namespace tfsched {

namespace {

// What "program+name@home" says of its process, "" if nothing.
std::string ProgramOf(const std::string& client) {
  const size_t plus = client.find('+');
  return plus == std::string::npos ? "" : client.substr(0, plus);
}

// The home is the whole where there is no "@".
std::string HomeOf(const std::string& client) {
  const size_t at = client.rfind('@');
  return at == std::string::npos ? client : client.substr(at + 1);
}

// Whether a step of `reader` has to see the finished steps of `trainer`, wherever else one may train meanwhile: a program
// knows which of its own steps have returned.
bool AreClose(const std::string& trainer, const std::string& reader) {
  if (HomeOf(trainer) == HomeOf(reader)) return true;
  const std::string program = ProgramOf(trainer);
  return !program.empty() && program == ProgramOf(reader);
}

}  // namespace

std::vector<Expectations::Ticket> Expectations::Expect(const std::string& client, const std::vector<std::string>& keys,
                                                       Token token, bool shared) {
  std::vector<Ticket> tickets;
  const MutexLock lock(&mu_);
  for (const std::string& key : keys) {
    const Ticket ticket = next_++;
    const auto it = entries_.try_emplace(key).first;
    it->second.tickets.emplace(ticket, Update{client, token, shared});
    by_ticket_.emplace(ticket, it);
    by_token_[token].insert(ticket);
    tickets.push_back(ticket);
  }
  return tickets;
}

void Expectations::Complete(const std::string& key, Token token) {
  Ready ready;
  {
    const MutexLock lock(&mu_);
    const auto it = entries_.find(key);
    if (it == entries_.end()) return;
    for (const auto& ticket : it->second.tickets) {
      if (ticket.second.token != token) continue;
      EndLocked(ticket.first, &ready);
      break;
    }
  }
  Call(ready);
}

void Expectations::Returned(Token token) {
  const MutexLock lock(&mu_);
  const auto found = by_token_.find(token);
  if (found == by_token_.end()) return;
  for (const Ticket ticket : found->second) by_ticket_.at(ticket)->second.tickets.at(ticket).returned = true;
}

void Expectations::NotReturned(Token token, const std::string& key, const std::shared_ptr<WaitWaiter>& waiter) {
  Ready ready;
  {
    const MutexLock lock(&mu_);
    const auto it = entries_.find(key);
    if (it == entries_.end()) return;
    for (const auto& [ticket, update] : it->second.tickets) {
      if (update.token == token) EndWaiting(&it->second, ticket, waiter.get(), &ready);
    }
  }
  Call(ready);
}

void Expectations::End(const std::vector<Ticket>& tickets) {
  Ready ready;
  {
    const MutexLock lock(&mu_);
    for (const Ticket ticket : tickets) EndLocked(ticket, &ready);
  }
  Call(ready);
}

void Expectations::EndToken(Token token) {
  Ready ready;
  {
    const MutexLock lock(&mu_);
    const auto it = by_token_.find(token);
    if (it == by_token_.end()) return;
    const std::set<Ticket> tickets = it->second;
    for (const Ticket ticket : tickets) EndLocked(ticket, &ready);
  }
  Call(ready);
}

bool Expectations::Idle(int64_t waits) {
  const MutexLock lock(&mu_);
  if (!by_ticket_.empty()) return false;
  waits_ += waits;
  return true;
}

bool Expectations::Settled(const Reader& reader, const std::vector<std::string>& keys) {
  const MutexLock lock(&mu_);
  for (const std::string& key : keys) {
    const auto it = entries_.find(key);
    if (it == entries_.end()) continue;
    for (const auto& ticket : it->second.tickets) {
      if (Holds(ticket.second, reader)) return false;
    }
  }
  waits_ += static_cast<int64_t>(keys.size());
  return true;
}

std::vector<Expectations::Doubt> Expectations::Wait(const Reader& reader, const std::string& key,
                                                    std::shared_ptr<WaitWaiter> waiter) {
  {
    const MutexLock lock(&mu_);
    if (waiter->claimed()) return {};  // given up before it began
    ++waits_;
    const auto it = entries_.find(key);
    if (it != entries_.end()) {
      Waiting waiting;
      std::vector<Doubt> doubts;
      for (const auto& [ticket, update] : it->second.tickets) {
        if (!Holds(update, reader)) continue;
        waiting.left.insert(ticket);
        if (update.client != reader.client && !update.returned) doubts.push_back({update.token, HomeOf(update.client)});
      }
      if (!waiting.left.empty()) {
        ++waits_blocked_;
        waiting.waiter = std::move(waiter);
        it->second.waiting.push_back(std::move(waiting));
        return doubts;
      }
    }
    if (!waiter->Claim()) return {};
  }
  waiter->Call(Outcome());
  return {};
}

void Expectations::CancelWait(const std::string& key, const std::shared_ptr<WaitWaiter>& waiter) {
  if (!waiter->Claim()) return;
  {
    const MutexLock lock(&mu_);
    const auto it = entries_.find(key);
    if (it != entries_.end()) {
      auto& waiting = it->second.waiting;
      waiting.erase(std::remove_if(waiting.begin(), waiting.end(), [&](const Waiting& one) { return one.waiter == waiter; }),
                    waiting.end());
    }
  }
  waiter->Call(Outcome::Derived(kCancelledCode, "tfsched: the step was cancelled while it waited for an update."));
}

Expectations::Counters Expectations::counters() const {
  const MutexLock lock(&mu_);
  Counters counters;
  counters.tickets = static_cast<int64_t>(by_ticket_.size());
  for (const auto& entry : entries_) counters.waiting += static_cast<int64_t>(entry.second.waiting.size());
  counters.waits = waits_;
  counters.waits_blocked = waits_blocked_;
  return counters;
}

void Expectations::EndLocked(Ticket ticket, Ready* ready) {
  const auto found = by_ticket_.find(ticket);
  if (found == by_ticket_.end()) return;
  const auto it = found->second;
  by_ticket_.erase(found);
  const auto held = it->second.tickets.find(ticket);
  const auto of_token = by_token_.find(held->second.token);
  of_token->second.erase(ticket);
  if (of_token->second.empty()) by_token_.erase(of_token);
  it->second.tickets.erase(held);
  EndWaiting(&it->second, ticket, nullptr, ready);
  if (it->second.tickets.empty()) entries_.erase(it);  // a waiter is held by a ticket
}

// The ticket holds nobody any more, or not the `only` one that is given.
void Expectations::EndWaiting(Entry* entry, Ticket ticket, const WaitWaiter* only, Ready* ready) {
  const auto is_over = [&](Waiting& one) {
    if (only != nullptr && one.waiter.get() != only) return false;
    if (one.left.erase(ticket) == 0 || !one.left.empty()) return false;
    if (one.waiter->Claim()) ready->push_back(one.waiter);
    return true;
  };
  entry->waiting.erase(std::remove_if(entry->waiting.begin(), entry->waiting.end(), is_over), entry->waiting.end());
}

bool Expectations::Holds(const Update& update, const Reader& reader) {
  if (update.client == reader.client) return true;
  return update.shared && (reader.scope == Scope::kAll || AreClose(update.client, reader.client));
}

void Expectations::Call(const Ready& ready) {
  for (const auto& waiter : ready) waiter->Call(Outcome());
}

}  // namespace tfsched
