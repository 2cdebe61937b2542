// Counts forks: a child is one more than its parent.
#include "cc/core/per_process.h"

#include <pthread.h>

namespace tfsched {
namespace {

std::atomic<int> forks{0};

// In the child only its one thread runs, which is the one that has forked.
const int registered = pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });

}  // namespace

int Forks() {
  (void)registered;
  return forks.load(std::memory_order_relaxed);
}

}  // namespace tfsched
