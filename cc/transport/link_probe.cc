// The measurement and its answers; see link_probe.h.
#include "cc/transport/link_probe.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <optional>
#include <string>

#include "cc/core/mutex.h"
#include "cc/core/per_process.h"
#include "cc/core/thread_annotations.h"
#include "cc/transport/fetch.h"
#include "cc/transport/servers.h"
#include "tensorflow/core/common_runtime/device_mgr.h"
#include "tensorflow/core/distributed_runtime/session_mgr.h"
#include "tensorflow/core/platform/logging.h"
#include "tensorflow/core/util/device_name_utils.h"

namespace tfsched {
namespace {

using tensorflow::DeviceAttributes;
using tensorflow::Rendezvous;
using tensorflow::Tensor;

// No edge of a graph has blanks in its name.
constexpr char kProbe[] = "tfsched probe ";
constexpr int64_t kFewBytes = 1 << 18, kManyBytes = 1 << 22;
// Two at once: one is received while the other is sent, as in a training.
constexpr int kMany = 2;
// On slower links pieces are as small as they get, and the larger answers would take long.
constexpr int64_t kFastBps = 500'000'000;
constexpr int64_t kLimitUs = 1'000'000;
// What took longer is not asked again: what disturbs is small beside it.
constexpr int64_t kLongUs = 50'000;

int64_t NowUs() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Asks one task, one answer after the other.
class Probe {
 public:
  Probe(tensorflow::WorkerEnv* env, tensorflow::Device* device, const DeviceAttributes& other, int64_t deadline_us)
      : env_(env), device_(device), other_(other), deadline_us_(deadline_us) {}

  // 0 if it does not answer.
  int64_t Bps() const {
    std::string task, unused;
    if (!tensorflow::DeviceNameUtils::SplitDeviceName(other_.name(), &task, &unused)) return 0;
    const int64_t few = BestOfTwo(task, 1, kFewBytes);
    if (few < kFastBps) return few;
    // A link that is limited by a token bucket lets some hundred kB pass at once, so only the larger answers count now. One
    // that has no time for them is a slow link.
    const int64_t many = BestOfTwo(task, kMany, kManyBytes);
    return many == 0 && NowUs() >= deadline_us_ ? kManyBytes * 8'000'000 / kLimitUs : many;
  }

 private:
  int64_t BestOfTwo(const std::string& task, int count, int64_t bytes) const {
    const int64_t begin_us = NowUs(), first = AtOnce(task, count, bytes);
    return first == 0 || NowUs() - begin_us > kLongUs ? first : std::max(first, AtOnce(task, count, bytes));
  }

  // So many answers at the same time; 0 if one of them does not come.
  int64_t AtOnce(const std::string& task, int count, int64_t bytes) const {
    const int64_t begin_us = NowUs();
    if (begin_us >= deadline_us_) return 0;
    std::vector<std::future<bool>> answers;
    for (int number = 0; number < count; ++number) answers.push_back(Ask(task, bytes, number));
    for (std::future<bool>& answer : answers) {
      const std::chrono::microseconds left(std::max<int64_t>(deadline_us_ - NowUs(), 0));
      if (answer.wait_for(left) != std::future_status::ready || !answer.get()) return 0;
    }
    return count * bytes * 8'000'000 / std::max<int64_t>(NowUs() - begin_us, 1);
  }

  std::future<bool> Ask(const std::string& task, int64_t bytes, int number) const {
    const auto answer = std::make_shared<std::promise<bool>>();
    FetchRequest request;
    request.session = env_->session_mgr->LegacySession();
    request.task = task;
    const std::string name = kProbe + std::to_string(bytes) + " " + std::to_string(number);
    request.key =
        Rendezvous::CreateKey(other_.name(), other_.incarnation(), device_->name(), name, tensorflow::FrameAndIter(0, 0));
    request.device = device_;
    Fetch(request, [answer, bytes](const absl::Status& status, const Tensor& value) {
      answer->set_value(status.ok() && static_cast<int64_t>(value.TotalBytes()) == bytes);
    });
    return answer->get_future();
  }

  tensorflow::WorkerEnv* const env_;
  tensorflow::Device* const device_;
  const DeviceAttributes& other_;
  const int64_t deadline_us_;
};

int64_t Measure(const DeviceAttributes& own, const std::vector<DeviceAttributes>& others) {
  tensorflow::Device* device = nullptr;
  tensorflow::WorkerEnv* env = ServerOf(own, &device);
  if (env == nullptr) return 0;
  const int64_t deadline_us = NowUs() + kLimitUs;
  int64_t slowest = 0;
  for (const DeviceAttributes& other : others) {
    const int64_t bps = Probe(env, device, other, deadline_us).Bps();
    VLOG(1) << "tfsched: " << other.name() << " sends " << bps << " bit/s";
    // Where many servers take longer than the limit, those that have answered stand for all.
    if (bps == 0) return NowUs() < deadline_us ? 0 : slowest;
    slowest = slowest == 0 ? bps : std::min(slowest, bps);
  }
  return slowest;
}

}  // namespace

int64_t LinkBps(const DeviceAttributes& own, const std::vector<DeviceAttributes>& others) {
  struct Measured {
    Mutex mu;
    std::optional<int64_t> bps TFSCHED_GUARDED_BY(mu);
  };
  static PerProcess<Measured> process;
  Measured& measured = process.Get();
  const MutexLock lock(&measured.mu);  // others wait for the result, no longer than it may take
  if (!measured.bps) {
    if (others.empty()) return 0;
    measured.bps = Measure(own, others);
  }
  return *measured.bps;
}

bool AnswerProbe(const Rendezvous::ParsedKey& key, const Rendezvous::DoneCallback& done) {
  const std::string edge(key.edge_name);
  if (edge.rfind(kProbe, 0) != 0) return false;
  const int64_t asked = std::strtoll(edge.c_str() + sizeof(kProbe) - 1, nullptr, 10);
  Tensor value(tensorflow::DT_UINT8, tensorflow::TensorShape({std::clamp<int64_t>(asked, 1, kManyBytes)}));
  std::memset(value.data(), 0, value.TotalBytes());
  done(absl::OkStatus(), Rendezvous::Args(), Rendezvous::Args(), value, /*is_dead=*/false);
  return true;
}

}  // namespace tfsched
