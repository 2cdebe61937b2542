// An object that each process has for itself, also one that was forked from a process that has one already.
#ifndef TFSCHED_CC_CORE_PER_PROCESS_H_
#define TFSCHED_CC_CORE_PER_PROCESS_H_

#include <atomic>

namespace tfsched {

// How many forks of processes with this library lead to this process.
int Forks();

// Made at its first use in a process, and never destroyed. A child that is forked later has the parent's memory, but none of
// its threads: what waits for a thread there would wait for ever, and what drew a random seed would share it with all other
// children. So the child makes one of its own. Launchers that import a program once and fork its tasks (multiprocessing's
// "fork" and "forkserver") meet this.
//
// A static PerProcess is initialized before any code runs. There is no lock, for a thread of the parent might hold it at the
// fork; where two threads come first, one of two new objects is destroyed again.
template <typename T>
class PerProcess {
 public:
  constexpr PerProcess() = default;
  PerProcess(const PerProcess&) = delete;
  PerProcess& operator=(const PerProcess&) = delete;

  // `make` returns a new T.
  template <typename Make>
  T& Get(Make make) {
    const int forks = Forks();
    Entry* found = entry_.load(std::memory_order_acquire);
    while (found == nullptr || found->forks != forks) {
      auto* const made = new Entry{forks, make()};
      if (entry_.compare_exchange_strong(found, made, std::memory_order_acq_rel)) return *made->object;
      delete made->object;
      delete made;
    }
    return *found->object;
  }

  T& Get() {
    return Get([] { return new T; });
  }

 private:
  struct Entry {
    int forks;
    T* object;
  };

  std::atomic<Entry*> entry_{nullptr};  // the parent's stays: its threads may have been about to change it
};

}  // namespace tfsched

#endif  // TFSCHED_CC_CORE_PER_PROCESS_H_
