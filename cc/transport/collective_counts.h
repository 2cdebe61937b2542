// What is counted of collectives, by those who do it.
#ifndef TFSCHED_CC_TRANSPORT_COLLECTIVE_COUNTS_H_
#define TFSCHED_CC_TRANSPORT_COLLECTIVE_COUNTS_H_

#include <string>

#include "tensorflow/core/platform/status.h"

namespace tfsched {

void CountAgreement(bool agreed);
void CountAllReduce(bool ok);

// What an all-reduce fails with whose messages do not come from `task`: with the same code, and the reason.
absl::Status FailedWith(const std::string& task, const absl::Status& reason);

}  // namespace tfsched

#endif  // TFSCHED_CC_TRANSPORT_COLLECTIVE_COUNTS_H_
