// Objects of a process, its threads and its forks.
#include "cc/core/per_process.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "cc/core/dispatcher.h"
#include "cc/core/testing.h"

namespace tfsched {
namespace {

// The exit code of a child that is forked here and runs `body`.
template <typename Body>
int ExitOfFork(Body body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // a child that hangs is ended by a signal
    _exit(body());
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(PerProcessTest, IsOneObjectInAProcessAndAnotherInItsFork) {
  static PerProcess<int> number;
  int& ours = number.Get([] { return new int(1); });
  EXPECT_EQ(&number.Get([] { return new int(2); }), &ours);
  const int code = ExitOfFork([] {
    int& childs = number.Get([] { return new int(3); });
    if (childs != 3 || &childs != &number.Get()) return 1;
    // And so in a fork of the fork.
    const pid_t grandchild = fork();
    if (grandchild == 0) _exit(number.Get([] { return new int(4); }));
    int status = 0;
    waitpid(grandchild, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 4 && number.Get() == 3 ? 0 : 2;
  });
  EXPECT_EQ(code, 0);
  EXPECT_EQ(number.Get(), 1);
}

TEST(PerProcessTest, IsOneObjectForAllThreads) {
  static std::array<PerProcess<int>, 100> numbers;  // never destroyed, as what they hold
  for (PerProcess<int>& number : numbers) {
    std::atomic<int> ready{0};
    std::vector<int*> seen(4);
    std::vector<std::thread> threads;
    for (auto& one : seen) {
      threads.emplace_back([&number, &ready, &one] {
        for (++ready; ready < 4;) std::this_thread::yield();
        one = &number.Get();
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(std::set<int*>(seen.begin(), seen.end()).size(), 1u);
  }
}

#ifndef __SANITIZE_THREAD__  // which supports no new threads in the fork of a process that has several
TEST(PerProcessTest, ADispatcherOfAForkSendsThoughTheParentsWasThereBefore) {
  static PerProcess<Dispatcher> dispatcher;
  const auto send = [] {
    static std::atomic<bool> sent{false};
    sent = false;
    GroupSpec group = Spec(1);
    group.policy = "bytescheduler";
    CommTask task = TaskOf(group, 0);
    task.start = [](uint64_t, bool) { sent = true; };
    dispatcher
        .Get([] {
          Dispatcher::Options options;
          options.now_us = [] { return int64_t{0}; };
          return new Dispatcher(options);
        })
        .Submit(task);
    while (!sent) std::this_thread::yield();
    return 0;
  };
  EXPECT_EQ(send(), 0);
  EXPECT_EQ(ExitOfFork(send), 0);
}
#endif

}  // namespace
}  // namespace tfsched
