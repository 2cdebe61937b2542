// What members say about an all-reduce; see statements.h.
#include "cc/collective/statements.h"

#include <cstdlib>
#include <sstream>

namespace tfsched {

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

void Statements::Settle(const std::string& member, const CollectiveCall& call, const Conditions& conditions) {
  Later later;
  {
    const MutexLock lock(&mu_);
    InstanceOf(&BoardOf(member, call.group), {call.step, call.instance}, &later).turns[call.turn].settled = conditions;
  }
  Run(later);
}

std::optional<Conditions> Statements::Settled(const std::string& member, const CollectiveCall& call) const {
  const MutexLock lock(&mu_);
  const auto board = boards_.find({member, call.group});
  if (board == boards_.end()) return std::nullopt;
  const auto instance = board->second.instances.find({call.step, call.instance});
  if (instance == board->second.instances.end()) return std::nullopt;
  const auto turn = instance->second.turns.find(call.turn);
  return turn == instance->second.turns.end() ? std::nullopt : turn->second.settled;
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

std::map<std::string, std::string> WordsOfStatement(const std::string& said) {
  std::map<std::string, std::string> words;
  std::istringstream stream(said);
  for (std::string word; stream >> word;) {
    const size_t equals = word.find('=');
    words[word.substr(0, equals)] = equals == std::string::npos ? "" : word.substr(equals + 1);
  }
  return words;
}

std::string Difference(const std::vector<std::pair<std::string, std::string>>& said) {
  for (const auto& [member, plan] : said) {
    if (plan == Statements::kStock) return member + " runs it without tfsched";
  }
  const auto common = [](const std::string& plan) {
    auto words = WordsOfStatement(plan);
    words.erase(words.lower_bound("~"), words.end());
    return words;
  };
  const auto first = common(said[0].second);
  for (const auto& [member, plan] : said) {
    const auto other = common(plan);
    if (other == first) continue;
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
