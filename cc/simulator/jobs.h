// Several trainings on one network.
#ifndef TFSCHED_CC_SIMULATOR_JOBS_H_
#define TFSCHED_CC_SIMULATOR_JOBS_H_

#include <vector>

#include "cc/simulator/model.h"

namespace tfsched::simulator {

// Runs jobs at the same time, each with its own steps, schedulers and connections; where tasks of several jobs live on one
// host they share its link. Hosts have the same numbers and bandwidths in all models. The models have been checked.
// Deterministic. False if something waits for what never comes, which no model should lead to.
bool RunJobs(const std::vector<Model>& jobs, std::vector<Result>* results);

}  // namespace tfsched::simulator

#endif  // TFSCHED_CC_SIMULATOR_JOBS_H_
