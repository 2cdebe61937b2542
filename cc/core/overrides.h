// What a running scheduler may be told, against what the tags say.
#ifndef TFSCHED_CC_CORE_OVERRIDES_H_
#define TFSCHED_CC_CORE_OVERRIDES_H_

#include <cstdint>
#include <optional>
#include <string>

namespace tfsched {

// As a policy's name and as a credit: what the tag of each transfer says.
constexpr char kGraphPolicy[] = "graph";
constexpr int64_t kGraphCredit = -1;

// In force for every ordered transfer of the process.
struct Overrides {
  std::string policy = kGraphPolicy;
  int64_t credit_bytes = kGraphCredit;
  int64_t rate_bps = 0;  // what a sender hands over to one receiver, in bits per second; 0: no cap
};

// Which of them to change.
struct OverridesChange {
  std::optional<std::string> policy;
  std::optional<int64_t> credit_bytes;
  std::optional<int64_t> rate_bps;
};

}  // namespace tfsched

#endif  // TFSCHED_CC_CORE_OVERRIDES_H_
