// Expectations: a wait is for what was expected before it, and ends with it however that ends.
#include "cc/barrier/expectations.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace tfsched {
namespace {

struct Waited {
  int calls = 0;
  Outcome outcome;
  std::shared_ptr<Expectations::WaitWaiter> waiter;
};

std::shared_ptr<Waited> NewWait() {
  auto waited = std::make_shared<Waited>();
  waited->waiter = std::make_shared<Expectations::WaitWaiter>([raw = waited.get()](const Outcome& outcome) {
    ++raw->calls;
    raw->outcome = outcome;
  });
  return waited;
}

std::shared_ptr<Waited> Wait(Expectations* expectations, const std::string& client, const std::string& key) {
  auto waited = NewWait();
  expectations->Wait({client, Expectations::Scope::kClose}, key, waited->waiter);
  return waited;
}

void ExpectEmpty(const Expectations& expectations) {
  EXPECT_EQ(expectations.counters().tickets, 0);
  EXPECT_EQ(expectations.counters().waiting, 0);
}

TEST(Expectations, NothingExpectedNothingToWaitFor) {
  Expectations expectations;
  EXPECT_EQ(Wait(&expectations, "c", "w")->calls, 1);
  EXPECT_EQ(expectations.counters().waits, 1);
  EXPECT_EQ(expectations.counters().waits_blocked, 0);
  ExpectEmpty(expectations);
}

TEST(Expectations, WaitsForItsOwnKeyAndClient) {
  Expectations expectations;
  expectations.Expect("c", {"v", "w"}, 1);
  const auto waited = Wait(&expectations, "c", "w");
  EXPECT_EQ(Wait(&expectations, "d", "w")->calls, 1);
  expectations.Complete("v", 1);
  expectations.Complete("w", 2);
  EXPECT_EQ(waited->calls, 0);
  expectations.Complete("w", 1);
  EXPECT_EQ(waited->calls, 1);
  EXPECT_TRUE(waited->outcome.ok());
  ExpectEmpty(expectations);
}

TEST(Expectations, SettledIsWhereAWaitWouldBeOverAtOnce) {
  Expectations expectations;
  expectations.Expect("c", {"v", "w"}, 1, /*shared=*/false);
  const Expectations::Reader own{"c", Expectations::Scope::kClose};
  EXPECT_TRUE(expectations.Settled(own, {"x"}));
  EXPECT_FALSE(expectations.Settled(own, {"x", "w"}));
  EXPECT_TRUE(expectations.Settled({"d", Expectations::Scope::kAll}, {"v", "w"})) << "nobody else waits for these";
  EXPECT_EQ(expectations.counters().waits, 3) << "one that is not settled is counted when it waits";
  expectations.Complete("w", 1);
  EXPECT_TRUE(expectations.Settled(own, {"w"}));
  EXPECT_FALSE(expectations.Settled(own, {"v"}));
  expectations.Expect("d@h", {"x"}, 2);
  EXPECT_FALSE(expectations.Settled({"", Expectations::Scope::kAll}, {"x"})) << "its home has to be asked";
  expectations.EndToken(1);
  expectations.EndToken(2);
  ExpectEmpty(expectations);
}

TEST(Expectations, DoesNotWaitForWhatIsExpectedLater) {
  Expectations expectations;
  expectations.Expect("c", {"w"}, 1);
  const auto first = Wait(&expectations, "c", "w");
  expectations.Expect("c", {"w"}, 2);
  const auto second = Wait(&expectations, "c", "w");
  expectations.Complete("w", 1);
  EXPECT_EQ(first->calls, 1);
  EXPECT_EQ(second->calls, 0);
  expectations.Complete("w", 2);
  EXPECT_EQ(second->calls, 1);
  ExpectEmpty(expectations);
}

TEST(Expectations, EndsWithTheCallOrItsPart) {
  Expectations expectations;
  const auto tickets = expectations.Expect("c", {"v", "w"}, 1);
  expectations.Expect("c", {"x"}, 1);
  const auto waited = Wait(&expectations, "c", "w"), other = Wait(&expectations, "c", "x");
  expectations.Complete("v", 1);
  expectations.End(tickets);
  expectations.End(tickets);
  EXPECT_EQ(waited->calls, 1);
  EXPECT_EQ(other->calls, 0);
  expectations.EndToken(1);
  expectations.EndToken(1);
  EXPECT_EQ(other->calls, 1);
  ExpectEmpty(expectations);
}

TEST(Expectations, ACancelledWaitLeavesNothing) {
  Expectations expectations;
  expectations.Expect("c", {"w"}, 1);
  const auto waited = Wait(&expectations, "c", "w"), before = NewWait();
  expectations.CancelWait("w", waited->waiter);
  expectations.CancelWait("w", before->waiter);
  expectations.Wait({"c", Expectations::Scope::kClose}, "w", before->waiter);
  EXPECT_EQ(waited->outcome.code, kCancelledCode);
  EXPECT_EQ(expectations.counters().waiting, 0);
  expectations.EndToken(1);
  EXPECT_EQ(waited->calls, 1);
  EXPECT_EQ(before->calls, 1);
  ExpectEmpty(expectations);
}

TEST(Expectations, OthersStepsAreWaitedForUnlessTheirHomeSaysThatTheyHadNotReturned) {
  Expectations expectations;
  using Scope = Expectations::Scope;
  expectations.Expect("a@h", {"v", "w"}, 1);
  std::vector<Expectations::Doubt> doubts;
  const auto wait = [&](const char* client, Scope scope) {
    auto waited = NewWait();
    doubts = expectations.Wait({client, scope}, "w", waited->waiter);
    return waited;
  };
  const auto own = wait("a@h", Scope::kClose);
  EXPECT_TRUE(doubts.empty());
  expectations.Expect("d@h", {"w"}, 3, /*shared=*/false);
  const auto elsewhere = wait("c@g", Scope::kClose);
  EXPECT_TRUE(doubts.empty());
  EXPECT_EQ(elsewhere->calls, 1);
  const auto neighbour = wait("b@h", Scope::kClose), all = wait("", Scope::kAll), other = wait("", Scope::kAll);
  ASSERT_EQ(doubts.size(), 1u);
  EXPECT_EQ(doubts[0].token, 1);
  EXPECT_EQ(doubts[0].home, "h");
  for (const auto& one : {own, neighbour, all, other}) EXPECT_EQ(one->calls, 0);
  // The step may wait for them. Each had a question of its own.
  expectations.NotReturned(1, "w", neighbour->waiter);
  expectations.NotReturned(1, "v", all->waiter);
  expectations.NotReturned(2, "w", all->waiter);
  EXPECT_EQ(neighbour->calls, 1);
  EXPECT_EQ(all->calls, 0);
  expectations.NotReturned(1, "w", all->waiter);
  EXPECT_EQ(all->calls, 1);
  expectations.Expect("b@h", {"w"}, 2);
  const auto before = wait("b@h", Scope::kClose);
  EXPECT_EQ(doubts.size(), 1u) << "its own step is not in doubt";
  expectations.Returned(1);
  const auto late = wait("", Scope::kAll);
  ASSERT_EQ(doubts.size(), 1u);
  EXPECT_EQ(doubts[0].token, 2);
  expectations.NotReturned(1, "w", before->waiter);
  expectations.Complete("w", 2);
  EXPECT_EQ(before->calls, 1) << "the other step had not returned when it began";
  for (const auto& one : {own, other, late}) EXPECT_EQ(one->calls, 0);
  expectations.Complete("w", 1);
  for (const auto& one : {own, other, late}) EXPECT_EQ(one->calls, 1);
  expectations.NotReturned(1, "w", late->waiter);
  const auto own_alone = wait("d@h", Scope::kClose);
  EXPECT_EQ(own_alone->calls, 0);
  expectations.EndToken(3);
  EXPECT_EQ(own_alone->calls, 1);
  expectations.EndToken(1);
  ExpectEmpty(expectations);
}

// Random schedules of several clients against an account of their own: a wait is over exactly when no ticket from before
// it is left that the reader has to see.
TEST(Expectations, RandomSchedules) {
  const std::vector<Expectations::Reader> readers = {{"p+a@h", Expectations::Scope::kClose},
                                                     {"q+b@h", Expectations::Scope::kClose},
                                                     {"p+c@g", Expectations::Scope::kClose},
                                                     {"", Expectations::Scope::kAll}};
  struct Model {
    std::shared_ptr<Waited> waited;
    std::string key;
    int reader = 0;
    std::set<int64_t> tokens;  // with a ticket of the key that it has to see
    std::set<int64_t> doubts;  // of those, the ones that its home has not been asked for yet
    bool cancelled = false;
    bool over = false;
  };
  for (uint32_t seed = 0; seed < 10; ++seed) {
    std::mt19937 random(seed);
    const auto draw = [&](int below) { return static_cast<int>(random() % below); };
    Expectations expectations;
    std::vector<Model> waits;
    std::set<std::pair<int64_t, std::string>> open;  // token, key
    std::map<int64_t, std::vector<Expectations::Ticket>> tickets;
    std::map<int64_t, int> clients;  // token -> which of the readers
    std::set<int64_t> returned;
    int64_t next_token = 1;
    const auto must_see = [&](int reader, int64_t token) {
      const int client = clients[token];
      return reader == 3 || client == reader || (reader != 2 && client != 2) || (reader != 1 && client != 1);
    };
    const auto is_held = [&](const Model& model) {
      return std::any_of(model.tokens.begin(), model.tokens.end(),
                         [&](int64_t token) { return open.count({token, model.key}) > 0; });
    };
    for (int step = 0; step < 2000; ++step) {
      const std::string key(1, static_cast<char>('a' + draw(4)));
      const int64_t token = next_token > 1 ? next_token - 1 - draw(std::min<int>(4, static_cast<int>(next_token) - 1)) : 0;
      switch (draw(9)) {
        case 0: {
          std::vector<std::string> keys;
          for (char one = 'a'; one < 'e'; ++one) {
            if (draw(2) == 0) keys.emplace_back(1, one);
          }
          clients[next_token] = draw(3);
          tickets[next_token] = expectations.Expect(readers[clients[next_token]].client, keys, next_token);
          for (const auto& one : keys) open.insert({next_token, one});
          ++next_token;
          break;
        }
        case 1:
        case 2:
          expectations.Complete(key, token);
          open.erase({token, key});
          break;
        case 3:
          if (draw(2) == 0) {
            expectations.EndToken(token);
          } else {
            expectations.End(tickets[token]);
          }
          for (char one = 'a'; one < 'e'; ++one) open.erase({token, std::string(1, one)});
          break;
        case 4:
          if (!waits.empty()) {
            Model& model = waits[draw(static_cast<int>(waits.size()))];
            if (model.doubts.empty()) break;
            const int64_t asked = *model.doubts.begin();
            model.doubts.erase(asked);
            if (returned.count(asked) > 0 || draw(2) == 0) {
              returned.insert(asked);
              expectations.Returned(asked);
            } else {
              model.tokens.erase(asked);
              expectations.NotReturned(asked, model.key, model.waited->waiter);
            }
          }
          break;
        case 5:
        case 6:
          if (!waits.empty()) {
            Model& model = waits[draw(static_cast<int>(waits.size()))];
            model.cancelled = model.cancelled || !model.over;
            expectations.CancelWait(model.key, model.waited->waiter);
          }
          break;
        default: {
          Model model;
          model.key = key;
          model.reader = draw(4);
          for (const auto& one : open) {
            if (one.second == key && must_see(model.reader, one.first)) model.tokens.insert(one.first);
          }
          model.waited = NewWait();
          for (const auto& doubt : expectations.Wait(readers[model.reader], key, model.waited->waiter)) {
            ASSERT_EQ(doubt.home, clients[doubt.token] == 2 ? "g" : "h");
            model.doubts.insert(doubt.token);
          }
          std::set<int64_t> unclear;
          for (const int64_t one : model.tokens) {
            if (clients[one] != model.reader && returned.count(one) == 0) unclear.insert(one);
          }
          ASSERT_EQ(model.doubts, unclear) << "seed " << seed;
          waits.push_back(std::move(model));
        }
      }
      for (Model& model : waits) {
        model.over = model.over || model.cancelled || !is_held(model);
        ASSERT_EQ(model.waited->calls, model.over ? 1 : 0) << "seed " << seed;
        ASSERT_EQ(model.waited->outcome.ok(), !model.cancelled);
      }
      if (waits.size() > 50) {
        waits.erase(std::remove_if(waits.begin(), waits.end(), [](const Model& one) { return one.over; }), waits.end());
      }
      ASSERT_EQ(expectations.counters().tickets, static_cast<int64_t>(open.size()));
    }
    for (int64_t token = 1; token < next_token; ++token) expectations.EndToken(token);
    for (const Model& model : waits) ASSERT_EQ(model.waited->calls, 1);
    ExpectEmpty(expectations);
  }
}

TEST(Expectations, ManyThreadsLeaveNothing) {
  constexpr int kTokens = 300;
  Expectations expectations;
  std::atomic<int> waited{0}, waits{0};
  std::vector<std::thread> threads;
  for (int client = 0; client < 3; ++client) {
    threads.emplace_back([&, name = std::to_string(client), client] {
      for (int token = client + 1; token <= kTokens; token += 3) {
        const auto tickets = expectations.Expect(name, {"v", "w"}, token);
        std::thread updates([&] {
          expectations.Complete("v", token);
          expectations.Returned(token);
          if (token % 5 == 0) expectations.EndToken(token);
          expectations.End(tickets);
        });
        for (const char* key : {"v", "w"}) {
          auto waiter = std::make_shared<Expectations::WaitWaiter>([&](const Outcome&) { ++waited; });
          ++waits;
          const Expectations::Reader reader{token % 2 == 0 ? name : "", Expectations::Scope::kAll};
          for (const auto& doubt : expectations.Wait(reader, key, waiter)) {
            if (token % 3 == 0) expectations.NotReturned(doubt.token, key, waiter);
          }
          if (token % 7 == 0) expectations.CancelWait(key, waiter);
        }
        updates.join();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(waited.load(), waits.load());
  ExpectEmpty(expectations);
}

}  // namespace
}  // namespace tfsched
