// What carries messages from host to host.
#ifndef TFSCHED_CC_SIMULATOR_LINKS_H_
#define TFSCHED_CC_SIMULATOR_LINKS_H_

#include <cstdint>
#include <limits>
#include <vector>

namespace tfsched::simulator {

constexpr double kNeverUs = std::numeric_limits<double>::infinity();

// Flows between hosts, known by number, with one message at a time. Times must not go back. Not thread safe.
class Links {
 public:
  virtual ~Links() = default;

  virtual void Start(int32_t flow, double bytes, double now_us) = 0;

  // When the next flow ends.
  virtual double NextUs() const = 0;

  // Appends the flows that have ended by `now_us`, which must not be after NextUs().
  virtual void Collect(double now_us, std::vector<int32_t>* ended) = 0;
};

}  // namespace tfsched::simulator

#endif  // TFSCHED_CC_SIMULATOR_LINKS_H_
