// What members say about an all-reduce; see statements.h.
#include "cc/collective/statements.h"

#include <cstdlib>
#include <sstream>

namespace tfsched {
namespace {

std::map<std::string, std::string> WordsOf(const std::string& plan) {
  std::map<std::string, std::string> words;
  std::istringstream stream(plan);
  for (std::string word; stream >> word;) {
    const size_t equals = word.find('=');
    words[word.substr(0, equals)] = equals == std::string::npos ? "" : word.substr(equals + 1);
  }
  return words;
}

}  // namespace

std::string NameOf(const CollectiveCall& call) {
  return std::to_string(call.instance) + "," + std::to_string(call.step) + "," + call.turn;
}

CollectiveCall CallNamed(const std::string& text) {
  CollectiveCall call;
  char* rest = nullptr;
  call.instance = static_cast<int32_t>(std::strtol(text.c_str(), &rest, 10));
  if (*rest == ',') call.step = std::strtoll(rest + 1, &rest, 10);
  if (*rest == ',') call.turn = rest + 1;
  return call;
}

std::string Statements::Say(const std::string& member, const CollectiveCall& call, const std::string& plan) {
  Later later;
  std::string stands;
  {
    const MutexLock lock(&mu_);
    Instance& instance = InstanceOf(&BoardOf(member, call.group), {call.step, call.instance}, &later);
    if (instance.stock) {
      stands = kStock;
    } else {
      Turn& turn = instance.turns[call.turn];
      if (!turn.is_said) {
        turn.is_said = true;
        turn.said = plan;
        AnswerAll(&turn, Outcome(), plan, &later);
      }
      stands = turn.said;
    }
  }
  Run(later);
  return stands;
}

void Statements::SayStock(const std::string& member, int64_t group, int32_t instance_key, int64_t step) {
  Later later;
  {
    const MutexLock lock(&mu_);
    Instance& instance = InstanceOf(&BoardOf(member, group), {step, instance_key}, &later);
    bool planned = false;
    for (const auto& [name, turn] : instance.turns) planned = planned || turn.is_said;
    if (!planned) {
      instance.stock = true;
      for (auto& [name, turn] : instance.turns) AnswerAll(&turn, Outcome(), kStock, &later);
    }
  }
  Run(later);
}

void Statements::Ask(const std::string& member, const CollectiveCall& call, Answer answer) {
  Later later;
  {
    const MutexLock lock(&mu_);
    Board& board = BoardOf(member, call.group);
    if (!board.failure.ok()) {
      later.push_back([answer, why = board.failure] { answer(why, kStock); });
    } else {
      Instance& instance = InstanceOf(&board, {call.step, call.instance}, &later);
      if (instance.stock) {
        later.push_back([answer] { answer(Outcome(), kStock); });
      } else {
        Turn& turn = instance.turns[call.turn];
        if (turn.is_said) {
          later.push_back([answer, said = turn.said] { answer(Outcome(), said); });
        } else {
          turn.waiting.push_back(std::move(answer));
        }
      }
    }
  }
  Run(later);
}

void Statements::Fail(const std::string& member, int64_t group, const Outcome& why) {
  Later later;
  {
    const MutexLock lock(&mu_);
    Board& board = BoardOf(member, group);
    if (board.failure.ok()) board.failure = why;
    for (auto& [id, instance] : board.instances) {
      for (auto& [name, turn] : instance.turns) AnswerAll(&turn, board.failure, kStock, &later);
    }
    board.instances.clear();
    board.order.clear();
  }
  Run(later);
}

Statements::Counters Statements::counters() const {
  Counters counters;
  const MutexLock lock(&mu_);
  for (const auto& [key, board] : boards_) {
    counters.calls += static_cast<int64_t>(board.instances.size());
    for (const auto& [id, instance] : board.instances) {
      for (const auto& [name, turn] : instance.turns) counters.waiting += static_cast<int64_t>(turn.waiting.size());
    }
  }
  return counters;
}

Statements::Instance& Statements::InstanceOf(Board* board, InstanceId id, Later* later) {
  const auto [position, added] = board->instances.try_emplace(id);
  if (!added) return position->second;
  board->order.push_back(id);
  if (board->order.size() > kRemembered) {
    const auto oldest = board->instances.find(board->order.front());
    const Outcome why{kAbortedCode, "tfsched: this worker is too many all-reduces ahead of another one.", false};
    for (auto& [name, turn] : oldest->second.turns) AnswerAll(&turn, why, kStock, later);
    board->instances.erase(oldest);
    board->order.pop_front();
  }
  return position->second;
}

void Statements::AnswerAll(Turn* turn, const Outcome& outcome, const std::string& said, Later* later) {
  for (Answer& answer : turn->waiting) {
    later->push_back([answer = std::move(answer), outcome, said] { answer(outcome, said); });
  }
  turn->waiting.clear();
}

void Statements::Run(const Later& later) {
  for (const auto& call : later) call();
}

std::string Difference(const std::vector<std::pair<std::string, std::string>>& said) {
  for (const auto& [member, plan] : said) {
    if (plan == Statements::kStock) return member + " runs it without tfsched";
  }
  for (const auto& [member, plan] : said) {
    if (plan == said[0].second) continue;
    const auto first = WordsOf(said[0].second), other = WordsOf(plan);
    for (const auto& [key, value] : first) {
      const auto found = other.find(key);
      const std::string theirs = found == other.end() ? "none" : found->second;
      if (theirs != value) return member + " has " + key + " " + theirs + " and " + said[0].first + " has " + value;
    }
    return member + " plans \"" + plan + "\" and " + said[0].first + " plans \"" + said[0].second + "\"";
  }
  return "";
}

}  // namespace tfsched
