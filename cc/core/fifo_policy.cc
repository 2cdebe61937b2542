// fifo: arrival order, nothing held back. What stock TensorFlow does, with the same bookkeeping as the other policies.
#include <deque>

#include "cc/core/policy.h"

namespace tfsched {
namespace {

class FifoPolicy : public Policy {
 public:
  explicit FifoPolicy(const PolicyOptions& options) : count_(options.count) {}

  void Add(const CommTask& task, int64_t now_us) override { queue_.push_back(task.id); }

  uint64_t Next(int64_t now_us) override {
    if (queue_.empty()) return 0;
    uint64_t id = queue_.front();
    queue_.pop_front();
    ++handed_;
    return id;
  }

  void Finished(const CommTask& task, int64_t now_us) override {}

  bool Complete() const override { return handed_ >= count_ && queue_.empty(); }

 private:
  const int count_;
  int handed_ = 0;
  std::deque<uint64_t> queue_;
};

PolicyRegistrar registrar("fifo", [](const PolicyOptions& options) { return std::make_unique<FifoPolicy>(options); });

}  // namespace
}  // namespace tfsched
