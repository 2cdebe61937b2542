// fifo: arrival order, nothing held back. What stock TensorFlow does, with the same bookkeeping as the other policies.
#include <algorithm>
#include <deque>

#include "cc/core/policy.h"

namespace tfsched {
namespace {

class FifoPolicy : public Policy {
 public:
  void Add(const CommTask& task, int64_t now_us) override { queue_.push_back(task.id); }

  uint64_t Next(int64_t now_us) override {
    if (queue_.empty()) return 0;
    const uint64_t id = queue_.front();
    queue_.pop_front();
    return id;
  }

  void Finished(const CommTask& task, int64_t now_us) override {}

  void Remove(const CommTask& task, int64_t now_us) override {
    queue_.erase(std::remove(queue_.begin(), queue_.end(), task.id), queue_.end());
  }

  void Adopt(const CommTask& task, int64_t now_us) override {}
  void SetCreditBytes(int64_t credit_bytes) override {}
  bool Complete() const override { return queue_.empty(); }

 private:
  std::deque<uint64_t> queue_;
};

PolicyRegistrar fifo_registrar("fifo", PolicySpan::kAllSteps,
                               [](const PolicyOptions& options) { return std::make_unique<FifoPolicy>(); });

}  // namespace
}  // namespace tfsched
